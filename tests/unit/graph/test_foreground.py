"""What a deletion in the foreground waits for: blocking dependents, chains of them, rings, and impossible owners."""

from __future__ import annotations

from typing import Any

from etcdfix.graph.collector import collect
from etcdfix.graph.model import Collection, Propagation
from tests.support.impact_objects import Cluster, node_of, owner

MANY = 10_000


def config(cluster: Cluster, name: str, *owners: str, namespace: str = "shop", **more: Any) -> str:
    """Add a ConfigMap that blocks each of its owners."""
    references = tuple(owner("ConfigMap", o, api_version="v1", blockOwnerDeletion=True) for o in owners)
    return cluster.add("v1", "ConfigMap", name, namespace, owners=references, **more)


def foreground(cluster: Cluster, key: str) -> Collection:
    index = cluster.index()
    return collect(index, node_of(index, key), by_api=Propagation.FOREGROUND)


def test_a_ring_that_is_being_deleted_already_stays() -> None:
    cluster = Cluster()
    key = config(cluster, "a", "b")
    config(cluster, "b", "a", terminating=True, finalizers=("foregroundDeletion",))
    played = foreground(cluster, key)
    assert played.stays == "configmaps shop/b, and so on in a ring of owner references that nobody opens"


def test_its_own_owner() -> None:
    cluster = Cluster()
    played = foreground(cluster, config(cluster, "a", "a"))
    assert played.stays == "itself: it is named as its own owner, and nobody takes that off"


def test_a_cluster_scoped_dependent_of_a_namespaced_owner_blocks_for_ever() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    references = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "wide", owners=references)
    played = foreground(cluster, key)
    assert "clusterroles.rbac.authorization.k8s.io wide, which is never collected" in played.stays
    assert played.tree == ()
    index = cluster.index()
    for how in (Propagation.BACKGROUND, Propagation.ORPHAN):
        assert collect(index, node_of(index, key), by_api=how).stays == ""


def test_a_long_ring_and_a_long_chain() -> None:
    cluster = Cluster()
    key = config(cluster, "c0", f"c{MANY - 1}")
    for number in range(1, MANY):
        config(cluster, f"c{number}", f"c{number - 1}")
    played = foreground(cluster, key)
    assert (played.stays, len(played.tree)) == ("", MANY - 1)
    config(cluster, f"c{MANY - 1}", f"c{MANY - 2}", finalizers=("x/y",))
    config(cluster, "c0")
    played = foreground(cluster, key)
    assert f"configmaps shop/c{MANY - 1}, which waits for finalizer x/y" in played.stays
    assert max(len(d.stays) for d in played.tree) < 100
