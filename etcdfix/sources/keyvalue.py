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

_FIELDS: Final = 6


def parse_key_value(raw: bytes) -> StoredValue:
    """Read an ``mvccpb.KeyValue``; unknown fields are skipped, of repeated ones the last counts.

    Raises:
        ValueError: Not such a message, or a field is of another type, which protobuf forgives and etcd refuses.
    """
    try:
        record = message("KeyValue").FromString(raw)
    except DecodeError as exc:
        raise ValueError("no key-value record") from exc
    unknown = UnknownFieldSet(record)
    if len(unknown) and any(unknown[at].field_number <= _FIELDS for at in range(len(unknown))):
        raise ValueError("a field is of another type")
    return stored_of(record)


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
