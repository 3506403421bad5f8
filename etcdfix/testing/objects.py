r"""Objects as an API server stores them, before they are encrypted; and such bytes taken apart again.

Format:
    ``k8s\0`` and a ``runtime.Unknown``: field 1 the apiVersion and kind, field 2 the object, fields 3 and 4 empty
    (``k8s.io/apimachinery/pkg/runtime/generated.proto``). In an object of a built-in type, field 1 is its ObjectMeta.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from etcdfix.testing.protobytes import block, entry, object_meta, tag, unknown, varint

MAGIC: Final = b"k8s\0"
_FIXED64, _BYTES = 1, 2


def secret(
    name: str,
    namespace: str = "default",
    data: Mapping[str, bytes] | None = None,
    *,
    type: str = "Opaque",  # noqa: A002 - the name of the field
    uid: str | None = None,
) -> bytes:
    """Return a v1 Secret; without ``uid`` it has one that is made from its name."""
    entries = b"".join(entry(2, key.encode(), value) for key, value in (data or {}).items())
    kind = block(3, type.encode()) if type else b""
    return unknown(b"v1", b"Secret", block(1, _meta(name, namespace, uid)) + entries + kind)


def config_map(
    name: str,
    namespace: str = "default",
    data: Mapping[str, str] | None = None,
    *,
    uid: str | None = None,
) -> bytes:
    """Return a v1 ConfigMap; ``uid`` as for :func:`secret`."""
    entries = b"".join(entry(2, key.encode(), value.encode()) for key, value in (data or {}).items())
    return unknown(b"v1", b"ConfigMap", block(1, _meta(name, namespace, uid)) + entries)


def pod(name: str, namespace: str = "default", *, uid: str | None = None) -> bytes:
    """Return a v1 Pod with one container; ``uid`` as for :func:`secret`."""
    container = block(1, b"main") + block(2, b"registry.example/main:1")
    return unknown(b"v1", b"Pod", block(1, _meta(name, namespace, uid)) + block(2, block(2, container)))


def json_object(
    api_version: str, kind: str, name: str, namespace: str = "", *, uid: str | None = None, **fields: Any
) -> bytes:
    """Return an object as JSON, as custom resources are stored; ``uid`` as for :func:`secret`."""
    metadata = {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "uid": _uid(name, namespace, uid),
    }
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _uid(name: str, namespace: str, uid: str | None) -> str:
    return uid if uid is not None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}"))


def _meta(name: str, namespace: str, uid: str | None) -> bytes:
    return object_meta(name.encode(), namespace.encode(), _uid(name, namespace, uid).encode())


class NoProtobuf(Exception):
    """Bytes that are not what an API server writes as protobuf."""


class Field(NamedTuple):
    """One field of a message: its number, its type on the wire, and its contents without tag and length."""

    number: int
    wire_type: int
    payload: bytes

    @property
    def encoded(self) -> bytes:
        """The field as it stands in a message."""
        length = varint(len(self.payload)) if self.wire_type == _BYTES else b""
        return tag(self.number, self.wire_type) + length + self.payload


class Stored(NamedTuple):
    """What is in the ``runtime.Unknown`` of a stored object."""

    api_version: bytes
    kind: bytes
    raw: bytes

    @property
    def encoded(self) -> bytes:
        """It as an API server stores it."""
        return unknown(self.api_version, self.kind, self.raw)

    def with_metadata(self, *more: bytes, name: bytes | None = None) -> Stored:
        """Return it with further encoded fields in its ObjectMeta, and another name where one is given."""
        fields = list(fields_of(self.raw))
        meta = next((field for field in fields if field.number == 1), Field(1, _BYTES, b""))
        inner = [
            field._replace(payload=name) if name is not None and field.number == 1 else field
            for field in fields_of(meta.payload)
        ]
        payload = b"".join([*(field.encoded for field in inner), *more])
        rest = [field.encoded for field in fields if field is not meta]
        return self._replace(raw=b"".join([meta._replace(payload=payload).encoded, *rest]))


def taken_apart(plaintext: bytes) -> Stored:
    """Take a stored object apart.

    Raises:
        NoProtobuf: It is not one, or is damaged already.
    """
    if not plaintext.startswith(MAGIC):
        raise NoProtobuf("it does not begin as protobuf does")
    outer = {field.number: field.payload for field in fields_of(plaintext[len(MAGIC) :])}
    inner = {field.number: field.payload for field in fields_of(outer.get(1, b""))}
    return Stored(inner.get(1, b""), inner.get(2, b""), outer.get(2, b""))


def fields_of(message: bytes) -> Iterator[Field]:
    """Yield the fields of a message.

    Raises:
        NoProtobuf: It breaks off, or has a type that Kubernetes does not use.
    """
    at = 0
    while at < len(message):
        head, at = _varint(message, at)
        number, wire_type = head >> 3, head & 7
        start = at
        match wire_type:
            case 0:
                _, at = _varint(message, at)
            case 1 | 5:
                at += 8 if wire_type == _FIXED64 else 4
            case 2:
                size, start = _varint(message, at)
                at = start + size
            case _:
                raise NoProtobuf(f"a field of wire type {wire_type}")
        if at > len(message):
            raise NoProtobuf("a field runs past the end")
        yield Field(number, wire_type, message[start:at])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data):
        number |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return number, at
        shift += 7
    raise NoProtobuf("a number runs past the end")
