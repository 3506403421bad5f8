"""What can be said about plaintext that does not decode, without showing any of it."""

from __future__ import annotations

from collections.abc import Callable

from etcdfix.errors import (
    CBORMalformed,
    ConversionFailed,
    DecodeError,
    JSONMalformed,
    KindUnknown,
    ProtobufMalformed,
)
from etcdfix.model import DecodedObject
from etcdfix.verdicts.observation import DecodeFailure, DecodeFailureKind, PlaintextShape

PROTOBUF_MAGIC = b"k8s\x00"
# An intact envelope ends with contentEncoding and contentType, both present and empty.
_ENVELOPE_END = b"\x1a\x00\x22\x00"


def describe_failure(problem: DecodeError) -> DecodeFailure:
    """Return a decoder's exception as the plain value that a verdict is made from."""
    if isinstance(problem, KindUnknown):
        return DecodeFailure(
            kind=DecodeFailureKind(problem.reason),
            message=problem.message,
            group_version=problem.group_version,
            value_kind=problem.kind,
            readable_until=problem.readable_until,
        )
    kind = DecodeFailureKind.UNKNOWN_ENCODING
    for error_type, candidate in (
        (ProtobufMalformed, DecodeFailureKind.PROTOBUF),
        (JSONMalformed, DecodeFailureKind.JSON),
        (CBORMalformed, DecodeFailureKind.CBOR),
        (ConversionFailed, DecodeFailureKind.CONVERSION),
    ):
        if isinstance(problem, error_type):
            kind = candidate
    return DecodeFailure(
        kind=kind, message=problem.message, offset=problem.offset, field_path=problem.field_path
    )


def shape_of(data: bytes, decode: Callable[[bytes], DecodedObject], *, heal: bool) -> PlaintextShape:
    """Measure plaintext: is it blank, zeroed, encrypted again, whole at its end, nearly a protobuf magic?

    Args:
        data: Plaintext, any length.
        decode: The decoder that refused it, asked again about healed copies when ``heal``.
        heal: Whether to try undoing CR LF, and leaving out what follows the object.
    """
    end = data.rfind(_ENVELOPE_END) + len(_ENVELOPE_END)
    trailing = data.startswith(PROTOBUF_MAGIC) and len(_ENVELOPE_END) <= end < len(data)
    return PlaintextShape(
        size=len(data),
        blank=not data.strip(),
        zeroed=bool(data) and not data.strip(b"\x00"),
        starts_encrypted=data.startswith(b"k8s:enc:"),
        magic_bits_off=_bits_off(data[:4]),
        ends_whole=data.endswith(_ENVELOPE_END) or data.rstrip().endswith(b"}"),
        heals_as_text=heal and b"\r\n" in data and _decodes(data.replace(b"\r\n", b"\n"), decode),
        whole_at=end if heal and trailing and _decodes(data[:end], decode) else 0,
    )


def _decodes(data: bytes, decode: Callable[[bytes], DecodedObject]) -> bool:
    try:
        return not decode(data).empty
    except DecodeError:
        return False


def _bits_off(start: bytes) -> int:
    padded = int.from_bytes(start.ljust(4, b"\xff"))
    return (padded ^ int.from_bytes(PROTOBUF_MAGIC)).bit_count()
