"""The forecast of a deletion through the API: what becomes of the object, who waits for whom, and what else to know."""

from __future__ import annotations

import pytest

from etcdfix.graph.collector import collect
from etcdfix.graph.deletion import forecast, refusal, usual_policy
from etcdfix.graph.deletion_model import DeletionForecast, DeletionResult, HeldBy, Wait
from etcdfix.graph.model import Propagation
from etcdfix.graph.tables import OPAQUE
from tests.support.impact_objects import Cluster, node_of, owner

BACKGROUND, FOREGROUND, ORPHAN = Propagation.BACKGROUND, Propagation.FOREGROUND, Propagation.ORPHAN


BLOCKING = "the dependents that block its deletion (1)"


def told(cluster: Cluster, key: str, policy: Propagation = BACKGROUND) -> DeletionForecast:
    index = cluster.index()
    node = node_of(index, key)
    return forecast(index, node, collect(index, node, by_api=policy), policy, by_default=False)


def only(found: DeletionForecast) -> Wait:
    (wait,) = found.waits
    return wait


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
            "it becomes Terminating until what holds it has ended; it is gone after " + BLOCKING,
        ),
        (ORPHAN, DeletionResult.GONE, "it is gone after its reference was taken off 2 dependents"),
    ],
)
def test_the_three_policies(policy: Propagation, result: DeletionResult, text: str) -> None:
    cluster = Cluster()
    found = told(cluster, stateful_set(cluster, blocks=True), policy)
    assert (found.result, found.possible) == (result, True)
    assert found.text == text
    held = {wait.held_by: (wait.holds_object, wait.ended_by) for wait in found.waits}
    going = {
        HeldBy.KUBELET: (policy is FOREGROUND, "pod garbage collector"),
        HeldBy.FINALIZER: (False, "kube-controller-manager"),
    }
    assert held == (going if policy is not ORPHAN else {})


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


@pytest.mark.parametrize("state", ["ready", "not-ready", "absent", "unknown"])
def test_who_ends_a_pod(state: str) -> None:
    cluster = Cluster()
    key = cluster.pod("p", spec={"nodeName": "n1", "containers": []})
    if state != "absent":
        conditions = [{"type": "Ready", "status": "True" if state == "ready" else "Unknown"}]
        node = cluster.add("v1", "Node", "n1", status={"conditions": conditions})
        if state == "unknown":
            cluster.break_(node)
    wait = only(told(cluster, key))
    assert wait.held_by is HeldBy.KUBELET
    assert wait.ended_by == ("pod garbage collector" if state == "absent" else "kubelet")
    words = {
        "ready": "within the grace period",
        "not-ready": "not ready",
        "absent": "do not exist",
        "unknown": "not known",
    }
    assert words[state] in wait.text


def test_who_uses_a_claim_and_a_volume() -> None:
    cluster = Cluster()
    stateful_set(cluster)
    claim = cluster.key("persistentvolumeclaims", "shop", "data")
    assert only(told(cluster, claim)).text == "until no unfinished pod uses it: pods shop/db-0"
    del cluster.values[cluster.key("pods", "shop", "db-0")]
    assert only(told(cluster, claim)).text.endswith("none that can be read is left")
    volume = cluster.add("v1", "PersistentVolume", "pv", finalizers=("kubernetes.io/pv-protection",))
    cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec={"volumeName": "pv"})
    assert (
        only(told(cluster, volume)).text == "until no claim is bound to it: persistentvolumeclaims shop/data"
    )


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
    wait = only(told(cluster, key))
    assert (wait.held_by, wait.ended_by) == (HeldBy.CONTENTS, "namespace controller")
    assert wait.text == "it deletes the 1 object in it first: see etcdfix namespace NAME"
    cluster.break_(cluster.secret("broken", "pay"))
    assert "which 1 object of it or of other namespaces holds up" in only(told(cluster, key)).text
    index = cluster.index()
    assert refusal(index, node_of(index, key)) == ""
    for name in ("default", "kube-system", "kube-public"):
        key = cluster.namespace(name)
        index = cluster.index()
        assert "refuse to delete" in refusal(index, node_of(index, key))
