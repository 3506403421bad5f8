"""The entries of a log that count, by raft index: where each stands, and what is missing between them."""

from __future__ import annotations

import itertools
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from etcdfix.model.closing import Closing
from etcdfix.sources.errors import NotALog
from etcdfix.sources.wal.segments import (
    FRAME_HEADER,
    SEGMENT_SHIFT,
    Damage,
    frame_sizes,
    open_segments,
    records,
)
from etcdfix.wire import raft

_OFFSET: Final = (1 << SEGMENT_SHIFT) - 1
_PIECE: Final = 4 << 20
_MOST_PROBLEMS: Final = 100


class Run:
    """Entries with consecutive indexes, nothing lost between them; the only stretch in which anything is derived.

    Attributes:
        first: Raft index of the first.
        places: Segment and offset of the frame of each.
        broken: Why it does not go on from the run before it; "" for the first.
    """

    def __init__(self, first: int, broken: str) -> None:
        self.first, self.broken = first, broken
        self.places = array("Q")

    @property
    def last(self) -> int:
        """Raft index of the last; ``first - 1`` for none."""
        return self.first + len(self.places) - 1


class WriteAheadLog(Closing):
    """The write-ahead log of one member, each frame checked once.

    The end of each file is where it was when it was opened, so that a running etcd may write on.
    Whatever reads raises :class:`SourceError` where a file cannot be read any more.

    Attributes:
        directory: ``member/wal``, or a copy of it.
        runs: In order of their indexes, which never overlap.
        committed: Entries up to this index were agreed on.
        cluster_id: Lower-case hex; "" for unknown. It proves nothing: defaults repeat.
        snapshots: Raft index of each snapshot that the log names, 0 of a new log included.
        problems: Damage that was walked around, and gaps, a sentence each.

    Raises:
        NotALog: No such directory, no segment of a log in it, or nothing in them that can be read.
        SourceError: A segment cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments, problems = open_segments(directory)
        self.runs: list[Run] = []
        self.committed = 0
        self.cluster_id = ""
        self.snapshots: list[int] = []
        self.problems = [f"{directory}: {problem}" for problem in problems]
        self._further = 0
        self._broken = "its beginning"
        self._seen = False
        try:
            self._read()
        except BaseException:
            self.close()
            raise
        if self._further:
            self.problems.append(f"{directory}: {self._further} more problems like these were found")
        for before, after in itertools.pairwise(self.runs):
            if after.first > before.last + 1:
                missing = f"entries {before.last + 1} to {after.first - 1} of the log are missing"
                self.problems.append(f"{missing} ({after.broken})")

    @property
    def last(self) -> int:
        """Raft index of the newest entry; 0 for none."""
        return self.runs[-1].last if self.runs else 0

    def close(self) -> None:
        """Let go of the files."""
        for segment in self.segments:
            segment.close()

    def place_of(self, index: int) -> int | None:
        """Return where an entry stands; None where it cannot be read."""
        at = bisect_right(self.runs, index, key=attrgetter("first")) - 1
        run = self.runs[at] if at >= 0 else None
        return run.places[index - run.first] if run is not None and index <= run.last else None

    def entry(self, place: int) -> tuple[raft.Entry, bytes]:
        """Read one entry again; its data stands at ``data_at`` to ``data_end`` in the bytes."""
        segment, at = self.segments[place >> SEGMENT_SHIFT], place & _OFFSET
        size, _ = frame_sizes(segment.read(at, FRAME_HEADER))
        return _parsed(segment.read(at + FRAME_HEADER, size), 0, size)

    def entries(self, run: Run) -> Iterator[tuple[raft.Entry, bytes]]:
        """Yield every entry of a run, as :meth:`entry` gives one."""
        data, begin, current = b"", 0, -1
        for place in run.places:
            number, at = place >> SEGMENT_SHIFT, place & _OFFSET
            segment = self.segments[number]
            offset = at - begin
            if number != current or offset < 0 or offset + FRAME_HEADER > len(data):
                data, begin, current, offset = segment.read(at, _PIECE), at, number, 0
            size, _ = frame_sizes(data[offset : offset + FRAME_HEADER])
            if offset + FRAME_HEADER + size > len(data):
                data, begin, offset = segment.read(at, max(_PIECE, FRAME_HEADER + size)), at, 0
            yield _parsed(data, offset + FRAME_HEADER, size)

    def _read(self) -> None:
        for found in records(self.segments):
            if isinstance(found, Damage):
                if not found.torn:  # an etcd that runs, or was killed: what it held was never agreed on
                    self._damage(found.what)
            elif found.type == raft.ENTRY:
                self._entry(found.data, found.place)
            else:
                self._other(found.type, found.data)
        if not self._seen:
            raise NotALog(f"{self.directory}: no record of a log can be read in {len(self.segments)} files")

    def _damage(self, what: str) -> None:
        """Take note of what was lost: it may have superseded entries that nobody had agreed on yet."""
        self._problem(what)
        self._broken = self._broken or what
        self._drop_from(self.committed + 1)

    def _problem(self, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(what)
        else:
            self._further += 1

    def _entry(self, data: bytes, place: int) -> None:
        where = f"{self.segments[place >> SEGMENT_SHIFT].path}: byte {place & _OFFSET}"
        try:
            entry = raft.parse_entry(data, 0, len(data))
        except raft.Malformed as exc:
            self._damage(f"{where}: no entry: {exc}")
            return
        self._seen = True
        if self.runs and entry.at <= self.last:
            if entry.at <= self.committed:
                self._problem(f"{where}: entry {entry.at} is written again although it had been agreed on")
                self._broken = self._broken or self.problems[-1]
            self._drop_from(entry.at)
        if self.runs and entry.at != self.last + 1:
            # A member that lagged was sent a snapshot: what it held beyond the last commit may never have been agreed
            # on.
            self._drop_from(self.committed + 1)
            self._broken = self._broken or f"{where}: entry {entry.at} follows on entry {self.last}"
        if self._broken or not self.runs:
            self.runs.append(Run(entry.at, self._broken))
            self._broken = ""
        self.runs[-1].places.append(place)

    def _drop_from(self, index: int) -> None:
        """Forget every entry from an index on: a later one took its place, or may have."""
        while self.runs and self.runs[-1].last >= index:
            run = self.runs[-1]
            del run.places[max(index - run.first, 0) :]
            if run.places:
                return
            self._broken = self._broken or run.broken
            self.runs.pop()

    def _other(self, type_: int, data: bytes) -> None:
        try:
            if type_ == raft.METADATA:
                cluster = raft.parse("Metadata", data).ClusterID
                self.cluster_id = f"{cluster:x}" if cluster else ""
            elif type_ == raft.STATE:
                self.committed = max(self.committed, raft.parse("HardState", data).commit)
            else:
                snapshot = raft.parse("Snapshot", data).index
                self.snapshots.append(snapshot)
                if snapshot > self.committed:
                    self._drop_from(self.committed + 1)
        except raft.Malformed as exc:
            self._problem(f"{self.directory}: a record of type {type_} that is not one: {exc}")
            return
        self._seen = True


def _parsed(data: bytes, at: int, size: int) -> tuple[raft.Entry, bytes]:
    _, _, begin, end = raft.parse_record(data, at, at + size)
    return raft.parse_entry(data, begin, end), data
