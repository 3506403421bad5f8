"""What the garbage collector makes of one object's owners, and what follows for the object.

Source: Kubernetes ``pkg/controller/garbagecollector/garbagecollector.go`` (``classifyReferences``,
``attemptToDeleteItem``, ``attemptToOrphan``) and ``graph_builder.go``. How a removal spreads:
:mod:`etcdfix.graph.collector`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from etcdfix.graph.index import (
    FINISHED,
    FOREGROUND,
    FOREGROUND_FINALIZER,
    OPAQUE,
    ORPHAN_FINALIZER,
    ORPHANS,
    TERMINATING,
    ImpactIndex,
    Owner,
)
from etcdfix.graph.kinds import Served
from etcdfix.graph.model import Action, JudgedOwner, OwnerState, Propagation

EVENTS: Final = "events"
OF_THE_COLLECTOR: Final = frozenset({ORPHAN_FINALIZER, FOREGROUND_FINALIZER})


class Fate(msgspec.Struct):
    """What becomes of one object, as far as it is known by now.

    Attributes:
        action: What happens to it, once all that is on its way has happened.
        propagation: How it is deleted; None where it is not.
        owners: Each owner reference, and what becomes of it.
        doubtful: Nobody can tell whether it is deleted, or what becomes of what it owns.
        raced: It is deleted in the foreground, or in the background where its owner is gone before.
        when_served: It happens no sooner than an API serves a kind that none is known to serve: that of the object,
            of its owner or of an owner above. Says which; "" for at once.

    The other attributes are those of :class:`~etcdfix.graph.model.Decision`.
    """

    action: Action = Action.CASCADE_DELETED
    propagation: Propagation | None = Propagation.BACKGROUND
    owners: tuple[JudgedOwner, ...] = ()
    doubtful: bool = False
    raced: bool = False
    uncertain: str = ""
    stays: str = ""
    later: str = ""
    when_served: str = ""
    ran_before: str = ""
    started_after: str = ""

    @property
    def keeps_dependents(self) -> bool:
        """Whether what it owns stays for now: it is there, and no finalizer of the collector works on it."""
        return bool(self.later) or (bool(self.stays) and self.propagation is Propagation.BACKGROUND)


def judge(index: ImpactIndex, dependent: int, owners: list[Owner], going: Mapping[int, Fate]) -> Fate:
    """Decide as ``attemptToDeleteItem`` does.

    Args:
        index: Of the cluster.
        dependent: The object.
        owners: Its owner references.
        going: What is deleted, by node.
    """
    findings = [(owner, *_state(index, owner, going), _lets_go(index, going, owner)) for owner in owners]
    # Owners that are deleted with Orphan let go of their dependents before they are gone.
    let_go = [owner for owner, _, _, lets_go in findings if lets_go]
    states = [state for _, state, _, lets_go in findings if not lets_go]
    fate = Fate(propagation=None)
    if index.place(dependent)[0].resource == EVENTS or not owners or OwnerState.INVALID in states:
        fate.action = Action.NEVER_COLLECTED
    elif OwnerState.UNKNOWN in states:
        fate.action = Action.FROZEN
    elif OwnerState.SOLID in states:
        fate.action = Action.REFERENCE_STRIPPED if let_go else Action.KEPT
    elif not states:
        fate.action = Action.ORPHANED
    else:
        waiting = [
            owner for owner, state, _, lets_go in findings if state is OwnerState.WAITING and not lets_go
        ]
        own = bool(waiting) and not index.flags[dependent] & TERMINATING and bool(index.dependents(dependent))
        # The collector itself deletes so what owns anything, whatever finalizer ``orphan`` it has.
        fate.propagation = Propagation.FOREGROUND if own else how_deleted(index, dependent)
        fate.raced = own and all(going.get(owner.node, fate).raced for owner in waiting if owner.blocks)
        if any(waits_for(index, owner.node) for owner in waiting if not owner.blocks):
            fate.uncertain = "a race: an owner does not wait for it, and keeps it if the owner finishes first"
        elif fate.raced and (index.flags[dependent] & ORPHANS or waits_for(index, dependent)):
            fate.uncertain = (
                "a race: its owner does not wait for it; gone first, it leaves what this one owns"
            )
        fate.doubtful = bool(fate.uncertain)
        if let_go:
            fate.doubtful = True
            fate.uncertain = (
                f"a race: {let_go[0].name} lets go of it while another owner goes; it stays where the first is faster, "
                "which is usual, and nobody can tell"
            )
    fate.owners = tuple(
        JudgedOwner(
            owner.api_version,
            owner.kind,
            owner.name,
            owner.uid,
            state,
            "its owner orphans it" if lets_go else reason,
        )
        for owner, state, reason, lets_go in findings
    )
    return fate


def unowned(index: ImpactIndex, node: int) -> tuple[JudgedOwner, ...]:
    """Return the owners of an object that the collector deletes because it finds none of them; () for any other."""
    owners = index.owners(node)
    fate = judge(index, node, owners, {})
    served = all(owner.served is Served.YES for owner in owners)
    absent = all(owner.state is OwnerState.ABSENT for owner in fate.owners)
    return fate.owners if served and absent and fate.propagation is not None else ()


def owners_elsewhere(index: ImpactIndex, nodes: Iterable[int]) -> dict[int, int]:
    """Return the owner that an object means, for each whose owner has another namespace, kind or name than it says."""
    stated = {node: [owner.uid for owner in index.owners(node)] for node in nodes}
    holders = index.holders({uid for uids in stated.values() for uid in uids})
    meant = ((node, owner) for node, uids in stated.items() for uid in uids for owner in holders.get(uid, ()))
    return {node: owner for node, owner in meant if owner != node}


def waits_for(index: ImpactIndex, node: int, *, beside: str = "") -> str:
    """Return what an object waits for once it is deleted through the API: foreign finalizers, or its kubelet; ""."""
    held = [name for name in index.finalizers(node) if name not in OF_THE_COLLECTOR and name != beside]
    if held:
        return f"finalizer{'s' if len(held) > 1 else ''} {', '.join(held)}"
    runs_on = index.node_of(node)
    if runs_on is None or index.flags[node] & FINISHED:
        return ""
    return f"the kubelet of node {index.place(runs_on)[2]}, which has to end it"


def how_deleted(index: ImpactIndex, node: int) -> Propagation:
    """Return how an object is deleted: as its finalizers say, else in the background."""
    flags = index.flags[node]
    if flags & ORPHANS:
        return Propagation.ORPHAN
    return Propagation.FOREGROUND if flags & FOREGROUND else Propagation.BACKGROUND


def _lets_go(index: ImpactIndex, going: Mapping[int, Fate], owner: Owner) -> bool:
    fate = going.get(owner.node)
    if fate is None or fate.propagation is not Propagation.ORPHAN or owner.served is Served.NO:
        return False
    return owner.uid == index.uid(owner.node)


def _state(index: ImpactIndex, owner: Owner, going: Mapping[int, Fate]) -> tuple[OwnerState, str]:
    """Classify one reference; what the collector cannot find out is never absence."""
    node, fate = owner.node, going.get(owner.node)
    if owner.wrong_scope:
        return OwnerState.INVALID, "a cluster-scoped object cannot be owned by a namespaced one"
    if owner.served is Served.NO:
        why = f"{owner.api_version} is not served, so the collector cannot ask for its owner"
        return OwnerState.UNKNOWN, why
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
    uid, flags = index.uid(node), index.flags[node]
    if uid != owner.uid:
        return OwnerState.ABSENT, f"the object of that name has another uid ({uid or 'none'})"
    if flags & TERMINATING and flags & FOREGROUND and not flags & OPAQUE:
        return OwnerState.WAITING, "it is being deleted in the foreground"
    return OwnerState.SOLID, ""
