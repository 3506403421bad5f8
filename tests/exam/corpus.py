"""The objects of the exam: every encoding that API servers store, many kinds, names and sizes as they are asked for.

What is needed always is written by hand; where ``ETCDFIX_GOLDEN_DIR`` is set, the API server's own samples come with
it, under names of their own.
"""

from __future__ import annotations

import base64
import json
import os
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.examine.one import Examiner
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, StorageLayout, builtin_directories
from etcdfix.testing.protobytes import block, entry, object_meta, unknown
from tests.support import objects
from tests.support.golden import VARIABLE, api_samples, sample_kind
from tests.support.memory_source import MemorySource, stored

LAYOUT = StorageLayout()
GROUP, PLURAL = "example.com", "widgets"
GOLDEN_RELEASE = "v1.36.0"

TOKEN = "Zq7planted9X"
"""Stands all over the data of each object, and must never be seen in anything that is said of one."""


class Identity(NamedTuple):
    """What tells one object from another; ``namespace`` is "" where the kind has none."""

    name: str
    namespace: str
    uid: str


class Kind(NamedTuple):
    """One kind of object in one encoding.

    Attributes:
        label: For people.
        encoding: ``protobuf``, ``json``, ``yaml``, ``cbor``.
        path: Directory below the storage prefix.
        resource: As an EncryptionConfiguration names it.
        namespaced: Whether its objects have a namespace.
        build: Makes the plaintext of an object, with some text in it.
    """

    label: str
    encoding: str
    path: str
    resource: str
    namespaced: bool
    build: Callable[[Identity, str], bytes]

    def etcd_key(self, prefix: str, identity: Identity) -> bytes:
        namespace = f"{identity.namespace}/" if self.namespaced else ""
        return f"{prefix}/{self.path}/{namespace}{identity.name}".encode()


def crd_record() -> tuple[bytes, bytes]:
    name = f"apiextensions.k8s.io/customresourcedefinitions/{PLURAL}.{GROUP}"
    return f"/registry/{name}".encode(), objects.crd(PLURAL, GROUP)


@cache
def kinds() -> dict[str, tuple[Kind, ...]]:
    found: dict[str, list[Kind]] = {}
    examiner = plain_examiner()
    for kind in (*_written_by_hand(), *(_golden() if VARIABLE in os.environ else ())):
        identity = Identity(
            "probe", "shop" if kind.namespaced else "", "99999999-8888-7777-6666-555555555555"
        )
        record = stored(kind.etcd_key("/registry", identity), kind.build(identity, TOKEN))
        if examiner.examine(record).verdict.outcome is Outcome.READABLE:
            found.setdefault(kind.encoding, []).append(kind)
    return {encoding: tuple(kinds) for encoding, kinds in found.items()}


@cache
def decoder() -> Decoder:
    return Decoder()


@cache
def plain_examiner() -> Examiner:
    examiner = Examiner(LAYOUT, None, decoder())
    examiner.learn_custom_resources(MemorySource([stored(*crd_record())]))
    return examiner


def filler(rng: random.Random, size: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    lines = ["".join(rng.choices(letters, k=20)) + TOKEN for _ in range(min(size, 4000) // 32 + 1)]
    text = " ".join(lines)
    return (text * (size // len(text) + 1))[:size] if size > len(text) else text


def _written_by_hand() -> Iterator[Kind]:
    for directory in builtin_directories():
        if directory.codec is StorageCodec.BUILTIN and directory.kind and directory.namespaced is not None:
            protobuf = partial(_protobuf, api_version=_api_version(directory), kind=directory.kind)
            yield _kind(directory, "protobuf", protobuf)
        if (directory.group, directory.kind) in {("", "Secret"), ("", "ConfigMap")}:
            yield _kind(directory, "yaml", partial(_yaml, kind=directory.kind))
    yield from _json_builtins()
    where = f"{GROUP}/{PLURAL}"
    for encoding, build in (("json", _json_widget), ("cbor", _cbor_widget)):
        yield Kind(f"{GROUP}/v1 Widget", encoding, where, f"{PLURAL}.{GROUP}", True, build)


def _kind(directory: ResourcePrefix, encoding: str, build: Callable[[Identity, str], bytes]) -> Kind:
    resource = f"{directory.resource}.{directory.group}" if directory.group else directory.resource
    label = f"{_api_version(directory)} {directory.kind}"
    return Kind(label, encoding, directory.path, resource, bool(directory.namespaced), build)


def _api_version(directory: ResourcePrefix) -> str:
    return f"{directory.group}/{directory.version}" if directory.group else directory.version


def _metadata(identity: Identity, text: str, *more: bytes) -> bytes:
    note = entry(12, b"note", text.encode())
    return object_meta(
        identity.name.encode(), identity.namespace.encode(), identity.uid.encode(), *more, note
    )


def _protobuf(
    identity: Identity, text: str, *, api_version: str, kind: str, rest: bytes = b"", more: bytes = b""
) -> bytes:
    raw = block(1, _metadata(identity, text, more)) + rest
    if kind == "Secret" and not rest:
        raw += entry(2, b"password", text.encode())
    return unknown(api_version.encode(), kind.encode(), raw)


def _golden() -> Iterator[Kind]:
    directories = {(d.group, d.kind): d for d in builtin_directories() if d.codec is StorageCodec.BUILTIN}
    for name, sample in api_samples(GOLDEN_RELEASE).items():
        group, version, kind = sample_kind(name)
        directory = directories.get((group, kind))
        if directory is None or name.endswith(".after_roundtrip"):
            continue
        raw = next(field for number, field, _ in _fields(sample[4:]) if number == 2)
        metadata = next(field for number, field, _ in _fields(raw) if number == 1)
        rest = b"".join(whole for number, _, whole in _fields(raw) if number != 1)
        # Fields 1 to 5 are the identity, 6 to 8 are written with it.
        more = b"".join(whole for number, _, whole in _fields(metadata) if 8 < number < 12 or number > 12)
        api_version = f"{group}/{version}" if group else version
        build = partial(_protobuf, api_version=api_version, kind=kind, rest=rest, more=more)
        yield _kind(directory, "protobuf", build)._replace(label=f"{api_version} {kind} of the API server")


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        size = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            _, end = _varint(message, at)
            size = end - at
        elif tag & 7 == 2:
            size, at = _varint(message, at)
        yield tag >> 3, message[at : at + size], message[start : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _compact(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def _json_metadata(identity: Identity, text: str) -> dict[str, Any]:
    namespace = {"namespace": identity.namespace} if identity.namespace else {}
    return {"annotations": {"note": text}, "name": identity.name, **namespace, "uid": identity.uid}


def _widget(identity: Identity, text: str) -> dict[str, Any]:
    metadata = _json_metadata(identity, text)
    return {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": metadata, "spec": {"size": 1}}


def _json_widget(identity: Identity, text: str) -> bytes:
    return _compact(_widget(identity, text))


def _json_builtins() -> Iterator[Kind]:
    specs = {
        "CustomResourceDefinition": json.loads(objects.crd("gadgets", "example.org"))["spec"],
        "APIService": {
            "group": "example.org", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        },
    }  # fmt: skip
    versions = {"CustomResourceDefinition": "apiextensions.k8s.io/v1beta1"}
    for directory in builtin_directories():
        if directory.codec is StorageCodec.JSON_BUILTIN:
            version = versions.get(directory.kind, _api_version(directory))
            build = partial(_json_builtin, kind=directory.kind, version=version, spec=specs[directory.kind])
            yield _kind(directory, "json", build)._replace(label=f"{version} {directory.kind}")


def _json_builtin(identity: Identity, text: str, *, kind: str, version: str, spec: dict[str, Any]) -> bytes:
    metadata = _json_metadata(identity, text)
    return _compact({"kind": kind, "apiVersion": version, "metadata": metadata, "spec": spec})


def _yaml(identity: Identity, text: str, *, kind: str) -> bytes:
    data = base64.b64encode(text.encode()).decode()
    namespace = f"  namespace: {json.dumps(identity.namespace)}\n" if identity.namespace else ""
    return (
        f"apiVersion: v1\ndata:\n  password: {data}\nkind: {kind}\nmetadata:\n  annotations:\n"
        f"    note: {json.dumps(text)}\n  name: {json.dumps(identity.name)}\n{namespace}"
        f"  uid: {json.dumps(identity.uid)}\n"
    ).encode()


def _cbor_widget(identity: Identity, text: str) -> bytes:
    return b"\xd9\xd9\xf7" + _cbor(_widget(identity, text))


def _cbor(value: object) -> bytes:
    if isinstance(value, int):
        return _cbor_head(0, value)
    if isinstance(value, str):
        return _cbor_head(2, len(value.encode())) + value.encode()
    assert isinstance(value, dict)
    members = sorted((_cbor(name), _cbor(member)) for name, member in value.items())
    return _cbor_head(5, len(members)) + b"".join(name + member for name, member in members)


def _cbor_head(major: int, number: int) -> bytes:
    if number < 24:
        return bytes([major << 5 | number])
    size = next(size for size in (1, 2, 4, 8) if number < 1 << 8 * size)
    return bytes([major << 5 | 23 + size.bit_length()]) + number.to_bytes(size)
