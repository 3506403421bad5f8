"""What the garbage collector makes of one object's owners, and what follows for the object.

Source: Kubernetes ``pkg/controller/garbagecollector/garbagecollector.go`` (``classifyReferences``,
``attemptToDeleteItem``, ``attemptToOrphan``) and ``graph_builder.go``. How a removal spreads:
:mod:`etcdfix.graph.collector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from etcdfix.graph.index import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, ImpactIndex, Owner
from etcdfix.graph.kinds import Served
from etcdfix.graph.model import Action, JudgedOwner, OwnerState, Propagation
from etcdfix.graph.tables import FINISHED, FOREGROUND, OPAQUE, ORPHANS, TERMINATING

_EVENTS: Final = "events"
OF_THE_COLLECTOR: Final = frozenset({ORPHAN_FINALIZER, FOREGROUND_FINALIZER})
"""Finalizers that the garbage collector itself works on."""


class Fate(msgspec.Struct):
    """What becomes of an object that is deleted.

    Attributes:
        propagation: How it is deleted.
        stays: It only becomes Terminating: what it waits for.
        later: It is deleted only after an owner that only becomes Terminating: which.
        uncertain: Why its deletion is not certain.
        when_served: It happens no sooner than an API serves a kind that none is known to serve: that of the object,
            of its owner or of an owner above. Says which; "" for at once.
        ran_before: See :attr:`~etcdfix.graph.model.Decision.ran_before`.
        started_after: See :attr:`~etcdfix.graph.model.Decision.started_after`.
    """

    propagation: Propagation = Propagation.BACKGROUND
    stays: str = ""
    later: str = ""
    uncertain: str = ""
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
    owners: tuple[JudgedOwner, ...]
    race: str = ""


def judge(index: ImpactIndex, dependent: int, owners: list[Owner], fates: Mapping[int, Fate]) -> Verdict:
    """Decide as ``attemptToDeleteItem`` does."""
    findings = [
        JudgedOwner(o.api_version, o.kind, o.name, o.uid, *_state(index, o, fates), stripped=False)
        for o in owners
    ]
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
        propagation = _propagation(index.flags[dependent], foreground=waits)
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
    """Return what an object waits for once it is deleted through the API: foreign finalizers, or its kubelet; ""."""
    held = [name for name in index.finalizers(node) if name not in OF_THE_COLLECTOR and name != beside]
    if held:
        return f"finalizer{'s' if len(held) > 1 else ''} {', '.join(held)}"
    runs_on = index.node_of(node)
    if runs_on is None or index.flags[node] & FINISHED:
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
        if index.problems:
            return OwnerState.UNKNOWN, "it was not found, but not everything could be looked at"
        return OwnerState.ABSENT, "it does not exist"
    if index.serves_empty(node):
        return OwnerState.ABSENT, "the API server shows an empty object of that name, without a uid"
    if index.unreadable(node):
        return OwnerState.UNKNOWN, "it cannot be read, so the API server answers with an error"
    uid = index.uid(node)
    if uid != owner.uid:
        return OwnerState.ABSENT, f"the object of that name has another uid ({uid or 'none'})"
    if index.flags[node] & OPAQUE:
        return OwnerState.SOLID, ""
    if index.flags[node] & TERMINATING and index.flags[node] & FOREGROUND:
        return OwnerState.WAITING, "it is being deleted in the foreground"
    return OwnerState.SOLID, ""
