"""Whether a whole object can still be found in a plaintext that does not decode, whatever stands before or behind it.

What can be found is no proven damage. It is looked for where an object can begin: at a magic, at the type of a protobuf
envelope whose magic is another one, at the first members of a JSON object. The search takes a time that grows with the
plaintext; where it would take more, the answer is that there may be one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from etcdfix.decoding.errors import CBORMalformed, ConversionFailed, KindUnknown, ProtobufMalformed
from etcdfix.golang.errors import JSONMalformed
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject
from etcdfix.model.providers import ENCRYPTED_PREFIX, ProviderType
from etcdfix.wire.varint import read_varint

PROTOBUF_MAGIC: Final = b"k8s\x00"
CBOR_TAG: Final = b"\xd9\xd9\xf7"
# An intact envelope ends with contentEncoding and contentType, both present and empty.
ENVELOPE_END: Final = b"\x1a\x00\x22\x00"

_FIELDS: Final = (0x0A, 0x12, 0x1A, 0x22)
"""Tags of an envelope: its type, the object, and encoding and type of its contents."""
_LEAST_TAG: Final = 8
_SIZES: Final = {0: 0, 1: 8, 2: 0, 5: 4}
"""Of a field, by the last three bits of its tag; 0 where a number follows."""

Decode = Callable[[bytes], DecodedObject]

_SEALED: Final = re.compile(ENCRYPTED_PREFIX + rb"(?:%b):v[0-9]+:" % "|".join(ProviderType).encode())
_CR_LF, _LF = b"\r\n", b"\n"
# What stands behind a magic: the length of the type, apiVersion and kind, and the tag of the object.
_TYPE: Final = re.compile(
    rb"\x0a.\x0a.(?:[a-z0-9.-]{1,100}/)?v[0-9][a-z0-9]{0,20}\x12.[A-Z][A-Za-z]{1,100}\x12", re.DOTALL
)
JSON_STARTS: Final = re.compile(rb'\{[ \t\r\n]*"')
_SPACE: Final = b" \t\r\n"
_MEMBERS: Final = ("apiVersion", "kind")
# Numbers are not looked at; one of many digits would take long.
_scan = json.JSONDecoder(strict=False, parse_int=len, parse_float=len).raw_decode
_MOST_STARTS: Final = 64
"""So many starts of one encoding are tried; no object has more of them in it by chance."""
_MOST_PARSED: Final = 16
"""JSON is parsed so many times over, broken objects inside each other."""
_MOST_BROKEN: Final = 1_000
"""So many starts of JSON may lead to none; a damaged object has one for each object around the damage."""


def holds_whole(data: bytes, decode: Decode, parse: Decode) -> bool:
    """Say whether a whole object, of any kind and encoding, may be found in a plaintext that does not decode.

    JSON that the plaintext does not begin with counts where it has a uid, which an API server gave it: templates, and
    the configuration that was last applied, are parts of other objects and have none.
    """
    text = data.replace(_CR_LF, _LF)
    return _is_found(data, decode, parse) or (text != data and _is_found(text, decode, parse))


def is_sealed(data: bytes) -> bool:
    """Say whether an encrypted value stands somewhere in a plaintext."""
    return _SEALED.search(data) is not None


def _is_found(data: bytes, decode: Decode, parse: Decode) -> bool:
    if is_sealed(data):
        return True
    found = (_protobuf(data), _cbor(data, parse), _json(data))
    return any(
        candidate is None or _is_object(candidate, decode, parse, alone=candidate == data)
        for candidates in found
        for candidate in candidates
    )


def _is_object(data: bytes, decode: Decode, parse: Decode, *, alone: bool) -> bool:
    """Say whether an object comes out, of the kind of the etcd key or of another one.

    Where it is ``alone``, nothing surrounds it: then what is wrong with its kind is known already.
    """
    try:
        return not decode(data).empty
    except ProtobufMalformed:
        return False
    except JSONMalformed:
        if data.startswith(b"{"):
            return False
    except (KindUnknown, ConversionFailed):
        if alone:
            return False
    except DecodeError:
        pass
    try:
        parse(data)
    except DecodeError:
        return False
    return True


def _protobuf(data: bytes) -> Iterator[bytes | None]:
    """Yield what reaches from a start of a protobuf object to its end; None where there are too many starts."""
    starts = [match.start() + len(PROTOBUF_MAGIC) for match in re.finditer(PROTOBUF_MAGIC, data)]
    starts += [match.start() for match in _TYPE.finditer(data)]
    for tried, start in enumerate(dict.fromkeys(starts)):
        if tried == _MOST_STARTS:
            yield None
            return
        end = fields_end(data, start)
        if 0 < end <= len(data):
            yield PROTOBUF_MAGIC + data[start:end]


def _cbor(data: bytes, parse: Decode) -> Iterator[bytes | None]:
    for tried, match in enumerate(re.finditer(CBOR_TAG, data)):
        if tried == _MOST_STARTS:
            yield None
            return
        there = data[match.start() :]
        try:
            parse(there)
        except CBORMalformed as error:
            yield there[: error.offset or 0]
        except DecodeError:
            continue
        else:
            yield there


def _json(data: bytes) -> Iterator[bytes | None]:
    first = data.find(b"{")
    if first < 0:
        return
    text = data.decode("latin-1")  # one character a byte
    starts = [first, *(match.start() for match in JSON_STARTS.finditer(data) if match.start() > first)]
    parsed = broken = behind = 0
    for start in starts:
        if start < behind:
            continue  # a part of what was parsed
        value, end = _parsed(text, start)
        if not isinstance(value, dict):
            parsed, broken = parsed + end - start, broken + 1
            if value is None or parsed > _MOST_PARSED * len(data) or broken > _MOST_BROKEN:
                yield None
                return
            continue
        behind = end
        begins = start == first and not data[:start].strip(_SPACE)
        alone = begins and not data[end:].strip(_SPACE)
        if _states_kind(value) and not alone and (begins or _has_uid(value)):
            yield data[start:end]
        if any(_states_kind(part) and _has_uid(part) for part in _parts(value)):
            yield None


def _parts(value: Any) -> Iterator[Any]:
    left = [value]
    while left:
        within = left.pop()
        inside = within.values() if isinstance(within, dict) else within
        for part in inside:
            if isinstance(part, dict | list):
                yield part
                left.append(part)


def _parsed(text: str, start: int) -> tuple[Any, int]:
    """Return the JSON that begins at a place, and where it ends, or what breaks it; None where it is too deep."""
    try:
        return _scan(text, start)
    except json.JSONDecodeError as error:
        return False, error.pos
    except RecursionError:
        return None, start


def _states_kind(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(member), str) for member in _MEMBERS)


def _has_uid(value: dict[str, Any]) -> bool:
    metadata = value.get("metadata")
    return isinstance(metadata, dict) and bool(metadata.get("uid"))


def whole_start(data: bytes) -> int:
    """Return where the object ends that a plaintext begins with, by its own lengths or brackets; 0 where it does not.

    Where a protobuf object stops before its end, the result lies past the end of the plaintext.
    """
    if data.startswith(PROTOBUF_MAGIC):
        return fields_end(data, len(PROTOBUF_MAGIC))
    if not data.startswith(b"{"):
        return 0
    value, end = _parsed(data.decode("latin-1"), 0)
    if not isinstance(value, dict):
        return 0
    return end if data[end:].strip(_SPACE) else len(data)


def names_encoding(data: bytes) -> bool:
    """Say whether a protobuf envelope names an encoding or a type of its contents, or has a field beside the four.

    No known API server writes that. Only where its lengths lead to its end exactly, it says anything.
    """
    if not data.startswith(PROTOBUF_MAGIC):
        return False
    offset, unknown = len(PROTOBUF_MAGIC), False
    try:
        while offset < len(data):
            tag, offset = read_varint(data, offset)
            size = _SIZES.get(tag & 7)
            if size is None or tag < _LEAST_TAG:
                return False
            if size == 0:
                number, offset = read_varint(data, offset)
                size = number if tag & 7 else 0
            unknown = unknown or tag not in _FIELDS or (tag in _FIELDS[2:] and size > 0)
            offset += size
    except ValueError:
        return False
    return unknown and offset == len(data)


def fields_end(data: bytes, start: int) -> int:
    """Return where a protobuf envelope ends by its own lengths, whatever follows; 0 where they lead nowhere.

    Where the value stops before that, the result lies past its end.

    Format:
        ``apimachinery/pkg/runtime/generated.pb.go``, ``Unknown``: after the magic the fields 1 to 4, in order.
    """
    offset = start
    for tag in _FIELDS:
        if offset == len(data):
            return offset + 1
        if data[offset] != tag:
            return 0
        try:
            length, offset = read_varint(data, offset + 1)
        except ValueError:
            return len(data) + 1
        offset += length
        if offset > len(data):
            return offset
    return offset
