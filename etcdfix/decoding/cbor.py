"""CBOR as the API server stores custom resources with the CBORServingAndStorage gate, read strictly.

cbor2 reads the happy case. It is more generous than Kubernetes, so what it gives is checked; and its errors
are not the API server's, so whatever is refused is read again by the decoder below, which follows
fxamacker/cbor step by step and words the error. Nothing here recurses.

Format:
    RFC 8949 in the profile of Kubernetes ``apimachinery/pkg/runtime/serializer/cbor`` (``cbor.go``,
    ``internal/modes/decode.go``) over ``github.com/fxamacker/cbor/v2`` (``valid.go``, ``decode.go``):
    self-described tag 55799, then a map. Text stands in byte strings (major type 2) or text strings, keys are
    strings and unique, other tags are passed through to their content.
"""

from __future__ import annotations

import io
import math
import re
import struct
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, NoReturn

import cbor2

from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.errors import CBORMalformed
from etcdfix.golang.trampoline import Steps, run

MAX_DEPTH: Final = 10_000
MAX_MAP_PAIRS: Final = 2_097_152

_UNDETERMINED: Final = "unable to determine group/version/kind: "


def decode_map(data: bytes) -> dict[str, Any]:
    """Decode a stored value to plain Python: dict, list, str, int, float, bool and None.

    Bytes of a string that are not UTF-8 become lone surrogates (``surrogateescape``), so they are not lost.

    Args:
        data: The whole value, with or without the self-described tag.

    Raises:
        CBORMalformed: In the API server's words; ``offset`` counts from the start of ``data``.
    """
    body = data.removeprefix(CBOR_TAG)
    try:
        return _decode_with_cbor2(body)
    except _NotPlainError:
        return _StrictDecoder(data, len(data) - len(body)).decode()


class _NotPlainError(Exception):
    """Raised when cbor2's answer is no proof that Kubernetes accepts the bytes."""


def _refuse(*_: object) -> NoReturn:
    raise _NotPlainError


# Every tag that cbor2 would interpret. Kubernetes writes none of them; some (2 and 3, bignums; 28 and 29,
# shared references) would come out as plain values that Kubernetes refuses or reads otherwise.
_INTERPRETED_TAGS = (
    0, 1, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, 258, 260, 261, 1004, 43000, 55799,
)  # fmt: skip
_REFUSE_TAGS = dict.fromkeys(_INTERPRETED_TAGS, _refuse)


def _decode_with_cbor2(body: bytes) -> dict[str, Any]:
    stream = io.BytesIO(body)
    decoder = cbor2.CBORDecoder(
        stream,
        tag_hook=_refuse,
        semantic_decoders=_REFUSE_TAGS,
        max_depth=MAX_DEPTH,
        allow_duplicate_keys=False,
        strict_hashable_types=True,
    )
    try:
        value = decoder.decode()
    except (cbor2.CBORError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        raise _NotPlainError from error
    if stream.tell() != len(body) or type(value) is not dict:
        raise _NotPlainError
    plain: dict[str, Any] = run(_plain(value))
    return plain


def _plain(value: Any) -> Steps:
    """Copy a container of cbor2's, byte strings as text; refuses whatever Kubernetes might not accept."""
    if type(value) is list:
        items = []
        for item in value:
            plain = (yield _plain(item)) if type(item) in _CONTAINERS else _plain_scalar(item)
            items.append(plain)
        return items
    mapping = {}
    for key, item in value.items():
        text = key if type(key) is str else _plain_scalar(key)
        mapping[text] = (yield _plain(item)) if type(item) in _CONTAINERS else _plain_scalar(item)
    if len(mapping) != len(value) or len(value) > MAX_MAP_PAIRS:
        raise _NotPlainError  # the same key once as text and once as bytes
    return mapping


def _plain_scalar(value: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return value.decode("utf-8", "surrogateescape")
    if kind is int and not -(1 << 63) <= value < (1 << 63):
        raise _NotPlainError
    if kind is float and not math.isfinite(value):
        raise _NotPlainError
    if kind not in _PLAIN_TYPES:
        raise _NotPlainError
    return value


_CONTAINERS = frozenset({list, dict})
_PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})


# ----------------------------------------------------------------------------------- the strict decoder


class _Head(NamedTuple):
    """The start of a data item: major type, additional information, argument."""

    major: int
    info: int
    argument: int


_TYPE_NAMES = (
    "positive integer", "negative integer", "byte string", "UTF-8 text string", "array", "map", "tag", "primitives",
)  # fmt: skip
_BYTES, _TEXT, _ARRAY, _MAP, _TAG, _PRIMITIVES = 2, 3, 4, 5, 6, 7
_INDEFINITE: Final = 31
_BREAK: Final = 0xFF
_ARGUMENT_SIZES = {24: 1, 25: 2, 26: 4, 27: 8}
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
_SIMPLE = {20: False, 21: True, 22: None}
_INT_MAX: Final = (1 << 63) - 1


class _StrictDecoder:
    """Reads bytes as fxamacker/cbor does under Kubernetes' options: first well-formedness, then values.

    An error of the first kind hides kind and apiVersion too, and says so (``unable to determine …``); so does
    a wrong top-level map. Value errors are collected, the first is reported after the whole was read.
    """

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._start = offset
        self._offset = offset
        self._error: CBORMalformed | None = None

    def decode(self) -> dict[str, Any]:
        try:
            self._check_well_formed()
            self._offset = self._start
            value = run(self._value(depth=0))
        except CBORMalformed as error:
            raise CBORMalformed(_UNDETERMINED + error.message, offset=error.offset) from None
        if self._error is not None:
            raise self._error
        if value is None:
            return {}  # a nil map: no kind, but no error either
        if not isinstance(value, dict):
            name = self._top_type_name()
            why = " (cannot decode CBOR array to struct without toarray option)" if name == "array" else ""
            raise CBORMalformed(
                f"{_UNDETERMINED}cbor: cannot unmarshal {name} into Go value of type v1.TypeMeta{why}",
                offset=self._start,
            )
        return value

    def _top_type_name(self) -> str:
        self._offset = self._start
        head = self._head()
        while head.major == _TAG:
            head = self._head()
        return _TYPE_NAMES[head.major]

    # -- well-formedness (valid.go)

    def _check_well_formed(self) -> None:
        if self._offset == len(self._data):
            raise self._fail("EOF")
        run(self._well_formed(0))
        extra = len(self._data) - self._offset
        if extra:
            at = self._offset - self._start
            raise self._fail(f"cbor: {extra} bytes of extraneous data starting at index {at}")

    def _well_formed(self, depth: int) -> Steps:
        head = self._head()
        while head.major == _TAG:
            if self._offset < len(self._data) and self._data[self._offset] >> 5 == _TAG:
                depth = self._deeper(depth)
            head = self._head()
        if head.major in (_BYTES, _TEXT):
            self._skip_string(head)
        elif head.major in (_ARRAY, _MAP):
            depth = self._deeper(depth)
            yield self._well_formed_items(head, depth)
        elif head.major == _PRIMITIVES:
            self._check_float(head)

    def _deeper(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise self._fail(f"cbor: exceeded max nested level {MAX_DEPTH}")
        return depth + 1

    def _well_formed_items(self, head: _Head, depth: int) -> Steps:
        per_entry = 2 if head.major == _MAP else 1
        if head.info != _INDEFINITE:
            if head.argument > _INT_MAX:
                name = _TYPE_NAMES[head.major]
                raise self._fail(
                    f"cbor: {name} length {head.argument} is too large, it would cause integer overflow"
                )
            self._check_pairs(head, head.argument)
            for _ in range(head.argument * per_entry):
                yield self._well_formed(depth)
            return
        count = 0
        while not self._found_break():
            yield self._well_formed(depth)
            count += 1
            self._check_pairs(head, count // 2)
        if count % per_entry:
            raise self._fail('cbor: unexpected "break" code')

    def _check_pairs(self, head: _Head, pairs: int) -> None:
        if head.major == _MAP and pairs > MAX_MAP_PAIRS:
            raise self._fail(f"cbor: exceeded max number of key-value pairs {MAX_MAP_PAIRS} for CBOR map")

    def _check_float(self, head: _Head) -> None:
        if head.info in _FLOATS:
            value = _float(head)
            if not math.isfinite(value):
                what = "NaN" if math.isnan(value) else "infinity"
                raise self._fail(_unacceptable("primitives", f"floating-point {what}"))

    # -- values (decode.go, parse)

    def _value(self, depth: int) -> Steps:
        return (yield self._content(self._head(), depth))

    def _content(self, head: _Head, depth: int) -> Steps:
        start = self._offset
        while head.major == _TAG:
            number = head.argument
            head = self._head()
            if number in (0, 1):
                return self._time((yield self._content(head, depth)), start)
            if number in (2, 3):
                self._note(_unacceptable("tag", "bignum"), start)
        if head.major in (_BYTES, _TEXT):
            return self._text(head)
        if head.major == _ARRAY:
            return (yield self._array(head, depth))
        if head.major == _MAP:
            return (yield self._map(head, depth))
        return self._scalar(head, start)

    def _scalar(self, head: _Head, start: int) -> Any:
        if head.major == _PRIMITIVES:
            if head.info in _FLOATS:
                return _float(head)
            if head.argument not in _SIMPLE:
                self._note(
                    _unacceptable("primitives", f"simple value {head.argument} is not recognized"), start
                )
            return _SIMPLE.get(head.argument)
        value = head.argument if head.major == 0 else -1 - head.argument
        if head.argument > _INT_MAX:
            self._note(
                f"cbor: cannot unmarshal {_TYPE_NAMES[head.major]} into Go value of type int64 "
                f"({value} overflows Go's int64)",
                start,
            )
        return value

    def _array(self, head: _Head, depth: int) -> Steps:
        items = []
        if head.info == _INDEFINITE:
            while not self._found_break():
                items.append((yield self._value(depth + 1)))
            return items
        for _ in range(head.argument):
            items.append((yield self._value(depth + 1)))  # noqa: PERF401 - a comprehension cannot yield
        return items

    def _map(self, head: _Head, depth: int) -> Steps:
        mapping: dict[str, Any] = {}
        index = 0
        while not self._found_break() if head.info == _INDEFINITE else index < head.argument:
            at = self._offset
            key_major = self._data[at] >> 5
            key = yield self._value(depth + 1)
            if not isinstance(key, str):
                name = _TYPE_NAMES[key_major]
                self._note(f"cbor: cannot unmarshal {name} into Go value of type string", at)
            elif key in mapping:
                size = len(key.encode("utf-8", "surrogateescape"))
                self._note(
                    f"cbor: found duplicate map key <{size} bytes withheld> at map element index {index}",
                    at,
                    hides_kind=depth == 0,
                )
            value = yield self._value(depth + 1)
            if isinstance(key, str):
                mapping[key] = value
            index += 1
        return mapping

    def _note(self, message: str, offset: int, *, hides_kind: bool = False) -> None:
        """Keep the first value error; a duplicate in the top-level map also keeps kind and apiVersion unread."""
        if self._error is None:
            prefix = _UNDETERMINED if hides_kind else ""
            self._error = CBORMalformed(prefix + message, offset=offset)

    def _time(self, value: Any, start: int) -> str:
        """Turn the content of a time tag into RFC 3339 text (``TimeTagToRFC3339Nano``)."""
        if isinstance(value, str) and _RFC3339.fullmatch(value):
            return value
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            try:
                moment = _EPOCH + timedelta(seconds=value)
            except OverflowError:
                self._note("cbor: time out of range", start)
            else:
                return moment.isoformat().replace("+00:00", "Z")
        self._note("cbor: cannot set <value withheld> for time.Time", start)
        return ""

    def _text(self, head: _Head) -> str:
        start = self._offset
        if head.info != _INDEFINITE:
            self._offset += head.argument
            body = self._data[start : self._offset]
        else:
            chunks = []
            while not self._found_break():
                chunk = self._head()
                chunks.append(self._data[self._offset : self._offset + chunk.argument])
                self._offset += chunk.argument
            body = b"".join(chunks)
        try:
            return body.decode()
        except UnicodeDecodeError:
            if head.major == _TEXT:
                self._note("cbor: invalid UTF-8 string", start)
            return body.decode("utf-8", "surrogateescape")

    # -- bytes

    def _head(self) -> _Head:
        """Read the head of a data item (``validHead``)."""
        data, at = self._data, self._offset
        if at >= len(data):
            raise self._fail("unexpected EOF")
        major, info = data[at] >> 5, data[at] & 0x1F
        self._offset = at + 1
        if info < 24:
            return _Head(major, info, info)
        size = _ARGUMENT_SIZES.get(info)
        if size is None:
            if info == _INDEFINITE and major == _PRIMITIVES:
                raise self._fail('cbor: unexpected "break" code')
            if info != _INDEFINITE or major in (0, 1, _TAG):
                raise self._fail(f"cbor: invalid additional information {info} for type {_TYPE_NAMES[major]}")
            return _Head(major, info, 0)
        if len(data) - self._offset < size:
            raise self._fail("unexpected EOF")
        self._offset += size
        argument = int.from_bytes(data[at + 1 : at + 1 + size])
        if major == _PRIMITIVES and info == 24 and argument < 32:
            raise self._fail(f"cbor: invalid simple value {argument} for type {_TYPE_NAMES[major]}")
        return _Head(major, info, argument)

    def _skip_string(self, head: _Head) -> None:
        name = _TYPE_NAMES[head.major]
        if head.info != _INDEFINITE:
            self._skip(head, name)
            return
        while not self._found_break():
            initial = self._data[self._offset]
            if initial >> 5 != head.major:
                other = _TYPE_NAMES[initial >> 5]
                raise self._fail(f"cbor: wrong element type {other} for indefinite-length {name}")
            if initial & 0x1F == _INDEFINITE:
                raise self._fail(f"cbor: indefinite-length {name} chunk is not definite-length")
            self._skip(self._head(), name)

    def _skip(self, head: _Head, name: str) -> None:
        if head.argument > _INT_MAX:
            raise self._fail(f"cbor: {name} length {head.argument} is too large, causing integer overflow")
        if len(self._data) - self._offset < head.argument:
            raise self._fail("unexpected EOF")
        self._offset += head.argument

    def _found_break(self) -> bool:
        if self._offset >= len(self._data):
            raise self._fail("unexpected EOF")
        if self._data[self._offset] != _BREAK:
            return False
        self._offset += 1
        return True

    def _fail(self, message: str) -> CBORMalformed:
        return CBORMalformed(message, offset=self._offset)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RFC3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:Z|[-+][0-9]{2}:[0-9]{2})"
)


def _float(head: _Head) -> float:
    size = _ARGUMENT_SIZES[head.info]
    value: float = struct.unpack(_FLOATS[head.info], head.argument.to_bytes(size))[0]
    return value


def _unacceptable(cbor_type: str, what: str) -> str:
    return f"cbor: data item of cbor type {cbor_type} is not accepted by protocol: {what}"
