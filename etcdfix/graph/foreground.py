"""What a deletion in the foreground waits for: the dependents that block it, and what those wait for in their turn.

The collector keeps an object that has the finalizer ``foregroundDeletion`` as long as a dependent states its uid with
``blockOwnerDeletion: true``. It goes by the uid alone: a dependent that it cannot act upon blocks too. A dependent that
owns something which is being deleted in the foreground already is made not to block, so that a ring does not wait for
itself; this happens when the dependent is told to go, so it does not help where that is past.

Source: Kubernetes ``pkg/controller/garbagecollector`` (``blockingDependents``, ``processDeletingDependentsItem``,
``attemptToDeleteItem``, ``addDependentToOwners``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import Action, Decision, Propagation
from etcdfix.graph.owners import Fate
from etcdfix.graph.tables import FOREGROUND, TERMINATING

_EVENTS: Final = "events"
_RING: Final = "and so on in a ring of owner references that nobody opens"
_ITSELF: Final = "itself: it is named as its own owner, and nobody takes that off"


class ForegroundWaits:
    """Finds which of the objects that are deleted in the foreground stay, and for what."""

    def __init__(
        self,
        index: ImpactIndex,
        fates: Mapping[int, Fate],
        decisions: Mapping[int, Decision],
        removed: Collection[int],
        decide: Callable[[int], Decision],
    ) -> None:
        self._index = index
        self._fates = fates
        self._decisions = decisions
        self._removed = removed
        self._decide = decide
        self._waits_for: dict[int, list[int]] = {}
        self._waited_for: dict[int, list[int]] = {}
        # Dependents that stay although nothing holds them but what the collector makes of their owners.
        self._left: dict[int, str] = {}

    def run(self) -> dict[int, str]:
        """Return what each object waits for that stays, in a clause."""
        for node, fate in self._fates.items():
            if fate.propagation is Propagation.FOREGROUND and not fate.later:
                self._waits_for[node] = list(self._blocking(node))
        for node, dependents in self._waits_for.items():
            for dependent in dependents:
                self._waited_for.setdefault(dependent, []).append(node)
        return self._why(self._that_stay())

    def _blocking(self, node: int) -> Iterable[int]:
        index = self._index
        uid = index.uid(node)
        for dependent in (*index.dependents(node), *index.strays(uid)) if uid else ():
            if any(owner.uid == uid and owner.blocks for owner in index.owners(dependent)) and (
                dependent == node or not self._let_off(dependent)
            ):
                yield dependent

    def _let_off(self, dependent: int) -> bool:
        """Tell whether a dependent does not block, or no more: it goes, or the collector takes care of it."""
        fate = self._fates.get(dependent)
        if fate is not None:
            return bool(fate.later) or (
                fate.propagation is Propagation.FOREGROUND
                and not self._was_told(dependent)
                and any(map(self._goes_in_the_foreground, self._index.dependents(dependent)))
            )
        decision = self._decisions.get(dependent) or self._decide(dependent)
        if decision.action is Action.FROZEN:
            self._left[dependent] = "which the collector leaves alone"
        elif decision.action is Action.NEVER_COLLECTED and decision.object.resource != _EVENTS:
            self._left[dependent] = "which is never collected, as it names an owner that it cannot have"
        elif decision.stays:
            self._left[dependent] = f"which waits for {decision.stays}"
        return dependent not in self._left

    def _was_told(self, node: int) -> bool:
        return node in self._removed or bool(self._index.flags[node] & TERMINATING)

    def _goes_in_the_foreground(self, node: int) -> bool:
        """Tell whether an object has the finalizer before anything is made of its dependents."""
        if node in self._removed:
            return self._fates[node].propagation is Propagation.FOREGROUND
        return self._was_told(node) and bool(self._index.flags[node] & FOREGROUND)

    def _that_stay(self) -> set[int]:
        """Return what is not gone once all has gone that can."""
        left = {node: len(found) for node, found in self._waits_for.items()}
        going = deque(node for node, fate in self._fates.items() if not fate.stays and not left.get(node))
        stay = self._fates.keys() - set(going) | self._left.keys()
        while going:
            for node in self._waited_for.get(going.popleft(), ()):
                left[node] -= 1
                if not left[node] and not self._fates[node].stays:
                    stay.discard(node)
                    going.append(node)
        return stay

    def _why(self, stay: set[int]) -> dict[int, str]:
        """Return what each object waits for only because of dependents."""
        index, stays = self._index, dict[int, str]()
        ends = {node: node for node in stay if node in self._left or self._fates[node].stays}
        self._spread(ends, stays)
        for node in self._waits_for:
            if node not in stay or node in ends:
                continue
            other = next(d for d in self._waits_for[node] if d in stay)
            stays[node] = _ITSELF if node in self._waits_for[node] else f"{index.ref(other)}, {_RING}"
        return stays

    def _spread(self, ends: dict[int, int], stays: dict[int, str]) -> None:
        """Tell everything that waits for an end of a chain, nearest first, by whom and for what it is kept."""
        index = self._index
        waiting = deque(sorted(ends, key=index.relative))
        while waiting:
            dependent = waiting.popleft()
            end = ends[dependent]
            why = self._left.get(end) or f"which waits for {self._fates[end].stays}"
            via = "" if end == dependent else f"{index.ref(dependent)}, which waits for "
            for node in self._waited_for.get(dependent, ()):
                if node not in ends:
                    ends[node] = end
                    stays[node] = f"{via}{index.ref(end)}, {why}"
                    waiting.append(node)
