"""Text quoted as Go's ``strconv.Quote`` (``%q``) does, and what stands in its place where it may hold data.

Which characters count as printable follows this Python's Unicode tables, not Go's.

Format: Go ``strconv/quote.go``.
"""

from __future__ import annotations

from typing import Final

_SHORT: Final = {
    "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v",
}  # fmt: skip


def go_quote(text: str | bytes) -> str:
    r"""Return text as ``%q`` prints a string: ``"Se\x7fret"``; bytes that are not UTF-8 become ``\xff``."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "surrogateescape")
    return '"' + "".join(_rune(character, '"') for character in text) + '"'


def quote_byte(byte: int) -> str:
    r"""Return a byte as ``%q`` prints a character, read as Latin-1: ``'\x00'``, ``'é'``."""
    return "'" + _rune(chr(byte), "'") + "'"


def withheld(data: str | int) -> str:
    """Return what stands in a message in place of data that the API server would echo: a text, or so many bytes."""
    size = data if isinstance(data, int) else len(data.encode(errors="replace"))
    return f"<{size} bytes withheld>"


def _rune(character: str, quote: str) -> str:
    code = ord(character)
    if character == quote:
        return f"\\{quote}"
    if character in _SHORT:
        return _SHORT[character]
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
