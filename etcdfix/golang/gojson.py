"""JSON as Go's ``encoding/json`` sees it: what it accepts, what it says when it does not, what it reads.

Kubernetes reads stored JSON through two libraries that share one scanner: ``encoding/json`` for kind and
apiVersion, ``sigs.k8s.io/json`` for the rest. A search in server logs only hits if our sentence is theirs, so
the scanner's states and wording are kept exactly. Nothing here recurses: nesting is a stack of our own, so
hostile depth costs memory, never a RecursionError.

Format:
    Go ``encoding/json`` (v1) ``scanner.go`` and ``decode.go``; ``sigs.k8s.io/json`` ``json.go`` for integers.
    Differences from RFC 8259: nesting deeper than 10,000 is refused, invalid UTF-8 and lone surrogates become
    U+FFFD, duplicate keys are allowed and the last one wins.
"""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.goquote import quote_byte, withheld

MAX_DEPTH: Final = 10_000
"""``maxNestingDepth`` of the scanner."""

INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1


class GoJSONError(msgspec.Struct, frozen=True, gc=False):
    """A syntax error in Go's words.

    Attributes:
        message: ``invalid character 'x' after object key`` or ``unexpected end of JSON input``.
        offset: Index of the byte that broke the rule; the length of the data where the data just ends.
    """

    message: str
    offset: int


class Token(NamedTuple):
    """One value or object key of a valid document.

    Attributes:
        kind: ``{``, ``[``, ``"``, ``0`` (any number), ``t``, ``f`` or ``n``.
        start: Index of the first byte.
        end: Index after the last byte.
        next: Index of the token that follows this value; the tokens between are the value's children
            (for an object: key, value, key, value, …).
    """

    kind: str
    start: int
    end: int
    next: int


# Atomic and possessive on purpose: a megabyte of escapes must not leave a megabyte of backtracking points.
_SPACE = re.compile(rb"[ \t\r\n]*+")
_STRING = re.compile(rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4})[^"\\\x00-\x1f]*+)*+"')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?")
_DIGITS = frozenset(b"0123456789")
_HEX = frozenset(b"0123456789abcdefABCDEF")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_raw = msgspec.json.Decoder(msgspec.Raw)
_any = msgspec.json.Decoder()
_REFUSALS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def check_json(data: bytes) -> GoJSONError | None:
    """Return why Go's scanner refuses ``data`` as one JSON document, or None where it does not."""
    if not deeper_than_allowed(data):
        try:
            _raw.decode(data)
        except _REFUSALS:
            pass  # msgspec refuses more than Go does; the slow scanner has the last word
        else:
            return None
    return _scan(data)


def loads(data: bytes) -> object:
    """Parse one document the way Kubernetes reads unstructured JSON.

    Objects become dicts (the last of duplicate keys wins), integers that fit int64 stay integers, all other
    numbers become floats, invalid UTF-8 becomes U+FFFD byte by byte.

    Raises:
        JSONMalformed: Not JSON, or a number that no float64 holds; in Go's words.
    """
    if not deeper_than_allowed(data) and _LONG_INTEGER.search(data) is None:
        try:
            return _any.decode(data)
        except _REFUSALS:
            pass
    error = _scan(data)
    if error is not None:
        raise JSONMalformed(error.message, offset=error.offset)
    return build(data)


_LONG_INTEGER = re.compile(rb"[0-9]{19}")


def deeper_than_allowed(data: bytes) -> bool:
    """Say whether ``data`` could nest deeper than Go allows; a cheap upper bound, not a verdict."""
    return len(data) > MAX_DEPTH and data.count(b"[") + data.count(b"{") > MAX_DEPTH


def _scan(data: bytes) -> GoJSONError | None:
    """Walk the scanner's states over the whole document; ``scanner.go``, one state per context string."""
    containers = bytearray()  # the open brackets, outermost first
    index = 0
    length = len(data)
    context = "looking for beginning of value"
    while True:
        match = _SPACE.match(data, index)
        index = match.end() if match else index
        if index >= length:
            if not containers and context == _AFTER_DOCUMENT:
                return None
            return GoJSONError("unexpected end of JSON input", length)
        byte = data[index]
        if context in _WANTS_VALUE:
            if byte == 0x5D and context == _WANTS_VALUE_OR_END:
                containers.pop()
                index += 1
            elif byte in b"{[":
                containers.append(byte)
                if len(containers) > MAX_DEPTH:
                    return _invalid(data, index, "exceeded max depth")
                context = _WANTS_KEY_OR_END if byte == 0x7B else _WANTS_VALUE_OR_END
                index += 1
                continue
            else:
                end = _scan_scalar(data, index)
                if isinstance(end, GoJSONError):
                    return end
                index = end
        elif context in _WANTS_KEY:
            if byte == 0x7D and context == _WANTS_KEY_OR_END:
                containers.pop()
                index += 1
            elif byte == 0x22:
                end = _scan_scalar(data, index)
                if isinstance(end, GoJSONError):
                    return end
                index = end
                context = _AFTER_KEY
                continue
            else:
                return _invalid(data, index, "looking for beginning of object key string")
        elif context == _AFTER_KEY:
            if byte != 0x3A:
                return _invalid(data, index, context)
            index += 1
            context = "looking for beginning of value"
            continue
        elif context == _AFTER_DOCUMENT:
            return _invalid(data, index, context)
        elif byte == 0x2C:
            context = _WANTS_NEXT_KEY if context == _AFTER_PAIR else "looking for beginning of value"
            index += 1
            continue
        elif byte == (0x7D if context == _AFTER_PAIR else 0x5D):
            containers.pop()
            index += 1
        else:
            return _invalid(data, index, context)
        # A value just ended; what may follow depends on what holds it.
        holder = containers[-1] if containers else 0
        context = _AFTER.get(holder, _AFTER_DOCUMENT)


_WANTS_VALUE_OR_END = "looking for beginning of value, or ]"
_WANTS_KEY_OR_END = "looking for beginning of object key string, or }"
_WANTS_NEXT_KEY = "looking for beginning of object key string"
_AFTER_KEY = "after object key"
_AFTER_PAIR = "after object key:value pair"
_AFTER_ELEMENT = "after array element"
_AFTER_DOCUMENT = "after top-level value"
_AFTER = {0x7B: _AFTER_PAIR, 0x5B: _AFTER_ELEMENT}
_WANTS_VALUE = frozenset(["looking for beginning of value", _WANTS_VALUE_OR_END])
_WANTS_KEY = frozenset([_WANTS_NEXT_KEY, _WANTS_KEY_OR_END])


def _invalid(data: bytes, index: int, context: str) -> GoJSONError:
    """Build the error for the byte at ``index``.

    At the end of the data the scanner is fed one space to close a number; inside a literal, an escape or an
    unfinished number that space is itself the offence (``scanner.eof``), and Go names it.
    """
    byte = data[index] if index < len(data) else 0x20
    return GoJSONError(f"invalid character {quote_byte(byte)} {context}", index)


def _scan_scalar(data: bytes, index: int) -> int | GoJSONError:
    """Return where the string, number or literal at ``index`` ends, or why it is none."""
    byte = data[index]
    if byte == 0x22:
        match = _STRING.match(data, index)
        return match.end() if match else _string_error(data, index + 1)
    literal = _LITERALS.get(byte)
    if literal is not None:
        if data.startswith(literal, index):
            return index + len(literal)
        return _literal_error(data, index, literal)
    if byte in _DIGITS or byte == 0x2D:
        match = _NUMBER.match(data, index)
        if match is None:
            return _invalid(data, index + 1, "in numeric literal")
        return _number_end(data, index, match.end())
    return _invalid(data, index, "looking for beginning of value")


def _number_end(data: bytes, start: int, end: int) -> int | GoJSONError:
    following = data[end] if end < len(data) else 0x20
    text = data[start:end]
    if following in b"eE" and b"e" not in text and b"E" not in text:
        sign = 1 if end + 1 < len(data) and data[end + 1] in b"+-" else 0
        return _invalid(data, end + 1 + sign, "in exponent of numeric literal")
    if following == 0x2E and not any(mark in text for mark in b".eE"):
        return _invalid(data, end + 1, "after decimal point in numeric literal")
    return end


def _literal_error(data: bytes, index: int, literal: bytes) -> GoJSONError:
    right = next(size for size in range(len(literal)) if not data.startswith(literal[: size + 1], index))
    context = f"in literal {literal.decode()} (expecting {quote_byte(literal[right])})"
    return _invalid(data, index + right, context)


def _string_error(data: bytes, index: int) -> GoJSONError:
    length = len(data)
    while index < length:
        byte = data[index]
        if byte < 0x20:
            return _invalid(data, index, "in string literal")
        index += 1
        if byte != 0x5C:
            continue
        if index >= length or data[index] not in b'bfnrtu\\/"':
            return _invalid(data, index, "in string escape code")
        index += 1
        if data[index - 1] != 0x75:
            continue
        for _ in range(4):
            if index >= length or data[index] not in _HEX:
                return _invalid(data, index, "in \\u hexadecimal character escape")
            index += 1
    return GoJSONError("unexpected end of JSON input", length)


# ------------------------------------------------------------------------------------------------ tokens


def tokenize(data: bytes) -> list[Token]:
    """Cut a valid document into values and keys, in document order, each knowing where its sibling starts.

    Call it only after :func:`check_json` said None.
    """
    tokens: list[Token] = []
    opened: list[int] = []
    index = 0
    length = len(data)
    while True:
        match = _TOKEN.search(data, index)
        if match is None:
            return tokens
        start, index = match.span()
        kind = chr(data[start])
        if kind in "}]":
            at = opened.pop()
            tokens[at] = Token(tokens[at].kind, tokens[at].start, index, len(tokens))
        elif kind in "{[":
            opened.append(len(tokens))
            tokens.append(Token(kind, start, length, 0))
        else:
            tokens.append(Token("0" if kind in "-0123456789" else kind, start, index, len(tokens) + 1))


# In a valid document everything between tokens is white space, commas and colons.
_TOKEN = re.compile(rb"[{}\[\]]|" + _STRING.pattern + rb"|[-0-9][-+.0-9eE]*+|true|false|null")


def string_bytes(data: bytes, token: Token) -> bytes:
    """Return a string token unescaped, with invalid UTF-8 left as it is stored."""
    body = data[token.start + 1 : token.end - 1]
    return _ESCAPES.sub(_unescape, body) if b"\\" in body else body


def string_text(data: bytes, token: Token) -> str:
    """Return a string token as Go reads it: unescaped, every invalid byte one U+FFFD."""
    return string_bytes(data, token).decode("utf-8", _GO_REPLACE)


_ESCAPES = re.compile(rb"(?:\\u[0-9A-Fa-f]{4})++|\\.", re.DOTALL)
_SIMPLE = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_SURROGATES = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[0]
    if not escape.startswith(b"\\u"):
        return _SIMPLE.get(escape[1:], escape[1:])
    units = "".join(chr(int(part, 16)) for part in escape.split(b"\\u")[1:])
    return _SURROGATES.sub(_join_surrogates, units).encode()


def _join_surrogates(match: re.Match[str]) -> str:
    pair = match[0]
    if len(pair) == 1:
        return "\ufffd"
    return chr(0x10000 + ((ord(pair[0]) - 0xD800) << 10) + (ord(pair[1]) - 0xDC00))


_GO_REPLACE: Final = "etcdfix.go-replace"


def _replace_each_byte(error: UnicodeError) -> tuple[str, int]:
    """Give one U+FFFD per byte where Python's own handler gives one per maximal sequence."""
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error(_GO_REPLACE, _replace_each_byte)


def number(literal: bytes) -> int | float | None:
    """Return a number literal as unstructured data holds it; None where float64 overflows."""
    if b"." not in literal and b"e" not in literal and b"E" not in literal and len(literal) <= 20:
        integer = int(literal)
        if INT64_MIN <= integer <= INT64_MAX:
            return integer
    value = float(literal)
    return None if math.isinf(value) else value


def build(
    data: bytes,
    number_of: Callable[[bytes], int | float | None] = number,
    repeated: list[Token] | None = None,
) -> Any:
    """Make Python values of a valid document, without recursion; of duplicate keys the last counts.

    Args:
        data: What :func:`check_json` said None of.
        number_of: Reads a number's text.
        repeated: Takes the keys that their object already has.

    Raises:
        JSONMalformed: ``number_of`` made nothing of a number; in Go's words.
    """
    tokens = tokenize(data)
    root: list[Any] = []
    open_values: list[tuple[Any, int]] = [(root, len(tokens))]
    index = 0
    while index < len(tokens):
        container, end = open_values[-1]
        if index == end:
            open_values.pop()
            continue
        key = None
        if isinstance(container, dict):
            key = string_text(data, tokens[index])
            if repeated is not None and key in container:
                repeated.append(tokens[index])
            index += 1
        token = tokens[index]
        index += 1
        value: Any
        if token.kind in "{[":
            value = {} if token.kind == "{" else []
            open_values.append((value, token.next))
        elif token.kind == '"':
            value = string_text(data, token)
        elif token.kind == "0":
            value = number_of(data[token.start : token.end])
            if value is None:
                raise JSONMalformed(
                    f"json: cannot unmarshal number {withheld(token.end - token.start)} into Go value of type float64",
                    offset=token.start,
                )
        else:
            value = {"t": True, "f": False, "n": None}[token.kind]
        if key is None:
            container.append(value)
        else:
            container[key] = value
    return root[0]
