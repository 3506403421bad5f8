"""The files of a write-ahead log and the frames in them, checked, with damage walked around.

Format:
    etcd 3.6 ``server/storage/wal``: ``wal.go`` (names, ``ReadAll``), ``encoder.go`` and ``decoder.go`` (frames, the
    running checksum, the rule for a torn write), ``walpb/record.go``.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import google_crc32c

from etcdfix.inputs.inputfile import open_regular
from etcdfix.model.errors import SourceError
from etcdfix.sources.errors import NotALog
from etcdfix.wire import raft

FRAME_HEADER: Final = 8
SEGMENT_SHIFT: Final = 40
"""A place is the number of a segment above so many bits, and the offset of a frame in it below them."""

_SECTOR: Final = 512
_NAME: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}\.wal")
_PIECE: Final = 4 << 20
_MOST_RECORD: Final = 512 << 20
"""No request is larger, whatever ``--max-request-bytes`` says: gRPC and etcd end below it."""

_SEARCHED: Final = 256 << 20
"""So far a segment is searched for a whole frame behind damage."""

_RECORD_START: Final = b"\x08\x10"
"""As etcd writes one: the tags of type and checksum; the type stands between them."""

_MOST_TRIED: Final = 4 * _SEARCHED
"""So many bytes are read for what looks like a frame there: a value may be made of nothing but such."""

_WAYS_OUT: Final = {
    errno.EIO: "copy what can be read of it to another disk (ddrescue), and name the copy",
    errno.ELOOP: "it is a symbolic link, which is not followed: copy the directory with cp -aL, and name the copy",
}


class Record(NamedTuple):
    """One record whose checksum fits; its type is one of :mod:`etcdfix.wire.raft`."""

    type: int
    data: bytes
    place: int

    def __repr__(self) -> str:
        return f"Record({self.type}, {len(self.data)} bytes, {self.place})"  # values stay out of tracebacks


class Damage(NamedTuple):
    """Something that is no record; what follows it, if anything, is whole again.

    Attributes:
        what: A clause, with the offset.
        torn: It is the last write of the log, cut off or still being written: no damage.
    """

    what: str
    torn: bool


class Segment:
    """One file of a log, as long as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sequence = int(path.name[:16], 16)
        try:
            self._file: BinaryIO = open_regular(path, follow=False)
        except OSError as exc:
            raise _unreadable(path, exc) from exc
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, place: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer at the end.

        Raises:
            SourceError: The file cannot be read.
        """
        wanted, raw = min(size, self.size - place), b""
        try:
            while len(raw) < wanted:
                part = os.pread(self._file.fileno(), wanted - len(raw), place + len(raw))
                if not part:
                    break
                raw += part
        except OSError as exc:
            raise _unreadable(self.path, exc) from exc
        return raw

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _unreadable(path: Path, exc: OSError) -> SourceError:
    return SourceError(f"{path}: {exc.strerror or exc}", hint=_WAYS_OUT.get(exc.errno or 0, ""))


def open_segments(directory: Path) -> tuple[list[Segment], list[str]]:
    """Open every segment of a directory, in order; return them, and which files are not read.

    etcd removes old segments while it runs: one that goes between listing and opening is as if it had gone before.

    Raises:
        NotALog: There is no such directory, or no segment in it.
        SourceError: A segment cannot be opened.
    """
    hint = "name a member's directory member/wal, or a copy of it"
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as exc:
        raise NotALog(f"{directory}: {exc.strerror or exc}", hint=hint) from exc
    segments: list[Segment] = []
    with ExitStack() as opened:
        for name in filter(_NAME.fullmatch, names):
            try:
                segments.append(Segment(directory / name))
            except SourceError as exc:
                if segments or not isinstance(exc.__cause__, FileNotFoundError):
                    raise
            else:
                opened.callback(segments[-1].close)
        opened.pop_all()
    if not segments:
        inside = directory / "member" / "wal"
        raise NotALog(
            f"{directory}: there is no segment of a log (….wal) in it",
            hint=f"name {inside}" if inside.is_dir() else hint,
        )
    broken = [name for name in names if name.endswith(".broken")]
    return segments, [f"{name} is not read: etcd repaired this log, and put it aside" for name in broken]


def records(segments: Sequence[Segment]) -> Iterator[Record | Damage]:
    """Yield every record of a log that is whole, and what stands between them.

    Raises:
        SourceError: A file cannot be read.
    """
    crc: int | None = None  # it runs through all records; None where damage, or the start, leaves it unknown
    for number, segment in enumerate(segments):
        if number and segment.sequence != segments[number - 1].sequence + 1:
            yield Damage(f"segments are missing before {segment.path}", torn=False)
            crc = None
        crc = yield from _records(segment, number, crc, last=number == len(segments) - 1)


def _records(
    segment: Segment, number: int, crc: int | None, *, last: bool
) -> Generator[Record | Damage, None, int | None]:
    """Yield what one segment holds; return the checksum that its records came to."""
    window = _Window(segment)
    place, retried = 0, -1
    while True:
        header = window.bytes(place, FRAME_HEADER)
        if not any(header):
            if len(header) < FRAME_HEADER or _zero_from(
                segment, place
            ):  # it was preallocated, and never written
                return crc
            if last and any(segment.read(place, FRAME_HEADER)):  # a running etcd has just written there
                return crc
        frame = _frame(window, place)
        if frame is not None and frame.type == raft.CRC:
            if crc not in {None, frame.crc}:
                yield Damage(f"{segment.path}: byte {place}: records before it are missing", torn=False)
            crc = frame.crc
            place += frame.size
            continue
        computed = None
        if frame is not None and crc is not None:
            computed = google_crc32c.extend(crc, frame.data)
            if computed == frame.crc:
                crc = computed
                yield Record(frame.type, frame.data, number << SEGMENT_SHIFT | place)
                place += frame.size
                continue
        if last and retried != place:  # a running etcd may just be writing it
            window, retried = _Window(segment), place
            continue
        after = _next_that_fits(window, place + frame.size, {frame.crc, computed}) if frame else None
        after = after or _whole_frame_behind(window, place)
        if last and after is None and _is_torn(segment, place, header, frame):
            yield Damage(f"{segment.path}: byte {place}: the last write is not whole", torn=True)
            return crc
        lost = f"the {after[0] - place} bytes there" if after is not None else "the rest of this segment"
        yield Damage(f"{segment.path}: byte {place}: no whole record; {lost} cannot be read", torn=False)
        if after is None:
            return None
        place, crc = after


class _Window:
    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._data = b""
        self._begin = 0

    def bytes(self, place: int, size: int) -> bytes:
        """Return ``size`` bytes, fewer at the end of the file."""
        begin = place - self._begin
        if begin < 0 or begin + size > len(self._data):
            self._data = self.segment.read(place, max(size, _PIECE))
            self._begin, begin = place, 0
        return self._data[begin : begin + size]

    def zeros(self, place: int) -> int:
        """Return how many bytes of zeros are in memory from a place on."""
        rest = self._data[place - self._begin :]
        return len(rest) - len(rest.lstrip(b"\x00"))


def frame_sizes(header: bytes) -> tuple[int, int]:
    """Return the size of a record and of the padding behind it, from the eight bytes before it."""
    field = int.from_bytes(header, "little", signed=True)
    return field & ((1 << 56) - 1), (field >> 56) & 7 if field < 0 else 0


class _Frame(NamedTuple):
    """A frame as it stands, its checksum not looked at."""

    size: int
    type: int
    crc: int
    data: bytes


def _frame(window: _Window, place: int) -> _Frame | None:
    header = window.bytes(place, FRAME_HEADER)
    size, padding = frame_sizes(header)
    whole = size + padding
    if not _plausible(header) or place + FRAME_HEADER + whole > window.segment.size:
        return None
    raw = window.bytes(place + FRAME_HEADER, whole)
    if len(raw) < whole or any(raw[size:]):
        return None
    try:
        type_, crc, begin, end = raft.parse_record(raw, 0, size)
    except raft.Malformed:
        return None
    if not raft.METADATA <= type_ <= raft.SNAPSHOT:
        return None
    return _Frame(FRAME_HEADER + whole, type_, crc, raw[begin:end])


def _next_that_fits(window: _Window, place: int, seeds: set[int | None]) -> tuple[int, int] | None:
    """Return a place and the checksum before it, where the frame there fits one of the seeds; None if it does not."""
    frame = _frame(window, place)
    if frame is None or frame.type == raft.CRC:
        return None
    for seed in seeds:
        if seed is not None and google_crc32c.extend(seed, frame.data) == frame.crc:
            return place, seed
    return None


def _whole_frame_behind(window: _Window, place: int) -> tuple[int, int] | None:
    """Find the next record behind damage from which on the rest of the segment is whole.

    Each record's checksum is the seed of the next, so a frame proves the one behind it. A value may itself hold
    frames of a log: those end with the value. Only a chain that reaches the end of the segment is believed.
    """
    end = min(window.segment.size, place + _SEARCHED)
    candidate = place + FRAME_HEADER
    leads_nowhere: set[int] = set()
    tried = 0
    while candidate < end and tried < _MOST_TRIED:
        header = window.bytes(candidate, FRAME_HEADER)
        if not any(header):
            zeros = window.zeros(candidate)
            candidate += max(zeros - zeros % FRAME_HEADER, FRAME_HEADER)
            continue
        start = window.bytes(candidate + FRAME_HEADER, 3)
        frame = None
        if len(start) == 3 and start[::2] == _RECORD_START:
            tried += min(frame_sizes(header)[0], window.segment.size)
            frame = _frame(window, candidate)
        if frame is not None and frame.type != raft.CRC:
            behind = candidate + frame.size
            found = None if behind in leads_nowhere else _next_that_fits(window, behind, {frame.crc})
            if found is not None and _whole_to_the_end(window.segment, behind, frame.crc, leads_nowhere):
                return found
        candidate += FRAME_HEADER
    return None


def _whole_to_the_end(segment: Segment, place: int, crc: int, leads_nowhere: set[int]) -> bool:
    """Say whether every frame from here on fits the one before, to the end of the segment."""
    window = _Window(segment)
    passed: list[int] = []
    while any(window.bytes(place, FRAME_HEADER)):
        frame = _frame(window, place)
        fits = (
            frame is not None
            and frame.type != raft.CRC
            and google_crc32c.extend(crc, frame.data) == frame.crc
        )
        if frame is None or not fits or place in leads_nowhere:
            leads_nowhere.update(passed)
            return False
        passed.append(place)
        crc = frame.crc
        place += frame.size
    return True


def _is_torn(segment: Segment, place: int, header: bytes, frame: _Frame | None) -> bool:
    """Say whether what is not whole is the last write of a log: it runs into the end of the file, or into zeros."""
    if len(header) < FRAME_HEADER or not _plausible(header):
        return len(header) < FRAME_HEADER
    begin = place + FRAME_HEADER
    end = begin + sum(frame_sizes(header))
    if frame is None and end > segment.size:
        return True
    return _zero_from(segment, end) and _torn(segment.read(begin, end - begin), begin)


def _plausible(header: bytes) -> bool:
    # Of the top byte etcd writes the sign and three bits of padding, or nothing.
    return (
        len(header) == FRAME_HEADER
        and (header[7] == 0 or header[7] >> 3 == 0x10)
        and 0 < frame_sizes(header)[0] <= _MOST_RECORD
    )


def _torn(raw: bytes, begin: int) -> bool:
    """Say whether a record that does not fit is a write that was cut off: a sector of it is all zeros.

    Format:
        etcd ``decoder.go``, ``isTornEntry``.
    """
    cuts = [0, *range(-begin % _SECTOR or _SECTOR, len(raw), _SECTOR), len(raw)]
    return any(not any(raw[start:end]) for start, end in itertools.pairwise(cuts))


def _zero_from(segment: Segment, place: int) -> bool:
    while place < segment.size:
        piece = segment.read(place, _PIECE)
        if piece.strip(b"\x00"):
            return False
        place += len(piece) or segment.size
    return True
