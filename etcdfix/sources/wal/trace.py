"""One pass over the entries that count: an index by key, and what a replay makes of each."""

from __future__ import annotations

import itertools
import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from etcdfix.sources.mvcc import escape_key, successor
from etcdfix.sources.sortedruns import SortedRecords
from etcdfix.sources.wal.entries import Run, WriteAheadLog
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.replay import Applied, Base, Replay
from etcdfix.sources.wal.requests import (
    Action,
    Delete,
    Listed,
    Other,
    Put,
    action_of,
    expected_revisions,
    writes_of,
)

NOT_COMPARED: Final = -1
KEPT_LEASE: Final = -1
_TERMINATOR: Final = b"\x00\x00"
_TAIL: Final = struct.Struct(">QIBBqqqq")
_BATCH: Final = 4096
_MOST_RANGES: Final = 100_000
_SAMPLE: Final = 256
_KINDS: Final = tuple(WriteKind)

FALLBACK, REPLAYED, CHANGED, TAKEN_ALONG, KEEPS_VALUE = (1 << bit for bit in range(5))
"""Bits of a record. It stands in a branch for failure; the replay reached it; it took effect; a range or a lease named
the key, and the request does not; it is a put of no value."""


class KeyRecord(NamedTuple):
    """One write of one key, as the index keeps it.

    Attributes:
        entry: Raft index.
        number: Of the write in its entry.
        kind_at: Which of the kinds of writes it is.
        bits: What else is known of it.
        expected: The mod revision that a compare wants the key to have; 0 for absent, :data:`NOT_COMPARED`.
        create: By the replay.
        version: By the replay.
        lease: Of a put, as the request says, or the replay; :data:`KEPT_LEASE` where it keeps the one before.
    """

    entry: int
    number: int
    kind_at: int
    bits: int
    expected: int = NOT_COMPARED
    create: int = 0
    version: int = 0
    lease: int = 0

    @property
    def kind(self) -> WriteKind:
        """What was asked."""
        return _KINDS[self.kind_at]

    @property
    def puts(self) -> bool:
        """Whether it is a put with a value."""
        return self.kind is WriteKind.PUT and not self.bits & KEEPS_VALUE


def taken_along(entry: int, number: int, kind: WriteKind, bits: int = 0, lease: int = 0) -> KeyRecord:
    """Return the record of a key that the request does not name."""
    return KeyRecord(entry, number, _KINDS.index(kind), bits | TAKEN_ALONG, lease=lease)


class RunTrace:
    """What is known of the entries of one run, by their place in it.

    Attributes:
        base: What the replay began with; None for none.
        begin: Place of the first entry that was replayed.
        end: Place behind the last one.
        stopped: Why the replay ended before the last commit; "" where it did not.
        candidates: How many entries up to this one ask for a change, itself counted.
        revisions: That the replay says it made; 0 for none.
        witnessed: 1 where a later compare confirms the replay.
    """

    def __init__(self, run: Run) -> None:
        size = len(run.places)
        self.run = run
        self.base: Base | None = None
        self.begin = self.end = 0
        self.stopped = ""
        self.candidates = array("I", bytes(4 * size))
        self.revisions = array("Q", bytes(8 * size))
        self.witnessed = bytearray(size)
        self.replay: Replay | None = None

    def has_replayed(self, entry: int) -> bool:
        """Say whether an entry was replayed."""
        return self.begin <= entry - self.run.first < self.end

    def revision_at(self, entry: int) -> int:
        """Return the revision that the replay says an entry made; 0 for none."""
        return self.revisions[entry - self.run.first]

    def refuses(self, place: int) -> bool:
        """Say whether the replay says that an entry changed nothing, and yet it asked for a change."""
        before = self.candidates[place - 1] if place else 0
        return not self.revisions[place] and self.candidates[place] > before

    def last_changed(self, until: int) -> int:
        """Return the last replayed entry up to one that made a revision; 0 for none."""
        places = range(min(until - self.run.first, self.end - 1), self.begin - 1, -1)
        return next((self.run.first + place for place in places if self.revisions[place]), 0)


class Trace:
    """The index of a log, made in one pass.

    Attributes:
        ranges: Deletions of ranges whose keys are not known, each with its entry.
        lost_ranges: So many more there were.
        revoked: For each lease that ended where no replay tells its keys: in which entries.
        sample: Keys to compare with what is stored.
    """

    def __init__(self, log: WriteAheadLog, bases: dict[int, Base]) -> None:
        self._log = log
        self._records = SortedRecords()
        self._batch: list[bytes] = []
        self.ranges: list[tuple[int, Delete]] = []
        self.lost_ranges = 0
        self.revoked: dict[int, list[int]] = {}
        self.sample = _Sample()
        self.runs = [RunTrace(run) for run in log.runs]
        try:
            for run in self.runs:
                self._walk(run, bases.get(run.run.first))
            self._records.extend(self._batch)
            self._records.finish()
        except BaseException:
            self._records.close()
            raise

    def close(self) -> None:
        """Let go of the temporary file."""
        self._records.close()

    def _walk(self, trace: RunTrace, base: Base | None) -> None:
        count = 0
        if base is not None:
            trace.base = base
            trace.begin = trace.end = max(base.applied.entry + 1 - trace.run.first, 0)
        for place, (entry, data) in enumerate(self._log.entries(trace.run)):
            if base is not None and place == trace.begin:
                trace.replay = Replay(base, self.value_of)
            action = action_of(entry, data)
            writes = writes_of(action)
            if writes or (isinstance(action, Other) and action.ends_lease()):
                count += 1
            trace.candidates[place] = count
            self._index(entry.at, action, writes, self._replay(trace, place, action))

    def _replay(self, trace: RunTrace, place: int, action: Action) -> Applied | None:
        entry = trace.run.first + place
        if trace.replay is None or trace.stopped or entry > self._log.committed:
            return None
        applied = trace.replay.apply(entry, action)
        if trace.replay.stopped:
            trace.stopped = trace.replay.stopped
            return None
        trace.end = place + 1
        if applied.revision:
            trace.revisions[place] = applied.revision
        for witnessed in applied.witnessed:
            trace.witnessed[witnessed - trace.run.first] = 1
        return applied

    def _index(self, entry: int, action: Action, writes: list[Listed], applied: Applied | None) -> None:
        expected = expected_revisions(action) if writes else {}
        changes = applied.changes if applied is not None else ()
        done = {change.number: change for change in changes if change.written}
        for write, fallback in writes:
            if isinstance(write, Delete) and write.range_end:
                if applied is None and len(self.ranges) < _MOST_RANGES:
                    self.ranges.append((entry, write))
                elif applied is None:
                    self.lost_ranges += 1
                continue
            change = done.get(write.number)
            bits = FALLBACK * fallback | REPLAYED * (applied is not None) | CHANGED * (change is not None)
            kind, lease = WriteKind.DELETE, 0
            if isinstance(write, Put):
                kind, lease = WriteKind.PUT, KEPT_LEASE if write.keeps_lease else write.lease
                bits |= KEEPS_VALUE * write.keeps_value
            told = (change.create, change.version, change.lease) if change is not None else (0, 0, lease)
            wanted = expected.get(write.key, NOT_COMPARED)
            self._add(write.key, KeyRecord(entry, write.number, _KINDS.index(kind), bits, wanted, *told))
            if entry <= self._log.committed:
                self.sample.note(write.key, comparable=not bits & KEEPS_VALUE)
        for change in changes:
            if not change.written:
                bits = REPLAYED | CHANGED
                self._add(change.key, taken_along(entry, change.number, change.kind, bits, change.lease))
                self.sample.note(change.key, comparable=False)
        if applied is None and isinstance(action, Other) and action.ends_lease():
            self.revoked.setdefault(action.message.ID, []).append(entry)

    def _add(self, key: bytes, record: KeyRecord) -> None:
        self._batch.append(escape_key(key) + _TERMINATOR + _TAIL.pack(*record))
        if len(self._batch) >= _BATCH:
            self._records.extend(self._batch)
            self._batch = []

    def run_with(self, entry: int) -> RunTrace | None:
        """Return the run that holds an entry; None where none does."""
        at = bisect_right(self.runs, entry, key=attrgetter("run.first")) - 1
        run = self.runs[at] if at >= 0 else None
        return run if run is not None and entry <= run.run.last else None

    def run_of(self, entry: int) -> RunTrace:
        """Return the run of an entry that the log has."""
        run = self.run_with(entry)
        assert run is not None
        return run

    def value_of(self, entry: int, number: int) -> bytes:
        """Return the value of a put that stands in the log.

        Raises:
            SourceError: The file cannot be read any more.
        """
        place = self._log.place_of(entry)
        assert place is not None
        for write, _ in writes_of(action_of(*self._log.entry(place))):
            if write.number == number and isinstance(write, Put):
                return write.value
        raise AssertionError(number)

    def value(self, record: KeyRecord) -> bytes | None:
        """Return the value that a record put, as :meth:`value_of`; None where it put none."""
        return self.value_of(record.entry, record.number) if record.puts else None

    def of_key(self, key: bytes) -> list[KeyRecord]:
        """Return the writes of one key, oldest first."""
        lower = escape_key(key) + _TERMINATOR
        return [_record(raw) for block in self._records.blocks(lower, successor(lower)) for raw in block]

    def by_key(self, prefix: bytes = b"") -> Iterator[tuple[bytes, list[KeyRecord]]]:
        """Yield every key below a prefix with its writes, keys in byte order, writes oldest first."""
        lower = escape_key(prefix)
        every = (raw for block in self._records.blocks(lower, successor(lower)) for raw in block)
        for raw, records in itertools.groupby(every, lambda record: record[: -_TAIL.size]):
            key = raw[: -len(_TERMINATOR)].replace(b"\x00\xff", b"\x00")
            yield key, [_record(record) for record in records]


def _record(raw: bytes) -> KeyRecord:
    return KeyRecord._make(_TAIL.unpack_from(raw, len(raw) - _TAIL.size))


class _Sample:
    """The keys written last, and others from all over the log, chosen by a checksum of their names."""

    def __init__(self) -> None:
        self._newest: dict[bytes, None] = {}
        self._spread: set[bytes] = set()
        self._mask = 0

    def __iter__(self) -> Iterator[bytes]:
        return iter(sorted(self._spread.union(self._newest)))

    def note(self, key: bytes, *, comparable: bool) -> None:
        """Take note of a write of a key; only one with a value, or a deletion, can be compared."""
        self._newest.pop(key, None)
        if not comparable:
            self._spread.discard(key)
            return
        self._newest[key] = None
        if len(self._newest) > _SAMPLE:
            del self._newest[next(iter(self._newest))]
        if not zlib.crc32(key) & self._mask:
            self._spread.add(key)
            if len(self._spread) > _SAMPLE:
                self._mask = self._mask << 1 | 1
                self._spread = {one for one in self._spread if not zlib.crc32(one) & self._mask}
