"""What the garbage collector does with one object: its owners as they are found, and what follows.

Source: Kubernetes ``pkg/controller/garbagecollector/garbagecollector.go`` (``classifyReferences``,
``attemptToDeleteItem``, ``attemptToOrphan``) and ``graph_builder.go``. How a removal spreads:
:mod:`etcdfix.graph.collector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.graph.identity import ObjectRef
from etcdfix.graph.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ImpactIndex, Owner
from etcdfix.graph.served import Served
from etcdfix.graph.tables import FINISHED, FOREGROUND, OPAQUE, ORPHANS, TERMINATING

_EVENTS: Final = "events"
OF_THE_COLLECTOR: Final = frozenset({ORPHAN_FINALIZER, FOREGROUND_FINALIZER})
"""Finalizers that the garbage collector itself works on."""


class OwnerState(StrEnum):
    """What the collector finds when it looks for an owner."""

    SOLID = "solid"
    WAITING = "waiting"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    INVALID = "invalid"


class Action(StrEnum):
    """What happens to a dependent."""

    CASCADE_DELETED = "cascade-deleted"
    KEPT = "kept"
    REFERENCE_STRIPPED = "reference-stripped"
    ORPHANED = "orphaned"
    FROZEN = "frozen"
    NEVER_COLLECTED = "never-collected"


class Propagation(StrEnum):
    """How the collector deletes a dependent."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class OwnerFinding(msgspec.Struct, frozen=True):
    """One owner reference, and what becomes of it.

    Attributes:
        owner: The object that it points at; None where its kind cannot own the dependent, or is not known and
            neither uid nor name tell the object.
        api_version: As the reference states it.
        kind: As the reference states it.
        name: As the reference states it.
        uid: As the reference states it.
        state: What the collector finds.
        reason: Why, in a clause; "" for a solid owner.
        removed: It is the removed object, or one that goes with it.
        stripped: The collector takes the reference off the dependent.
    """

    owner: ObjectRef | None
    api_version: str
    kind: str
    name: str
    uid: str
    state: OwnerState
    reason: str
    removed: bool
    stripped: bool


class Decision(msgspec.Struct, frozen=True):
    """What the garbage collector does to one dependent.

    Attributes:
        object: The dependent.
        action: What happens.
        propagation: How it is deleted; None unless it is.
        owners: Each of its owner references.
        after_finalizers: Finalizers that must be done before it is really gone; what it owns waits as long.
        already_terminating: It was being deleted before.
        uncertain: Why it may come later or not at all, "" for nothing: ``when_served``, a race, or that controller
            managers differ.
        when_served: It happens no sooner than an API serves a kind that none is known to serve: that of the object,
            of its owner or of an owner above. Says which; "" for at once.
        stays: It is deleted, but only becomes Terminating: what it waits for. "" for gone at once.
        later: It is kept for now, and deleted once an owner that only becomes Terminating is really gone: says which.
        ran_before: Why a controller manager that ran before objects became unreadable does not do it at once; "".
        started_after: Why one that was started since then does not; "".
        dependents: What happens to what it owns.
    """

    object: ObjectRef
    action: Action
    propagation: Propagation | None
    owners: tuple[OwnerFinding, ...]
    after_finalizers: tuple[str, ...] = ()
    already_terminating: bool = False
    uncertain: str = ""
    when_served: str = ""
    stays: str = ""
    later: str = ""
    ran_before: str = ""
    started_after: str = ""
    dependents: tuple[Decision, ...] = ()


class Collection(msgspec.Struct, frozen=True):
    """Everything that a removal sets off.

    Attributes:
        removed: The object that is removed.
        tree: Its dependents, each with its own below it. An object with several owners in the tree stands below
            the first; counts are right all the same.
        counts: Number of objects by action.
        deleted_by_resource: Number of cascade-deleted objects by ``resource.group``.
        complete: Whether the index held everything; if not, dependents may be missing.
        when_served: How many of the cascade-deleted go no sooner than an API serves a kind that none is known to
            serve, see :attr:`Decision.when_served`.
        later: How many are kept until an owner is really gone, see :attr:`Decision.later`.
        stays: The removed object itself only becomes Terminating: what it waits for. Never so in etcd.
        doubt: Where the removed object is deleted through the API: why it may only become Terminating.
        listable: Directories that can be listed again once it is gone.
        unlistable: Directories that cannot even then, each with how many objects are the reason.
        caught_up: What the collector then does that is no dependent of the removed object: it could not see these
            before, or could not see that their owners were gone.
    """

    removed: ObjectRef
    tree: tuple[Decision, ...]
    counts: dict[Action, int]
    deleted_by_resource: dict[str, int]
    complete: bool
    when_served: int = 0
    later: int = 0
    stays: str = ""
    doubt: str = ""
    listable: tuple[str, ...] = ()
    unlistable: dict[str, int] = {}
    caught_up: tuple[Decision, ...] = ()


class Fate(msgspec.Struct):
    """What becomes of an object that is deleted.

    Attributes:
        propagation: How it is deleted.
        stays: It only becomes Terminating: what it waits for.
        later: It is deleted only after an owner that only becomes Terminating: which.
        doubt: Why its deletion is not certain.
        when_served: See :attr:`Decision.when_served`.
        ran_before: See :attr:`Decision.ran_before`.
        started_after: See :attr:`Decision.started_after`.
    """

    propagation: Propagation = Propagation.BACKGROUND
    stays: str = ""
    later: str = ""
    doubt: str = ""
    when_served: str = ""
    ran_before: str = ""
    started_after: str = ""

    @property
    def keeps_dependents(self) -> bool:
        """Whether what it owns stays for now: it is there, and no finalizer of the collector works on it."""
        return bool(self.later) or (bool(self.stays) and self.propagation is Propagation.BACKGROUND)


class Verdict(msgspec.Struct, frozen=True):
    """What the owners of an object make of it.

    Attributes:
        action: What happens, once all that is on its way has happened.
        propagation: How it is deleted; None unless it is.
        owners: Each reference, and what becomes of it.
        race: Why nobody can tell whether it is deleted; "".
    """

    action: Action
    propagation: Propagation | None
    owners: tuple[OwnerFinding, ...]
    race: str = ""


def judge(index: ImpactIndex, dependent: int, owners: list[Owner], fates: Mapping[int, Fate]) -> Verdict:
    """Decide as ``attemptToDeleteItem`` does.

    Args:
        index: Of the cluster as it is.
        dependent: The object.
        owners: Its owner references.
        fates: What is deleted, by node.
    """
    findings = [_look_up(index, owner, fates) for owner in owners]
    # Owners that are deleted with Orphan let go of their dependents before they are gone.
    let_go = [f for f, o in zip(findings, owners, strict=True) if _orphans(index, fates, o)]
    findings = [f for f, o in zip(findings, owners, strict=True) if not _orphans(index, fates, o)]
    states = {finding.state for finding in findings}
    propagation: Propagation | None = None
    race = ""
    if index.place(dependent)[0].resource == _EVENTS or not owners or OwnerState.INVALID in states:
        action = Action.NEVER_COLLECTED
    elif OwnerState.UNKNOWN in states:
        action = Action.FROZEN
    elif OwnerState.SOLID in states:
        action = Action.REFERENCE_STRIPPED if let_go else Action.KEPT
    elif not findings:
        action = Action.ORPHANED
    else:
        action = Action.CASCADE_DELETED
        waits = OwnerState.WAITING in states and bool(index.dependents(dependent))
        propagation = _propagation(index.flags(dependent), foreground=waits)
        if let_go:
            race = (
                f"a race: {let_go[0].name} lets go of it while {findings[0].name} goes; it stays where the first is "
                "faster, which is usual, and nobody can tell"
            )
    strips = action in {Action.KEPT, Action.REFERENCE_STRIPPED}
    dangling = {OwnerState.ABSENT, OwnerState.WAITING}
    shown = [
        msgspec.structs.replace(finding, stripped=True) if strips and finding.state in dangling else finding
        for finding in findings
    ] + [msgspec.structs.replace(finding, stripped=True, reason="its owner orphans it") for finding in let_go]
    return Verdict(action, propagation, tuple(shown), race)


def holds_on(index: ImpactIndex, node: int, *, beside: str = "") -> str:
    """Return what an object waits for once it is deleted through the API: foreign finalizers, or its kubelet; "".

    Args:
        index: Of the cluster.
        node: The object.
        beside: A finalizer that is known to be worked on.
    """
    held = [name for name in index.finalizers(node) if name not in OF_THE_COLLECTOR and name != beside]
    if held:
        return f"finalizer{'s' if len(held) > 1 else ''} {', '.join(held)}"
    runs_on = index.node_of(node)
    if runs_on is None or index.flags(node) & FINISHED:
        return ""
    return f"the kubelet of node {index.place(runs_on)[2]}, which has to end it"


def _orphans(index: ImpactIndex, fates: Mapping[int, Fate], owner: Owner) -> bool:
    fate = fates.get(owner.node)
    if fate is None or fate.propagation is not Propagation.ORPHAN or owner.served is Served.NO:
        return False
    return owner.uid == index.uid(owner.node)


def _propagation(flags: int, *, foreground: bool) -> Propagation:
    if foreground:
        return Propagation.FOREGROUND
    if flags & ORPHANS:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if flags & FOREGROUND else Propagation.BACKGROUND


def _look_up(index: ImpactIndex, owner: Owner, fates: Mapping[int, Fate]) -> OwnerFinding:
    state, reason = _state(index, owner, fates)
    return OwnerFinding(
        index.ref(owner.node) if owner.node >= 0 else None,
        owner.api_version,
        owner.kind,
        owner.name,
        owner.uid,
        state,
        reason,
        owner.node in fates,
        stripped=False,
    )


def _state(index: ImpactIndex, owner: Owner, fates: Mapping[int, Fate]) -> tuple[OwnerState, str]:
    """Classify one reference; what the collector cannot find out is never absence."""
    node = owner.node
    if owner.wrong_scope:
        return OwnerState.INVALID, "a cluster-scoped object cannot be owned by a namespaced one"
    if owner.served is Served.NO:
        return (
            OwnerState.UNKNOWN,
            f"{owner.api_version} is not served, so the collector cannot ask for its owner",
        )
    fate = fates.get(node)
    if fate is not None:
        if owner.guess:
            return OwnerState.ABSENT, "deleted, which shows as soon as its kind is served"
        if fate.propagation is Propagation.FOREGROUND:
            return OwnerState.WAITING, "being deleted in the foreground"
        return OwnerState.ABSENT, "deleted"
    if node < 0 or owner.guess:
        return OwnerState.UNKNOWN, "its kind is not known: no built-in and no readable CRD has it"
    if not index.exists(node):
        return _missing(index, owner)
    if index.serves_empty(node):
        return OwnerState.ABSENT, "the API server shows an empty object of that name, without a uid"
    if index.unreadable(node):
        return OwnerState.UNKNOWN, "it cannot be read, so the API server answers with an error"
    uid = index.uid(node)
    if uid != owner.uid:
        return OwnerState.ABSENT, f"the object of that name has another uid ({uid or 'none'})"
    if index.flags(node) & OPAQUE:
        return OwnerState.SOLID, ""
    if index.flags(node) & TERMINATING and index.flags(node) & FOREGROUND:
        return OwnerState.WAITING, "it is being deleted in the foreground"
    return OwnerState.SOLID, ""


def _missing(index: ImpactIndex, owner: Owner) -> tuple[OwnerState, str]:
    if index.problems:
        return OwnerState.UNKNOWN, "it was not found, but not everything could be looked at"
    directory, namespace, _ = index.place(owner.node)
    for other in index.by_uid(owner.uid):
        place = index.place(other)
        if place[0].path == directory.path and place[1] != namespace:
            return OwnerState.ABSENT, f"it is in namespace {place[1]} (OwnerRefInvalidNamespace)"
    return OwnerState.ABSENT, "it does not exist"
