"""Protobuf's integers of variable size.

Format: https://protobuf.dev/programming-guides/encoding/: seven bits a byte, lowest first; the high bit says that more
follow. At most ten bytes.
"""

from __future__ import annotations

MAX_BYTES = 10
_UINT64 = (1 << 64) - 1


class VarintCut(ValueError):
    """Raised when the bytes end inside a varint."""


class VarintTooLong(ValueError):
    """Raised when a varint does not end within ten bytes."""


def read_varint(data: bytes, at: int, end: int | None = None) -> tuple[int, int]:
    """Read a varint; return it, less the bits beyond 64, as Go's generated decoders drop them, and the place behind it.

    Args:
        data: The message.
        at: Where the varint begins.
        end: Where the message ends in ``data``, if not with it.

    Raises:
        VarintCut, VarintTooLong: None stands there.
    """
    end = len(data) if end is None else end
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        if byte < 0x80:
            return (value | byte << shift) & _UINT64, at
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift == 7 * MAX_BYTES:
            raise VarintTooLong(f"a varint of more than ten bytes before byte {at}")
    raise VarintCut(f"cut inside a varint at byte {at}")
