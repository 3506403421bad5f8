"""Base64 as Go's ``encoding/base64.StdEncoding`` decodes it, with the byte that Go would blame.

The API server uses it twice: for ``[]byte`` fields in JSON, and as the last decoder tried on a built-in's
value, which is why most damaged values end in ``illegal base64 data at input byte N``.

Format:
    Go ``encoding/base64/base64.go``, ``decodeQuantum``: carriage returns and line feeds are skipped wherever
    they stand, padding is required, left-over bits of the last character are not looked at.
"""

from __future__ import annotations

import binascii
import re

from etcdfix.golang.errors import UnknownEncoding

_NOT_ALPHABET = re.compile(rb"[^A-Za-z0-9+/\r\n]")
_LINE_BREAKS = b"\r\n"
_PAD = 0x3D


def decode(data: bytes) -> bytes:
    """Return what ``data`` encodes.

    Raises:
        UnknownEncoding: Not base64; the message is Go's ``CorruptInputError``.
    """
    at = illegal_byte(data)
    if at is not None:
        raise UnknownEncoding(f"illegal base64 data at input byte {at}", offset=at)
    return binascii.a2b_base64(data.translate(None, _LINE_BREAKS))


def illegal_byte(data: bytes) -> int | None:
    """Return the input byte that Go's decoder names when it gives up, or None where it decodes."""
    match = _NOT_ALPHABET.search(data)
    end = match.start() if match else len(data)
    breaks = data.count(b"\r", 0, end) + data.count(b"\n", 0, end)
    in_quantum = (end - breaks) % 4
    if match is None:
        # Go counts back by characters of the quantum, as if no line break stood between them.
        return end - in_quantum if in_quantum else None
    if data[end] != _PAD or in_quantum < 2:
        return end
    after = end + 1
    if in_quantum == 2:
        after = _skip_line_breaks(data, after)
        if after == len(data):
            return after
        if data[after] != _PAD:
            return after - 1
        after += 1
    after = _skip_line_breaks(data, after)
    return after if after < len(data) else None


def _skip_line_breaks(data: bytes, index: int) -> int:
    while index < len(data) and data[index] in _LINE_BREAKS:
        index += 1
    return index
