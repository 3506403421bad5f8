"""Holds the last writes of a log against what is stored: whether both are of one history, and up to where.

A request makes one revision at most. So from one entry to a later one the revision grows by no more than the number of
entries between that ask for a change, and where it grew by just that number, each of them took effect. A compare with a
mod revision says that its key had that revision: the write before it on the same key made it, if that one took effect.
What such claims say must fit together: the number of changes asked for, less the revision, never falls.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.wal.model import Agreement, WriteKind
from etcdfix.sources.wal.replay import Base
from etcdfix.sources.wal.requests import in_range
from etcdfix.sources.wal.trace import (
    CHANGED,
    FALLBACK,
    KEEPS_VALUE,
    NOT_COMPARED,
    TAKEN_ALONG,
    KeyRecord,
    RunTrace,
    Trace,
)

_MOST_CONTRADICTED: Final = 2
"""So many of the newest keys may differ in a log whose newest writes were refused."""

_AGREED_BACK: Final = 2
"""The log is of this history up to the second-newest key that agrees: one alone may be chance."""


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


class Comparison:
    """The sample of last writes, compared with each store.

    What is stored now alone says how far the log is of this history: a database file may have gone the log's own way.
    That of the log's member did, and agrees with it to the end.

    Args:
        trace: Of the log.
        committed: Entries up to this one were agreed on.
        stores: What is stored now, and database files of the same history, perhaps.
        present: What is stored now; None where that is not known.
        reads: Says whether a stored value can be read.

    Attributes:
        contradicted: Entries whose write the stores do not allow.
        points: Which revisions follow from compares and from stored values, for the first index of each run.
        agreement: What came of it.

    Raises:
        SourceError: The log, or a store, cannot be read.
    """

    def __init__(
        self,
        trace: Trace,
        committed: int,
        stores: Sequence[Source],
        present: Source | None,
        reads: Callable[[StoredValue], bool],
    ) -> None:
        self._trace, self._committed, self._present, self._reads = trace, committed, present, reads
        self._sample = dict.fromkeys(trace.sample, KeyRecord(0, 0, 0, 0))
        claims: list[Claim] = []
        for key, records in trace.by_key():
            claims += claims_of(records, committed, trace.run_with)
            if key in self._sample:
                self._sample[key] = next(record for record in reversed(records) if record.entry <= committed)
        self.points = self._points_of(claims)
        self._claims: list[Claim] = []  # what stored values say
        self._agreed: set[int] = set()
        self.contradicted: set[int] = set()
        agreed: set[int] = set()
        for store in stores:
            self._agreed = set()
            self._compare_with(store)
            if present is None or store is present:
                agreed |= self._agreed
        self.points = self._points_of(claims + self._claims)
        self.agreement = self._judge(sorted(agreed), compared=bool(stores))

    def _points_of(self, claims: Iterable[Claim]) -> dict[int, Points]:
        by_run: dict[int, set[Claim]] = {run.run.first: set() for run in self._trace.runs}
        for claim in claims:
            by_run[self._trace.run_of(claim.entry).run.first].add(claim)
        return {run.run.first: Points(run, by_run[run.run.first]) for run in self._trace.runs}

    def fits(self, claim: Claim) -> bool:
        """Say whether a claim goes together with the others of its run."""
        return self.points[self._trace.run_of(claim.entry).run.first].fits(claim)

    def _compare_with(self, store: Source) -> None:
        for key, last in self._sample.items():
            run = self._trace.run_of(last.entry)
            stored = store.get(key)
            revision = store.describe().revision  # a live etcd tells it with its first answer
            if run.has_replayed(last.entry):
                if not run.stopped:
                    self._compare_replayed(key, last, run, stored, revision)
            elif store is self._present and not last.bits & FALLBACK:
                self._compare_claimed(key, last, stored, revision)
        file = Base.of(store)
        for run in self._trace.runs:
            if run.replay is not None and not run.stopped:
                self._compare_revision(run, store.describe().revision, file)
        run_of_file = self._trace.run_with(file.applied.entry) if file is not None else None
        if file is not None and run_of_file is not None and not run_of_file.has_replayed(file.applied.entry):
            self._compare_file(file, run_of_file)

    def _compare_file(self, file: Base, run: RunTrace) -> None:
        """Compare a database file with the writes up to the entry that it shows, where they were not replayed."""
        for key in self._sample:
            records = [
                one for one in self._trace.of_key(key) if run.run.first <= one.entry <= file.applied.entry
            ]
            if records and records[-1].puts and not records[-1].bits & FALLBACK:
                self._note(self.claim_of(records[-1], file.get(key)))

    def claim_of(self, record: KeyRecord, stored: StoredValue | None) -> Claim | None:
        """Return what a stored value says of the put that has its bytes; None where it has others."""
        if stored is None or self._trace.value(record) != stored.value:
            return None
        return Claim(record.entry, stored.mod_revision)

    def _note(self, claim: Claim | None) -> None:
        if claim is not None and self.fits(claim):
            self._agreed.add(claim.entry)
            self._claims.append(claim)

    def _compare_replayed(
        self, key: bytes, last: KeyRecord, run: RunTrace, stored: StoredValue | None, revision: int
    ) -> None:
        assert run.replay is not None
        end = run.replay.revision
        made = [
            one
            for one in self._trace.of_key(key)
            if one.bits & CHANGED and run.has_replayed(one.entry) and run.revision_at(one.entry) <= revision
        ]
        then = run.revision_at(made[-1].entry) if made else 0
        if stored is not None and stored.value == self._trace.value(last) and stored.mod_revision != then:
            # The log wrote what is stored, and the replay says otherwise.
            self.contradicted.add(last.entry)
            return
        if stored.mod_revision > min(end, revision) if stored is not None else revision > end:
            return  # it was written after the log ends
        if made[-1].bits & KEEPS_VALUE if made else revision < end or run.replay.held(key) is not None:
            return  # its value is not in the log
        value = self._trace.value(made[-1]) if made else None
        if made and stored is not None and (stored.mod_revision, stored.value) == (then, value):
            self._agreed.add(made[-1].entry)
            run.witnessed[made[-1].entry - run.run.first] = 1
        elif stored is not None or value is not None:
            unchanged = stored is not None and stored.mod_revision == then
            if not (unchanged and self._is_rotten(key, stored)):
                self.contradicted.add(last.entry)

    def _compare_revision(self, run: RunTrace, revision: int, file: Base | None) -> None:
        assert run.replay is not None
        if file is None:
            changed = run.last_changed(run.run.last)
            if changed and revision == run.replay.revision and self._agreed:
                self._agreed.add(changed)
        elif run.has_replayed(file.applied.entry):
            changed = run.last_changed(file.applied.entry)
            if changed:
                agrees = run.revision_at(changed) == file.applied.revision
                (self._agreed if agrees else self.contradicted).add(changed)

    def _compare_claimed(
        self, key: bytes, last: KeyRecord, stored: StoredValue | None, revision: int
    ) -> None:
        """Compare a key with its last write, of which nothing says yet whether it took effect."""
        claim = self.claim_of(last, stored)
        if claim is not None:
            self._note(claim)
            return
        could_be = stored is not None and last.puts and self.fits(Claim(last.entry, stored.mod_revision))
        if could_be and self._is_rotten(key, stored):
            return
        newest = self.points[self._trace.runs[-1].run.first].newest
        least, most = self.points[self._trace.run_of(last.entry).run.first].bounds(last.entry)
        if newest is None or most is None or most > revision or last.lease:
            return  # the store was read before the write, or nobody knows
        for entry, deletion in self._trace.ranges:
            if entry > last.entry and in_range(key, deletion.key, deletion.range_end):
                return
        if stored is None:
            contradicts = last.puts and revision <= newest
        else:
            contradicts = stored.mod_revision <= newest and (last.puts or stored.mod_revision < least)
        if contradicts:
            self.contradicted.add(last.entry)

    def _is_rotten(self, key: bytes, stored: StoredValue | None) -> bool:
        """Say whether a stored value was changed on disk: no request of the log wrote it, and it cannot be read."""
        if stored is None or self._reads(stored):
            return False
        return all(self._trace.value(record) != stored.value for record in self._trace.of_key(key))

    def _judge(self, agreed: Sequence[int], *, compared: bool) -> Agreement:
        newest = agreed[-1] if agreed else 0
        later = [entry for entry in self.contradicted if entry > newest]
        wrong = len(self.contradicted)
        same: bool | None = bool(agreed) and len(later) <= _MOST_CONTRADICTED and wrong <= len(agreed)
        sentence = (
            f"of the keys that were compared, {len(agreed)} hold just what the log wrote last, {wrong} what it does"
            " not allow"
        )
        if not compared:
            same, sentence = None, "it was compared with nothing that is stored"
        elif not self._sample:
            same, sentence = None, "it writes no key"
        safe = agreed[-min(_AGREED_BACK, len(agreed))] if agreed else 0
        return Agreement(same=same, newest=newest, safe=safe, sentence=sentence)
