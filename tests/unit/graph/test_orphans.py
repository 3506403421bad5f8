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


def test_owner_gone() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.add("apps/v1", "ReplicaSet", "alive", "shop")
    keys = [cluster.pod(f"p{n}", owners=(owner("ReplicaSet", "gone"),)) for n in range(7)]
    cluster.pod("q", owners=(owner("ReplicaSet", "gone"), owner("ReplicaSet", "alive")))
    found, groups = orphans(cluster)
    (group,) = groups.values()
    assert (group.reason, group.prefix, group.resource) == (
        OrphanReason.OWNER_GONE,
        "/registry/pods/",
        "pods",
    )
    assert group.count == found.count == 7
    assert group.size == sum(len(cluster.values[key]) for key in keys)
    assert group.examples == tuple(keys[:5])
    assert group.confidence is Confidence.CERTAIN


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


def test_namespace_gone() -> None:
    cluster = Cluster()
    cluster.secret("a", "lost")
    cluster.secret("b", "lost")
    cluster.break_("/registry/pods/lost/p")
    _, groups = orphans(cluster)
    assert {(prefix, g.namespace, g.count) for (_, prefix), g in groups.items()} == {
        ("/registry/secrets/lost/", "lost", 2),
        ("/registry/pods/lost/", "lost", 1),
    }


def test_unclaimed_and_outside() -> None:
    cluster = Cluster()
    cluster.values["/registry/thirdparty/x"] = b"12345"
    cluster.values["/registry/thirdparty/y"] = b"12345"
    cluster.values["/calico/v1/a"] = b"123"
    cluster.values["compact_rev_key"] = b"7"
    found, groups = orphans(cluster)
    assert groups[OrphanReason.UNCLAIMED, "/registry/thirdparty"].count == 2
    assert groups[OrphanReason.OUTSIDE, "/calico"].size == 3
    assert (found.count, found.size) == (3, 13)


def test_what_was_not_seen_is_not_called_gone() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.pod("p", owners=(owner("ReplicaSet", "gone"),))
    cluster.secret("a", "unseen")
    cluster.add("gone.example.com/v1", "Widget", "w", "shop")
    cluster.add("gone.example.com/v1", "Widget", "w", "unseen")
    damaged = MemorySource(cluster.values, problems=["page 7 is damaged"])
    found = find_orphans(cluster.index(damaged))
    assert (found.groups, found.count, found.undecided) == ((), 0, 3)
    # With everything in sight, they are.
    whole, groups = orphans(cluster)
    assert {reason for reason, _ in groups} == {
        OrphanReason.OWNER_GONE,
        OrphanReason.CRD_GONE,
        OrphanReason.NAMESPACE_GONE,
    }
    assert (whole.count, whole.undecided) == (4, 0)


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


def test_objects_of_an_aggregated_api_are_not_left_over() -> None:
    cluster = Cluster()
    cluster.namespace("shop")
    cluster.add("wardle.example.com/v1", "Flunder", "f", "shop")
    cluster.add("wardle.example.com/v1", "Flunder", "g", "shop")
    cluster.add("gone.example.com/v1", "Widget", "w", "shop")
    found = find_orphans(cluster.index(), aggregated={"wardle.example.com"})
    assert [(g.reason, g.group) for g in found.groups] == [(OrphanReason.CRD_GONE, "gone.example.com")]
    assert found.aggregated == {"wardle.example.com": 2}
    assert found.count == 1
