"""The forecast of a deletion through the API: what becomes of the object, who waits for whom, and what else to know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from etcdfix.graph.collector import collect
from etcdfix.graph.deletion import forecast, refusal, usual_policy
from etcdfix.graph.index import OPAQUE
from etcdfix.graph.model import (
    Action,
    Collection,
    Decision,
    DeletionForecast,
    DeletionResult,
    OwnerState,
    Propagation,
)
from etcdfix.graph.owners import Fate, judge
from tests.support.impact_objects import Cluster, node_of, owner
from tests.support.memory_source import MemorySource

WAITS = "it becomes Terminating, and waits for"
BACKGROUND, FOREGROUND, ORPHAN = Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN


def told(cluster: Cluster, key: str, policy: Propagation = BACKGROUND) -> DeletionForecast:
    index = cluster.index()
    node = node_of(index, key)
    return forecast(index, node, collect(index, node, by_api=policy), policy, by_default=False)


def stateful_set(cluster: Cluster, *, blocks: bool = False) -> str:
    """A StatefulSet with a pod on a node and a claim that the pod uses."""
    key = cluster.add("apps/v1", "StatefulSet", "db", "shop")
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    spec = {"nodeName": "n1", "containers": [], "volumes": [volume]}
    cluster.pod("db-0", owners=(owner("StatefulSet", "db", blockOwnerDeletion=blocks),), spec=spec)
    cluster.add(
        "v1", "PersistentVolumeClaim", "data", "shop",
        owners=(owner("StatefulSet", "db"),), finalizers=("kubernetes.io/pvc-protection",),
    )  # fmt: skip
    return key


@pytest.mark.parametrize(
    ("policy", "result", "text"),
    [
        (BACKGROUND, DeletionResult.GONE, "it is gone at once"),
        (
            FOREGROUND,
            DeletionResult.TERMINATING,
            f"{WAITS} pods shop/db-0, which waits for the kubelet of node n1, which has to end it",
        ),
        (ORPHAN, DeletionResult.GONE, "it is gone after the collector's work on its dependents"),
    ],
)
def test_the_three_policies(cluster: Cluster, policy: Propagation, result: DeletionResult, text: str) -> None:
    found = told(cluster, stateful_set(cluster, blocks=True), policy)
    assert (found.result, found.possible) == (result, True)
    assert found.text == text


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        ({}, BACKGROUND),
        ({"finalizers": ("orphan",)}, BACKGROUND),
        ({"finalizers": ("orphan",), "terminating": True}, ORPHAN),
        ({"finalizers": ("foregroundDeletion",), "terminating": True}, FOREGROUND),
        ({"terminating": True}, BACKGROUND),
    ],
)
def test_the_policy_where_nobody_asks_for_one(
    cluster: Cluster, settings: dict[str, object], policy: Propagation
) -> None:
    key = cluster.add("v1", "ConfigMap", "c", "shop", **settings)  # type: ignore[arg-type]
    index = cluster.index()
    assert usual_policy(index, node_of(index, key)) is policy


@pytest.mark.parametrize("policy", [BACKGROUND, FOREGROUND, ORPHAN])
def test_dependents_that_cannot_be_read(cluster: Cluster, policy: Propagation) -> None:
    key = cluster.add("v1", "ConfigMap", "c", "shop")
    cluster.break_(cluster.secret("sealed"))
    cluster.break_(cluster.secret("elsewhere", "pay"))
    found = told(cluster, key, policy)
    words = "if one of 1 that cannot be read depends on it"
    if policy is BACKGROUND:
        assert found.result is DeletionResult.GONE
        assert any(words in note for note in found.notes)
    else:
        assert found.result is DeletionResult.NOT_TOLD
        assert words in found.text
    cluster.add("v1", "ConfigMap", "c", "shop", finalizers=("x/y",))
    found = told(cluster, key, policy)
    assert found.result is DeletionResult.TERMINATING
    assert any(words in note for note in found.notes)


@pytest.mark.parametrize("why", ["problems", "opaque"])
def test_what_was_not_seen_may_hold_it(cluster: Cluster, why: str) -> None:
    key = cluster.add("v1", "ConfigMap", "c", "shop")
    index = cluster.index()
    if why == "problems":
        index.problems.append("page 7 is damaged")
    else:
        index.opaque = 2
    node = node_of(index, key)
    results = {
        policy: forecast(index, node, collect(index, node, by_api=policy), policy, by_default=False).result
        for policy in Propagation
    }
    assert results == {
        BACKGROUND: DeletionResult.GONE,
        FOREGROUND: DeletionResult.NOT_TOLD,
        ORPHAN: DeletionResult.NOT_TOLD if why == "problems" else DeletionResult.GONE,
    }


def test_an_object_that_cannot_be_looked_into(cluster: Cluster) -> None:
    key = cluster.add("v1", "ConfigMap", "c", "shop")
    index = cluster.index()
    node = node_of(index, key)
    index.flags[node] |= OPAQUE
    found = forecast(index, node, collect(index, node, by_api=BACKGROUND), BACKGROUND, by_default=True)
    assert (found.result, "cannot be looked into" in found.text) == (DeletionResult.NOT_TOLD, True)


def test_a_namespace_points_at_its_own_command(cluster: Cluster) -> None:
    key = cluster.namespace("shop")
    cluster.secret("s")
    found = told(cluster, key)
    assert (found.result, "etcdfix namespace NAME" in found.text) == (DeletionResult.TERMINATING, True)
    index = cluster.index()
    assert refusal(index, node_of(index, key)) == ""
    for name in ("default", "kube-system", "kube-public"):
        key = cluster.namespace(name)
        index = cluster.index()
        assert "refuse to delete" in refusal(index, node_of(index, key))


def by_name(decisions: Iterable[Decision]) -> dict[str, Decision]:
    """Every decision of a tree by the name of its object."""
    listed = list(decisions)
    found = {decision.object.name: decision for decision in listed}
    assert len(found) == len(listed)
    return found


def removal(cluster: Cluster, key: str, **settings: Any) -> Collection:
    index = cluster.index()
    return collect(index, node_of(index, key), **settings)


def test_removal_does_not_concern_dependents_of_an_earlier_object(cluster: Cluster) -> None:
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop", uid="new")
    cluster.pod("old", owners=(owner("ReplicaSet", "r1", uid="old"),))
    cluster.pod("new", owners=(owner("ReplicaSet", "r1", uid="new"),))
    assert set(by_name(removal(cluster, key).tree)) == {"new"}
    cluster.break_(key)
    assert set(by_name(removal(cluster, key).tree)) == {"new", "old"}
    assert set(by_name(removal(cluster, key, uid="new").tree)) == {"new"}


def test_an_owner_that_the_api_server_shows_as_empty_is_absent() -> None:
    cluster = Cluster()
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    cluster.values[key] = b""
    pod = cluster.pod("p", owners=(owner("ReplicaSet", "r1"),))
    index = cluster.index()
    decision = judge(index, node_of(index, pod), index.owners(node_of(index, pod)), {})
    assert decision.action is Action.CASCADE_DELETED
    assert decision.owners[0].state is OwnerState.ABSENT
    assert "without a uid" in decision.owners[0].reason
    assert [d.action for d in collect(index, node_of(index, key)).tree] == [Action.CASCADE_DELETED]


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
    ("crd", "said"),
    [("readable", ""), ("unreadable", "it cannot be read"), ("gone", "no CRD in etcd has it")],
)
def test_dependents_of_a_custom_resource_go_as_soon_as_it_is_served(crd: str, said: str) -> None:
    cluster, key = widgets(crd)
    result = removal(cluster, key)
    assert result.deleted_by_resource == {"pods": 1, "replicasets.apps": 1}
    assert result.counts[Action.CASCADE_DELETED] == 2
    for decision in by_name(result.tree).values():
        assert said in decision.uncertain
        assert decision.uncertain.startswith("as soon as" if said else "")
        assert bool(decision.uncertain) is bool(said)
    (finding,) = result.tree[0].owners
    assert finding.state is OwnerState.ABSENT


def test_an_owner_that_cannot_be_read_nor_its_crd_is_told_by_group_and_name() -> None:
    cluster, key = widgets("unreadable")
    cluster.break_(key)
    result = removal(cluster, key)
    assert set(by_name(result.tree)) == {"r1", "p"}
    assert result.counts[Action.CASCADE_DELETED] == 2
    assert set(by_name(removal(cluster, key, uid="another").tree)) == set()


def test_what_was_not_seen_is_not_absent(cluster: Cluster) -> None:
    key = cluster.pod("p", owners=(owner("ReplicaSet", "gone"),))
    index = cluster.index(MemorySource(cluster.values, problems=["page 7 is damaged"]))
    node = node_of(index, key)
    assert judge(index, node, index.owners(node), {}).action is Action.FROZEN


@pytest.mark.parametrize("version", ["extensions/v1beta1", "apps/v1beta2", "apps/v9"])
@pytest.mark.parametrize("second", [False, True], ids=["alone", "beside-one-that-is-served"])
def test_an_owner_in_a_version_that_nobody_serves_leaves_the_dependent_alone(
    cluster: Cluster, version: str, second: bool
) -> None:
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


def test_a_version_that_some_releases_serve_is_no_certainty(cluster: Cluster) -> None:
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
def test_a_kind_may_be_written_in_lower_case_and_in_no_other_way(
    cluster: Cluster, kind: str, action: Action
) -> None:
    key = cluster.add("apps/v1", "ReplicaSet", "r1", "shop")
    pod = cluster.pod("p", owners=(owner(kind, "r1"),))
    found = [d.action for d in removal(cluster, key).tree]
    assert found == ([action] if action is Action.CASCADE_DELETED else [])
    index = cluster.index()
    owners = index.owners(node_of(index, pod))
    assert judge(index, node_of(index, pod), owners, {node_of(index, key): Fate()}).action is action


def test_what_managers_do_that_ran_before_and_that_started_since(cluster: Cluster) -> None:
    key = cluster.break_(cluster.secret("a"))
    cluster.break_(cluster.secret("other", "pay"))
    of_secret = (owner("Secret", "a", api_version="v1"),)
    cluster.add("v1", "ConfigMap", "c", "shop", owners=of_secret)
    cluster.secret("s", owners=of_secret)
    result = removal(cluster, key)
    found = by_name(result.tree)
    assert result.unlistable == {"secrets": 1}
    told_of = {name: (bool(one.ran_before), bool(one.started_after)) for name, one in found.items()}
    assert told_of == {"c": (True, False), "s": (True, True)}
    assert all(one.uncertain for one in found.values())


MANY = 2_000


def config(cluster: Cluster, name: str, *owners: str, namespace: str = "shop", **more: Any) -> str:
    """Add a ConfigMap that blocks each of its owners."""
    references = tuple(owner("ConfigMap", o, api_version="v1", blockOwnerDeletion=True) for o in owners)
    return cluster.add("v1", "ConfigMap", name, namespace, owners=references, **more)


def foreground(cluster: Cluster, key: str) -> Collection:
    index = cluster.index()
    return collect(index, node_of(index, key), by_api=Propagation.FOREGROUND)


def test_a_ring_that_is_being_deleted_already_stays(cluster: Cluster) -> None:
    key = config(cluster, "a", "b")
    config(cluster, "b", "a", terminating=True, finalizers=("foregroundDeletion",))
    played = foreground(cluster, key)
    assert played.stays == "configmaps shop/b, which waits in its turn for what it owns"


def test_its_own_owner(cluster: Cluster) -> None:
    played = foreground(cluster, config(cluster, "a", "a"))
    assert played.stays == "itself: it is named as its own owner, and nobody takes that off"


@pytest.mark.parametrize(
    ("objects", "said"),
    [
        # An orphan finalizer below what is deleted in the foreground is replaced: the leaf goes.
        ({"top": "", "mid": "top! orphan", "leaf": "mid"}, {"top": "goes", "mid": "goes", "leaf": "goes"}),
        ({"top": "", "mid": "top!", "low": "mid! orphan", "leaf": "low!"}, {"low": "goes", "leaf": "goes"}),
        # Where the owner does not wait, it may be gone before: then the finalizer counts.
        ({"top": "", "mid": "top orphan", "leaf": "mid"}, {"top": "goes", "mid": "race", "leaf": "race"}),
        ({"top": "", "mid": "top x/y", "leaf": "mid"}, {"top": "goes", "mid": "stays", "leaf": "race"}),
        ({"top": "", "mid": "top", "leaf": "mid! x/y"}, {"top": "goes", "mid": "race", "leaf": "stays"}),
        # An owner that stays Terminating keeps what it does not wait for, once its own work is done.
        ({"top": "x/y", "leaf": "top"}, {"top": "stays", "leaf": "race"}),
        ({"top": "x/y", "leaf": "top!"}, {"top": "stays", "leaf": "goes"}),
        # A dependent that is looked at while another owner is there blocks no more.
        ({"top": "", "mid": "top!", "leaf": "top! mid x/y"}, {"top": "race", "mid": "goes", "leaf": "stays"}),
        # From what is being deleted already nothing is taken off, and nothing in it is deleted anew.
        ({"other": "", "top": "", "leaf": "top! other x/y now"}, {"top": "stays", "leaf": "stays"}),
        (
            {"top": "", "mid": "top! x/y now", "leaf": "mid"},
            {"top": "stays", "mid": "stays", "leaf": "stays"},
        ),
        # An owner that is being deleted in the foreground already.
        ({"top": "", "up": "foregroundDeletion x/y now", "leaf": "top up!"}, {"top": "goes", "leaf": "goes"}),
        ({"top": "", "up": "foregroundDeletion x/y now", "leaf": "top! up"}, {"top": "goes", "leaf": "race"}),
    ],
)
def test_what_becomes_of_each_where_the_first_is_deleted_in_the_foreground(
    cluster: Cluster, objects: dict[str, str], said: dict[str, str]
) -> None:
    """As its source has it, whatever it works on first: ``!`` blocks, ``now`` is Terminating."""
    for name, words in objects.items():
        told = words.split()
        owners = [word for word in told if word.removesuffix("!") in objects]
        cluster.add(
            "v1", "ConfigMap", name, "shop",
            owners=tuple(
                owner("ConfigMap", o.removesuffix("!"), api_version="v1", blockOwnerDeletion=o.endswith("!"))
                for o in owners
            ),
            finalizers=tuple(w for w in told if w not in owners and w != "now"), terminating="now" in told,
        )  # fmt: skip
    index = cluster.index()
    played = collect(index, node_of(index, "/registry/configmaps/shop/top"), by_api=FOREGROUND)
    found = dict.fromkeys(objects, "stays")
    found["top"] = "stays" if played.stays else "race" if played.uncertain else "goes"
    for name, decision in by_name((*played.tree, *played.caught_up)).items():
        goes = "race" if decision.uncertain else "goes"
        deleted = decision.action is Action.CASCADE_DELETED and not decision.stays
        found[name] = goes if deleted else "stays"
    assert {name: found[name] for name in said} == said


def test_a_cluster_scoped_dependent_of_a_namespaced_owner_blocks_for_ever(cluster: Cluster) -> None:
    key = config(cluster, "top")
    references = (owner("ConfigMap", "top", api_version="v1", blockOwnerDeletion=True),)
    cluster.add("rbac.authorization.k8s.io/v1", "ClusterRole", "wide", owners=references)
    played = foreground(cluster, key)
    assert "clusterroles.rbac.authorization.k8s.io wide, which is never collected" in played.stays
    assert played.tree == ()
    index = cluster.index()
    for how in (Propagation.BACKGROUND, Propagation.ORPHAN):
        assert collect(index, node_of(index, key), by_api=how).stays == ""


@pytest.mark.thorough
def test_a_long_ring_and_a_long_chain(cluster: Cluster) -> None:
    key = config(cluster, "c0", f"c{MANY - 1}")
    for number in range(1, MANY):
        config(cluster, f"c{number}", f"c{number - 1}")
    played = foreground(cluster, key)
    assert (played.stays, len(played.tree)) == ("", MANY - 1)
    config(cluster, f"c{MANY - 1}", f"c{MANY - 2}", finalizers=("x/y",))
    config(cluster, "c0")
    played = foreground(cluster, key)
    assert played.stays == "configmaps shop/c1, which waits in its turn for what it owns"
    assert played.tree[-2].stays == f"configmaps shop/c{MANY - 1}, which waits for finalizer x/y"
    assert max(len(d.stays) for d in played.tree) < 100
