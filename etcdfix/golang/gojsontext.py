"""JSON text exactly as Go's ``encoding/json`` writes it, and parsed so that it can be written again unchanged.

Format: Go ``encoding/json/encode.go`` (``appendString`` with HTML escaping, ``floatEncoder``) and ``indent.go``;
Kubernetes ``apimachinery/pkg/runtime/serializer/json/json.go`` writes with the defaults of both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final, Self, TypeAlias

from etcdfix.golang import gojson
from etcdfix.golang.errors import JSONMalformed

_ESCAPED = re.compile('["\\\\<>&\x00-\x1f\u2028\u2029\ud800-\udfff]')
_SHORT: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_INTEGER = re.compile(rb"-?[0-9]+")

# Python converts no longer run of digits to an integer, and would be slow before that.
_MAX_DIGITS: Final = 1000


class NumberLiteral(float):
    """A number whose text neither ``int`` nor ``float`` would write again: ``1.50``, ``1e3``, ``1e999``.

    Attributes:
        literal: The text.
    """

    literal: str

    def __new__(cls, literal: str) -> Self:
        """Make one from a number's text in JSON."""
        made = super().__new__(cls, literal)
        made.literal = literal
        return made

    def __reduce__(self) -> tuple[type[NumberLiteral], tuple[str]]:
        return NumberLiteral, (self.literal,)


def parse_number(literal: bytes) -> int | float:
    """Return a JSON number as int or float, or as :class:`NumberLiteral` where they would lose its text."""
    text = literal.decode("ascii")
    value: int | float
    if len(text) <= _MAX_DIGITS:
        value = int(text) if _INTEGER.fullmatch(literal) else float(text)
        if (isinstance(value, int) or math.isfinite(value)) and number_text(value) == text:
            return value
    return NumberLiteral(text)


def number_text(value: float) -> str:
    """Write a number like Go: no decimal point in whole ones, exponents below 1e-6 and from 1e21 on.

    Raises:
        JSONMalformed: It is not a finite number, which JSON cannot hold; in Go's words.
    """
    if isinstance(value, NumberLiteral):
        return value.literal
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else ("+Inf" if value > 0 else "-Inf")
        raise JSONMalformed(f"json: unsupported value: {name}")
    text = repr(value)
    if value == 0 or 1e-6 <= abs(value) < 1e21:
        return format(Decimal(text), "f").removesuffix(".0")
    return text.replace("e-0", "e-")


def parse_exactly(data: bytes) -> Any:
    """Parse one JSON document such that :func:`encode_json` writes its numbers as they were.

    Of duplicate keys the last counts, at the place of the first.

    Raises:
        JSONMalformed: Not JSON, in Go's words.
    """
    error = gojson.check_json(data)
    if error is not None:
        raise JSONMalformed(error.message, offset=error.offset)
    return gojson.build(data, parse_number)


def encode_json(value: Any, *, indent: str = "") -> bytes:
    """Write plain values (dict, list, str, int, float, bool, None) as Go's encoder does.

    Keys stand in the dict's own order. No line break follows.

    Args:
        value: What to write; keys are strings. Lone surrogates stand for bytes that are not UTF-8.
        indent: White space per level (Go's ``MarshalIndent``: a line per member); "" writes everything in one line.

    Raises:
        JSONMalformed: A float is not finite.
    """
    return joined(_written(value, "\n" if indent else "", indent, ": " if indent else ":")).encode()


Pieces: TypeAlias = Iterator["str | Pieces"]
"""Text that is being written: strings, and the pieces of what stands inside."""


def joined(pieces: Pieces) -> str:
    """Return pieces as one text. Depth costs memory and no stack."""
    out: list[str] = []
    open_pieces = [pieces]
    while open_pieces:
        for piece in open_pieces[-1]:
            if not isinstance(piece, str):
                open_pieces.append(piece)
                break
            out.append(piece)
        else:
            open_pieces.pop()
    return "".join(out)


def _written(value: Any, line: str, indent: str, colon: str) -> Pieces:
    """Write a value; ``line`` is the line break and white space in front of its closing bracket."""
    if not isinstance(value, (dict, list)):
        yield _scalar_text(value)
        return
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = line + indent
    separator = opening
    for item in value:
        yield separator + inner
        separator = ","
        if isinstance(value, dict):
            yield _quoted(item) + colon
        member = value[item] if isinstance(value, dict) else item
        is_open = isinstance(member, (dict, list))
        yield _written(member, inner, indent, colon) if is_open else _scalar_text(member)
    yield line + closing if value else opening + closing


def _scalar_text(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return number_text(value)


def _quoted(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    short = _SHORT.get(character)
    if short is not None:
        return short
    code = ord(character)
    return "\\ufffd" if 0xD800 <= code <= 0xDFFF else f"\\u{code:04x}"
