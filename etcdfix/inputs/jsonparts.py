"""A JSON document taken apart by its marks: however large it is, one piece of it is in memory.

A list with one item a line is quick to take apart; any other layout is walked through, and of what is inside a piece
strings and brackets are looked at alone. What begins in the layout of our own reports and goes on in another one is
refused. A piece proves to be JSON, or not, when it is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.inputs.inputfile import Readable

MOST_PIECE_BYTES: Final = 16 << 20
"""An item of a list, a member, or any other piece that is decoded at once."""

CUT: Final = "it is cut: its end is missing"

_UTF_8_MARK: Final = b"\xef\xbb\xbf"
_UTF_16_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"{\0": "UTF-16LE", b"\0{": "UTF-16BE"}
_GZIP: Final = b"\x1f\x8b"
_NO_OBJECT: Final = {b"[": "a list", b'"': "one value (a string)", b"n": "one value (null)",
                     b"t": "one value (true)", b"f": "one value (false)"}  # fmt: skip
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

Span = tuple[int, int]
"""Where a piece begins, and where it has ended."""


class DocumentCut(msgspec.DecodeError):
    """Raised when a document ends before its end."""


class OtherFormError(msgspec.DecodeError):
    """Raised when a document would have to be turned into JSON of UTF-8 first."""

    def __init__(self, raw: Readable, what: str, hint: str) -> None:
        super().__init__(f"it begins with {bytes(raw[:2]).hex(' ')}: it is {what}")
        self.hint = hint


def beginning(raw: Readable) -> int:
    """Return where the text of a document begins: after the mark of UTF-8 that some editors and shells put first.

    Raises:
        OtherFormError: It is compressed, or in another encoding.
    """
    first = bytes(raw[:2])
    if first == _GZIP:
        raise OtherFormError(raw, "compressed (gzip), expected JSON", "unpack it first: gunzip FILE.gz")
    if first in _UTF_16_MARKS:
        convert = f"convert it first: iconv -f {_UTF_16_MARKS[first]} -t UTF-8 FILE > NEW"
        raise OtherFormError(raw, "UTF-16, expected UTF-8", convert)
    return len(_UTF_8_MARK) if raw[: len(_UTF_8_MARK)] == _UTF_8_MARK else 0


def piece(raw: Readable, span: Span) -> bytes:
    """Return the bytes of a piece.

    Raises:
        msgspec.ValidationError: It is too large to be decoded at once.
    """
    start, end = span
    if end - start > MOST_PIECE_BYTES:
        raise msgspec.ValidationError(
            f"bytes {start} to {end} are one piece, which is larger than {MOST_PIECE_BYTES} bytes"
        )
    return bytes(raw[start:end])


def members(raw: Readable) -> dict[bytes, Span]:
    """Return where the value of each member of the document is.

    Raises:
        msgspec.MsgspecError: It is no JSON object, it is cut, or it has a member twice.
    """
    found: dict[bytes, Span] = {}
    start = beginning(raw)
    if start == len(raw):
        raise DocumentCut("it is empty")
    at = _space(raw, start)
    if raw[at : at + 1] != b"{":
        raise _no_object(raw, start, at)
    at = _space(raw, at + 1)
    while raw[at : at + 1] != b"}":
        name = _STRING.match(raw, at)
        if name is None and raw[at : at + 1] == b'"':
            raise DocumentCut(CUT)
        if name is None or name.end() - at > _MOST_NAME_BYTES or len(found) >= _MOST_MEMBERS:
            raise _unexpected(raw, at)
        known = msgspec.json.decode(name[0], type=str).encode()
        if known in found:
            raise msgspec.DecodeError(f"it has {name[0].decode(errors='replace')[:80]} twice")
        start = _space(raw, _after(raw, _space(raw, name.end()), b":"))
        found[known] = start, _end_of(raw, start)
        at = _space(raw, found[known][1])
        if raw[at : at + 1] != b"}":
            at = _space(raw, _after(raw, at, b","))
            if raw[at : at + 1] == b"}":
                raise _unexpected(raw, at)
    if _space(raw, at + 1) != len(raw):
        raise _unexpected(raw, _space(raw, at + 1))
    return found


def items(raw: Readable, span: Span, what: str) -> Iterator[Span]:
    """Yield where each item of a list is.

    Raises:
        msgspec.MsgspecError: It is no list, or no JSON between its items.
    """
    start, end = span
    if raw[start : start + 1] != b"[":
        raise msgspec.ValidationError(f"its {what} are no list")
    at = _space(raw, start + 1)
    by_line = _LINES.match(raw, start) is not None
    while at < end - 1:
        stop = _end_of_line(raw, at, end) if by_line else _end_of(raw, at)
        yield at, stop
        at = _space(raw, stop)
        if at < end - 1:
            at = _space(raw, _after(raw, at, b","))
            if at == end - 1:
                raise _unexpected(raw, at)


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
            raise DocumentCut(CUT)
        return text.end()
    if first not in (b"{", b"["):
        scalar = _SCALAR.match(raw, start)
        if scalar is None:
            raise _unexpected(raw, start)
        return scalar.end()
    if _LINES.match(raw, start):
        end = raw.find(_LAST_LINE, start)
        if end < 0:
            raise DocumentCut(CUT)
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
    raise DocumentCut(CUT)


def _space(raw: Readable, at: int) -> int:
    space = _SPACE.match(raw, at)
    assert space is not None  # it takes nothing too
    return space.end()


def _after(raw: Readable, at: int, mark: bytes) -> int:
    if raw[at : at + 1] != mark:
        raise _unexpected(raw, at)
    return at + 1


def _no_object(raw: Readable, start: int, at: int) -> msgspec.MsgspecError:
    if len(raw) - start > MOST_PIECE_BYTES:
        return msgspec.DecodeError(f"it is no JSON object at byte {at}")
    try:
        msgspec.json.decode(bytes(raw[start:]), type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return _unexpected(raw, at)
    what = _NO_OBJECT.get(bytes(raw[at : at + 1]), "one value (a number)")
    return msgspec.ValidationError(f"it is JSON, but {what}, expected an object")


def _unexpected(raw: Readable, at: int) -> msgspec.DecodeError:
    if at >= len(raw):
        return DocumentCut(CUT)
    return msgspec.DecodeError(f"it is no JSON at byte {at}")
