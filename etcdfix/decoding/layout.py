"""Where the parts of a plaintext lie: lengths, what kind of object it says it is, and nothing of its contents.

Format: :mod:`etcdfix.decoding.protobuf.envelope`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.golang.goquote import withheld
from etcdfix.model.model import ValuePart
from etcdfix.wire.varint import read_varint

_CBOR_TAG: Final = b"\xd9\xd9\xf7"
_FIELDS: Final = {1: "type", 2: "object", 3: "content encoding", 4: "content type"}
_TYPE_FIELDS: Final = {1: "apiVersion", 2: "kind"}
# No contents of an object look so: what a damaged length lets a name swallow begins with the tag of the next field.
_NAME: Final = re.compile(rb"[A-Za-z0-9./-]{1,253}")


def plaintext_layout(data: bytes) -> list[ValuePart]:
    """Return the parts of a plaintext in order, as far as its own lengths lead."""
    if data.startswith(PROTOBUF_MAGIC):
        return [ValuePart(0, len(PROTOBUF_MAGIC), "magic", "k8s and a zero byte: protobuf"), *_message(data)]
    if not data:
        return []
    return [ValuePart(0, len(data), "text" if _is_text(data) else "bytes", _words(data))]


def _is_text(data: bytes) -> bool:
    return data.lstrip()[:1] in {b"{", b"["}


def _words(data: bytes) -> str:
    if not any(data):
        return "all zero"
    if data.startswith(b"{") and not data.endswith(b"\n"):
        return "begins as JSON does, and lacks the line feed at its end that API servers write"
    if _is_text(data):
        return "begins as JSON does"
    if data.startswith(_CBOR_TAG):
        return "begins as CBOR does"
    off = (int.from_bytes(data[:4]) ^ int.from_bytes(PROTOBUF_MAGIC[: len(data)])).bit_count()
    near = f"; {off} bits of the protobuf magic are wrong" if len(data) >= 4 and off <= 8 else ""
    return f"begins as no known encoding does{near}"


def _message(data: bytes) -> Iterator[ValuePart]:
    at = len(PROTOBUF_MAGIC)
    while at < len(data):
        begin = at
        try:
            tag, at = read_varint(data, at)
            length, at = read_varint(data, at)
        except ValueError:
            yield ValuePart(begin, len(data) - begin, "rest", "no field of the envelope begins here")
            return
        number = tag >> 3
        if tag & 7 != 2 or number not in _FIELDS:
            yield ValuePart(begin, len(data) - begin, "rest", "no field that the envelope has")
            return
        end = at + length
        if end > len(data):
            what = f"says {length} bytes, {len(data) - at} are left"
            yield ValuePart(begin, len(data) - begin, _FIELDS[number], what)
            return
        detail = _type(data[at:end]) if number == 1 else f"length: {length}"
        yield ValuePart(begin, end - begin, _FIELDS[number], detail)
        at = end


def _type(meta: bytes) -> str:
    """Return apiVersion and kind; what is no name, and what follows them, is withheld."""
    words: dict[str, str] = {}
    at = 0
    while at < len(meta):
        try:
            tag, start = read_varint(meta, at)
            length, start = read_varint(meta, start)
        except ValueError:
            break
        name, value = _TYPE_FIELDS.get(tag >> 3, ""), meta[start : start + length]
        if not name or name in words:
            break
        words[name] = value.decode() if _NAME.fullmatch(value) else withheld(len(value))
        at = start + length
    more = [f"{len(meta)} bytes that are not only these"] if at != len(meta) else []
    return ", ".join([*(f"{name} {value}" for name, value in words.items()), *more])
