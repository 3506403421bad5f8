"""What is left of a damaged value: the part before the damage, as far as it can be trusted.

Nothing is guessed: a field counts only when all its bytes are there and decode. Damage that decodes (a changed
letter in a name) shows nowhere, here as elsewhere.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from etcdfix.decoding.errors import ProtobufMalformed
from etcdfix.decoding.protobuf.envelope import parse_envelope
from etcdfix.decoding.protobuf.strict import Refused, StrictDecoder, read_varint, skip_field
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.decoding.schema import load_schema
from etcdfix.golang import gojson
from etcdfix.golang.gojsontext import parse_exactly

_UNKNOWN: Final = "k8s.io.apimachinery.pkg.runtime.Unknown"
_RAW_TAG: Final = 2 << 3 | 2
# What follows ``raw`` in every value that the API server wrote.
_TAIL: Final = b"\x1a\x00\x22\x00"

_decoder = StrictDecoder(load_schema())


class DamagedEnvelope(NamedTuple):
    """What an envelope still tells.

    Attributes:
        api_version: As stored; b"" where lost.
        cut_off: Whether the data ends before the message should.
        whole: Whether nothing but the magic is wrong with the envelope.
    """

    api_version: bytes
    kind: bytes
    start: int
    end: int
    cut_off: bool
    whole: bool


def is_protobuf(data: bytes) -> bool:
    """Say whether a value is protobuf by its magic, of which half may be damaged if the envelope goes on rightly."""
    if data.startswith(PROTOBUF_MAGIC):
        return True
    alike = sum(found == wanted for found, wanted in zip(data, PROTOBUF_MAGIC, strict=False))
    return alike * 2 >= len(PROTOBUF_MAGIC) and data[len(PROTOBUF_MAGIC) : len(PROTOBUF_MAGIC) + 1] == b"\x0a"


def salvage_envelope(data: bytes) -> DamagedEnvelope | None:
    """Read an envelope as far as it goes; None where no object can be found in it."""
    body = PROTOBUF_MAGIC + data[len(PROTOBUF_MAGIC) :]
    try:
        envelope = parse_envelope(body)
    except ProtobufMalformed:
        pass
    else:
        end = envelope.raw_offset + len(envelope.raw)
        return DamagedEnvelope(
            envelope.api_version, envelope.kind, envelope.raw_offset, end, cut_off=False, whole=True
        )
    decoded, _ = _decoder.salvage(_UNKNOWN, body, len(PROTOBUF_MAGIC))
    try:
        start, end = _find_raw(body)
    except Refused:
        return None
    cut_off = end > len(body)
    if cut_off:
        end = len(body)
        if body.endswith(_TAIL):  # it is all there, only the length is wrong
            cut_off = False
            end = max(start, end - len(_TAIL))
    type_meta = decoded.node.get(1, {})
    return DamagedEnvelope(
        type_meta.get(1, b""), type_meta.get(2, b""), start, end, cut_off=cut_off, whole=False
    )


def _find_raw(body: bytes) -> tuple[int, int]:
    pos = len(PROTOBUF_MAGIC)
    while True:
        tag, inside = read_varint(body, pos, len(body))
        if tag == _RAW_TAG:
            length, inside = read_varint(body, inside, len(body))
            return inside, inside + length
        pos = skip_field(body, pos, len(body), len(body))


_PIECE = re.compile(
    rb'[ \t\r\n]*+([{}\[\],:]|"[^"\\]*+(?:\\.[^"\\]*+)*+"|-?[0-9][-+.0-9eE]*+|true|false|null)', re.DOTALL
)
_CLOSING: Final = {0x7B: b"}", 0x5B: b"]"}


class DamagedJSON(NamedTuple):
    """What is left of a JSON document.

    Attributes:
        value: The root, or None where it is no object.
        whole: Whether the document is well-formed JSON.
    """

    value: dict[str, Any] | None
    whole: bool


def salvage_json(data: bytes) -> DamagedJSON:
    """Parse a JSON object as far as it goes: whatever was open at the damage ends there.

    A member or item counts when it stands complete before the first byte that breaks the syntax; of an object or
    list that was open, the part that does.
    """
    error = gojson.check_json(data)
    text = data if error is None else _closed(data, error.offset)
    value = parse_exactly(text) if text else None
    return DamagedJSON(value if isinstance(value, dict) else None, whole=error is None)


def _closed(data: bytes, limit: int) -> bytes:
    """Return the complete values among the well-formed ``data[:limit]``, with the brackets that they need."""
    opened = bytearray()
    kept = pos = 0
    wants_value = True
    while True:
        match = _PIECE.match(data, pos, limit)
        if match is None:
            break
        pos = match.end()
        byte = data[match.start(1)]
        if byte in b"{[":
            opened.append(byte)
            wants_value = byte == 0x5B
        elif byte in b"}]":
            opened.pop()
        elif byte in b",:":
            wants_value = byte == 0x3A or opened[-1] == 0x5B
            continue
        elif not wants_value or (pos == limit and byte in b"-0123456789"):
            continue  # the name of a member, or a number of which digits may be missing
        kept = pos
    return data[:kept] + b"".join(_CLOSING[byte] for byte in reversed(opened)) if kept else b""
