r"""Objects as an API server stores them, before they are encrypted; and such bytes taken apart again.

Format:
    ``k8s\0`` and a ``runtime.Unknown``: field 1 the apiVersion and kind, field 2 the object, fields 3 and 4 empty
    (``k8s.io/apimachinery/pkg/runtime/generated.proto``). In an object of a built-in type, field 1 is its ObjectMeta.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from etcdfix.testing.protobytes import block, entry, object_meta, unknown
from etcdfix.testing.sealing import DoesNotFit
from etcdfix.wire.descriptors import build_pool, parse_table

MAGIC: Final = b"k8s\0"
_WANTED: Final = "it wants an object stored as protobuf"
# Fields that are not named here are kept as they are.
_TABLE: Final = """
TypeMeta: 1 apiVersion bytes, 2 kind bytes
Unknown: 1 typeMeta TypeMeta, 2 raw bytes
Object: 1 metadata bytes
ObjectMeta: 1 name bytes
"""
_MESSAGES = build_pool(parse_table(_TABLE), "etcdfix.testing.objects")


def secret(
    name: str,
    namespace: str = "default",
    data: Mapping[str, bytes] | None = None,
    *,
    type: str = "Opaque",  # noqa: A002 - the name of the field
    uid: str | None = None,
) -> bytes:
    """Return a v1 Secret; without ``uid`` it has one that is made from its name."""
    kind = block(3, type.encode()) if type else b""
    return _encoded(b"Secret", name, namespace, uid, _entries(data) + kind)


def config_map(
    name: str, namespace: str = "default", data: Mapping[str, str] | None = None, *, uid: str | None = None
) -> bytes:
    """Return a v1 ConfigMap; ``uid`` as for :func:`secret`."""
    texts = {key: value.encode() for key, value in (data or {}).items()}
    return _encoded(b"ConfigMap", name, namespace, uid, _entries(texts))


def pod(name: str, namespace: str = "default", *, uid: str | None = None) -> bytes:
    """Return a v1 Pod with one container; ``uid`` as for :func:`secret`."""
    container = block(1, b"main") + block(2, b"registry.example/main:1")
    return _encoded(b"Pod", name, namespace, uid, block(2, block(2, container)))


def json_object(
    api_version: str, kind: str, name: str, namespace: str = "", *, uid: str | None = None, **fields: Any
) -> bytes:
    """Return an object as JSON, as custom resources are stored; ``uid`` as for :func:`secret`."""
    place = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **place, "uid": _uid(name, namespace, uid)}
    document = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _uid(name: str, namespace: str, uid: str | None) -> str:
    return uid if uid is not None else str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}"))


def _entries(data: Mapping[str, bytes] | None) -> bytes:
    return b"".join(entry(2, key.encode(), value) for key, value in (data or {}).items())


def _encoded(kind: bytes, name: str, namespace: str, uid: str | None, fields: bytes) -> bytes:
    meta = object_meta(name.encode(), namespace.encode(), _uid(name, namespace, uid).encode())
    return unknown(b"v1", kind, block(1, meta) + fields)


class Stored(NamedTuple):
    """What is in the ``runtime.Unknown`` of a stored object."""

    api_version: bytes
    kind: bytes
    raw: bytes

    @property
    def encoded(self) -> bytes:
        """It as an API server stores it."""
        return unknown(self.api_version, self.kind, self.raw)

    def metadata_alone(self) -> bytes:
        """Return an encoded object with nothing but the ObjectMeta of this one."""
        return block(1, _parsed("Object", self.raw).metadata)

    def with_metadata(self, *more: bytes, name: bytes | None = None) -> Stored:
        """Return it with further encoded fields in its ObjectMeta, and another name where one is given."""
        whole = _parsed("Object", self.raw)
        meta = _parsed("ObjectMeta", whole.metadata)
        if name is not None:
            meta.name = name
        whole.metadata = meta.SerializeToString() + b"".join(more)
        return self._replace(raw=whole.SerializeToString())


def taken_apart(plaintext: bytes) -> Stored:
    """Take a stored object apart.

    Raises:
        DoesNotFit: It is not stored as protobuf, or is damaged already.
    """
    if not plaintext.startswith(MAGIC):
        raise DoesNotFit(f"{_WANTED}: it does not begin as protobuf does")
    outer = _parsed("Unknown", plaintext[len(MAGIC) :])
    _parsed("Object", outer.raw)
    return Stored(outer.typeMeta.apiVersion, outer.typeMeta.kind, outer.raw)


def _parsed(name: str, data: bytes) -> Any:
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - only for planting

    message: Any = _MESSAGES[name]()
    try:
        message.ParseFromString(data)
    except DecodeError as exc:
        raise DoesNotFit(f"{_WANTED}: {exc}") from exc
    return message
