"""What a deletion through the API does to an object, and what a deletion in the foreground waits for.

What the garbage collector does is played by :mod:`etcdfix.graph.collector`; here it is said what holds that up. The
collector keeps an object that has the finalizer ``foregroundDeletion`` as long as a dependent states its uid with
``blockOwnerDeletion: true``. It goes by the uid alone: a dependent that it cannot act upon blocks too. A dependent that
owns something which is being deleted in the foreground already is made not to block, so that a ring does not wait for
itself; this happens when the dependent is told to go, so it does not help where that is past.

Source: Kubernetes ``pkg/controller/garbagecollector`` (``blockingDependents``, ``processDeletingDependentsItem``,
``attemptToDeleteItem``, ``addDependentToOwners``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final

from etcdfix.graph.index import FOREGROUND, OPAQUE, ORPHANS, TERMINATING, ImpactIndex
from etcdfix.graph.model import Action, Collection, DeletionForecast, DeletionResult, Propagation
from etcdfix.graph.owners import EVENTS, Fate, waits_for
from etcdfix.text.words import counted

_NAMESPACES: Final = ("", "namespaces")
IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
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
    if (ref.group, ref.resource) == _NAMESPACES and ref.name in IMMORTAL:
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
        inside = counted(len(index.inside(ref.name)), "object")
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
        after = (
            "at once" if policy is Propagation.BACKGROUND else "after the collector's work on its dependents"
        )
        result, text = DeletionResult.GONE, f"it is gone {after}"
    if not why:
        notes = tuple(_notes(index, node, collection, policy, unsure if stays else ""))
    return DeletionForecast(
        policy=policy,
        by_default=by_default,
        possible=possible,
        result=result,
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


def _notes(
    index: ImpactIndex, node: int, collection: Collection, policy: Propagation, unsure: str
) -> Iterator[str]:
    if unsure:
        yield unsure
    if index.crd_unreadable(index.place(node)[0]):
        yield "its CustomResourceDefinition cannot be read: only API servers that ran before still serve and delete it"
    if index.flags[node] & TERMINATING:
        yield "it is being deleted already: another deletion replaces the collector's finalizers by its own"
    if policy in _OF_THE_POLICY:
        yield (
            f"it gets the finalizer {_OF_THE_POLICY[policy]}, which the garbage collector takes off: it stays "
            "Terminating while no kube-controller-manager runs"
        )
    if collection.unseen and policy is Propagation.BACKGROUND:
        yield (
            f"if one of {collection.unseen} that cannot be read depends on it, that one stays, and is deleted once all "
            "objects of its type can be listed"
        )


def wait_in_the_foreground(
    index: ImpactIndex, going: Mapping[int, Fate], removed: Container[int], fate_of: Callable[[int], Fate]
) -> None:
    """Note what each object waits for that is deleted in the foreground and stays.

    Args:
        index: Of the cluster.
        going: What is deleted, by node.
        removed: What a person deletes.
        fate_of: Returns what becomes of an object that is not deleted.
    """
    # Dependents that stay although nobody deletes them, each with the reason.
    left: dict[int, str] = {}

    def told(node: int) -> bool:
        return node in removed or bool(index.flags[node] & TERMINATING)

    def goes_in_the_foreground(node: int) -> bool:
        """Tell whether an object has the finalizer before anything is made of its dependents."""
        if node in removed:
            return going[node].propagation is Propagation.FOREGROUND
        return told(node) and bool(index.flags[node] & FOREGROUND)

    def blocks(dependent: int) -> bool:
        """Tell whether a dependent that states the uid keeps its owner, as long as it is there."""
        fate = going.get(dependent)
        if fate is not None:
            let_off = (
                fate.propagation is Propagation.FOREGROUND
                and not told(dependent)
                and any(map(goes_in_the_foreground, index.dependents(dependent)))
            )
            return not fate.later and not let_off
        fate = fate_of(dependent)
        if fate.action is Action.FROZEN:
            left[dependent] = "which the collector leaves alone"
        elif fate.action is Action.NEVER_COLLECTED and index.place(dependent)[0].resource != EVENTS:
            left[dependent] = "which is never collected, as it names an owner that it cannot have"
        elif fate.stays:
            left[dependent] = f"which waits for {fate.stays}"
        elif told(dependent) and (waits := waits_for(index, dependent)):
            # The collector takes no reference off what is being deleted, whatever its other owners are.
            left[dependent] = f"which waits for {waits}"
        return dependent in left

    waiting = {
        node: [dependent for dependent in _blocking(index, node) if dependent == node or blocks(dependent)]
        for node, fate in going.items()
        if fate.propagation is Propagation.FOREGROUND and not fate.later
    }
    stay = {node for node, fate in going.items() if fate.stays or waiting.get(node)} | left.keys()
    waited_for: dict[int, list[int]] = {}
    for node, dependents in waiting.items():
        for dependent in dependents:
            waited_for.setdefault(dependent, []).append(node)
    unfinished = {node: len(dependents) for node, dependents in waiting.items()}
    gone = deque(going.keys() - stay)
    while gone:
        for node in waited_for.get(gone.popleft(), ()):
            unfinished[node] -= 1
            if not unfinished[node] and not going[node].stays:
                stay.discard(node)
                gone.append(node)

    def may_let_off(dependent: int, node: int) -> bool:
        """Tell whether a dependent may be looked at while another owner is still there: then it blocks no more."""
        others = {owner.node for owner in index.owners(dependent)} - {node}
        return not told(dependent) and any(owner in going and not told(owner) for owner in others)

    found = []
    for node in waiting.keys() & stay:
        if not going[node].stays:
            other = next(dependent for dependent in waiting[node] if dependent in stay)
            why = left.get(other) or (f"which waits for {going[other].stays}" if going[other].stays else "")
            why = why or "which waits in its turn for what it owns"
            itself = "itself: it is named as its own owner, and nobody takes that off"
            told_why = itself if node in waiting[node] else f"{index.ref(other)}, {why}"
            found.append((going[node], told_why, going[node].raced or may_let_off(other, node)))
    for fate, why, race in found:
        if race:
            fate.uncertain = fate.uncertain or f"a race of owners, in which it may wait for {why}"
        else:
            fate.stays = why


def _blocking(index: ImpactIndex, node: int) -> Iterator[int]:
    uid = index.uid(node)
    for dependent in (*index.dependents(node), *index.strays(uid)) if uid else ():
        if any(owner.uid == uid and owner.blocks for owner in index.owners(dependent)):
            yield dependent
