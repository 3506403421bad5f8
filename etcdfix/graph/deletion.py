"""Forecasts an ordinary deletion through the API: what becomes of the object, and what waits for whom.

What the garbage collector does is played by :mod:`etcdfix.graph.collector`; here it is said what holds that up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from etcdfix.graph.collector import CRD_FINALIZER, decide
from etcdfix.graph.deletion_model import DeletionForecast, DeletionResult, HeldBy, Wait
from etcdfix.graph.grades import finalizer_owner
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.kinds import crd_path
from etcdfix.graph.model import Action, Collection, Decision, Propagation
from etcdfix.graph.namespaces import contents_of, namespace_state, node_state
from etcdfix.graph.owners import OF_THE_COLLECTOR
from etcdfix.graph.tables import FINISHED, FOREGROUND, OPAQUE, ORPHANS, TERMINATING
from etcdfix.graph.uses import Role
from etcdfix.graph.webhooks import webhook_holds
from etcdfix.storagekey import CRD_PATH
from etcdfix.text.words import counted

_MOST_NAMED: Final = 100
_FEW: Final = 3
_CLAIM_PROTECTION: Final = "kubernetes.io/pvc-protection"
_VOLUME_PROTECTION: Final = "kubernetes.io/pv-protection"
_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_ORPHANS_BY_DEFAULT: Final = frozenset({("batch", "jobs"), ("", "replicationcontrollers")})
# As the collector acts that knows every object; where a type cannot be listed, it may not.
_PERMANENT: Final = frozenset({HeldBy.OWNER_INVALID, HeldBy.RING})
_OF_THE_POLICY: Final = {Propagation.FOREGROUND: "foregroundDeletion", Propagation.ORPHAN: "orphan"}

# What is waited for with a finalizer whose name does not say it.
_WAITS_FOR: Final = {
    "kubernetes.io/pv-controller": "the storage behind it is deleted first",
    "external-provisioner.volume.kubernetes.io/finalizer": "the storage behind it is deleted first",
    "service.kubernetes.io/load-balancer-cleanup": "the load balancer is removed first",
    "batch.kubernetes.io/job-tracking": "its Job counts it first",
    "resource.kubernetes.io/delete-protection": "its devices are given back first",
}
_KUBELETS: Final = {
    "ready": "their kubelets end them within the grace period",
    "not-ready": "their Nodes are not ready: nothing ends them before a kubelet is back, or somebody forces it",
    "absent": "their Nodes do not exist: the pod garbage collector forces them away, about 45 s later if it runs",
    "unknown": "whether their kubelets run is not known",
}


def usual_policy(index: ImpactIndex, node: int) -> Propagation:
    """Return how an object is being deleted already, else how kubectl deletes where nobody asks for a policy."""
    flags = index.flags(node)
    if flags & TERMINATING and flags & ORPHANS:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if flags & TERMINATING and flags & FOREGROUND else Propagation.BACKGROUND


def refusal(index: ImpactIndex, node: int) -> str:
    """Say why the API server refuses to delete an object that it can read; "" where it does not."""
    ref = index.ref(node)
    if (ref.group, ref.resource) == _NAMESPACES and ref.name in _IMMORTAL:
        return f"API servers refuse to delete namespace {ref.name} (admission plugin NamespaceLifecycle)"
    return ""


def not_forecast(
    index: ImpactIndex, node: int, policy: Propagation, why: str, *, possible: bool | None, by_default: bool
) -> DeletionForecast:
    """Return the forecast for what the API does not delete, or where nobody knows.

    Args:
        index: Of the cluster.
        node: Of the object.
        policy: Of the deletion.
        why: A sentence.
        possible: None where it is not known.
        by_default: Nobody asked for the policy.
    """
    return DeletionForecast(
        policy=policy,
        by_default=by_default,
        possible=possible,
        result=DeletionResult.REFUSED if possible is False else DeletionResult.NOT_TOLD,
        terminating_since=index.terminating_since(node) or None,
        text=why,
        waits=(),
        notes=(),
    )


def forecast(
    index: ImpactIndex, node: int, collection: Collection, policy: Propagation, *, by_default: bool
) -> DeletionForecast:
    """Say what a deletion through the API does."""
    waits = _Waits(index, node, collection, policy).found()
    if any(wait.holds_object for wait in waits) or collection.stays:
        result = DeletionResult.TERMINATING
    elif _unsure(index, node, collection, policy):
        result = DeletionResult.NOT_TOLD
    else:
        result = DeletionResult.GONE
    return DeletionForecast(
        policy=policy,
        by_default=by_default,
        possible=True,
        result=result,
        terminating_since=index.terminating_since(node) or None,
        text=_text(index, node, collection, policy, result),
        waits=waits,
        notes=tuple(_notes(index, node, collection, policy, result)),
    )


# -------------------------------------------------------------------------------------------------------- sentences


def _unsure(index: ImpactIndex, node: int, collection: Collection, policy: Propagation) -> str:
    """Return why nobody can tell whether an object goes that nothing is known to hold; "" where that is told."""
    if collection.uncertain:
        return collection.uncertain
    if index.flags(node) & OPAQUE:
        return "it cannot be looked into, so whether it has finalizers is not known"
    if policy is not Propagation.BACKGROUND and index.problems:
        return "not everything was read: whether a dependent holds it up is not known"
    if policy is Propagation.FOREGROUND and index.opaque:
        return f"{counted(index.opaque, 'object')} cannot be looked into: whether one blocks it is not known"
    return ""


def _text(
    index: ImpactIndex, node: int, collection: Collection, policy: Propagation, result: DeletionResult
) -> str:
    if result is DeletionResult.NOT_TOLD:
        return _unsure(index, node, collection, policy)
    after = ""
    if policy is Propagation.FOREGROUND:
        uid = index.uid(node)
        count = sum(
            any(o.uid == uid and o.blocks for o in index.owners(dependent))
            for dependent in index.dependents(node)
        )
        after = f"after the dependents that block its deletion ({count})" if count else ""
    if index.place(node)[0].path == CRD_PATH and (count := index.count_below(crd_path(index.place(node)[2]))):
        after = f"after its {counted(count, 'custom resource')}"
    if policy is Propagation.ORPHAN:
        count = collection.counts[Action.ORPHANED] + collection.counts[Action.REFERENCE_STRIPPED]
        after = f"after its reference was taken off {counted(count, 'dependent')}" if count else ""
    if result is DeletionResult.TERMINATING:
        return "it becomes Terminating until what holds it has ended" + (
            f"; it is gone {after}" if after else ""
        )
    return f"it is gone {after}" if after else "it is gone at once"


def _notes(
    index: ImpactIndex, node: int, collection: Collection, policy: Propagation, result: DeletionResult
) -> Iterator[str]:
    ref = index.ref(node)
    place = (ref.group, ref.resource)
    if result is not DeletionResult.NOT_TOLD and (unsure := _unsure(index, node, collection, policy)):
        yield unsure
    if index.crd_unreadable(index.place(node)[0]):
        yield "its CustomResourceDefinition cannot be read: only API servers that ran before still serve and delete it"
    if index.flags(node) & TERMINATING:
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
    strays = index.strays(index.uid(node)) if index.uid(node) else []
    invalid = [d for d in strays if any(o.wrong_scope and o.uid == index.uid(node) for o in index.owners(d))]
    if invalid:
        yield (f"{_named(index, invalid)} cannot have a namespaced owner and {_is(invalid)} never collected")
    namespace = ref.namespace
    elsewhere = [d for d in strays if namespace and index.place(d)[1] not in {"", namespace}]
    if elsewhere:
        yield (
            f"{_named(index, elsewhere)} {_is(elsewhere)} in another namespace: the collector does not find the owner "
            "there, and deletes what has no other, whether or not this one is deleted"
        )


# ------------------------------------------------------------------------------------------------------------ waits


class _Waits:
    """Gathers what holds objects up, by what that is."""

    def __init__(self, index: ImpactIndex, node: int, collection: Collection, policy: Propagation) -> None:
        self._index = index
        self._node = node
        self._collection = collection
        self._policy = policy
        self._held: dict[tuple[HeldBy, str, bool], list[int]] = {}

    def found(self) -> tuple[Wait, ...]:
        """Return them, what the object itself waits for first."""
        self._object()
        left = dict.fromkeys(self._collection.blocking)
        for decision in self._collection.tree:
            dependent = self._index.find(decision.object.raw_key)
            if dependent is not None:
                holds = dependent in left or self._is_instance(dependent)
                self._dependent(dependent, decision, holds=holds)
                left.pop(dependent, None)
        for dependent in left:
            decision = decide(self._index, dependent, absent=(self._node,))
            self._dependent(dependent, decision, holds=True)
        waits = [self._wait(*what, nodes) for what, nodes in self._held.items()]
        return tuple(sorted(waits, key=lambda w: (not w.holds_object, not w.permanent, w.held_by, w.name)))

    def _object(self) -> None:
        index, node, collection = self._index, self._node, self._collection
        directory, _, name = index.place(node)
        self._ends(node, holds=True)
        if (directory.group, directory.resource) == _NAMESPACES:
            self._add(node, HeldBy.CONTENTS, holds=True)
        if directory.path == CRD_PATH and crd_path(name) in collection.unlistable:
            self._add(node, HeldBy.UNREADABLE_OBJECTS, holds=True)
        if self._policy is not Propagation.BACKGROUND and directory.path in collection.unlistable:
            self._add(node, HeldBy.NOT_NOTICED, holds=True)
        if collection.ring:
            self._add(node, HeldBy.RING, holds=True)

    def _is_instance(self, node: int) -> bool:
        """Tell whether an object is of the CustomResourceDefinition that is deleted, which goes after its objects."""
        directory, _, name = self._index.place(self._node)
        return directory.path == CRD_PATH and self._index.place(node)[0].path == crd_path(name)

    def _dependent(self, node: int, decision: Decision, *, holds: bool) -> None:
        if decision.action is Action.CASCADE_DELETED:
            self._ends(node, holds=holds)
        elif holds:
            frozen = decision.action is Action.FROZEN
            self._add(node, HeldBy.OWNER_UNKNOWN if frozen else HeldBy.OWNER_INVALID, holds=True)

    def _ends(self, node: int, *, holds: bool) -> None:
        """Take in what an object waits for by itself."""
        index = self._index
        crd = index.place(node)[0].path == CRD_PATH
        for name in index.finalizers(node):
            if name not in OF_THE_COLLECTOR and not (crd and name == CRD_FINALIZER):
                self._add(node, HeldBy.FINALIZER, name, holds=holds)
        runs_on = index.node_of(node)
        if runs_on is not None and not index.flags(node) & FINISHED:
            self._add(node, HeldBy.KUBELET, node_state(index, runs_on), holds=holds)

    def _add(self, node: int, held_by: HeldBy, name: str = "", *, holds: bool) -> None:
        self._held.setdefault((held_by, name, holds), []).append(node)

    def _wait(self, held_by: HeldBy, name: str, holds: bool, nodes: list[int]) -> Wait:
        index = self._index
        since = [told for node in nodes if (told := index.terminating_since(node))]
        ended_by, text = self._explained(held_by, name, nodes)
        return Wait(
            held_by=held_by,
            name=name if held_by is HeldBy.FINALIZER else "",
            ended_by=ended_by,
            text=text,
            holds_object=holds,
            permanent=held_by in _PERMANENT and not self._collection.unlistable,
            since=min(since, default=None),
            count=len(nodes),
            objects=tuple(map(index.ref, nodes[:_MOST_NAMED])),
        )

    def _explained(self, held_by: HeldBy, name: str, nodes: list[int]) -> tuple[str, str]:
        """Return who ends it, and what that waits for."""
        index, unlistable = self._index, self._collection.unlistable
        match held_by:
            case HeldBy.FINALIZER:
                return finalizer_owner(name), self._finalizer(name, nodes)
            case HeldBy.KUBELET:
                return ("pod garbage collector" if name == "absent" else "kubelet"), _KUBELETS[name]
            case HeldBy.CONTENTS:
                return "namespace controller", self._contents(index.place(self._node)[2])
            case HeldBy.UNREADABLE_OBJECTS:
                broken = unlistable[crd_path(index.place(self._node)[2])]
                return (
                    "",
                    f"{counted(broken, 'object')} of it cannot be read, and none is deleted before that is settled",
                )
            case HeldBy.NOT_NOTICED:
                path = index.place(self._node)[0].path
                return "garbage collector", (
                    f"it does not notice the deletion before all {path} can be listed: "
                    f"{counted(unlistable[path], 'object')} cannot be read"
                )
            case HeldBy.OWNER_UNKNOWN:
                return (
                    "",
                    "the collector cannot look up another of their owners, and leaves them alone as long",
                )
            case HeldBy.OWNER_INVALID:
                return "", "never collected: cluster-scoped, with a namespaced owner; take the reference off"
            case HeldBy.RING:
                return "", "a ring of owner references that block one another; take one off"

    def _contents(self, namespace: str) -> str:
        """Say what the end of a namespace waits for."""
        text = f"it deletes the {counted(self._index.count_in(namespace), 'object')} in it first"
        state = namespace_state(self._index, namespace)
        held = sum(s.blocker_count for s in state.stages) + state.elsewhere_count if state is not None else 0
        if held:
            text += (
                f", which {counted(held, 'object')} of it or of other namespaces hold{'s' * (held == 1)} up"
            )
        webhooks = len(webhook_holds(self._index, namespace, contents_of(self._index, namespace), ()))
        if webhooks:
            text += (
                f", and {counted(webhooks, 'webhook')} that nobody answers hold{'s' * (webhooks == 1)} it up"
            )
        return f"{text}: see etcdfix namespace NAME"

    def _finalizer(self, name: str, nodes: Iterable[int]) -> str:
        if name == _CLAIM_PROTECTION:
            return self._used(nodes, {Role.CLAIM, Role.EPHEMERAL_CLAIM}, "until no unfinished pod uses it")
        if name == _VOLUME_PROTECTION:
            return self._used(nodes, {Role.BOUND_VOLUME}, "until no claim is bound to it")
        if name in _WAITS_FOR:
            return _WAITS_FOR[name]
        if finalizer_owner(name):
            return "until it has done its work"
        return "whoever set it takes it off; where that controller is gone, nobody does"

    def _used(self, nodes: Iterable[int], roles: set[Role], until: str) -> str:
        index = self._index
        users = {
            edge.source: None
            for node in nodes
            for edge in index.users(node)
            if edge.use.role in roles
            and index.exists(edge.source)
            and not index.flags(edge.source) & FINISHED
        }
        if not users:
            return f"{until}: none that can be read is left"
        return f"{until}: {_named(index, list(users))}"


def _named(index: ImpactIndex, nodes: list[int]) -> str:
    names = ", ".join(str(index.ref(node)) for node in nodes[:_FEW])
    return f"{names} and {len(nodes) - _FEW} more" if len(nodes) > _FEW else names


def _is(nodes: list[int]) -> str:
    return "is" if len(nodes) == 1 else "are"
