"""What a deletion in the foreground waits for: blocking dependents, chains of them, rings, and impossible owners."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.graph.collector import collect
from etcdfix.graph.model import Action, Collection, Propagation
from tests.support.impact_objects import Cluster, node_of, owner

MANY = 10_000


def config(cluster: Cluster, name: str, *owners: str, namespace: str = "shop", **more: Any) -> str:
    """Add a ConfigMap that blocks each of its owners."""
    references = tuple(owner("ConfigMap", o, api_version="v1", blockOwnerDeletion=True) for o in owners)
    return cluster.add("v1", "ConfigMap", name, namespace, owners=references, **more)


def foreground(cluster: Cluster, key: str) -> tuple[Collection, list[str]]:
    """Delete in the foreground; return what happens, and the names that the object waits for at the ends."""
    index = cluster.index()
    played = collect(index, node_of(index, key), by_api=Propagation.FOREGROUND)
    return played, [index.place(node)[2] for node in played.blocking]


def test_it_goes_after_what_goes() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    config(cluster, "mid", "top")
    config(cluster, "leaf", "mid")
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, played.counts[Action.CASCADE_DELETED]) == ("", [], 2)


def test_a_chain_names_its_end_and_the_nearest() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    config(cluster, "a", "top")
    config(cluster, "b", "a")
    config(cluster, "c", "b", finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert (
        played.stays == "configmaps shop/a, which waits for configmaps shop/c, which waits for finalizer x/y"
    )
    assert ends == ["c"]
    assert [d.stays for d in played.tree] == [
        "configmaps shop/b, which waits for configmaps shop/c, which waits for finalizer x/y",
        "configmaps shop/c, which waits for finalizer x/y",
        "finalizer x/y",
    ]


def test_its_own_finalizer_does_not_hide_what_blocks_it() -> None:
    cluster = Cluster()
    key = config(cluster, "top", finalizers=("own/one",))
    config(cluster, "mid", "top", finalizers=("mid/one",))
    config(cluster, "leaf", "mid", finalizers=("leaf/one",))
    played, ends = foreground(cluster, key)
    assert (played.stays, ends) == ("finalizer own/one", ["mid", "leaf"])


@pytest.mark.parametrize("stated", [False, True])
def test_what_does_not_block_is_not_waited_for(stated: bool) -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    plain = owner("ConfigMap", "top", api_version="v1")
    references = ({**plain, "blockOwnerDeletion": False} if stated else plain,)
    cluster.add("v1", "ConfigMap", "held", "shop", owners=references, finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, played.tree[0].stays) == ("", [], "finalizer x/y")


def test_another_owner_takes_over() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    config(cluster, "other")
    config(cluster, "shared", "top", "other", finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, played.tree[0].action) == ("", [], Action.KEPT)


def test_an_owner_of_the_same_name_before_it_does_not_block() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    old = (owner("ConfigMap", "top", api_version="v1", uid="before", blockOwnerDeletion=True),)
    cluster.add("v1", "ConfigMap", "held", "shop", owners=old, finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, played.tree) == ("", [], ())


def test_a_ring_through_the_object_opens_by_itself() -> None:
    cluster = Cluster()
    key = config(cluster, "a", "c")
    config(cluster, "b", "a")
    config(cluster, "c", "b")
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, played.ring) == ("", [], False)
    assert {d.object.name for d in played.tree} == {"b", "c"}


def test_what_is_unblocked_in_a_ring_holds_nobody() -> None:
    cluster = Cluster()
    key = config(cluster, "a", "c")
    config(cluster, "b", "a")
    config(cluster, "c", "b", finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert (played.stays, ends) == ("", [])
    assert {d.object.name: d.stays for d in played.tree} == {"b": "", "c": "finalizer x/y"}


def test_a_ring_that_is_being_deleted_already_stays() -> None:
    cluster = Cluster()
    key = config(cluster, "a", "b")
    config(cluster, "b", "a", terminating=True, finalizers=("foregroundDeletion",))
    played, _ = foreground(cluster, key)
    assert played.ring
    assert played.stays == "configmaps shop/b, and so on in a ring of owner references that nobody opens"


def test_its_own_owner() -> None:
    cluster = Cluster()
    played, _ = foreground(cluster, config(cluster, "a", "a"))
    assert played.ring
    assert played.stays == "itself: it is named as its own owner, and nobody takes that off"


def test_a_cluster_scoped_dependent_of_a_namespaced_owner_blocks_for_ever() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    references = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "wide", owners=references)
    played, ends = foreground(cluster, key)
    assert "clusterroles.rbac.authorization.k8s.io wide, which is never collected" in played.stays
    assert (ends, played.tree) == (["wide"], ())
    index = cluster.index()
    for how in (Propagation.BACKGROUND, Propagation.ORPHAN):
        assert collect(index, node_of(index, key), by_api=how).stays == ""


@pytest.mark.parametrize("held", [False, True])
def test_a_dependent_in_another_namespace_blocks_while_it_is_there(held: bool) -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    config(cluster, "far", "top", namespace="pay", finalizers=("x/y",) if held else ())
    played, ends = foreground(cluster, key)
    assert ends == (["far"] if held else [])
    assert played.stays == ("configmaps pay/far, which waits for finalizer x/y" if held else "")


def test_an_event_is_not_known_to_the_collector() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    references = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("v1", "Event", "e", "shop", owners=references)
    assert foreground(cluster, key)[0].stays == ""


def test_a_long_ring_and_a_long_chain() -> None:
    cluster = Cluster()
    key = config(cluster, "c0", f"c{MANY - 1}")
    for number in range(1, MANY):
        config(cluster, f"c{number}", f"c{number - 1}")
    played, ends = foreground(cluster, key)
    assert (played.stays, ends, len(played.tree)) == ("", [], MANY - 1)
    config(cluster, f"c{MANY - 1}", f"c{MANY - 2}", finalizers=("x/y",))
    config(cluster, "c0")
    played, ends = foreground(cluster, key)
    assert ends == [f"c{MANY - 1}"]
    assert max(len(d.stays) for d in played.tree) < 100


def test_many_that_block_one() -> None:
    cluster = Cluster()
    key = config(cluster, "top")
    for number in range(MANY):
        config(cluster, f"c{number}", "top", finalizers=("x/y",))
    played, ends = foreground(cluster, key)
    assert len(ends) == MANY
    assert played.stays == "configmaps shop/c0, which waits for finalizer x/y"
