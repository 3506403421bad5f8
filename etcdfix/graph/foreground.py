"""What a deletion in the foreground waits for: the dependents that block it.

The collector keeps an object that has the finalizer ``foregroundDeletion`` as long as a dependent states its uid with
``blockOwnerDeletion: true``. It goes by the uid alone: a dependent that it cannot act upon blocks too. A dependent that
owns something which is being deleted in the foreground already is made not to block, so that a ring does not wait for
itself; this happens when the dependent is told to go, so it does not help where that is past.

Source: Kubernetes ``pkg/controller/garbagecollector`` (``blockingDependents``, ``processDeletingDependentsItem``,
``attemptToDeleteItem``, ``addDependentToOwners``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping

from etcdfix.graph.index import FOREGROUND, TERMINATING, ImpactIndex
from etcdfix.graph.model import Action, Propagation
from etcdfix.graph.owners import EVENTS, Fate


def foreground_waits(
    index: ImpactIndex, going: Mapping[int, Fate], removed: Collection[int], fate_of: Callable[[int], Fate]
) -> dict[int, str]:
    """Return what each object waits for, in a clause, that is deleted in the foreground and stays.

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
    found = {}
    for node in waiting.keys() & stay:
        if not going[node].stays:
            other = next(dependent for dependent in waiting[node] if dependent in stay)
            why = left.get(other) or (f"which waits for {going[other].stays}" if going[other].stays else "")
            why = why or "which waits in its turn for what it owns"
            found[node] = (
                "itself: it is named as its own owner, and nobody takes that off"
                if node in waiting[node]
                else f"{index.ref(other)}, {why}"
            )
    return found


def _blocking(index: ImpactIndex, node: int) -> Iterator[int]:
    uid = index.uid(node)
    for dependent in (*index.dependents(node), *index.strays(uid)) if uid else ():
        if any(owner.uid == uid and owner.blocks for owner in index.owners(dependent)):
            yield dependent
