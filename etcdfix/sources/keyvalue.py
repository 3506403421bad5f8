"""One record of etcd's store: the protobuf message ``mvccpb.KeyValue``.

Format:
    etcd v3.6 ``api/mvccpb/kv.proto``; the rules are those of the generated decoder (``kv.pb.go``). Unchanged since
    etcd 3.0.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from etcdfix.model.model import StoredValue
from etcdfix.wire.etcd import message
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


def parse_as_written(raw: bytes) -> StoredValue | None:
    """Read an ``mvccpb.KeyValue`` fast; None sends it the careful way, for protobuf forgives what etcd refuses."""
    try:
        record = message("KeyValue").FromString(raw)
    except DecodeError:
        return None
    return None if len(UnknownFieldSet(record)) else stored_of(record)


def stored_of(value: Any) -> StoredValue:
    """Return what a key-value message says."""
    return StoredValue(
        value.key, value.value, value.mod_revision, value.create_revision, value.version, value.lease
    )


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
