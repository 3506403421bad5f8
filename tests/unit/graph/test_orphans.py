"""Keys that belong to nobody."""

from __future__ import annotations

from etcdfix.graph.model import OrphanGroup, OrphanReason
from etcdfix.graph.orphans import Orphans, find_orphans
from etcdfix.model import Confidence
from tests.support.impact_objects import Cluster, owner
from tests.support.memory_source import MemorySource


def orphans(cluster: Cluster) -> tuple[Orphans, dict[tuple[OrphanReason, str], OrphanGroup]]:
    found = find_orphans(cluster.index())
    return found, {(group.reason, group.prefix): group for group in found.groups}


def test_a_cluster_in_order_has_none() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    cluster.define("example.com", "Widget")
    cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.add("v1", "Node", "n1")
    cluster.values["compact_rev_key"] = b"7"
    cluster.values["/registry/masterleases/10.0.0.1"] = b"k8s\x00"
    found, _ = orphans(cluster)
    assert (found.groups, found.count, found.size) == ((), 0, 0)


def test_crd_gone_and_crd_unreadable() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.add("gone.example.com/v1", "Widget", "w", "shop")
    cluster.break_(cluster.define("broken.example.com", "Widget"))
    cluster.add("broken.example.com/v1", "Widget", "w", "shop")
    _, groups = orphans(cluster)
    group = groups.pop((OrphanReason.CRD_GONE, "/registry/gone.example.com/widgets/"))
    assert not groups
    assert (group.group, group.resource, group.count) == ("gone.example.com", "widgets", 1)
    assert group.confidence is Confidence.LIKELY  # an aggregated API server may own them


def test_what_is_seen_is_said_of_an_incomplete_source_too() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.add("apps/v1", "ReplicaSet", "r", "shop", uid="uid-new")
    cluster.pod("p", owners=(owner("ReplicaSet", "r", uid="uid-old"),))
    cluster.values["/registry/thirdparty/x"] = b"12345"
    found = find_orphans(cluster.index(MemorySource(cluster.values, problems=["page 7 is damaged"])))
    assert [(g.reason, g.confidence) for g in found.groups] == [
        (OrphanReason.OWNER_GONE, Confidence.LIKELY),
        (OrphanReason.UNCLAIMED, Confidence.LIKELY),
    ]
    assert found.undecided == 0
