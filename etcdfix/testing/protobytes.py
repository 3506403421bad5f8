"""Protobuf written by hand: an encoder that shares nothing with what reads it in the package."""

from __future__ import annotations


def varint(number: int) -> bytes:
    number %= 1 << 64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def tag(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return tag(field, 0) + varint(value)


def block(field: int, payload: bytes) -> bytes:
    """A length-delimited field: string, bytes, message, map entry or packed run."""
    return tag(field, 2) + varint(len(payload)) + payload


def entry(field: int, key: bytes, value: bytes) -> bytes:
    """A map entry whose value is length-delimited."""
    return block(field, block(1, key) + block(2, value))


def unknown(api_version: bytes, kind: bytes, raw: bytes) -> bytes:
    """A ``runtime.Unknown`` with its magic, as the API server writes it."""
    type_meta = block(1, api_version) + block(2, kind)
    return b"k8s\x00" + block(1, type_meta) + block(2, raw) + block(3, b"") + block(4, b"")


def object_meta(name: bytes, namespace: bytes = b"", uid: bytes = b"", *more: bytes) -> bytes:
    """An ObjectMeta with the fields that the API server always writes."""
    named = block(1, name) + block(2, b"") + block(3, namespace) + block(4, b"")
    return named + block(5, uid) + block(6, b"") + number(7, 0) + block(8, b"") + b"".join(more)
