"""Why namespaces hang: blockers, the order of KEP-5080, cyclic waits."""

from __future__ import annotations

import pytest

from etcdfix.graph.model import OrphanGroup, OrphanReason
from etcdfix.graph.namespaces import NamespaceState, freed_by, namespace_state
from etcdfix.graph.orphans import Orphans, find_orphans
from etcdfix.model import Confidence
from tests.support.impact_objects import NOW, Cluster, node_of, owner
from tests.support.memory_source import MemorySource

SEALED = b"k8s:enc:aescbc:v1:key1:" + bytes(48)
CONTENT_FAILURE = {
    "type": "NamespaceDeletionContentFailure",
    "status": "True",
    "reason": "ContentDeletionFailed",
    "message": "Failed to delete all resource types, 1 remaining: Internal error occurred",
    "lastTransitionTime": NOW,
}
CONTENT_REMAINING = {"type": "NamespaceContentRemaining", "status": "False", "reason": "ContentRemoved"}


def state(cluster: Cluster, name: str = "shop") -> NamespaceState:
    found = namespace_state(cluster.index(), name)
    assert found is not None
    return found


@pytest.fixture
def ending() -> Cluster:
    cluster = Cluster()
    status = {"phase": "Terminating", "conditions": [CONTENT_FAILURE, CONTENT_REMAINING]}
    cluster.namespace("shop", terminating=True, status=status)
    return cluster


def test_what_the_server_shows_as_empty_fails_no_list(ending: Cluster) -> None:
    ending.values[ending.key("secrets", "shop", "empty")] = b""
    (blocker,) = state(ending).stages[0].blockers
    assert blocker.reason == "serves-empty"
    ending.values["/registry/namespaces/shop"] = b""
    found = state(ending)
    assert (found.exists, found.readable, found.frozen) == (True, False, False)


def test_a_foreground_deletion_that_waits_for_a_claim_that_waits_for_the_pod(ending: Cluster) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    ending.pod("web", finalizers=("foregroundDeletion",), spec={"volumes": [volume]})
    owners = (owner("Pod", "web", api_version="v1", blockOwnerDeletion=True),)
    finalizers = ("kubernetes.io/pvc-protection",)
    ending.add("v1", "PersistentVolumeClaim", "data", "shop", owners=owners, finalizers=finalizers)
    ending.add("v1", "ConfigMap", "harmless", "shop", owners=owners)
    (cycle,) = state(ending).cycles
    assert cycle.confidence is Confidence.CERTAIN
    assert (cycle.pod.name, cycle.object.name, cycle.finalizer) == ("web", "data", "foregroundDeletion")


@pytest.mark.parametrize("where", ["pay", ""], ids=["object", "namespace"])
def test_what_cannot_be_read_elsewhere_holds_every_namespace(ending: Cluster, where: str) -> None:
    broken = ending.break_(ending.secret("lost", where) if where else ending.namespace("other"))
    ending.break_(ending.add("v1", "Node", "n1"))  # has no namespace: holds none
    ending.values[ending.key("configmaps", "pay", "empty")] = b""  # LISTs show it
    found = state(ending)
    assert [(b.object.key, b.reason) for b in found.elsewhere] == [(broken, "unreadable")]
    assert (found.elsewhere_count, found.held, found.contents) == (1, True, ())
    ending.secret("fine")
    assert [c.stays for c in state(ending).contents] == [""]  # recorded: it goes, and the namespace does not
    ending.break_(ending.pod("p", "pay"))
    ending.pod("web")
    assert state(ending).order_lost
    assert {c.resource: c.stays for c in state(ending).contents} == {
        "pods": "cannot-be-listed",
        "secrets": "",
    }


def test_the_namespaces_that_one_object_frees(ending: Cluster) -> None:
    ending.secret("fine")
    ending.namespace("held", terminating=True, finalizers=("example.com/x",))
    ending.namespace("well")
    key = ending.break_(ending.secret("lost", "pay"))
    index = ending.index()
    (freed,) = freed_by(index, node_of(index, key))
    assert (freed.name, [c.count for c in freed.contents]) == ("shop", [1])
    ending.break_(ending.secret("other", "pay"))
    index = ending.index()
    assert freed_by(index, node_of(index, key)) == ()


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
UNKNOWN = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


@pytest.mark.parametrize(
    ("node", "told", "node_state", "past_grace"),
    [
        (None, True, "absent", True), (None, False, "absent", False), (UNKNOWN, True, "not-ready", True),
        (UNKNOWN, False, "not-ready", False), (READY, True, "ready", True), (READY, False, "", False),
    ],
)  # fmt: skip
def test_a_pod_that_no_kubelet_ends(
    ending: Cluster, node: dict[str, object] | None, told: bool, node_state: str, past_grace: bool
) -> None:
    if node is not None:
        ending.add("v1", "Node", "n1", status=node)
    ending.pod("web", spec={"nodeName": "n1"}, terminating=told)
    ending.secret("s")
    found = state(ending)
    held = [(b.reason, b.node, b.node_state, b.past_grace) for b in found.blockers]
    assert held == ([("node", "n1", node_state, past_grace)] if node_state else [])
    assert {c.resource: c.stays for c in found.contents} == {
        "pods": "",
        "secrets": "pods-first" if held else "",
    }


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


def test_crd_gone_and_crd_unreadable(cluster: Cluster) -> None:
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
