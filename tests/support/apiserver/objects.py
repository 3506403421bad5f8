"""Objects as a stand-in API server stores and serves them: bytes in etcd on one side, JSON on the other."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.decoding.render.fromjson import node_from_json
from etcdfix.decoding.schema import Field, kind_rows, load_schema
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.encrypt import Sealed, to_storage
from etcdfix.encryption.transformer import Transformers, TransformFailed, no_plugin
from etcdfix.model.errors import DecodeError
from etcdfix.model.storagekey import StorageCodec
from etcdfix.testing.protobytes import block, number, tag, unknown
from tests.support.apiserver.kinds import Resource
from tests.support.apiserver.store import Entry
from tests.support.decoders import shared_decoder

Object = dict[str, Any]

_MINOR = 36
_FIXED = {"bool", "int32", "int64"}


class Unreadable(Exception):
    """A stored value that the server cannot read.

    Attributes:
        transformed: It was decrypted, and did not decode.
    """

    def __init__(self, key: bytes, text: str, *, transformed: bool) -> None:
        super().__init__(text)
        self.key = key.decode("utf-8", "replace")
        self.text = text
        self.transformed = transformed


class Codec:
    """Reads and writes values under one EncryptionConfiguration, which may be replaced."""

    def __init__(self, configuration: EncryptionConfiguration | None) -> None:
        self.configuration = configuration
        self._transformers = (
            Transformers.from_configuration(configuration, no_plugin) if configuration is not None else None
        )

    def read(self, resource: Resource, entry: Entry) -> Object:
        """Return the object that etcd holds, with its resourceVersion.

        Raises:
            Unreadable: It cannot be decrypted or decoded.
        """
        data = entry.value
        if self._transformers is not None:
            try:
                found = self._transformers.for_resource(resource.group_resource).from_storage(data, entry.key)
            except TransformFailed as problem:
                raise Unreadable(entry.key, problem.failure.message, transformed=False) from problem
            data = found.data
        reader = _reader()
        try:
            if resource.crd is not None:
                value = reader.custom_resource(data, resource.crd).value
            elif resource.directory.codec is StorageCodec.JSON_BUILTIN:
                value = reader.json_builtin(data, resource.group, resource.kind).value
            else:
                value = reader.builtin(data, resource.group, resource.kind).value
        except DecodeError as problem:
            raise Unreadable(entry.key, problem.message, transformed=True) from problem
        # The reader's numbers and texts keep how they were written; what is served is plain JSON.
        served: Object = json.loads(json.dumps(value))
        served["metadata"]["resourceVersion"] = str(entry.mod_revision)
        served["metadata"].pop("selfLink", None)
        return served

    def plaintext(self, resource: Resource, value: Mapping[str, Any]) -> bytes:
        """Return an object as it is stored before it is encrypted: the resourceVersion is no part of it."""
        metadata = {name: item for name, item in value["metadata"].items() if name != "resourceVersion"}
        stored = {**value, "metadata": metadata}
        if resource.crd is None and resource.directory.codec is StorageCodec.BUILTIN:
            return _protobuf(resource, stored)
        text = json.dumps(
            stored, ensure_ascii=False, separators=(",", ":"), sort_keys=resource.crd is not None
        )
        return text.encode() + b"\n"

    def seal(self, resource: Resource, key: bytes, plaintext: bytes) -> bytes:
        """Encrypt with the write key of today."""
        if self._transformers is None:
            return plaintext
        sealed = to_storage(self._transformers.for_resource(resource.group_resource), plaintext, key)
        assert isinstance(sealed, Sealed), sealed
        return sealed.data

    def is_stale(self, resource: Resource, entry: Entry) -> bool:
        """Tell whether a value that can be read was written with another key than today's."""
        if self._transformers is None:
            return False
        return (
            self._transformers.for_resource(resource.group_resource)
            .from_storage(entry.value, entry.key)
            .stale
        )


def _protobuf(resource: Resource, value: Mapping[str, Any]) -> bytes:
    """Encode an object of a built-in kind."""
    message = _message(resource.group, resource.version, resource.kind)
    converted = node_from_json(load_schema(_MINOR), message, dict(value))
    assert not converted.misfits, f"a {resource.kind} with values of the wrong type"
    return unknown(resource.api_version.encode(), resource.kind.encode(), _encode(message, converted.node))


@cache
def _reader() -> ObjectReader:
    return ObjectReader(shared_decoder(_MINOR))


@cache
def _message(group: str, version: str, kind: str) -> str:
    return next(r.message for r in kind_rows() if (r.group, r.version, r.kind) == (group, version, kind))


def _encode(message: str, node: Mapping[int, Any]) -> bytes:
    found = load_schema(_MINOR).message(message)
    if found.special == "raw-json" and 0 in node:
        return block(1, json.dumps(node[0], separators=(",", ":")).encode())
    return b"".join(_field(field, node[field.number]) for field in found.fields if field.number in node)


def _field(field: Field, value: Any) -> bytes:
    if field.label == "map":
        pairs = (
            block(1, key if isinstance(key, bytes) else str(key).encode())
            + _single(2, field.value_type, item)
            for key, item in sorted(value.items())
        )
        return b"".join(block(field.number, pair) for pair in pairs)
    if field.label == "repeated":
        return b"".join(_single(field.number, field.type, item) for item in value)
    return _single(field.number, field.type, value)


def _single(place: int, type_: str, value: Any) -> bytes:
    if type_ in _FIXED:
        return number(place, int(value) & 0xFFFFFFFFFFFFFFFF)
    if type_ == "double":
        return tag(place, 1) + struct.pack("<d", value)
    if type_ in {"string", "bytes"}:
        return block(place, value if isinstance(value, bytes) else value.encode())
    return block(place, _encode(type_, value))
