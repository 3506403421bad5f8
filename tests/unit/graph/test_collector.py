"""What the garbage collector does: the examples of its design, and each line of its decision table."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest

from etcdfix.graph import collector
from etcdfix.graph.collector import collect, decide
from etcdfix.graph.model import Action, Collection, Decision, OwnerState, Propagation
from tests.support.impact_objects import NOW, Cluster, node_of, owner
from tests.support.memory_source import MemorySource


def by_name(decisions: Iterable[Decision]) -> dict[str, Decision]:
    """Every decision of a tree by the name of its object."""
    listed = list(decisions)
    found = {decision.object.name: decision for decision in listed}
    assert len(found) == len(listed)
    return found


def removal(cluster: Cluster, key: str, **settings: Any) -> Collection:
    index = cluster.index()
    return collect(index, node_of(index, key), **settings)


def deployment(cluster: Cluster, *, replicas: int = 2, **replica_set: Any) -> str:
    key = cluster.add("apps/v1", "Deployment", "d1", "shop")
    owners = (owner("Deployment", "d1", controller=True, blockOwnerDeletion=True),)
    cluster.add("apps/v1", "ReplicaSet", "r1", "shop", owners=owners, **replica_set)
    for number in range(replicas):
        cluster.pod(
            f"p{number}", owners=(owner("ReplicaSet", "r1", controller=True, blockOwnerDeletion=True),)
        )
    return key


@pytest.mark.parametrize("broken", [False, True], ids=["readable", "unreadable"])
def test_deployment_replica_set_pods(broken: bool) -> None:
    cluster = Cluster()
    key = deployment(cluster)
    if broken:
        cluster.break_(key)
    result = removal(cluster, key)
    replica_set, *pods = result.tree
    assert (replica_set.object.name, replica_set.action) == ("r1", Action.CASCADE_DELETED)
    assert replica_set.propagation is Propagation.BACKGROUND
    assert [(d.object.name, d.action) for d in pods] == [
        ("p0", Action.CASCADE_DELETED),
        ("p1", Action.CASCADE_DELETED),
    ]
    assert [(d.depth, d.below) for d in result.tree] == [(1, key), *[(2, replica_set.object.key)] * 2]
    assert result.counts[Action.CASCADE_DELETED] == 3
    assert result.deleted_by_resource == {"pods": 2, "replicasets.apps": 1}


def test_two_owners_one_of_them_solid() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "a", "shop")
    cluster.add("v1", "ConfigMap", "b", "shop")
    both = (owner("ConfigMap", "a", api_version="v1"), owner("ConfigMap", "b", api_version="v1"))
    cluster.add("v1", "ConfigMap", "c", "shop", owners=both)
    (decision,) = removal(cluster, key).tree
    assert decision.action is Action.KEPT
    assert {o.name: (o.state, o.stripped, o.removed) for o in decision.owners} == {
        "a": (OwnerState.ABSENT, True, True),
        "b": (OwnerState.SOLID, False, False),
    }


def test_two_owners_that_both_go() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "root", "shop")
    for name in ("a", "b"):
        cluster.add("v1", "ConfigMap", name, "shop", owners=(owner("ConfigMap", "root", api_version="v1"),))
    both = (owner("ConfigMap", "a", api_version="v1"), owner("ConfigMap", "b", api_version="v1"))
    cluster.add("v1", "ConfigMap", "z", "shop", owners=both)
    cluster.add("v1", "ConfigMap", "zz", "shop", owners=(owner("ConfigMap", "z", api_version="v1"),))
    result = removal(cluster, key)
    assert {d.action for d in by_name(result.tree).values()} == {Action.CASCADE_DELETED}
    assert set(by_name(result.tree)) == {"a", "b", "z", "zz"}


def test_a_dependent_with_the_orphan_finalizer_lets_its_own_go() -> None:
    cluster = Cluster()
    key = deployment(cluster, finalizers=("orphan",))
    cluster.add("v1", "ConfigMap", "solid", "shop")
    owners = (owner("ReplicaSet", "r1"), owner("ConfigMap", "solid", api_version="v1"))
    cluster.pod("shared", owners=owners)
    found = by_name(removal(cluster, key).tree)
    assert found["r1"].action is Action.CASCADE_DELETED
    assert found["r1"].propagation is Propagation.ORPHAN
    assert found["p0"].action is found["p1"].action is Action.ORPHANED
    assert [o.stripped for o in found["p0"].owners] == [True]
    assert found["shared"].action is Action.REFERENCE_STRIPPED
    assert {o.name: o.stripped for o in found["shared"].owners} == {"r1": True, "solid": False}


def test_the_removed_object_orphans_nothing_even_if_it_wanted_to() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop", finalizers=("orphan",), terminating=True)
    cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    assert [d.action for d in removal(cluster, key).tree] == [Action.CASCADE_DELETED]


def test_a_dependent_with_the_foreground_finalizer() -> None:
    cluster = Cluster()
    key = deployment(cluster, finalizers=("foregroundDeletion", "example.com/x"))
    found = by_name(removal(cluster, key).tree)
    assert found["r1"].propagation is Propagation.FOREGROUND
    assert found["r1"].after_finalizers == ("example.com/x",)


def test_absent_owner() -> None:
    cluster = Cluster()
    key = cluster.pod("p", owners=(owner("ReplicaSet", "gone"),))
    index = cluster.index()
    decision = decide(index, node_of(index, key))
    assert decision.action is Action.CASCADE_DELETED
    assert [(o.state, o.reason) for o in decision.owners] == [(OwnerState.ABSENT, "it does not exist")]


def test_owner_of_the_same_name_and_another_uid() -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "ReplicaSet", "r1", "shop", uid="new")
    key = cluster.pod("p", owners=(owner("ReplicaSet", "r1", uid="old"),))
    index = cluster.index()
    decision = decide(index, node_of(index, key))
    assert decision.action is Action.CASCADE_DELETED
    assert "another uid (new)" in decision.owners[0].reason


def test_removal_does_not_concern_dependents_of_an_earlier_object() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop", uid="new")
    cluster.pod("old", owners=(owner("ReplicaSet", "r1", uid="old"),))
    cluster.pod("new", owners=(owner("ReplicaSet", "r1", uid="new"),))
    assert set(by_name(removal(cluster, key).tree)) == {"new"}
    cluster.break_(key)
    assert set(by_name(removal(cluster, key).tree)) == {"new", "old"}
    assert set(by_name(removal(cluster, key, uid="new").tree)) == {"new"}


def test_namespaced_owner_in_another_namespace() -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "ReplicaSet", "r1", "other")
    key = cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    decision = decide(index, node_of(index, key))
    assert decision.action is Action.CASCADE_DELETED
    assert "in namespace other (OwnerRefInvalidNamespace)" in decision.owners[0].reason


def test_cluster_scoped_owner_of_both_scopes() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "Node", "n1")
    owners = (owner("Node", "n1", api_version="v1"),)
    cluster.pod("p", owners=owners)
    cluster.add("storage.k8s.io/v1", "CSINode", "n1", owners=owners)
    found = removal(cluster, key)
    assert {(d.object.resource, d.action) for d in found.tree} == {
        ("pods", Action.CASCADE_DELETED),
        ("csinodes", Action.CASCADE_DELETED),
    }


def test_cluster_scoped_dependent_of_a_namespaced_owner_is_never_collected() -> None:
    cluster = Cluster()
    key = cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "c", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    decision = decide(index, node_of(index, key))
    assert decision.action is Action.NEVER_COLLECTED
    assert decision.owners[0].state is OwnerState.INVALID


def test_without_references_nothing_is_collected() -> None:
    cluster = Cluster()
    key = cluster.pod("p")
    index = cluster.index()
    assert decide(index, node_of(index, key)).action is Action.NEVER_COLLECTED


def test_events_are_never_collected() -> None:
    cluster = Cluster()
    key = cluster.pod("p")
    cluster.add("v1", "Event", "e", "shop", owners=(owner("Pod", "p", api_version="v1"),))
    assert [d.action for d in removal(cluster, key).tree] == [Action.NEVER_COLLECTED]


def test_unreadable_owner_freezes_its_dependents_until_it_goes() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.add("apps/v1", "ReplicaSet", "r1", "shop"))
    pod = cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    assert decide(index, node_of(index, pod)).action is Action.FROZEN
    assert [d.action for d in collect(index, node_of(index, key)).tree] == [Action.CASCADE_DELETED]


def test_an_owner_that_the_api_server_shows_as_empty_is_absent() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    cluster.values[key] = b""
    pod = cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    decision = decide(index, node_of(index, pod))
    assert decision.action is Action.CASCADE_DELETED
    assert decision.owners[0].state is OwnerState.ABSENT
    assert "without a uid" in decision.owners[0].reason
    assert decision.uncertain == ""
    assert [d.action for d in collect(index, node_of(index, key)).tree] == [Action.CASCADE_DELETED]


def test_a_custom_resource_of_no_bytes_is_served_by_nobody() -> None:
    cluster, key = widgets("readable")
    cluster.values[key] = b""
    index = cluster.index()
    assert decide(index, node_of(index, "/registry/replicasets/shop/r1")).action is Action.FROZEN


def test_owner_of_unknown_kind_is_not_absent() -> None:
    cluster = Cluster()
    key = cluster.pod("p", owners=(owner("Thing", "t", api_version="example.com/v1"),))
    index = cluster.index()
    decision = decide(index, node_of(index, key))
    assert decision.action is Action.FROZEN
    assert decision.owners[0].state is OwnerState.UNKNOWN


def widgets(crd: str) -> tuple[Cluster, str]:
    """A Widget that owns a ReplicaSet with a Pod; its CRD is ``readable``, ``unreadable`` or ``gone``."""
    cluster = Cluster()
    definition = cluster.define("example.com", "Widget")
    key = cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.add("apps/v1", "ReplicaSet", "r1", "shop", owners=(WIDGET,))
    cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    if crd == "unreadable":
        cluster.break_(definition)
    elif crd == "gone":
        del cluster.values[definition]
    return cluster, key


WIDGET = owner("Widget", "w", api_version="example.com/v1")


@pytest.mark.parametrize(
    ("crd", "said", "when_served"),
    [("readable", "", 0), ("unreadable", "it cannot be read", 2), ("gone", "no CRD in etcd has it", 2)],
)
def test_dependents_of_a_custom_resource_go_as_soon_as_it_is_served(
    crd: str, said: str, when_served: int
) -> None:
    cluster, key = widgets(crd)
    result = removal(cluster, key)
    assert result.deleted_by_resource == {"pods": 1, "replicasets.apps": 1}
    assert result.counts[Action.CASCADE_DELETED] == 2
    assert result.when_served == when_served
    for decision in by_name(result.tree).values():
        assert said in decision.uncertain
        assert decision.uncertain.startswith("as soon as" if when_served else "")
        assert bool(decision.uncertain) is bool(when_served)
    (finding,) = result.tree[0].owners
    assert finding.removed
    assert finding.state is OwnerState.ABSENT


@pytest.mark.parametrize("crd", ["unreadable", "gone"])
def test_an_owner_that_no_crd_tells_is_not_absent_while_it_is_there(crd: str) -> None:
    cluster, _ = widgets(crd)
    index = cluster.index()
    decision = decide(index, node_of(index, "/registry/replicasets/shop/r1"))
    assert decision.action is Action.FROZEN
    assert decision.owners[0].state is OwnerState.UNKNOWN
    assert decision.uncertain == ""


def test_an_owner_that_cannot_be_read_nor_its_crd_is_told_by_group_and_name() -> None:
    cluster, key = widgets("unreadable")
    cluster.break_(key)
    result = removal(cluster, key)
    assert set(by_name(result.tree)) == {"r1", "p"}
    assert result.counts[Action.CASCADE_DELETED] == result.when_served == 2
    assert "by API group and name alone" in result.tree[0].uncertain
    assert set(by_name(removal(cluster, key, uid="another").tree)) == set()
    told = removal(cluster, key, uid="uid-w").tree[0]
    assert "name alone" not in told.uncertain


def test_only_what_fits_is_taken_for_a_dependent() -> None:
    cluster, key = widgets("unreadable")
    cluster.pod("elsewhere", "other", owners=(WIDGET,))
    cluster.pod("of-another-name", owners=(owner("Widget", "x", api_version="example.com/v1", uid="uid-w"),))
    cluster.pod("of-a-known-kind", owners=(owner("Deployment", "w", uid="uid-w"),))
    cluster.pod("of-an-earlier-one", owners=({**WIDGET, "uid": "earlier"},))
    cluster.pod("of-another-group", owners=(owner("Widget", "w", api_version="example.org/v1", uid="uid-2"),))
    cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "no-namespace", owners=(WIDGET,))
    assert set(by_name(removal(cluster, key).tree)) == {"r1", "p"}


def test_another_owner_keeps_a_dependent_of_what_is_not_served() -> None:
    cluster, key = widgets("unreadable")
    cluster.add("v1", "ConfigMap", "solid", "shop")
    cluster.pod("kept", owners=(WIDGET, owner("ConfigMap", "solid", api_version="v1")))
    cluster.pod("stuck", owners=(WIDGET, owner("Gizmo", "g", api_version="example.net/v1")))
    result = removal(cluster, key)
    found = by_name(result.tree)
    assert found["kept"].action is Action.KEPT
    assert found["kept"].uncertain.startswith("as soon as")
    assert found["stuck"].action is Action.FROZEN
    assert not found["stuck"].uncertain
    assert result.when_served == result.counts[Action.CASCADE_DELETED] == 2


def test_a_uid_from_elsewhere_finds_dependents_where_the_key_tells_no_group() -> None:
    cluster = Cluster()
    key = cluster.break_("/registry/widgets/shop/w")
    cluster.pod("p", owners=(WIDGET,))
    cluster.pod("q", owners=({**WIDGET, "uid": "uid-x"},))
    assert removal(cluster, key).tree == ()
    assert removal(cluster, key, uid="nobody-states-it").tree == ()
    (found,) = removal(cluster, key, uid="uid-w").tree
    assert (found.object.name, found.action) == ("p", Action.CASCADE_DELETED)
    assert found.owners[0].removed
    assert found.uncertain.startswith("as soon as")


def test_a_dependent_whose_own_kind_is_not_served() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "Deployment", "d1", "shop")
    cluster.add("example.com/v1", "Widget", "w", "shop", owners=(owner("Deployment", "d1"),))
    cluster.pod("p", owners=(WIDGET,))
    found = by_name(removal(cluster, key).tree)
    assert found["w"].action is found["p"].action is Action.CASCADE_DELETED
    assert "its own kind" in found["w"].uncertain
    assert "kind of its owner" in found["p"].uncertain


def test_custom_owner() -> None:
    cluster = Cluster()
    cluster.define("example.com", "Widget")
    key = cluster.add("example.com/v1", "Widget", "w", "shop")
    cluster.pod("p", owners=(owner("Widget", "w", api_version="example.com/v1"),))
    assert [d.action for d in removal(cluster, key).tree] == [Action.CASCADE_DELETED]


def test_owner_deleted_in_the_foreground_waits() -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "Deployment", "d1", "shop", terminating=True, finalizers=("foregroundDeletion",))
    owners = (owner("Deployment", "d1", blockOwnerDeletion=True),)
    middle = cluster.add("apps/v1", "ReplicaSet", "r1", "shop", owners=owners)
    leaf = cluster.add("apps/v1", "ReplicaSet", "r2", "shop", owners=owners)
    cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    found = decide(index, node_of(index, middle))
    assert found.owners[0].state is OwnerState.WAITING
    assert found.propagation is Propagation.FOREGROUND
    assert decide(index, node_of(index, leaf)).propagation is Propagation.BACKGROUND


def test_solid_and_waiting_owner() -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "Deployment", "d1", "shop", terminating=True, finalizers=("foregroundDeletion",))
    cluster.add("apps/v1", "Deployment", "d2", "shop")
    key = cluster.pod("p", owners=(owner("Deployment", "d1"), owner("Deployment", "d2")))
    index = cluster.index()
    found = decide(index, node_of(index, key))
    assert found.action is Action.KEPT
    assert {o.name: o.stripped for o in found.owners} == {"d1": True, "d2": False}


def test_terminating_in_the_background_is_still_solid() -> None:
    cluster = Cluster()
    cluster.add("apps/v1", "Deployment", "d1", "shop", terminating=True, finalizers=("example.com/x",))
    key = cluster.pod("p", owners=(owner("Deployment", "d1"),), terminating=True)
    index = cluster.index()
    found = decide(index, node_of(index, key))
    assert found.action is Action.KEPT
    assert found.already_terminating


def test_other_unreadable_objects_of_the_type_make_it_uncertain() -> None:
    cluster = Cluster()
    key = deployment(cluster, replicas=1)
    cluster.break_("/registry/pods/shop/broken")
    found = by_name(removal(cluster, key).tree)
    assert "1 of its type" in found["p0"].uncertain
    assert found["r1"].uncertain == ""


def test_what_was_not_seen_is_not_absent() -> None:
    cluster = Cluster()
    key = cluster.pod("p", owners=(owner("ReplicaSet", "gone"),))
    index = cluster.index(MemorySource(cluster.values, problems=["page 7 is damaged"]))
    assert decide(index, node_of(index, key)).action is Action.FROZEN


def test_a_ring_of_owners_ends() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "a", "shop", owners=(owner("ConfigMap", "b", api_version="v1"),))
    cluster.add("v1", "ConfigMap", "b", "shop", owners=(owner("ConfigMap", "a", api_version="v1"),))
    assert set(by_name(removal(cluster, key).tree)) == {"b"}


def test_a_long_chain_does_not_recurse() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "c-0", "shop")
    length = 3000
    for number in range(1, length):
        above = owner("ConfigMap", f"c-{number - 1}", api_version="v1")
        cluster.add("v1", "ConfigMap", f"c-{number}", "shop", owners=(above,))
    result = removal(cluster, key)
    assert result.counts[Action.CASCADE_DELETED] == length - 1


@pytest.mark.parametrize("version", ["extensions/v1beta1", "apps/v1beta2", "apps/v9"])
@pytest.mark.parametrize("second", [False, True], ids=["alone", "beside-one-that-is-served"])
def test_an_owner_in_a_version_that_nobody_serves_leaves_the_dependent_alone(
    version: str, second: bool
) -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    owners = (
        owner("ReplicaSet", "r1", api_version=version),
        *((owner("ReplicaSet", "r1"),) if second else ()),
    )
    cluster.pod("p", owners=owners)
    (decision,) = removal(cluster, key).tree
    assert decision.action is Action.FROZEN
    assert f"{version} is not served" in decision.owners[0].reason
    assert decision.uncertain == ""


def test_a_version_that_some_releases_serve_is_no_certainty() -> None:
    cluster = Cluster()
    key = cluster.add("networking.k8s.io/v1", "Ingress", "i", "shop")
    cluster.add(
        "v1", "ConfigMap", "c", "shop", owners=(owner("Ingress", "i", api_version="extensions/v1beta1"),)
    )
    (decision,) = removal(cluster, key).tree
    assert decision.action is Action.CASCADE_DELETED
    assert decision.uncertain == "only where the API serves extensions/v1beta1, which not every release does"


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("replicaset", Action.CASCADE_DELETED),
        ("REPLICASET", Action.FROZEN),
        ("replicaSet", Action.FROZEN),
        ("replicasets", Action.FROZEN),
    ],
)
def test_a_kind_may_be_written_in_lower_case_and_in_no_other_way(kind: str, action: Action) -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    pod = cluster.pod("p", owners=(owner(kind, "r1"),))
    found = [d.action for d in removal(cluster, key).tree]
    assert found == ([action] if action is Action.CASCADE_DELETED else [])
    index = cluster.index()
    absent = decide(index, node_of(index, pod), absent=[node_of(index, key)])
    assert absent.action is action


def test_two_owners_of_which_one_orphans_are_a_race() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    cluster.add("v1", "ConfigMap", "mid", "shop", owners=(MAP("top"),), finalizers=("orphan",))
    cluster.add("v1", "ConfigMap", "x-leaf", "shop", owners=(MAP("top"), MAP("mid")))
    cluster.add("v1", "ConfigMap", "x-under", "shop", owners=(MAP("x-leaf"),))
    found = by_name(removal(cluster, key).tree)
    assert found["mid"].uncertain == ""
    assert found["x-leaf"].uncertain.startswith("a race: mid lets go of it while top goes")
    assert "only if configmaps shop/x-leaf goes, which cannot be forecast" in found["x-under"].uncertain


def MAP(name: str, **more: Any) -> dict[str, Any]:  # noqa: N802 - reads like the other owners
    return owner("ConfigMap", name, api_version="v1", **more)


@pytest.mark.parametrize("held", ["node", "finalizer"])
def test_what_only_becomes_terminating_keeps_what_it_owns(held: str) -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    spec = {"containers": [{"name": "main", "image": "web"}], "nodeName": "n1"} if held == "node" else {}
    finalizers: tuple[str, ...] = ("example.com/hold",) if held == "finalizer" else ()
    cluster.pod("p", owners=(owner("ReplicaSet", "r1"),), spec=spec, finalizers=finalizers)
    cluster.add("v1", "ConfigMap", "c", "shop", owners=(owner("Pod", "p", api_version="v1"),))
    cluster.add("v1", "ConfigMap", "d", "shop", owners=(MAP("c"),))
    result = removal(cluster, key)
    found = by_name(result.tree)
    assert found["p"].action is Action.CASCADE_DELETED
    assert found["p"].stays == (
        "the kubelet of node n1, which has to end it" if held == "node" else f"finalizer {finalizers[0]}"
    )
    assert found["c"].action is found["d"].action is Action.KEPT
    assert found["c"].later == found["d"].later == "pods shop/p"
    assert "once pods shop/p is really gone" in found["c"].uncertain
    assert (result.counts[Action.CASCADE_DELETED], result.later) == (1, 2)


def test_a_pod_that_has_ended_goes_at_once() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    cluster.pod(
        "p", owners=(owner("ReplicaSet", "r1"),), spec={"nodeName": "n1"}, status={"phase": "Succeeded"}
    )
    (decision,) = removal(cluster, key).tree
    assert decision.stays == ""


def test_foreground_waits_for_what_blocks_and_stays() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "top", "shop")
    mid = {"owners": (MAP("top"),), "finalizers": ("foregroundDeletion",)}
    cluster.add("v1", "ConfigMap", "mid", "shop", **mid)  # type: ignore[arg-type]
    held = cluster.add(
        "v1", "ConfigMap", "x", "shop", owners=(MAP("mid", blockOwnerDeletion=True),), finalizers=("a/b",)
    )
    found = by_name(removal(cluster, key).tree)
    assert found["x"].stays == "finalizer a/b"
    assert found["mid"].stays == "configmaps shop/x, which waits for finalizer a/b"
    del cluster.values[held]
    cluster.add("v1", "ConfigMap", "y", "shop", owners=(MAP("mid", blockOwnerDeletion=True), owner("T", "t")))
    found = by_name(removal(cluster, key).tree)
    assert found["mid"].stays == "configmaps shop/y, which the collector leaves alone"


def test_the_object_that_goes_does_not_count_against_its_own_dependents() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("a"))
    cluster.secret("b", owners=(owner("Secret", "a", api_version="v1"),))
    result = removal(cluster, key)
    assert [d.uncertain for d in result.tree] == [""]
    assert (result.listable, result.unlistable) == (("secrets",), {})


def test_what_managers_do_that_ran_before_and_that_started_since() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("a"))
    cluster.break_(cluster.secret("other", "pay"))
    of_secret = (owner("Secret", "a", api_version="v1"),)
    cluster.add("v1", "ConfigMap", "c", "shop", owners=of_secret)
    cluster.secret("s", owners=of_secret)
    result = removal(cluster, key)
    found = by_name(result.tree)
    assert result.unlistable == {"secrets": 1}
    before = "does not notice that secrets shop/a is gone before all secrets can be listed"
    assert (found["c"].ran_before, found["c"].started_after) == (before, "")
    assert "one that started since does not wait" in found["c"].uncertain
    assert (found["s"].ran_before, found["s"].started_after) == (
        before, "does not see it before all secrets can be listed",
    )  # fmt: skip
    assert found["s"].uncertain.startswith("1 of its type cannot be read; ")


def test_orphan_may_delete_later() -> None:
    cluster = Cluster()
    cluster.break_(cluster.secret("other", "pay"))
    key = cluster.add("apps/v1", "Deployment", "d1", "shop")
    cluster.secret("s", owners=(owner("Deployment", "d1"),))
    index = cluster.index()
    played = collect(index, node_of(index, key), by_api=Propagation.ORPHAN)
    (decision,) = played.tree
    assert decision.action is Action.ORPHANED
    assert "can be listed, and deletes it then; one that ran before" in decision.uncertain
    assert (played.stays, played.uncertain) == ("", "")
    cluster.break_(cluster.secret("same"))
    index = cluster.index()
    played = collect(index, node_of(index, key), by_api=Propagation.ORPHAN)
    assert "if one of 1 that cannot be read depends on it" in played.uncertain


@pytest.mark.parametrize("how", [Propagation.FOREGROUND, Propagation.ORPHAN, Propagation.BACKGROUND])
def test_a_deletion_through_the_api_that_nobody_notices(how: Propagation) -> None:
    cluster = Cluster()
    cluster.break_(cluster.secret("other", "pay"))
    key = cluster.secret("a")
    cluster.add("v1", "ConfigMap", "c", "shop", owners=(owner("Secret", "a", api_version="v1"),))
    index = cluster.index()
    played = collect(index, node_of(index, key), by_api=how)
    (decision,) = played.tree
    waits = "does not notice that secrets shop/a is being deleted before all secrets can be listed"
    if how is Propagation.BACKGROUND:
        assert (played.stays, decision.started_after) == ("", "")
    else:
        assert played.stays == decision.ran_before == decision.started_after == waits
        assert f"the collector {waits}" in decision.uncertain


def test_what_the_collector_catches_up_with() -> None:
    cluster = Cluster()
    key = cluster.break_(cluster.secret("a"))
    cluster.secret("left", owners=(owner("Deployment", "gone"),))
    cluster.secret("under", owners=(owner("Secret", "left", api_version="v1"),))
    cluster.secret("kept", owners=(owner("Thing", "t", api_version="example.com/v1"),))
    cluster.secret("waits", terminating=True, finalizers=("orphan",))
    cluster.secret("of-it", owners=(owner("Secret", "waits", api_version="v1"),))
    result = removal(cluster, key)
    assert result.tree == ()
    found = by_name(result.caught_up)
    assert {name: d.action for name, d in found.items()} == {
        "left": Action.CASCADE_DELETED,
        "under": Action.CASCADE_DELETED,
        "waits": Action.CASCADE_DELETED,
        "of-it": Action.ORPHANED,
    }
    assert found["waits"].already_terminating
    assert [d.object.name for d in result.caught_up if d.below == found["left"].object.key] == ["under"]
    assert result.counts[Action.CASCADE_DELETED] == 0
    # As long as another Secret cannot be read, nothing of it happens.
    cluster.break_(cluster.secret("b"))
    assert removal(cluster, key).caught_up == ()


def test_an_owner_in_the_foreground_waited_for_what_goes() -> None:
    cluster = Cluster()
    cluster.add("v1", "ConfigMap", "top", "shop", terminating=True, finalizers=("foregroundDeletion",))
    key = cluster.secret("s", owners=(MAP("top", blockOwnerDeletion=True),))
    (decision,) = removal(cluster, key).caught_up
    assert (decision.object.name, decision.stays) == ("top", "")


@pytest.mark.parametrize("others", [0, 1])
def test_a_crd_that_is_being_deleted_takes_its_objects_along_once_they_can_be_listed(others: int) -> None:
    cluster = Cluster()
    definition = cluster.define("example.com", "Widget")
    document = json.loads(cluster.values[definition])
    document["metadata"] |= {
        "deletionTimestamp": NOW, "finalizers": ["customresourcecleanup.apiextensions.k8s.io"],
    }  # fmt: skip
    cluster.values[definition] = json.dumps(document).encode()
    key = cluster.break_(cluster.add("example.com/v1", "Widget", "broken", "shop"))
    cluster.add("example.com/v1", "Widget", "w", "pay")
    cluster.pod("p", "pay", owners=(WIDGET,))
    if others:
        cluster.break_(cluster.add("example.com/v1", "Widget", "broken", "pay"))
    found = by_name(removal(cluster, key).caught_up)
    names = set() if others else {"widgets.example.com", "w", "p"}
    assert set(found) == names
    index = cluster.index()
    played = collect(index, node_of(index, definition), by_api=Propagation.BACKGROUND)
    assert played.stays == f"{1 + others} of its objects, which cannot be read"


DEFINITION = owner("CustomResourceDefinition", "widgets.example.com", api_version="apiextensions.k8s.io/v1")


@pytest.mark.parametrize("broken", [True, False])
def test_a_crd_taken_from_etcd_leaves_its_objects_and_what_they_own_alone(broken: bool) -> None:
    cluster, _ = widgets("readable")
    crd = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    uid = json.loads(cluster.values[crd])["metadata"]["uid"]
    if broken:
        cluster.break_(crd)
    of_crd = DEFINITION | {"uid": uid}
    cluster.add("example.com/v1", "Widget", "owned", "shop", owners=(of_crd,))
    cluster.add(
        "example.com/v1",
        "Widget",
        "child",
        "shop",
        owners=(owner("Widget", "owned", api_version="example.com/v1"),),
    )
    cluster.secret("of-owned", owners=(owner("Widget", "owned", api_version="example.com/v1"),))
    cluster.secret("of-both", owners=(of_crd, WIDGET))
    cluster.secret("of-crd", owners=(of_crd,))
    result = removal(cluster, crd, uid=uid)
    found = {name: decision.action for name, decision in by_name(result.tree).items()}
    # Recorded: nobody sees the objects of a definition that is gone, and nobody can look them up as owners.
    assert found == {"owned": Action.FROZEN, "of-both": Action.FROZEN, "of-crd": Action.CASCADE_DELETED}
    assert result.deleted_by_resource == {"secrets": 1}
    assert result.when_served == 0
    assert {owner.state for owner in by_name(result.tree)["owned"].owners} == {OwnerState.UNKNOWN}
    assert not {d.object.name for d in result.caught_up} & {"w", "owned", "child", "r1", "p", "of-owned"}


def test_a_crd_deleted_through_the_api_takes_its_objects_along() -> None:
    cluster, _ = widgets("readable")
    crd = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    index = cluster.index()
    played = collect(index, node_of(index, crd), by_api=Propagation.BACKGROUND)
    assert set(by_name(played.tree)) == {"w", "r1", "p"}
    assert played.counts[Action.CASCADE_DELETED] == 3


def test_an_unserved_instance_whose_owner_is_gone_is_not_caught_up_with() -> None:
    cluster, _ = widgets("unreadable")
    cluster.add("example.com/v1", "Widget", "orphan", "shop", owners=(owner("Deployment", "gone"),))
    cluster.secret("orphan-too", owners=(owner("Deployment", "gone"),))
    crd = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    assert set(by_name(removal(cluster, crd).caught_up)) == {"orphan-too"}


@pytest.mark.parametrize("seed", range(20))
def test_what_concerns_nobody_is_found_as_if_it_was_played_through(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters by chance: some objects own others, some cannot be read, some are being deleted."""
    chance = random.Random(seed)
    cluster = Cluster()
    names = [f"m{number}" for number in range(8)]
    keys = []
    for name in names:
        owners = [
            owner("ConfigMap", other, api_version="v1", blockOwnerDeletion=chance.random() < 0.5)
            for other in chance.sample(names, chance.choice([0, 0, 0, 1, 2]))
        ]
        finalizers = chance.choice(["", "", "foregroundDeletion", "orphan", "example.com/x"])
        going = chance.random() < 0.4
        keys.append(
            cluster.add(
                "v1", "ConfigMap", name, "shop", owners=tuple(owners), terminating=going,
                finalizers=(finalizers,) if finalizers else (),
            )
        )  # fmt: skip
    keys += [cluster.secret("alone"), cluster.define("example.com", "Widget"), cluster.namespace("empty")]
    for key in chance.sample(keys, chance.choice([0, 1, 4])):
        cluster.break_(key)
    index = cluster.index()
    asked = [
        (index.find(key.encode()), by_api)
        for key in keys
        for by_api in (None, Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN)
    ]
    short = [collect(index, node, by_api=by_api) for node, by_api in asked if node is not None]
    monkeypatch.setattr(collector._Collector, "_concerns_nobody", lambda _: False)
    assert short == [collect(index, node, by_api=by_api) for node, by_api in asked if node is not None]
    assert len(short) == len(asked)
