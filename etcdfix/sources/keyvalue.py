"""One record of etcd's store: the protobuf message ``mvccpb.KeyValue``.

Format:
    etcd v3.6 ``api/mvccpb/kv.proto``; the rules are those of the generated decoder (``kv.pb.go``). Unchanged since
    etcd 3.0.
"""

from __future__ import annotations

import functools
from typing import Final

from etcdfix.model.model import StoredValue
from etcdfix.sources.bbolt.page import Image
from etcdfix.wire.varint import read_varint

_I64_SIGN: Final = 1 << 63
_U64: Final = 1 << 64


def parse_key_value(data: bytes) -> StoredValue:
    """Read an ``mvccpb.KeyValue``, fields in any order, as strictly as etcd's generated decoder.

    Args:
        data: Exactly the record's bytes. Unknown fields are skipped (but not groups, which protobuf gave up
            long ago); of repeated ones the last counts.

    Raises:
        ValueError: Not such a message; the text says what was found at which byte, never the contents.

    Format:
        ``api/mvccpb/kv.proto``: key = 1, create_revision = 2, mod_revision = 3, version = 4,
        value = 5, lease = 6.
    """
    key = value = b""
    numbers = [0, 0, 0, 0, 0, 0, 0]
    at = 0
    while at < len(data):
        start = at
        tag, at = read_varint(data, at)
        field, wire_type = tag >> 3 & 0xFFFF_FFFF, tag & 7
        if not 0 < field < 1 << 31:
            raise ValueError(f"illegal tag {tag} at byte {start}")
        expected = 2 if field in (1, 5) else 0
        if field <= 6 and wire_type != expected:
            raise ValueError(f"wire type {wire_type} for field {field} at byte {start}, expected {expected}")
        if wire_type == 0:
            number, at = read_varint(data, at)
            if field <= 6:
                numbers[field] = number - _U64 if number >= _I64_SIGN else number
        elif wire_type in (1, 2, 5):
            length = 8 if wire_type == 1 else 4
            if wire_type == 2:
                length, at = read_varint(data, at)
            if at + length > len(data):
                raise ValueError(
                    f"field {field} at byte {start} needs {length} bytes, {len(data) - at} are left"
                )
            if field == 1:
                key = data[at : at + length]
            elif field == 5:
                value = data[at : at + length]
            at += length
        else:
            raise ValueError(f"wire type {wire_type} for field {field} at byte {start}")
    return StoredValue(
        key=key,
        value=value,
        mod_revision=numbers[3],
        create_revision=numbers[2],
        version=numbers[4],
        lease=numbers[6],
    )


def parse_as_written(image: Image, start: int, end: int) -> StoredValue | None:
    """Read an ``mvccpb.KeyValue`` in the shape in which etcd writes nearly all; None sends it the careful way.

    Key of at most 16383 bytes, then create_revision, mod_revision (each below 2**35), version (below 2**21), value,
    perhaps a lease. This runs once per key: the varints are unrolled and read in place, since a loop or a call for each
    number and a copy of the record made it twice as slow.
    """
    try:
        length = image[start + 1]
        at = start + 2
        if length > 0x7F:
            length += (image[at] << 7) - 0x80
            if length > 0x3FFF:
                return None
            at += 1
        key = image[at : at + length]
        at += length
        if image[start] != 0x0A or image[at] != 0x10:
            return None
        create = image[at + 1]
        at += 2
        if create > 0x7F:
            byte = image[at]
            at += 1
            create += (byte << 7) - 0x80
            if byte > 0x7F:
                byte = image[at]
                at += 1
                create += (byte << 14) - 0x4000
                if byte > 0x7F:
                    byte = image[at]
                    at += 1
                    create += (byte << 21) - 0x20_0000
                    if byte > 0x7F:
                        byte = image[at]
                        at += 1
                        create += (byte << 28) - 0x1000_0000
                        if byte > 0x7F:
                            return None
        if image[at] != 0x18:
            return None
        mod = image[at + 1]
        at += 2
        if mod > 0x7F:
            byte = image[at]
            at += 1
            mod += (byte << 7) - 0x80
            if byte > 0x7F:
                byte = image[at]
                at += 1
                mod += (byte << 14) - 0x4000
                if byte > 0x7F:
                    byte = image[at]
                    at += 1
                    mod += (byte << 21) - 0x20_0000
                    if byte > 0x7F:
                        byte = image[at]
                        at += 1
                        mod += (byte << 28) - 0x1000_0000
                        if byte > 0x7F:
                            return None
        if image[at] != 0x20:
            return None
        version = image[at + 1]
        at += 2
        if version > 0x7F:
            byte = image[at]
            at += 1
            version += (byte << 7) - 0x80
            if byte > 0x7F:
                byte = image[at]
                at += 1
                version += (byte << 14) - 0x4000
                if byte > 0x7F:
                    return None
        if image[at] != 0x2A:
            return None
        length = image[at + 1]
        at += 2
        if length > 0x7F:
            byte = image[at]
            at += 1
            length += (byte << 7) - 0x80
            if byte > 0x7F:
                byte = image[at]
                at += 1
                length += (byte << 14) - 0x4000
                if byte > 0x7F:
                    return None
    except IndexError:
        return None
    value_end = at + length
    if value_end == end:
        return StoredValue(key, image[at:end], mod, create, version, 0)
    # One comparison for all the reads above: they only ever went forward.
    if value_end > end:
        return None
    lease = _lease_field(image[value_end:end])
    return StoredValue(key, image[at:value_end], mod, create, version, lease) if lease is not None else None


@functools.lru_cache(maxsize=256)
def _lease_field(tail: bytes) -> int | None:
    """Read what follows the value, if it is exactly a lease: events share few of them."""
    if len(tail) > 10 or tail[0] != 0x30:
        return None
    try:
        lease, stop = read_varint(tail, 1)
    except ValueError:
        return None
    return lease if stop == len(tail) and lease < _I64_SIGN else None


def key_and_mod_revision(data: bytes) -> tuple[bytes, int]:
    """Return key and mod_revision of a record; where only its beginning parses, the key and 0.

    Raises:
        ValueError: No key can be read.
    """
    try:
        stored = parse_key_value(data)
        key, mod = stored.key, stored.mod_revision
    except ValueError:
        if data[:1] != b"\x0a":
            raise
        length, at = read_varint(data, 1)
        if at + length > len(data):
            raise
        key, mod = data[at : at + length], 0
    if not key:
        raise ValueError("it has no key")
    return key, mod
