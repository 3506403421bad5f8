"""A saved scan report, read piece by piece: however many findings it has, one of them is in memory.

Nothing of the file is believed. A report of etcdfix has one finding a line, which is quick to take apart; any other
layout of the same JSON document is taken apart by its marks. What is asked for is decoded, the rest is passed over.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.errors import ConfigurationError
from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, Readable, mapped_input
from etcdfix.inputs.jsonparts import (
    CUT,
    MOST_PIECE_BYTES,
    DocumentCut,
    OtherFormError,
    Span,
    beginning,
    items,
    members,
    piece,
)
from etcdfix.report.model import API_VERSION, other_version, read_command
from etcdfix.temporary import temporary_directory

S = TypeVar("S", bound=msgspec.Struct)

OF_ANOTHER: Final = "its end is of another scan than its head"

_PIECE_BYTES: Final = 1 << 20
_WRITE_ONE: Final = "write one with: etcdfix scan -o json --output-file FILE"


class _Line(msgspec.Struct):
    kind: str = ""


class _Version(msgspec.Struct, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""


class _Source(msgspec.Struct):
    """Where the data came from, as far as the head and the end of one report must agree.

    Of a live etcd another member may answer in the end, and after a compaction the revision is a newer one.
    """

    type: str = ""
    path: str | None = None
    endpoints: list[str] | None = None
    revision: int = 0
    kube_system_uid: str | None = None
    sha256: str | None = None
    file_modified_at: str = ""


class _Sourced(msgspec.Struct):
    source: _Source = msgspec.field(default_factory=_Source)


class ReportFile:
    """A report of ``-o json`` or ``-o jsonl``.

    Attributes:
        sha256: Of the file, ``sha256:<hex>``.
        in_lines: It is of ``-o jsonl``: of one that was cut, what was written is there.
    """

    def __init__(self, raw: Readable) -> None:
        """Look at the start of the file.

        Args:
            raw: All of it.

        Raises:
            msgspec.MsgspecError: It is no report of a scan, or of another version.
        """
        self._raw = raw
        self.sha256 = f"sha256:{_digest(raw)}"
        start, end = beginning(raw), raw.find(b"\n")
        self._first: Span = (start, end if end >= 0 else len(raw))
        self._last: Span | None = None
        self._members: dict[bytes, Span] | None = None
        self.in_lines = True
        first = bytes(raw[start : min(self._first[1], MOST_PIECE_BYTES)]).rstrip()
        if first.endswith(b"}") and len(first) < MOST_PIECE_BYTES and _is_header(first):
            _require_version(first)
            return
        self.in_lines = False
        self._members = members(raw)
        head = self.head_with(b"kind", b"apiVersion")
        kind = msgspec.json.decode(head, type=_Line).kind
        if kind != "ScanReport":
            raise msgspec.ValidationError(f"its kind is {kind or 'missing'}, expected ScanReport")
        _require_version(head)

    def head(self, kind: type[S]) -> S:
        """Return what stands before the findings.

        Raises:
            msgspec.MsgspecError: It is not as it has to be.
        """
        names = [field.encode_name.encode() for field in msgspec.structs.fields(kind)]
        return msgspec.json.decode(self.head_with(*names), type=kind, dec_hook=read_command)

    def head_with(self, *names: bytes) -> bytes:
        """Return what stands before the findings, encoded: an object that has these members, those that are there."""
        if self._members is None:
            return piece(self._raw, self._first)
        found = [(name, self._members[name]) for name in names if name in self._members]
        return b"{%s}" % b",".join(b'"%s":%s' % (name, piece(self._raw, span)) for name, span in found)

    def findings(self) -> Iterator[bytes]:
        """Yield each finding, encoded.

        Raises:
            msgspec.MsgspecError: The file is cut, or not as it has to be.
        """
        return (finding for _, finding in self.placed_findings())

    def placed_findings(self) -> Iterator[tuple[int, bytes]]:
        """Yield at which byte each finding begins, and the finding, encoded; see :meth:`findings`."""
        if self._members is None:
            yield from self._finding_lines()
        elif b"findings" not in self._members:
            raise msgspec.ValidationError("it has no findings, not even an empty list of them")
        else:
            for span in items(self._raw, self._members[b"findings"], "findings"):
                yield span[0], piece(self._raw, span)

    def at(self, start: int, size: int) -> bytes:
        """Return what stands at a place; it is always the same, see :func:`open_report`."""
        return self._raw[start : start + size]

    def end(self, kind: type[S]) -> S:
        """Return what stands after the findings; all of them must have been taken.

        Raises:
            msgspec.MsgspecError: The file is cut, not as it has to be, or put together of two.
        """
        if self._members is not None:
            return self.head(kind)
        if self._last is None:
            raise DocumentCut(CUT)
        last = piece(self._raw, self._last)
        began, ended = self.head(_Sourced).source, msgspec.json.decode(last, type=_Sourced).source
        if ended.type == "etcd" and ended.revision > began.revision:
            began.revision = ended.revision
        if ended != began:
            raise msgspec.ValidationError(OF_ANOTHER)
        return msgspec.json.decode(last, type=kind, dec_hook=read_command)

    def statuses(self) -> Iterator[bytes]:
        """Yield each Status, encoded.

        Raises:
            msgspec.MsgspecError: The file is cut, or not as it has to be.
        """
        if self._members is None:
            yield from (line for _, kind, line in self._lines() if kind == "Status")
        elif b"statuses" in self._members:
            for span in items(self._raw, self._members[b"statuses"], "statuses"):
                yield piece(self._raw, span)

    def _finding_lines(self) -> Iterator[tuple[int, bytes]]:
        return ((at, line) for at, kind, line in self._lines() if kind == "Finding")

    def _lines(self) -> Iterator[tuple[int, str, bytes]]:
        """Yield at which byte each line behind the first one begins, its kind, and the line; see where the last is."""
        self._last = None
        at, size = self._first[1] + 1, len(self._raw)
        while at < size:
            end = self._raw.find(b"\n", at)
            end = size if end < 0 else end
            line = piece(self._raw, (at, end))
            if not line.strip():
                at = end + 1
                continue
            if self._last is not None:
                raise msgspec.ValidationError("there is something after its ScanSummary")
            kind = _kind_of(line) if end < size else _kind_of_last(line)
            if kind == "ScanSummary":
                self._last = (at, end)
            elif kind == "ScanHeader":
                raise msgspec.ValidationError("another report begins in it")
            yield at, kind, line
            at = end + 1


@contextmanager
def open_report(path: Path) -> Iterator[ReportFile]:
    """Yield a report, of which nothing but its start was looked at yet.

    It is read from a copy that nobody else has: it may be read again, and stays for as long as somebody holds it.

    Args:
        path: Its file, or ``-`` for standard input.

    Raises:
        OSError: The file cannot be read, is no regular file, or is too large; or there is no room for a copy of it.
        msgspec.MsgspecError: It is no report of a scan.
    """
    with mapped_input(path, most_bytes=MAX_REPORT_BYTES) as raw:
        yield ReportFile(raw)


def refused(option: str, path: Path, error: Exception) -> ConfigurationError:
    """Return the error to raise where a report cannot be gone on from.

    Args:
        option: That named it.
        path: Its file.
        error: What is wrong: an :class:`OSError`, or what :class:`ReportFile` raises.
    """
    if isinstance(error, OSError):
        return ConfigurationError(f"{option} {path}: {error.strerror}", hint=_hint(error))
    # msgspec recurses into fields that nobody asked for, too.
    why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
    hint = error.hint if isinstance(error, OtherFormError) else _WRITE_ONE
    return ConfigurationError(f"{option} {path} cannot be used as a report: {why}", hint=hint)


def _digest(raw: Readable) -> str:
    digest = hashlib.sha256()
    with memoryview(raw) as view:
        for at in range(0, len(view), _PIECE_BYTES):
            digest.update(view[at : at + _PIECE_BYTES])
    return digest.hexdigest()


def _kind_of(line: bytes) -> str:
    return msgspec.json.decode(line, type=_Line).kind


def _is_header(line: bytes) -> bool:
    try:
        return _kind_of(line) == "ScanHeader"
    except msgspec.DecodeError:  # what is wrong is said where the document is taken apart
        return False


def _kind_of_last(line: bytes) -> str:
    """Return the kind of a line that does not end: whatever ended the scan may have torn it."""
    try:
        return _kind_of(line)
    except msgspec.DecodeError as exc:
        raise DocumentCut(CUT) from exc


def _require_version(head: bytes) -> None:
    version = msgspec.json.decode(head, type=_Version).api_version
    if version != API_VERSION:
        raise msgspec.ValidationError(other_version(version))


def _hint(error: OSError) -> str:
    if error.errno == errno.EFBIG:
        return "scan a part of the cluster only"
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"point TMPDIR at a directory with more room than {temporary_directory()}"
    return ""
