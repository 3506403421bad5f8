"""Clusters for tests of the impact analysis: objects given as JSON, stored as an API server stores them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from google.protobuf.message import Message

from etcdfix.decoding.consistency import wire_fields
from etcdfix.decoding.schema import SCALAR_TYPES, kind_rows, load_schema
from etcdfix.examine.one import Examiner
from etcdfix.graph.cluster import IndexBuilder
from etcdfix.graph.index import ImpactIndex
from etcdfix.model.storagekey import StorageLayout, builtin_directories
from etcdfix.sources.base import Source
from etcdfix.testing.protobytes import block, unknown
from etcdfix.wire.descriptors import MessageClasses
from tests.support.decoders import shared_decoder
from tests.support.memory_source import MemorySource
from tests.support.objects import crd

BROKEN = b"k8s\x00\xff\xff broken"
NOW = "2026-03-01T10:00:00Z"
NOW_SECONDS = 1772359200
SNAPSHOTS = "snapshot.storage.k8s.io"


@cache
def _classes() -> MessageClasses:
    return MessageClasses(partial(wire_fields, load_schema()), "etcdfix.tests.impact")


def protobuf(api_version: str, kind: str, value: Mapping[str, Any]) -> bytes:
    """Encode a built-in; times and raw JSON included."""
    group, _, version = api_version.rpartition("/")
    row = next(r for r in kind_rows() if (r.group, r.version, r.kind) == (group, version, kind))
    message = _classes()[row.message]()
    _fill(message, row.message, value)
    return unknown(api_version.encode(), kind.encode(), message.SerializeToString(deterministic=True))


def _fill(message: Message, name: str, value: Mapping[str, Any]) -> None:
    for field in load_schema().message(name).fields:
        if field.json_name == "<inline>":
            inner = getattr(message, field.name)
            _fill(inner, field.type, value)
            if inner.ByteSize():
                inner.SetInParent()
        elif field.json_name in value:
            _set(message, field, value[field.json_name])


def _set(message: Message, field: Any, item: Any) -> None:
    if field.label == "map":
        getattr(message, field.name).update(item)
    elif field.label == "repeated":
        target = getattr(message, field.name)
        for element in item:
            if field.type in SCALAR_TYPES:
                target.append(element)
            else:
                _fill(target.add(), field.type, element)
    elif field.type in SCALAR_TYPES:
        setattr(message, field.name, item)
    elif load_schema().message(field.type).special == "raw-json":
        setattr(message, field.name, block(1, json.dumps(item).encode()))  # our classes leave it unread
    else:
        inner = getattr(message, field.name)
        inner.SetInParent()
        special = load_schema().message(field.type).special
        if special == "time":
            assert item == NOW
            inner.seconds = NOW_SECONDS
        else:
            _fill(inner, field.type, item)


def build_index(source: Source, examiner: Examiner) -> ImpactIndex:
    """Examine everything in a source and index it."""
    builder = IndexBuilder(examiner, source)
    for found in source.current(b""):
        builder.add(examiner.examine(found))
    return builder.finish(source.problems)


class Cluster:
    """Keys and values of a made-up cluster.

    ``cluster.add("v1", "Pod", "web", "shop", spec={...})`` stores an object under its key and returns the key. Uids
    are ``uid-<name>`` unless given; ``metadata`` takes what else belongs there.
    """

    def __init__(self, prefix: str = "/registry") -> None:
        self.layout = StorageLayout(prefix)
        self.values: dict[str, bytes] = {}

    def add(
        self,
        api_version: str,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        owners: tuple[dict[str, Any], ...] = (),
        finalizers: tuple[str, ...] = (),
        terminating: bool = False,
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> str:
        metadata: dict[str, Any] = {"name": name, "uid": f"uid-{name}" if uid is None else uid}
        metadata |= {"namespace": namespace} if namespace else {}
        metadata |= {"ownerReferences": list(owners)} if owners else {}
        metadata |= {"finalizers": list(finalizers)} if finalizers else {}
        metadata |= {"deletionTimestamp": NOW} if terminating else {}
        metadata |= {"annotations": dict(annotations)} if annotations else {}
        metadata |= {"labels": dict(labels)} if labels else {}
        value = {"metadata": metadata, **fields}
        group = api_version.rpartition("/")[0]
        found = [d for d in builtin_directories() if (d.group, d.kind) == (group, kind)]
        if found:
            key = self.key(found[0].path, namespace, name)
            self.values[key] = protobuf(api_version, kind, value)
        else:
            key = self.key(f"{group}/{kind.lower()}{'es' if kind.endswith('s') else 's'}", namespace, name)
            document = {"apiVersion": api_version, "kind": kind, **value}
            self.values[key] = json.dumps(document).encode()
        return key

    def key(self, path: str, namespace: str, name: str) -> str:
        middle = f"{namespace}/" if namespace else ""
        return f"{self.layout.prefix}{path}/{middle}{name}"

    def define(self, group: str, kind: str, scope: str = "Namespaced") -> str:
        """Add a CRD."""
        plural = f"{kind.lower()}{'es' if kind.endswith('s') else 's'}"
        key = self.key("apiextensions.k8s.io/customresourcedefinitions", "", f"{plural}.{group}")
        self.values[key] = crd(plural, group, kind=kind, scope=scope)
        return key

    def break_(self, key: str) -> str:
        """Damage a value that is there, or put a damaged one."""
        self.values[key] = BROKEN
        return key

    def namespace(self, name: str, **settings: Any) -> str:
        settings.setdefault("spec", {"finalizers": ["kubernetes"]})
        phase = "Terminating" if settings.get("terminating") else "Active"
        settings.setdefault("status", {"phase": phase})
        return self.add("v1", "Namespace", name, **settings)

    def pod(self, name: str, namespace: str = "shop", **settings: Any) -> str:
        settings.setdefault("spec", {"containers": [{"name": "main", "image": "web"}]})
        return self.add("v1", "Pod", name, namespace, **settings)

    def secret(self, name: str, namespace: str = "shop", **settings: Any) -> str:
        settings.setdefault("type", "Opaque")
        return self.add("v1", "Secret", name, namespace, **settings)

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key.encode(), value) for key, value in self.values.items())

    def source(self) -> MemorySource:
        return MemorySource(self.values)

    def examiner(self, source: Source | None = None) -> Examiner:
        examiner = Examiner(self.layout, None, shared_decoder())
        examiner.learn_custom_resources(source if source is not None else self.source())
        return examiner

    def index(self, source: Source | None = None) -> ImpactIndex:
        source = source if source is not None else self.source()
        return build_index(source, self.examiner(source))


def owner(
    kind: str, name: str, *, api_version: str = "apps/v1", uid: str | None = None, **more: bool
) -> dict[str, Any]:
    """Return one owner reference; the uid is the one that ``Cluster.add`` gives."""
    uid = f"uid-{name}" if uid is None else uid
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, **more}


def node_of(index: ImpactIndex, key: str) -> int:
    node = index.find(key.encode())
    assert node is not None, key
    return node
