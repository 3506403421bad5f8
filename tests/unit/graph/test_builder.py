"""What the one pass over etcd gathers: nodes, flags, edges in both directions, and its limits."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.graph import builder
from etcdfix.graph.tables import (
    FINISHED,
    FOREGROUND,
    OPAQUE,
    ORPHANS,
    SEEN,
    SERVES_EMPTY,
    TERMINATING,
    UNDETERMINED,
    UNREADABLE,
)
from tests.support.impact_objects import NOW, Cluster, node_of, owner
from tests.support.memory_source import MemorySource


def test_flags() -> None:
    cluster = Cluster()
    expected = {
        cluster.pod("plain"): SEEN,
        cluster.pod("done", status={"phase": "Failed"}): SEEN | FINISHED,
        cluster.pod("going", terminating=True, finalizers=("foregroundDeletion",)): SEEN
        | TERMINATING
        | FOREGROUND,
        cluster.pod("orphaning", finalizers=("orphan",)): SEEN | ORPHANS,
        cluster.break_("/registry/pods/shop/broken"): SEEN | UNREADABLE,
    }
    cluster.values["/registry/secrets/shop/locked"] = b"k8s:enc:aescbc:v1:key1:xxxx"
    cluster.values["/registry/strange.example.com/things/x"] = (
        b"k8s\x00" + b"\n\x0b\n\x04x/v1\x12\x03Foo\x12\x00"
    )
    for name, value in (("no-bytes", b""), ("no-fields", b"{}")):
        expected[cluster.pod(name)] = SEEN | UNREADABLE | SERVES_EMPTY
        cluster.values[f"/registry/pods/shop/{name}"] = value
    index = cluster.index()
    assert {key: index.flags(node_of(index, key)) for key in expected} == expected
    assert index.flags(node_of(index, "/registry/secrets/shop/locked")) == SEEN | UNDETERMINED
    assert index.flags(node_of(index, "/registry/strange.example.com/things/x")) == SEEN | OPAQUE
    going = node_of(index, "/registry/pods/shop/going")
    assert index.terminating_since(going) == NOW
    assert index.finalizers(going) == ("foregroundDeletion",)
    assert index.size(going) == len(cluster.values["/registry/pods/shop/going"])


def test_what_is_not_looked_into_is_counted() -> None:
    cluster = Cluster()
    cluster.pod("p")
    cluster.break_("/registry/pods/shop/broken")
    assert cluster.index().opaque == 0
    for name in "xy":
        cluster.values[f"/registry/strange.example.com/things/{name}"] = (
            b"k8s\x00" + b"\n\x0b\n\x04x/v1\x12\x03Foo\x12\x00"
        )
    assert cluster.index().opaque == 2


def test_an_object_with_too_many_references_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_MOST_EDGES_OF_AN_OBJECT", 3)
    cluster = Cluster()
    volumes = [{"name": f"v{n}", "secret": {"secretName": f"s{n}"}} for n in range(5)]
    pod = cluster.pod("p", spec={"volumes": volumes})
    owned = cluster.pod("q", owners=tuple(owner("ReplicaSet", f"r{n}") for n in range(5)))
    index = cluster.index()
    assert index.truncated == 2
    assert len(list(index.uses(node_of(index, pod)))) == 3
    assert len(index.owners(node_of(index, owned))) == 3


def test_strange_prefixes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "_MOST_STRANGE_PREFIXES", 2)
    values = {f"/{name}/x": b"1" for name in "abc"} | {"/a/y": b"22"}
    index = Cluster().index(MemorySource(values))
    assert index.outside == {"/a": (2, 3), "/b": (1, 1)}
    assert not index.outside_complete


@pytest.mark.parametrize(
    "metadata",
    [
        {"ownerReferences": "x", "finalizers": {"a": 1}, "deletionTimestamp": 7},
        {"ownerReferences": [7, {"kind": 3}], "finalizers": [7], "annotations": [1]},
    ],
)
def test_json_of_the_wrong_types_is_survived(metadata: dict[str, Any]) -> None:
    import json

    cluster = Cluster()
    cluster.define("example.com", "Widget")
    base = {"name": "w", "namespace": "shop", "uid": "u", **metadata}
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": base,
        "spec": {
            "secretRef": 7,
            "x": [1, [2], {"secretName": 3}],
            "imagePullSecrets": [7, {"name": 8}, {"name": "p"}],
        },
    }
    cluster.values["/registry/example.com/widgets/shop/w"] = json.dumps(document).encode()
    index = cluster.index()
    node = node_of(index, "/registry/example.com/widgets/shop/w")
    assert index.finalizers(node) == ()
    assert [index.relative(e.target) for e in index.uses(node)] == [b"secrets/shop/p"]
