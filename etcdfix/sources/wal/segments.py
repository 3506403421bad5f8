"""The files of a write-ahead log and the frames in them, checked, with damage walked around.

Format:
    etcd 3.6 ``server/storage/wal``: ``wal.go`` (names, ``ReadAll``), ``encoder.go`` and ``decoder.go`` (frames, the
    running checksum, the rule for a torn write), ``walpb/record.go``.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import google_crc32c

from etcdfix.errors import NotALog, SourceError
from etcdfix.inputs.inputfile import open_regular
from etcdfix.wire import raft

FRAME_HEADER: Final = 8
_SECTOR: Final = 512
_NAME: Final = re.compile(r"([0-9a-f]{16})-([0-9a-f]{16})\.wal")
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
    """One record whose checksum fits.

    Attributes:
        type: As in :mod:`etcdfix.wire.raft`.
        place: Offset of its frame in the segment, bytes.
    """

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
    """One file of a log, as long as it was when it was opened.

    Attributes:
        sequence: Its number, one more than that of the one before.
        first_index: Raft index that its name promises.
    """

    def __init__(self, path: Path, sequence: int, first_index: int) -> None:
        self.path, self.sequence, self.first_index = path, sequence, first_index
        try:
            self._file: BinaryIO = open_regular(path, follow=False)
        except OSError as exc:
            raise unreadable(path, exc) from exc
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, place: int, size: int) -> bytes:
        """Return up to ``size`` bytes; fewer at the end.

        Raises:
            SourceError: The file cannot be read.
        """
        size = min(size, self.size - place)
        parts = []
        try:
            while size > 0:
                part = os.pread(self._file.fileno(), size, place)
                if not part:
                    break
                parts.append(part)
                place += len(part)
                size -= len(part)
        except OSError as exc:
            raise unreadable(self.path, exc) from exc
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def unreadable(path: Path, exc: OSError) -> SourceError:
    """Return the error for a file of a log that the system does not let us read."""
    return SourceError(f"{path}: {exc.strerror or exc}", hint=_WAYS_OUT.get(exc.errno or 0, ""))


def open_segments(directory: Path) -> tuple[list[Segment], list[str]]:
    """Open every segment of a directory, in order; return them, and what is wrong with their names.

    etcd removes old segments while it runs: one that goes between listing and opening is as if it had gone before.

    Raises:
        NotALog: There is no such directory, or no segment in it.
        SourceError: A segment cannot be opened.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as exc:
        raise NotALog(
            f"{directory}: {exc.strerror or exc}",
            hint="name a member's directory member/wal, or a copy of it",
        ) from exc
    segments: list[Segment] = []
    problems: list[str] = []
    with contextlib.ExitStack() as opened:
        _open_each(directory, names, segments, problems, opened)
        opened.pop_all()
    if not segments:
        inside = directory / "member" / "wal"
        raise NotALog(
            f"{directory}: there is no segment of a log (….wal) in it",
            hint=f"name {inside}"
            if inside.is_dir()
            else "name a member's directory member/wal, or a copy of it",
        )
    return segments, problems


def _open_each(
    directory: Path,
    names: list[str],
    segments: list[Segment],
    problems: list[str],
    opened: contextlib.ExitStack,
) -> None:
    for name in names:
        found = _NAME.fullmatch(name)
        if found is None:
            if name.endswith(".broken"):
                problems.append(f"{name} is not read: etcd repaired this log, and put it aside")
            continue
        try:
            segment = Segment(directory / name, int(found[1], 16), int(found[2], 16))
        except SourceError as exc:
            if not segments and isinstance(exc.__cause__, FileNotFoundError):
                continue
            raise
        if segments and segment.sequence != segments[-1].sequence + 1:
            problems.append(f"segments are missing between {segments[-1].path.name} and {name}")
        opened.callback(segment.close)
        segments.append(segment)


class SegmentReader:
    """Reads the frames of the segments of one log, in order, with the checksum that runs through them all.

    Attributes:
        crc: The checksum so far; None where damage, or the start, leaves it unknown.
    """

    def __init__(self) -> None:
        self.crc: int | None = None

    def records(self, segment: Segment, *, last: bool) -> Iterator[Record | Damage]:
        """Yield every record of a segment that is whole, and what stands between them.

        Raises:
            SourceError: The file cannot be read.
        """
        window = _Window(segment)
        place = 0
        retried = -1
        while True:
            header = window.bytes(place, FRAME_HEADER)
            if not any(header) and (len(header) < FRAME_HEADER or _ends_here(window, place, last=last)):
                return
            frame = _frame(window, place, header) if len(header) == FRAME_HEADER else None
            if frame is not None and frame.type == raft.CRC:
                if self.crc is not None and self.crc != frame.crc:
                    yield Damage(f"{_at(segment, place)}: records before it are missing", torn=False)
                self.crc = frame.crc
                place += frame.size
                continue
            computed = None
            if frame is not None and self.crc is not None:
                data = frame.data
                computed = google_crc32c.extend(self.crc, data)
                if computed == frame.crc:
                    self.crc = computed
                    yield Record(frame.type, data, place)
                    place += frame.size
                    continue
            if last and retried != place:  # a running etcd may just be writing it
                window.forget()
                retried = place
                continue
            after = (
                _next_that_fits(window, place + frame.size, {frame.crc, computed})
                if frame is not None
                else None
            )
            after = after or _whole_frame_behind(window, place)
            if last and after is None and _is_torn(segment, place, header, frame):
                yield Damage(f"{_at(segment, place)}: the last write is not whole", torn=True)
                return
            yield Damage(_told(segment, place, after), torn=False)
            if after is None:
                self.crc = None
                return
            place, self.crc = after


def _told(segment: Segment, place: int, after: tuple[int, int] | None) -> str:
    lost = f"the {after[0] - place} bytes there" if after is not None else "the rest of this segment"
    return f"{_at(segment, place)}: no whole record; {lost} cannot be read"


def _at(segment: Segment, place: int) -> str:
    return f"{segment.path}: byte {place}"


class _Window:
    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._data = b""
        self._begin = 0

    def forget(self) -> None:
        """Read anew what is asked for next."""
        self._data = b""

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
    begin: int
    end: int
    raw: bytes

    @property
    def data(self) -> bytes:
        """What the record holds."""
        return self.raw[self.begin : self.end]


def _frame(window: _Window, place: int, header: bytes) -> _Frame | None:
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
    return _Frame(FRAME_HEADER + whole, type_, crc, begin, end, raw)


def _ends_here(window: _Window, place: int, *, last: bool) -> bool:
    """Say whether a length of 0 is the end of a segment: what was preallocated and never written is all zeros."""
    segment = window.segment
    if _zero_from(segment, place):
        return True
    # A running etcd has just written there: what was read ends before it. Else zeros cover what was written.
    return last and any(segment.read(place, FRAME_HEADER))


def _next_that_fits(window: _Window, place: int, seeds: set[int | None]) -> tuple[int, int] | None:
    """Return a place and the checksum before it, where the frame there fits one of the seeds; None if it does not."""
    header = window.bytes(place, FRAME_HEADER)
    frame = _frame(window, place, header) if len(header) == FRAME_HEADER else None
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
            frame = _frame(window, candidate, header)
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
    while True:
        header = window.bytes(place, FRAME_HEADER)
        if not any(header):
            return True
        frame = _frame(window, place, header) if len(header) == FRAME_HEADER else None
        if frame is None or frame.type == raft.CRC or google_crc32c.extend(crc, frame.data) != frame.crc:
            break
        if place in leads_nowhere:
            break
        passed.append(place)
        crc = frame.crc
        place += frame.size
    leads_nowhere.update(passed)
    return False


def _is_torn(segment: Segment, place: int, header: bytes, frame: _Frame | None) -> bool:
    """Say whether what is not whole is the last write of a log: it runs into the end of the file, or into zeros."""
    if frame is None:
        whole = sum(frame_sizes(header))
        if len(header) < FRAME_HEADER or place + FRAME_HEADER + whole > segment.size:
            return len(header) < FRAME_HEADER or _plausible(header)
        return (
            _plausible(header)
            and _zero_from(segment, place + FRAME_HEADER + whole)
            and _torn(segment.read(place + FRAME_HEADER, whole), place)
        )
    return _torn(frame.raw, place) and _zero_from(segment, place + frame.size)


def _plausible(header: bytes) -> bool:
    # Of the top byte etcd writes the sign and three bits of padding, or nothing.
    return (header[7] == 0 or header[7] >> 3 == 0x10) and 0 < frame_sizes(header)[0] <= _MOST_RECORD


def _torn(raw: bytes, place: int) -> bool:
    """Say whether a record that does not fit is a write that was cut off: a sector of it is all zeros.

    Format:
        etcd ``decoder.go``, ``isTornEntry``.
    """
    begin, at = place + FRAME_HEADER, 0
    while at < len(raw):
        size = min(_SECTOR - (begin + at) % _SECTOR, len(raw) - at)
        if not any(raw[at : at + size]):
            return True
        at += size
    return False


def _zero_from(segment: Segment, place: int) -> bool:
    while place < segment.size:
        piece = segment.read(place, _PIECE)
        if piece.strip(b"\x00"):
            return False
        place += len(piece) or segment.size
    return True
