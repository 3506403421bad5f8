"""The entries of one log that count, by raft index: where each stands, and what is missing between them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Final

from etcdfix.errors import LogsDisagree, NotALog
from etcdfix.sources.wal.model import LogGap
from etcdfix.sources.wal.segments import (
    FRAME_HEADER,
    Damage,
    Segment,
    SegmentReader,
    frame_sizes,
    open_segments,
)
from etcdfix.wire import raft

_SEGMENT_SHIFT: Final = 40
_PLACE: Final = (1 << _SEGMENT_SHIFT) - 1
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
        self.first = first
        self.broken = broken
        self.places = array("Q")

    @property
    def last(self) -> int:
        """Raft index of the last; ``first - 1`` for none."""
        return self.first + len(self.places) - 1


class LogEntries:
    """The entries of a log that count, and what else it says; of one member, or of several joined.

    Whatever reads raises :class:`~etcdfix.errors.SourceError` where a file cannot be read any more.

    Attributes:
        runs: In order of their indexes, which never overlap.
        committed: Entries up to this index were agreed on.
        cluster_id: 0 for unknown.
        snapshots: Raft index of each snapshot that the log names, 0 of a new log included.
        superseded: How many entries were replaced.
        problems: What is wrong, a sentence each.
    """

    def __init__(self, directories: tuple[Path, ...], segments: list[Segment]) -> None:
        self.directories = directories
        self.segments = segments
        self.runs: list[Run] = []
        self.committed = self.cluster_id = self.superseded = 0
        self.snapshots: list[int] = []
        self.problems: list[str] = []

    def close(self) -> None:
        """Let go of the files."""
        for segment in self.segments:
            segment.close()

    def gaps(self) -> list[LogGap]:
        """Return what is missing between the runs."""
        pairs = zip(self.runs, self.runs[1:], strict=False)
        return [
            LogGap(one.last + 1, two.first - 1, two.broken) for one, two in pairs if two.first > one.last + 1
        ]

    def place_of(self, index: int) -> int | None:
        """Return where an entry stands; None where it cannot be read."""
        at = bisect_right(self.runs, index, key=attrgetter("first")) - 1
        run = self.runs[at] if at >= 0 else None
        return run.places[index - run.first] if run is not None and index <= run.last else None

    def segment_of(self, place: int) -> Segment:
        """Return the file that a place is in."""
        return self.segments[place >> _SEGMENT_SHIFT]

    def entry(self, place: int) -> tuple[raft.Entry, bytes]:
        """Read one entry again; its data stands at ``data_at`` to ``data_end`` in the bytes."""
        raw = self._record(place)
        return _parsed(raw, 0, len(raw))

    def entry_bytes(self, place: int) -> bytes:
        """Return a whole entry as it is stored: its term, index, type and data."""
        raw = self._record(place)
        _, _, begin, end = raft.parse_record(raw, 0, len(raw))
        return raw[begin:end]

    def _record(self, place: int) -> bytes:
        segment, at = self.segment_of(place), place & _PLACE
        size, _ = frame_sizes(segment.read(at, FRAME_HEADER))
        return segment.read(at + FRAME_HEADER, size)

    def entries(self, run: Run) -> Iterator[tuple[raft.Entry, bytes]]:
        """Yield every entry of a run, as :meth:`entry` gives one."""
        data, begin, current = b"", 0, -1
        for place in run.places:
            number, at = place >> _SEGMENT_SHIFT, place & _PLACE
            segment = self.segments[number]
            offset = at - begin
            if number != current or offset < 0 or offset + FRAME_HEADER > len(data):
                data, begin, current, offset = segment.read(at, _PIECE), at, number, 0
            size, _ = frame_sizes(data[offset : offset + FRAME_HEADER])
            if offset + FRAME_HEADER + size > len(data):
                data, begin, offset = segment.read(at, max(_PIECE, FRAME_HEADER + size)), at, 0
            yield _parsed(data, offset + FRAME_HEADER, size)


class MemberLog(LogEntries):
    """The log of one member, each frame checked once.

    Raises:
        NotALog: No such directory, no segment, or nothing in them that can be read.
        SourceError: A segment cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        segments, problems = open_segments(directory)
        super().__init__((directory,), segments)
        self.directory = directory
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

    def _read(self) -> None:
        reader = SegmentReader()
        before: Segment | None = None
        for number, segment in enumerate(self.segments):
            if before is not None and segment.sequence != before.sequence + 1:
                self._break(f"segments are missing before {segment.path.name}")
                reader.crc = None
            before = segment
            base = number << _SEGMENT_SHIFT
            for found in reader.records(segment, last=segment is self.segments[-1]):
                if isinstance(found, Damage):
                    self._damage(found)
                elif found.type == raft.ENTRY:
                    self._entry(found.data, base | found.place)
                else:
                    self._other(found.type, found.data)
        self.runs = [run for run in self.runs if run.places]
        if not self._seen:
            raise NotALog(f"{self.directory}: no record of a log can be read in {len(self.segments)} files")

    def _damage(self, found: Damage) -> None:
        if found.torn:
            return  # an etcd that runs, or was killed: what it held was never agreed on
        self._problem(found.what)
        self._break(found.what)
        # What was lost may have superseded entries that nobody had agreed on yet.
        if self.runs:
            self._drop_from(self.committed + 1, superseded=False)

    def _problem(self, what: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(what)
        else:
            self._further += 1

    def _break(self, why: str) -> None:
        self._broken = self._broken or why

    def _entry(self, data: bytes, place: int) -> None:
        try:
            entry = raft.parse_entry(data, 0, len(data))
        except raft.Malformed as exc:
            self._problem(f"{self._where(place)}: no entry: {exc}")
            self._break(f"{self._where(place)}: no entry")
            self._drop_from(self.committed + 1, superseded=False)
            return
        self._seen = True
        last = self.runs[-1].last if self.runs else entry.at - 1
        if entry.at <= last:
            if entry.at <= self.committed:
                what = (
                    f"{self._where(place)}: entry {entry.at} is written again although it had been agreed on"
                )
                self._problem(what)
                self._break(what)
            self._drop_from(entry.at)
            last = self.runs[-1].last if self.runs else entry.at - 1
        if entry.at != last + 1:
            # A member that lagged was sent a snapshot: what it held beyond the last commit may never have been agreed
            # on.
            self._drop_from(self.committed + 1, superseded=False)
            last = self.runs[-1].last if self.runs else last
            self._break(f"{self._where(place)}: entry {entry.at} follows on entry {last}")
        if self._broken or not self.runs:
            self.runs.append(Run(entry.at, self._broken))
            self._broken = ""
        self.runs[-1].places.append(place)

    def _drop_from(self, index: int, *, superseded: bool = True) -> None:
        """Forget every entry from an index on: a later one took its place, or may have."""
        while self.runs and self.runs[-1].last >= index:
            run = self.runs[-1]
            keep = max(index - run.first, 0)
            self.superseded += len(run.places) - keep if superseded else 0
            del run.places[keep:]
            if keep:
                return
            self._break(run.broken)
            self.runs.pop()

    def _other(self, type_: int, data: bytes) -> None:
        try:
            if type_ == raft.METADATA:
                self.cluster_id = raft.parse("Metadata", data).ClusterID
            elif type_ == raft.STATE:
                self.committed = max(self.committed, raft.parse("HardState", data).commit)
            else:
                snapshot = raft.parse("Snapshot", data).index
                self.snapshots.append(snapshot)
                if snapshot > self.committed:
                    self._drop_from(self.committed + 1, superseded=False)
        except raft.Malformed as exc:
            self._problem(f"{self.directory}: a record of type {type_} that is not one: {exc}")
            return
        self._seen = True

    def _where(self, place: int) -> str:
        return f"{self.segments[place >> _SEGMENT_SHIFT].path}: byte {place & _PLACE}"


def _parsed(data: bytes, at: int, size: int) -> tuple[raft.Entry, bytes]:
    _, _, begin, end = raft.parse_record(data, at, at + size)
    return raft.parse_entry(data, begin, end), data


def join(logs: list[MemberLog]) -> LogEntries:
    """Return the logs of several members as one.

    Raises:
        LogsDisagree: They are of different clusters, have no index in common, or differ in one that was agreed on.
        SourceError: A file cannot be read any more.
    """
    if len(logs) == 1:
        return logs[0]
    logs = sorted(logs, key=lambda log: log.committed, reverse=True)
    joined = LogEntries(
        tuple(log.directory for log in logs), [segment for log in logs for segment in log.segments]
    )
    for log in logs:
        if joined.cluster_id and log.cluster_id and joined.cluster_id != log.cluster_id:
            raise LogsDisagree(
                f"{log.directory} is of cluster {log.cluster_id:x}, {joined.directories[0]} of {joined.cluster_id:x}",
                entry_index=0,
            )
        joined.cluster_id = joined.cluster_id or log.cluster_id
        joined.committed = max(joined.committed, log.committed)
        joined.superseded += log.superseded
        joined.snapshots += log.snapshots
        joined.problems += log.problems
    shift = 0
    for log in logs:
        moved = [_moved(run, shift << _SEGMENT_SHIFT) for run in log.runs]
        shift += len(log.segments)
        if log is logs[0]:
            joined.runs = moved
            continue
        common = False
        for run in moved:
            # Beyond it members may differ, and the longest log has the last word.
            del run.places[max(log.committed - run.first + 1, 0) :]
            common = _add(joined, run, log) or common
        if not common:
            raise LogsDisagree(
                f"{log.directory} has no entry in common with {joined.directories[0]}: nothing shows that they are of"
                " one history",
                entry_index=0,
                hint="look at each by itself",
            )
    return joined


def _moved(run: Run, by: int) -> Run:
    moved = Run(run.first, run.broken)
    moved.places = array("Q", (place + by for place in run.places))
    return moved


def _add(joined: LogEntries, run: Run, log: MemberLog) -> bool:
    """Add a run of one more member; return whether it has an entry in common with those that are there."""
    if not run.places:
        return False
    touching = [one for one in joined.runs if one.first <= run.last and run.first <= one.last]
    compared = False
    for one in touching:
        for index in range(max(one.first, run.first), min(one.last, run.last) + 1):
            if index > log.committed or joined.entry_bytes(
                one.places[index - one.first]
            ) != joined.entry_bytes(run.places[index - run.first]):
                raise LogsDisagree(
                    f"{log.directory} and {joined.directories[0]} differ in entry {index}",
                    entry_index=index,
                    hint="they are of different histories, or one is damaged: look at each by itself",
                )
            compared = True
    first = min([run.first, *(one.first for one in touching)])
    whole = Run(first, next((one.broken for one in touching if one.first == first), run.broken))
    known = {one.first: one for one in touching}
    at = first
    last = max([run.last, *(one.last for one in touching)])
    while at <= last:
        here = known.get(at)
        if here is not None:
            whole.places += here.places
            at = here.last + 1
        else:
            whole.places.append(run.places[at - run.first])
            at += 1
    joined.runs = sorted(
        [*(one for one in joined.runs if one not in touching), whole], key=attrgetter("first")
    )
    return compared
