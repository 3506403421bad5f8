"""Which revision an entry made, by what the compares of other entries say.

A request makes one revision at most. So from one entry to a later one the revision grows by no more than the number of
entries between that ask for a change, and where it grew by just that number, each of them took effect. A compare with a
mod revision says that its key had that revision: the write before it on the same key made it, if that one took effect.
What such claims say must fit together: the number of changes asked for, less the revision, never falls.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.trace import FALLBACK, NOT_COMPARED, TAKEN_ALONG, KeyRecord, RunTrace


class Claim(NamedTuple):
    """An entry is said to have made a revision."""

    entry: int
    revision: int


def claims_of(records: Iterable[KeyRecord], committed: int, run_at: Callable[[int], object]) -> list[Claim]:
    """Return what the writes of one key, oldest first, say of each other.

    Nothing is said across the end of a run, told by ``run_at``: a write in between may be lost. Where two writes in a
    row want the same revision before them, one of them failed, and nothing says which.
    """
    found: list[Claim] = []
    before: KeyRecord | None = None
    undecided = False
    for record in records:
        if record.entry > committed:
            break
        if before is not None and record.entry == before.entry:
            undecided = True
            continue
        if before is not None and run_at(before.entry) is not run_at(record.entry):
            before, undecided = None, False
        if record.bits & (TAKEN_ALONG | FALLBACK):
            before, undecided = record, True
            continue
        same = before is not None and record.expected != NOT_COMPARED and record.expected == before.expected
        clear = before is not None and before.kind is WriteKind.PUT and not (undecided or same)
        if clear and before is not None and record.expected > 0:
            found.append(Claim(before.entry, record.expected))
        before, undecided = record, same
    return found


class Points:
    """The claims of one run that fit together, and what follows for the entries between them."""

    def __init__(self, trace: RunTrace, claims: Iterable[Claim]) -> None:
        self._first = trace.run.first
        self._candidates = trace.candidates
        self._entries: list[int] = []
        self._revisions: list[int] = []
        for claim in self._fitting(set(claims)):
            self._entries.append(claim.entry)
            self._revisions.append(claim.revision)

    def _count(self, entry: int) -> int:
        return self._candidates[entry - self._first]

    def _fitting(self, claims: set[Claim]) -> list[Claim]:
        """Return the longest series of claims that fit together, in order (patience sorting)."""
        several = Counter(claim.entry for claim in claims)
        ordered = sorted(claim for claim in claims if several[claim.entry] == 1)
        tails: list[int] = []
        chain: list[int] = []
        before: list[int] = []
        for place, claim in enumerate(ordered):
            slack = self._count(claim.entry) - claim.revision
            at = bisect_right(tails, slack)
            before.append(chain[at - 1] if at else -1)
            if at < len(tails):
                tails[at], chain[at] = slack, place
            else:
                tails.append(slack)
                chain.append(place)
        picked: list[Claim] = []
        place = chain[-1] if chain else -1
        while place >= 0:
            picked.append(ordered[place])
            place = before[place]
        picked.reverse()
        return _growing(picked)

    def revision(self, entry: int) -> int | None:
        """Return the revision that an entry made; None where it does not follow."""
        at = bisect_left(self._entries, entry)
        if at < len(self._entries) and self._entries[at] == entry:
            return self._revisions[at]
        if 0 < at < len(self._entries):
            below, above = (
                self._count(self._entries[place]) - self._revisions[place] for place in (at - 1, at)
            )
            if below == above:
                return self._count(entry) - below
        return None

    def bounds(self, entry: int) -> tuple[int, int | None]:
        """Return the least and the greatest revision that an entry may have made; None for unknown."""
        exact = self.revision(entry)
        if exact is not None:
            return exact, exact
        at = bisect_left(self._entries, entry)
        least = self._revisions[at - 1] + 1 if at else 0
        if at < len(self._entries):
            return least, self._revisions[at] - 1
        most = self._revisions[-1] + self._count(entry) - self._count(self._entries[-1]) if at else None
        return least, most

    @property
    def newest(self) -> int | None:
        """A revision that the store had passed at the end; None for unknown."""
        return self._revisions[-1] if self._revisions else None

    def fits(self, claim: Claim) -> bool:
        """Say whether one more claim goes together with the others."""
        at = bisect_left(self._entries, claim.entry)
        if at < len(self._entries) and self._entries[at] == claim.entry:
            return self._revisions[at] == claim.revision
        slack = self._count(claim.entry) - claim.revision
        for place, sign in ((at - 1, 1), (at, -1)):
            if 0 <= place < len(self._entries):
                other = self._count(self._entries[place]) - self._revisions[place]
                if (slack - other) * sign < 0 or (claim.revision - self._revisions[place]) * sign <= 0:
                    return False
        return True


def _growing(claims: list[Claim]) -> list[Claim]:
    """Leave out claims whose revisions do not grow with the entries, and those that they contradict."""
    bad = set()
    for one, two in itertools.pairwise(claims):
        if two.revision <= one.revision:
            bad |= {one, two}
    return [claim for claim in claims if claim not in bad]
