"""The forecast of a deletion through the API: what becomes of the object, who waits for whom, and what else to know."""

from __future__ import annotations

import pytest

from etcdfix.graph.collector import collect
from etcdfix.graph.deletion import forecast, refusal, usual_policy
from etcdfix.graph.model import DeletionForecast, DeletionResult, Propagation
from etcdfix.graph.tables import OPAQUE
from tests.support.impact_objects import Cluster, node_of, owner

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
        (ORPHAN, DeletionResult.GONE, "it is gone after its reference was taken off 2 dependents"),
    ],
)
def test_the_three_policies(policy: Propagation, result: DeletionResult, text: str) -> None:
    cluster = Cluster()
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
def test_the_policy_where_nobody_asks_for_one(settings: dict[str, object], policy: Propagation) -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "c", "shop", **settings)  # type: ignore[arg-type]
    index = cluster.index()
    assert usual_policy(index, node_of(index, key)) is policy


@pytest.mark.parametrize("policy", [BACKGROUND, FOREGROUND, ORPHAN])
def test_dependents_that_cannot_be_read(policy: Propagation) -> None:
    cluster = Cluster()
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
def test_what_was_not_seen_may_hold_it(why: str) -> None:
    cluster = Cluster()
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


def test_an_object_that_cannot_be_looked_into() -> None:
    cluster = Cluster()
    key = cluster.add("v1", "ConfigMap", "c", "shop")
    index = cluster.index()
    node = node_of(index, key)
    index._tables.flags[node] |= OPAQUE
    found = forecast(index, node, collect(index, node, by_api=BACKGROUND), BACKGROUND, by_default=True)
    assert (found.result, "cannot be looked into" in found.text) == (DeletionResult.NOT_TOLD, True)


def test_a_namespace_points_at_its_own_command() -> None:
    cluster = Cluster()
    key = cluster.namespace("shop")
    cluster.secret("s")
    found = told(cluster, key)
    assert found.result is DeletionResult.TERMINATING
    assert "deletes the 1 object in it first: see etcdfix namespace NAME" in found.text
    index = cluster.index()
    assert refusal(index, node_of(index, key)) == ""
    for name in ("default", "kube-system", "kube-public"):
        key = cluster.namespace(name)
        index = cluster.index()
        assert "refuse to delete" in refusal(index, node_of(index, key))
