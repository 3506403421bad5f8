"""One pass over the entries that count: an index by key, and what a replay makes of each."""

from __future__ import annotations

import struct
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from etcdfix.sources.mvcc import escape_key, successor
from etcdfix.sources.sortedruns import SortedRecords
from etcdfix.sources.wal.base import Base
from etcdfix.sources.wal.entries import LogEntries, Run
from etcdfix.sources.wal.model import WriteKind
from etcdfix.sources.wal.replay import Applied, Replay
from etcdfix.sources.wal.requests import (
    Action,
    Delete,
    Listed,
    Put,
    Revoke,
    asked_by,
    expected_revisions,
    writes_of,
)

NOT_COMPARED: Final = -1
_TERMINATOR: Final = b"\x00\x00"
_TAIL: Final = struct.Struct(">QIBBqqqq")
_BATCH: Final = 4096
_MOST_RANGES: Final = 100_000
_SAMPLE: Final = 256

# Bits of a record.
_FALLBACK: Final = 1
_REPLAYED: Final = 2
_CHANGED: Final = 4
_TAKEN_ALONG: Final = 8
_KEEPS_VALUE: Final = 16

_KINDS: Final = tuple(WriteKind)

NOTHING: Final = 0
CHANGED: Final = 1
UNCHANGED: Final = 2
"""What came of an entry: it asked for no change; it changed something; it would have, and did not."""


class KeyRecord(NamedTuple):
    """One write of one key, as the index keeps it.

    Attributes:
        entry: Raft index.
        number: Of the write in its entry.
        kind: What was asked.
        fallback: In a branch for failure.
        replayed: The replay reached it.
        changed: And it took effect.
        taken_along: A range or a lease named the key; the request does not.
        keeps_value: A put of no value.
        expected: The mod revision that a compare wants the key to have; 0 for absent, :data:`NOT_COMPARED`.
        create: By the replay.
        version: By the replay.
        lease: Of a put, as the request says, or the replay; -1 where it keeps the one before.
    """

    entry: int
    number: int
    kind: WriteKind
    fallback: bool
    replayed: bool
    changed: bool
    taken_along: bool
    keeps_value: bool
    expected: int
    create: int
    version: int
    lease: int


class RangeDeletion(NamedTuple):
    """A range that was deleted where no replay tells which keys were in it."""

    entry: int
    number: int
    begin: bytes
    end: bytes


class LastWrite(NamedTuple):
    """The last write of a key, for the comparison with what is stored.

    Attributes:
        entry: Raft index.
        number: Of the write in its entry.
        put: It is one with a value.
        plain: It stands on the branch for success, or there is none.
        leased: It put the key under a lease, with which it may be gone.
    """

    entry: int
    number: int
    put: bool
    plain: bool
    leased: bool


class RunTrace:
    """What is known of the entries of one run, by their place in it.

    Attributes:
        base: What the replay began with; None for none.
        begin: Place of the first entry that was replayed.
        end: Place behind the last one.
        stopped: Why the replay ended before the last commit; "" where it did not.
        candidates: How many entries up to this one ask for a change, itself counted.
        revisions: That the replay says it made; 0 for none.
        effects: :data:`NOTHING`, :data:`CHANGED` or :data:`UNCHANGED`; where nothing was replayed, as it was asked.
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
        self.effects = bytearray(size)
        self.witnessed = bytearray(size)
        self.replay: Replay | None = None

    @property
    def first_replayed(self) -> int:
        """Raft index of the first entry that was replayed."""
        return self.run.first + self.begin

    def last_changed(self, end: int) -> list[int]:
        """Return the raft index of the last replayed entry before a place that made a revision; none for none."""
        for place in range(end - 1, self.begin - 1, -1):
            if self.revisions[place]:
                return [self.run.first + place]
        return []


class Trace:
    """The index of a log, made in one pass.

    Attributes:
        ranges: Deleted ranges whose keys are not known.
        revoked: For each lease that ended where no replay tells its keys: in which entries.
    """

    def __init__(self, log: LogEntries, bases: dict[int, Base]) -> None:
        self._log = log
        self._records = SortedRecords()
        self._batch: list[bytes] = []
        self.ranges: list[RangeDeletion] = []
        self.lost_ranges = 0
        self.revoked: dict[int, list[int]] = {}
        self._newest = _Newest()
        self._spread = _Spread()
        self.runs = [RunTrace(run) for run in log.runs]
        try:
            for run in self.runs:
                self._walk(run, bases.get(run.run.first))
            self._records.extend(self._batch)
            self._records.finish()
        except BaseException:
            self._records.close()
            raise

    @property
    def last_writes(self) -> dict[bytes, LastWrite]:
        """Return the sample, newest last."""
        both = {**self._spread.writes, **self._newest.writes}
        return dict(sorted(both.items(), key=lambda item: item[1].entry))

    def close(self) -> None:
        """Let go of the temporary file."""
        self._records.close()

    def _walk(self, trace: RunTrace, base: Base | None) -> None:
        count = 0
        run = trace.run
        if base is not None:
            trace.base = base
            trace.begin = trace.end = max(base.applied.entry + 1 - run.first, 0)
        for place, (entry, data) in enumerate(self._log.entries(run)):
            if base is not None and place == trace.begin:
                trace.replay = Replay(base, self.value_of)
            asked = asked_by(entry, data)
            writes = writes_of(asked.action)
            if writes or isinstance(asked.action, Revoke):
                count += 1
                trace.effects[place] = UNCHANGED
            trace.candidates[place] = count
            applied = None
            if trace.replay is not None and not trace.stopped and entry.at <= self._log.committed:
                applied = self._replay(trace, place, asked.action)
            self._index(entry.at, asked.action, writes, applied)

    def _replay(self, trace: RunTrace, place: int, action: Action) -> Applied | None:
        assert trace.replay is not None
        applied = trace.replay.apply(trace.run.first + place, action)
        if trace.replay.stopped:
            trace.stopped = trace.replay.stopped
            return None
        trace.end = place + 1
        if applied.revision:
            trace.revisions[place] = applied.revision
            trace.effects[place] = CHANGED
        for witnessed in applied.witnessed:
            trace.witnessed[witnessed - trace.run.first] = 1
        return applied

    def _index(self, entry: int, action: Action, writes: list[Listed], applied: Applied | None) -> None:
        expected = expected_revisions(action) if writes else {}
        done = {change.number: change for change in applied.changes if change.written} if applied else {}
        replayed = _REPLAYED if applied is not None else 0
        for write, fallback in writes:
            if isinstance(write, Delete) and write.range_end:
                if applied is None and len(self.ranges) < _MOST_RANGES:
                    self.ranges.append(RangeDeletion(entry, write.number, write.key, write.range_end))
                elif applied is None:
                    self.lost_ranges += 1
                continue
            change = done.get(write.number)
            bits = replayed | (_FALLBACK if fallback else 0) | (_CHANGED if change is not None else 0)
            lease = 0
            if isinstance(write, Put):
                bits |= _KEEPS_VALUE if write.keeps_value else 0
                lease = -1 if write.keeps_lease else write.lease
            kind = WriteKind.PUT if isinstance(write, Put) else WriteKind.DELETE
            self._add(
                write.key,
                entry,
                write.number,
                kind,
                bits,
                expected.get(write.key, NOT_COMPARED),
                (change.create, change.version, change.lease) if change is not None else (0, 0, lease),
            )
            self._remember(write, fallback, entry)
        for change in applied.changes if applied is not None else ():
            if not change.written:
                bits = _REPLAYED | _CHANGED | _TAKEN_ALONG
                self._add(
                    change.key, entry, change.number, change.kind, bits, NOT_COMPARED, (0, 0, change.lease)
                )
                self._newest.forget(change.key)
                self._spread.forget(change.key)
        if applied is None and isinstance(action, Revoke):
            self.revoked.setdefault(action.lease, []).append(entry)

    def _remember(self, write: Put | Delete, fallback: bool, entry: int) -> None:
        if entry > self._log.committed:
            return
        put = isinstance(write, Put)
        if isinstance(write, Put) and write.keeps_value:
            self._newest.forget(write.key)
            self._spread.forget(write.key)
            return
        leased = isinstance(write, Put) and (write.keeps_lease or write.lease != 0)
        last = LastWrite(entry, write.number, put, not fallback, leased)
        self._newest.add(write.key, last)
        self._spread.add(write.key, last)

    def _add(
        self,
        key: bytes,
        entry: int,
        number: int,
        kind: WriteKind,
        bits: int,
        expected: int,
        told: tuple[int, int, int],
    ) -> None:
        tail = _TAIL.pack(entry, number, _KINDS.index(kind), bits, expected, *told)
        self._batch.append(escape_key(key) + _TERMINATOR + tail)
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
        for write, _ in writes_of(asked_by(*self._log.entry(place)).action):
            if write.number == number and isinstance(write, Put):
                return write.value
        raise AssertionError(number)

    def of_key(self, key: bytes) -> Iterator[KeyRecord]:
        """Yield the writes of one key, oldest first."""
        lower = escape_key(key) + _TERMINATOR
        for block in self._records.blocks(lower, successor(lower)):
            for record in block:
                yield _record(record)

    def by_key(self, prefix: bytes = b"") -> Iterator[tuple[bytes, list[KeyRecord]]]:
        """Yield every key below a prefix with its writes, keys in byte order, writes oldest first."""
        lower = escape_key(prefix)
        raw, found = b"", list[KeyRecord]()
        for block in self._records.blocks(lower, successor(lower)):
            for record in block:
                key = record[: -_TAIL.size]
                if key != raw and found:
                    yield _unescape(raw), found
                    found = []
                raw = key
                found.append(_record(record))
        if found:
            yield _unescape(raw), found


def _unescape(raw: bytes) -> bytes:
    return raw[: -len(_TERMINATOR)].replace(b"\x00\xff", b"\x00")


def _record(raw: bytes) -> KeyRecord:
    entry, number, kind, bits, expected, create, version, lease = _TAIL.unpack_from(
        raw, len(raw) - _TAIL.size
    )
    return KeyRecord(
        entry,
        number,
        _KINDS[kind],
        bool(bits & _FALLBACK),
        bool(bits & _REPLAYED),
        bool(bits & _CHANGED),
        bool(bits & _TAKEN_ALONG),
        bool(bits & _KEEPS_VALUE),
        expected,
        create,
        version,
        lease,
    )


class _Newest:
    def __init__(self) -> None:
        self.writes: dict[bytes, LastWrite] = {}

    def add(self, key: bytes, last: LastWrite) -> None:
        self.writes.pop(key, None)
        self.writes[key] = last
        if len(self.writes) > _SAMPLE:
            del self.writes[next(iter(self.writes))]

    def forget(self, key: bytes) -> None:
        self.writes.pop(key, None)


class _Spread:
    """Keys from all over the log, chosen by a checksum of their names: the same ones in each run."""

    def __init__(self) -> None:
        self.writes: dict[bytes, LastWrite] = {}
        self._mask = 0

    def add(self, key: bytes, last: LastWrite) -> None:
        if zlib.crc32(key) & self._mask:
            return
        self.writes[key] = last
        if len(self.writes) > _SAMPLE:
            self._mask = self._mask << 1 | 1
            self.writes = {
                one: found for one, found in self.writes.items() if not zlib.crc32(one) & self._mask
            }

    def forget(self, key: bytes) -> None:
        self.writes.pop(key, None)
