"""Forecasts an ordinary deletion through the API: what becomes of the object, and what waits for whom.

What the garbage collector does is played by :mod:`etcdfix.graph.collector`; here it is said what holds that up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from etcdfix.graph.index import FOREGROUND, OPAQUE, ORPHANS, TERMINATING, ImpactIndex
from etcdfix.graph.kinds import crd_path
from etcdfix.graph.model import Action, Collection, DeletionForecast, DeletionResult, Propagation
from etcdfix.model.storagekey import CRD_PATH
from etcdfix.text.words import counted

_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_ORPHANS_BY_DEFAULT: Final = frozenset({("batch", "jobs"), ("", "replicationcontrollers")})
_OF_THE_POLICY: Final = {Propagation.FOREGROUND: "foregroundDeletion", Propagation.ORPHAN: "orphan"}


def usual_policy(index: ImpactIndex, node: int) -> Propagation:
    """Return how an object is being deleted already, else how kubectl deletes where nobody asks for a policy."""
    flags = index.flags[node]
    if flags & TERMINATING and flags & ORPHANS:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if flags & TERMINATING and flags & FOREGROUND else Propagation.BACKGROUND


def refusal(index: ImpactIndex, node: int) -> str:
    """Say why the API server refuses to delete an object that it can read; "" where it does not."""
    ref = index.ref(node)
    if (ref.group, ref.resource) == _NAMESPACES and ref.name in _IMMORTAL:
        return f"API servers refuse to delete namespace {ref.name} (admission plugin NamespaceLifecycle)"
    return ""


def forecast(
    index: ImpactIndex,
    node: int,
    collection: Collection,
    policy: Propagation,
    *,
    by_default: bool,
    why: str = "",
    possible: bool | None = True,
) -> DeletionForecast:
    """Say what a deletion through the API does, or why it does nothing, or why nobody knows that it is ``possible``."""
    stays = collection.stays
    ref = index.ref(node)
    if (ref.group, ref.resource) == _NAMESPACES and not stays:
        inside = counted(index.count_in(ref.name), "object")
        stays = (
            f"the namespace controller, which deletes the {inside} in it first: see etcdfix namespace NAME"
        )
    unsure = _unsure(index, node, collection, policy)
    notes: tuple[str, ...] = ()
    if why:
        result, text = DeletionResult.REFUSED if possible is False else DeletionResult.NOT_TOLD, why
    elif stays:
        result, text = DeletionResult.TERMINATING, f"it becomes Terminating, and waits for {stays}"
    elif unsure:
        result, text = DeletionResult.NOT_TOLD, unsure
    else:
        after = _after(index, node, collection, policy)
        result, text = DeletionResult.GONE, f"it is gone {after}" if after else "it is gone at once"
    if not why:
        notes = tuple(_notes(index, node, collection, policy, unsure if stays else ""))
    since = index.terminating_since(node) or None
    return DeletionForecast(
        policy=policy,
        by_default=by_default,
        possible=possible,
        result=result,
        terminating_since=since,
        text=text,
        notes=notes,
    )


def _unsure(index: ImpactIndex, node: int, collection: Collection, policy: Propagation) -> str:
    """Return why nobody can tell whether an object goes that nothing is known to hold; "" where that is told."""
    if collection.uncertain:
        return collection.uncertain
    if index.flags[node] & OPAQUE:
        return "it cannot be looked into, so whether it has finalizers is not known"
    if policy is not Propagation.BACKGROUND and index.problems:
        return "not everything was read: whether a dependent holds it up is not known"
    if policy is Propagation.FOREGROUND and index.opaque:
        return f"{counted(index.opaque, 'object')} cannot be looked into: whether one blocks it is not known"
    return ""


def _after(index: ImpactIndex, node: int, collection: Collection, policy: Propagation) -> str:
    if index.place(node)[0].path == CRD_PATH and (count := index.count_below(crd_path(index.place(node)[2]))):
        return f"after its {counted(count, 'custom resource')}"
    if policy is Propagation.FOREGROUND:
        uid, dependents = index.uid(node), index.dependents(node)
        count = sum(
            any(o.uid == uid and o.blocks for o in index.owners(dependent)) for dependent in dependents
        )
        return f"after the dependents that block its deletion ({count})" if count else ""
    if policy is Propagation.ORPHAN:
        count = collection.counts[Action.ORPHANED] + collection.counts[Action.REFERENCE_STRIPPED]
        return f"after its reference was taken off {counted(count, 'dependent')}" if count else ""
    return ""


def _notes(
    index: ImpactIndex, node: int, collection: Collection, policy: Propagation, unsure: str
) -> Iterator[str]:
    ref = index.ref(node)
    place = (ref.group, ref.resource)
    if unsure:
        yield unsure
    if index.crd_unreadable(index.place(node)[0]):
        yield "its CustomResourceDefinition cannot be read: only API servers that ran before still serve and delete it"
    if index.flags[node] & TERMINATING:
        grace = place == _PODS and index.node_of(node) is not None
        yield (
            "it is being deleted already: within its grace period the policy of another deletion does not count"
            if grace
            else "it is being deleted already: another deletion replaces the collector's finalizers by its own"
        )
    if policy in _OF_THE_POLICY:
        yield (
            f"it gets the finalizer {_OF_THE_POLICY[policy]}, which the garbage collector takes off: it stays "
            "Terminating while no kube-controller-manager runs"
        )
    if place in _ORPHANS_BY_DEFAULT and policy is not Propagation.ORPHAN:
        yield f"kubectl sends {policy}; a client that asks for no policy gets Orphan for this kind"
    if collection.unseen and policy is Propagation.BACKGROUND:
        yield (
            f"if one of {collection.unseen} that cannot be read depends on it, that one stays, and is deleted once all "
            "objects of its type can be listed"
        )
