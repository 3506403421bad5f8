"""Holds the last writes of a log against what is stored: whether both are of one history, and up to where."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from etcdfix.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.wal.base import FileBase
from etcdfix.sources.wal.model import Agreement, Kinship, WriteKind
from etcdfix.sources.wal.requests import in_range
from etcdfix.sources.wal.revisions import Claim, Points, claims_of
from etcdfix.sources.wal.trace import KeyRecord, LastWrite, RunTrace, Trace

_MOST_CONTRADICTED: Final = 2
"""So many of the newest keys may differ in a log whose newest writes were refused."""

_AGREED_BACK: Final = 2
"""The log is of this history up to the second-newest key that agrees: one alone may be chance."""


class Compared(NamedTuple):
    """What the comparison with stored values showed, by entry."""

    agreed: list[int]
    contradicted: list[int]
    claims: list[Claim]


class Comparison:
    """One look at the stores beside a log.

    Raises:
        SourceError: The log cannot be read.
    """

    def __init__(
        self,
        trace: Trace,
        committed: int,
        stores: Sequence[Source],
        present: Source | None,
        reads: Callable[[StoredValue], bool],
    ) -> None:
        self._trace = trace
        self._committed = committed
        self._stores = stores
        self._present = present
        self._reads = reads
        self._claims = self._claims_by_run()

    def _claims_by_run(self) -> dict[int, set[Claim]]:
        by_run: dict[int, set[Claim]] = {run.run.first: set() for run in self._trace.runs}
        for _, records in self._trace.by_key():
            for claim in claims_of(records, self._committed, self._trace.run_with):
                by_run[self._trace.run_of(claim.entry).run.first].add(claim)
        return by_run

    def points(self, anchors: Sequence[Claim] = ()) -> dict[int, Points]:
        """Return the claims that fit together, those of stored values included, for the first index of each run."""
        stored: dict[int, set[Claim]] = {}
        for claim in anchors:
            stored.setdefault(self._trace.run_of(claim.entry).run.first, set()).add(claim)
        return {
            run.run.first: Points(run, self._claims[run.run.first] | stored.get(run.run.first, set()))
            for run in self._trace.runs
        }

    def compare(self) -> Compared:
        """Compare the sample of last writes with each store.

        What is stored now alone says how far the log is of this history: a database file may have gone the log's own
        way. That of the log's member did, and agrees with it to the end.
        """
        compared = Compared([], [], [])
        points = self.points() if self._stores else {}
        for store in self._stores:
            one = self._compare_with(store, points)
            if self._present is None or store is self._present:
                compared.agreed.extend(one.agreed)
            compared.contradicted.extend(one.contradicted)
            compared.claims.extend(one.claims)
        return compared

    def _compare_with(self, store: Source, points: dict[int, Points]) -> Compared:
        compared = Compared([], [], [])
        for key, last in self._trace.last_writes.items():
            run = self._trace.run_of(last.entry)
            stored = store.get(key)
            revision = store.describe().revision  # a live etcd tells it with its first answer
            if run.replay is not None and run.begin <= last.entry - run.run.first < run.end:
                if not run.stopped:
                    self._compare_replayed(key, last, run, stored, revision, compared)
            elif store is self._present and last.plain:
                self._compare_claimed(key, last, stored, revision, points, compared)
        for each in self._trace.runs:
            self._compare_revision(each, store, compared)
        file = FileBase.of(store)
        if file is not None:
            self._compare_file(file, points, compared)
        return compared

    def _compare_file(self, file: FileBase, points: dict[int, Points], compared: Compared) -> None:
        """Compare a database file with the writes up to the entry that it shows, where they were not replayed."""
        run = self._trace.run_with(file.applied.entry)
        if run is None or run.begin <= file.applied.entry - run.run.first < run.end:
            return
        for key in self._trace.last_writes:
            earlier = [
                record
                for record in self._trace.of_key(key)
                if run.run.first <= record.entry <= file.applied.entry
            ]
            if not earlier:
                continue
            last = earlier[-1]
            if last.kind is not WriteKind.PUT or last.fallback or last.keeps_value:
                continue
            stored = file.get(key)
            if stored is None or self._trace.value_of(last.entry, last.number) != stored.value:
                continue
            claim = Claim(last.entry, stored.mod_revision)
            if points[run.run.first].fits(claim):
                compared.agreed.append(last.entry)
                compared.claims.append(claim)

    def _compare_replayed(
        self,
        key: bytes,
        last: LastWrite,
        run: RunTrace,
        stored: StoredValue | None,
        revision: int,
        compared: Compared,
    ) -> None:
        assert run.replay is not None
        end = run.replay.revision
        writer, revision_then, value = self._held_at(key, run, revision)
        logged = self._trace.value_of(last.entry, last.number) if last.put else None
        if stored is not None and stored.value == logged and stored.mod_revision != revision_then:
            compared.contradicted.append(
                last.entry
            )  # the log wrote what is stored, and the replay says otherwise
            return
        if not writer:
            return
        if value is None and stored is None:
            return
        if stored is not None and stored.mod_revision > min(end, revision):
            return  # written after the log ends
        if stored is None and revision > end:
            return
        same = (
            stored is not None
            and value is not None
            and (stored.mod_revision, stored.value) == (revision_then, value)
        )
        if not same:
            unchanged = stored is not None and stored.mod_revision == revision_then
            if not (unchanged and self._is_rotten(key, stored)):
                compared.contradicted.append(last.entry)
            return
        compared.agreed.append(writer)
        run.witnessed[writer - run.run.first] = 1

    def _held_at(self, key: bytes, run: RunTrace, revision: int) -> tuple[int, int, bytes | None]:
        """Return which replayed entry wrote a key last up to a revision, its own revision, and the value after it.

        0 where no entry did, or the value is not in the log; no value after a deletion.
        """
        assert run.replay is not None
        if revision >= run.replay.revision:
            held, writer = run.replay.held(key), run.replay.writer(key)
            if held is None or not writer:
                # Of a deletion nothing is kept but that the key is gone; which entry did it matters to nobody.
                return (run.run.last if held is None else 0), 0, None
            mod, entry, number = held
            return (writer, mod, self._trace.value_of(entry, number)) if entry else (0, 0, None)
        last: KeyRecord | None = None
        for record in self._trace.of_key(key):
            place = record.entry - run.run.first
            if record.changed and run.begin <= place < run.end and run.revisions[place] <= revision:
                last = record
        if last is None or last.keeps_value:
            return 0, 0, None
        is_put = last.kind is WriteKind.PUT
        value = self._trace.value_of(last.entry, last.number) if is_put else None
        return last.entry, run.revisions[last.entry - run.run.first], value

    def _compare_revision(self, run: RunTrace, store: Source, compared: Compared) -> None:
        if run.replay is None or run.stopped:
            return
        file = FileBase.of(store)
        if file is None:
            if store.describe().revision == run.replay.revision and compared.agreed:
                compared.agreed.extend(run.last_changed(run.end))
        elif run.first_replayed <= file.applied.entry < run.first_replayed + run.end - run.begin:
            behind = file.applied.entry - run.run.first + 1
            changed = run.last_changed(behind)
            if not changed:
                return
            if run.revisions[changed[0] - run.run.first] == file.applied.revision:
                compared.agreed.append(changed[0])
            else:
                compared.contradicted.append(changed[0])

    def _compare_claimed(
        self,
        key: bytes,
        last: LastWrite,
        stored: StoredValue | None,
        revision: int,
        points: dict[int, Points],
        compared: Compared,
    ) -> None:
        """Compare a key with its last write, of which nothing says yet whether it took effect."""
        run = self._trace.run_of(last.entry)
        known = points[run.run.first]
        if stored is not None and last.put and self._trace.value_of(last.entry, last.number) == stored.value:
            claim = Claim(last.entry, stored.mod_revision)
            if known.fits(claim):
                compared.agreed.append(last.entry)
                compared.claims.append(claim)
            return
        could_be = stored is not None and last.put and known.fits(Claim(last.entry, stored.mod_revision))
        if could_be and self._is_rotten(key, stored):
            return
        least = points[self._trace.runs[-1].run.first].least_at_end()
        most = known.most_at(last.entry)
        if least is None or most is None or most > revision or last.leased:
            return  # the store was read before the write, or nobody knows
        if self._taken_along(key, last.entry):
            return
        if stored is None:
            if last.put and revision <= least:
                compared.contradicted.append(last.entry)
        else:
            exact, after, _ = known.revision(last.entry)
            before_it = stored.mod_revision <= (after or 0) or stored.mod_revision < (exact or 0)
            if stored.mod_revision <= least and (last.put or before_it):
                compared.contradicted.append(last.entry)

    def _is_rotten(self, key: bytes, stored: StoredValue | None) -> bool:
        """Say whether a stored value was changed on disk: no request of the log wrote it, and it cannot be read."""
        return (
            stored is not None
            and not self._reads(stored)
            and all(
                self._trace.value_of(record.entry, record.number) != stored.value
                for record in self._trace.of_key(key)
                if record.kind is WriteKind.PUT and not record.keeps_value
            )
        )

    def _taken_along(self, key: bytes, entry: int) -> bool:
        return any(one.entry > entry and in_range(key, one.begin, one.end) for one in self._trace.ranges)

    def judge(self, compared: Compared) -> Agreement:
        """Say whether the log is of the history of what is stored."""
        agreed, contradicted = sorted(set(compared.agreed)), sorted(set(compared.contradicted))
        newest = agreed[-1] if agreed else 0
        later = [entry for entry in contradicted if entry > newest]
        told = (
            f"of the keys that were compared, {len(agreed)} hold just what the log wrote last, {len(contradicted)} what"
            " it does not allow"
        )
        if not self._stores:
            kinship, told = Kinship.NOT_COMPARED, "it was compared with nothing that is stored"
        elif not self._trace.last_writes:
            kinship, told = Kinship.NOT_COMPARED, "it writes no key"
        elif not agreed or len(later) > _MOST_CONTRADICTED or len(contradicted) > len(agreed):
            kinship = Kinship.OTHER_HISTORY
        else:
            kinship = Kinship.SAME_HISTORY
        return Agreement(
            kinship=kinship,
            agreed=len(agreed),
            contradicted=len(contradicted),
            newest_agreed_index=agreed[-min(_AGREED_BACK, len(agreed))] if agreed else 0,
            sentence=told,
        )
