"""A saved scan report, read piece by piece: however many findings it has, one of them is in memory.

Nothing of the file is believed. A report of etcdfix has one finding a line, which is quick to take apart; any other
layout of the same JSON document is taken apart by its marks. What is asked for is decoded, the rest is passed over.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from etcdfix.inputs.inputfile import MAX_REPORT_BYTES, mapped_input
from etcdfix.model import Outcome
from etcdfix.reports.model import API_VERSION
from etcdfix.reports.saved_report import Readable

S = TypeVar("S", bound=msgspec.Struct)

MOST_PIECE_BYTES: Final = 16 << 20
"""A finding, a summary, or any other piece that is decoded at once."""

COUNTED: Final = {
    Outcome.DECRYPT_FAILURE.value: "decrypt_failures",
    Outcome.DECODE_FAILURE.value: "decode_failures",
    Outcome.INCONSISTENT.value: "inconsistent",
    Outcome.UNDETERMINED.value: "undetermined",
}
"""Field of the summary that counts the findings of an outcome."""

_PIECE_BYTES: Final = 1 << 20
_CUT: Final = "it is cut: its end is missing"
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_SCALAR: Final = re.compile(rb"[-+.0-9A-Za-z]+")
# Possessive: a string of a gigabyte must not leave a place to go back to for each of its escapes.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_MARK: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
_MOST_MEMBERS: Final = 100
_MOST_NAME_BYTES: Final = 100
# The layout of our own reports. A line feed inside a string is no JSON: where one stands, a line ends.
_LINES: Final = re.compile(rb"\[\n {4}\{[^\n]*\},?\n")
_LAST_LINE: Final = b"\n  ]"

_Span = tuple[int, int]


class ReportCut(msgspec.DecodeError):
    """Raised when a report ends before its end."""


class _Line(msgspec.Struct):
    kind: str = ""


class _Version(msgspec.Struct, rename={"api_version": "apiVersion"}):
    kind: str = ""
    api_version: str = ""


class ReportFile:
    """A report of ``-o json`` or ``-o jsonl``.

    Attributes:
        sha256: Of the file, ``sha256:<hex>``.
    """

    def __init__(self, raw: Readable, versions: Collection[str] = (API_VERSION,)) -> None:
        """Look at the start of the file.

        Args:
            raw: All of it.
            versions: Those that are read.

        Raises:
            msgspec.MsgspecError: It is no report of a scan, or of another version.
        """
        self._raw = raw
        self.sha256 = f"sha256:{_digest(raw)}"
        end = raw.find(b"\n")
        self._first: _Span = (0, end if end >= 0 else len(raw))
        self._last: _Span | None = None
        self._members: dict[bytes, _Span] | None = None
        first = bytes(raw[: min(self._first[1], MOST_PIECE_BYTES)]).rstrip()
        if first.endswith(b"}") and len(first) < MOST_PIECE_BYTES and _is_header(first):
            _require_version(first, versions)
            return
        self._members = _members(raw)
        head = self.head_with(b"kind", b"apiVersion")
        kind = msgspec.json.decode(head, type=_Line).kind
        if kind != "ScanReport":
            raise msgspec.ValidationError(f"its kind is {kind or 'missing'}, expected ScanReport")
        _require_version(head, versions)

    def head(self, kind: type[S]) -> S:
        """Return what stands before the findings.

        Raises:
            msgspec.MsgspecError: It is not as it has to be.
        """
        names = [field.encode_name.encode() for field in msgspec.structs.fields(kind)]
        return msgspec.json.decode(self.head_with(*names), type=kind)

    def head_with(self, *names: bytes) -> bytes:
        """Return what stands before the findings, encoded: an object that has these members, those that are there."""
        if self._members is None:
            return _piece(self._raw, self._first)
        found = [(name, self._members[name]) for name in names if name in self._members]
        return b"{%s}" % b",".join(b'"%s":%s' % (name, _piece(self._raw, span)) for name, span in found)

    def findings(self) -> Iterator[bytes]:
        """Yield each finding, encoded.

        Raises:
            msgspec.MsgspecError: The file is cut, or not as it has to be.
        """
        if self._members is None:
            yield from self._finding_lines()
        elif b"findings" not in self._members:
            raise msgspec.ValidationError("it has no findings, not even an empty list of them")
        else:
            for span in _items(self._raw, self._members[b"findings"]):
                yield _piece(self._raw, span)

    def end(self, kind: type[S]) -> S:
        """Return what stands after the findings; all of them must have been taken.

        Raises:
            msgspec.MsgspecError: The file is cut, or not as it has to be.
        """
        if self._members is not None:
            return self.head(kind)
        if self._last is None:
            raise ReportCut(_CUT)
        return msgspec.json.decode(_piece(self._raw, self._last), type=kind)

    def _finding_lines(self) -> Iterator[bytes]:
        at, size = self._first[1] + 1, len(self._raw)
        while at < size:
            end = self._raw.find(b"\n", at)
            end = size if end < 0 else end
            line = _piece(self._raw, (at, end))
            if not line.strip():
                at = end + 1
                continue
            if self._last is not None:
                raise msgspec.ValidationError("there is something after its ScanSummary")
            kind = _kind_of(line) if end < size else _kind_of_last(line)
            if kind == "Finding":
                yield line
            elif kind == "ScanSummary":
                self._last = (at, end)
            elif kind == "ScanHeader":
                raise msgspec.ValidationError("another report begins in it")
            at = end + 1


@contextmanager
def open_report(path: Path, versions: Collection[str] = (API_VERSION,)) -> Iterator[ReportFile]:
    """Yield a report, of which nothing but its start was looked at yet.

    Args:
        path: Its file, or ``-`` for standard input.
        versions: Those that are read.

    Raises:
        OSError: The file cannot be read, is no regular file, or is too large; or there is no room for a copy of it.
        msgspec.MsgspecError: It is no report of a scan.
    """
    with mapped_input(path, most_bytes=MAX_REPORT_BYTES) as raw:
        yield ReportFile(raw, versions)


def contradictions(found: Mapping[str, int], told: Mapping[str, int]) -> list[str]:
    """Say where the findings are not those that the summary counts: the file was edited, or a part of it is lost.

    Args:
        found: How many findings there are, by field of the summary.
        told: What the summary says.
    """
    return [
        f"the report contradicts itself: it has {found[field]} findings of {outcome}, and counts {told[field]}"
        for outcome, field in COUNTED.items()
        if found[field] != told[field]
    ]


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
        raise ReportCut(_CUT) from exc


def _require_version(head: bytes, versions: Collection[str]) -> None:
    version = msgspec.json.decode(head, type=_Version).api_version
    if version not in versions:
        raise msgspec.ValidationError(f"its apiVersion is {version or 'missing'}, expected {API_VERSION}")


def _piece(raw: Readable, span: _Span) -> bytes:
    start, end = span
    if end - start > MOST_PIECE_BYTES:
        raise msgspec.ValidationError(
            f"bytes {start} to {end} are one piece, which is larger than {MOST_PIECE_BYTES} bytes"
        )
    return bytes(raw[start:end])


def _members(raw: Readable) -> dict[bytes, _Span]:
    """Return where the value of each member of the document is.

    Raises:
        msgspec.DecodeError: It is no JSON object, or cut.
    """
    found: dict[bytes, _Span] = {}
    at = _space(raw, _after(raw, _space(raw, 0), b"{"))
    while raw[at : at + 1] != b"}":
        name = _STRING.match(raw, at)
        if name is None and raw[at : at + 1] == b'"':
            raise ReportCut(_CUT)
        if name is None or name.end() - at > _MOST_NAME_BYTES or len(found) >= _MOST_MEMBERS:
            raise _unexpected(raw, at)
        start = _space(raw, _after(raw, _space(raw, name.end()), b":"))
        end = _end_of(raw, start)
        if name[0][1:-1] in found:
            raise msgspec.DecodeError(f"it has {name[0].decode(errors='replace')[:80]} twice")
        found[name[0][1:-1]] = start, end
        at = _space(raw, end)
        if raw[at : at + 1] == b",":
            at = _space(raw, at + 1)
        elif raw[at : at + 1] != b"}":
            raise _unexpected(raw, at)
    if _space(raw, at + 1) != len(raw):
        raise _unexpected(raw, _space(raw, at + 1))
    return found


def _items(raw: Readable, span: _Span) -> Iterator[_Span]:
    """Yield where each item of a list is."""
    start, end = span
    if raw[start : start + 1] != b"[":
        raise msgspec.ValidationError("its findings are no list")
    at = _space(raw, start + 1)
    by_line = _LINES.match(raw, start) is not None
    while at < end - 1:
        stop = _end_of_line(raw, at, end) if by_line else _end_of(raw, at)
        yield at, stop
        at = _space(raw, stop)
        if at < end - 1:
            at = _space(raw, _after(raw, at, b","))


def _end_of_line(raw: Readable, start: int, end: int) -> int:
    """Return where an item ends that fills its line but for the comma behind it."""
    stop = raw.find(b"\n", start, end)
    stop = end if stop < 0 else stop
    return stop - 1 if raw[stop - 1 : stop] == b"," else stop


def _end_of(raw: Readable, start: int) -> int:
    """Return where a JSON value ends; of what is inside it, strings and brackets are looked at alone."""
    first = raw[start : start + 1]
    if first == b'"':
        text = _STRING.match(raw, start)
        if text is None:
            raise ReportCut(_CUT)
        return text.end()
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(raw, start)
        if scalar is None:
            raise _unexpected(raw, start)
        return scalar.end()
    if _LINES.match(raw, start):
        end = raw.find(_LAST_LINE, start)
        if end < 0:
            raise ReportCut(_CUT)
        return end + len(_LAST_LINE)
    depth = 0
    for mark in _MARK.finditer(raw, start):
        at, end = mark.span()
        if end - at > 1:  # a string
            continue
        if raw[at] in b"{[":
            depth += 1
        elif raw[at] in b"}]":
            depth -= 1
            if not depth:
                return end
        else:
            break
    raise ReportCut(_CUT)


def _space(raw: Readable, at: int) -> int:
    space = _SPACE.match(raw, at)
    assert space is not None  # it takes nothing too
    return space.end()


def _after(raw: Readable, at: int, mark: bytes) -> int:
    if raw[at : at + 1] != mark:
        raise _unexpected(raw, at)
    return at + 1


def _unexpected(raw: Readable, at: int) -> msgspec.DecodeError:
    if at >= len(raw):
        return ReportCut(_CUT if at else "it is empty")
    return msgspec.DecodeError(f"it is no JSON at byte {at}")
