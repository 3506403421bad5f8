"""Why namespaces hang: blockers, the order of KEP-5080, webhooks; and orphans."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etcdfix.graph.model import OrphanGroup, OrphanReason, Stays, WebhookHold
from etcdfix.graph.namespaces import NamespaceState, freed_by, namespace_state
from etcdfix.graph.orphans import Orphans, find_orphans
from etcdfix.model.model import Confidence
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
    (blocker,) = state(ending).stage("unreadable").blockers
    assert blocker.reason == "serves-empty"
    ending.values["/registry/namespaces/shop"] = b""
    found = state(ending)
    assert (found.exists, found.readable, found.frozen) == (True, False, False)


@pytest.mark.parametrize("where", ["pay", ""], ids=["object", "namespace"])
def test_what_cannot_be_read_elsewhere_holds_every_namespace(ending: Cluster, where: str) -> None:
    broken = ending.break_(ending.secret("lost", where) if where else ending.namespace("other"))
    ending.break_(ending.add("v1", "Node", "n1"))  # has no namespace: holds none
    ending.values[ending.key("configmaps", "pay", "empty")] = b""  # LISTs show it
    found = state(ending)
    assert [(b.object.key, b.reason) for b in found.stage("elsewhere").blockers] == [(broken, "unreadable")]
    assert (found.held, found.contents) == (True, ())
    ending.secret("fine")
    assert [c.stays for c in state(ending).contents] == [
        None
    ]  # recorded: it goes, and the namespace does not
    ending.break_(ending.pod("p", "pay"))
    ending.pod("web")
    assert state(ending).order_lost
    assert {c.resource: c.stays for c in state(ending).contents} == {
        "pods": "cannot-be-listed",
        "secrets": None,
    }


def test_what_no_api_serves_holds_nothing_and_is_left_behind(ending: Cluster) -> None:
    ending.add("example.com/v1", "Widget", "w", "shop", finalizers=("example.com/keep",))
    ending.values[ending.key("example.com/widgets", "shop", "sealed")] = SEALED
    found = state(ending)
    assert (found.blockers, found.held, found.count(Stays.NOT_SERVED)) == ((), False, 2)
    ending.break_(ending.define("example.com", "Widget"))  # a running API server may serve them still
    assert [b.reason for b in state(ending).blockers] == ["undetermined", "finalizers"]


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
        "pods": None,
        "secrets": "pods-first" if held else None,
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
    assert group.count == 1
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


RULE: dict[str, Any] = {
    "operations": ["DELETE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}
SERVICE = {"service": {"namespace": "ops", "name": "hook"}}


@pytest.fixture
def calling() -> Cluster:
    cluster = Cluster()
    cluster.namespace("shop", terminating=True, labels={"team": "a"})
    cluster.namespace("ops")
    cluster.add("v1", "ConfigMap", "settings", "shop")
    return cluster


def webhook(cluster: Cluster, kind: str = "Validating", **fields: Any) -> str:
    entry = {
        "name": "first.example.com",
        "clientConfig": SERVICE,
        "rules": [RULE],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        **fields,
    }
    ignored = {**entry, "name": "other.example.com", "failurePolicy": "Ignore"}
    return cluster.add(
        "admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration", "guard", webhooks=[ignored, entry]
    )


def state_of(cluster: Cluster, name: str = "shop", source: MemorySource | None = None) -> NamespaceState:
    found = namespace_state(cluster.index(source), name)
    assert found is not None
    return found


def holds(cluster: Cluster) -> list[tuple[str, bool, tuple[str, ...], int]]:
    return [(h.problem, h.certain, h.resources, h.count) for h in state_of(cluster).webhooks]


def add_service(cluster: Cluster, *, ready: bool | None) -> None:
    cluster.add("v1", "Service", "hook", "ops")
    endpoint = {"addresses": ["10.0.0.1"], "conditions": {} if ready is None else {"ready": ready}}
    cluster.add(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "hook-x",
        "ops",
        labels={"kubernetes.io/service-name": "hook"},
        endpoints=[endpoint],
    )


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_an_admission_webhook_whose_service_is_gone(calling: Cluster, kind: str) -> None:
    key = webhook(calling, kind)
    (hold,) = state_of(calling).webhooks
    assert isinstance(hold, WebhookHold)
    assert (hold.configuration.key, hold.webhook, hold.position) == (key, "first.example.com", 1)
    assert (hold.service.namespace, hold.service.name, hold.problem) == ("ops", "hook", "missing")
    assert (hold.certain, hold.resources, hold.count) == (False, ("configmaps",), 1)
    found = state_of(calling)
    assert (found.held, found.certain) == (True, False)


@pytest.mark.parametrize(
    "fields",
    [
        {"failurePolicy": "Ignore"},
        {"clientConfig": {"url": "https://example.com"}},
        {"rules": []},
        {"rules": [RULE | {"operations": ["CREATE", "CONNECT"]}]},
        {"rules": [RULE | {"resources": ["secrets"]}]},
        {"rules": [RULE | {"apiGroups": ["apps"]}]},
    ],
)
def test_a_webhook_that_is_not_asked_holds_nothing(calling: Cluster, fields: dict[str, Any]) -> None:
    webhook(calling, **fields)
    found = state_of(calling)
    assert (found.webhooks, found.held) == ((), False)


@pytest.mark.parametrize(
    "rule",
    [
        {"operations": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"operations": ["UPDATE"], "resources": ["*/*"]},
        {"operations": ["UPDATE"], "resources": ["namespaces/finalize"]},
    ],
)
def test_a_webhook_that_may_be_asked(calling: Cluster, rule: dict[str, Any]) -> None:
    webhook(calling, rules=[RULE | rule])
    found = state_of(calling)
    assert [h.certain for h in found.webhooks] == [False]
    assert (found.held, found.certain) == (True, False)


def test_what_the_namespace_reports_makes_a_doubt_certain(calling: Cluster) -> None:
    webhook(calling, objectSelector={"matchLabels": {"app": "x"}})
    assert [h.certain for h in state_of(calling).webhooks] == [False]
    told = {
        "type": "NamespaceDeletionContentFailure",
        "status": "True",
        "reason": "ContentDeletionFailed",
        "message": 'Internal error occurred: failed calling webhook "first.example.com": no such service',
        "lastTransitionTime": NOW,
    }
    status = {"phase": "Terminating", "conditions": [told]}
    calling.namespace("shop", terminating=True, status=status)
    assert [h.certain for h in state_of(calling).webhooks] == [True]


def test_a_service_without_a_ready_endpoint(calling: Cluster) -> None:
    webhook(calling)
    calling.add("v1", "Service", "hook", "ops")
    assert [h.problem for h in state_of(calling).webhooks] == ["not-ready"]
    add_service(calling, ready=False)
    assert [h.problem for h in state_of(calling).webhooks] == ["not-ready"]
    for ready in (True, None):
        add_service(calling, ready=ready)
        assert holds(calling) == []
    # Pods of a namespace that is being deleted go first, and do not come back.
    calling.namespace("ops", terminating=True)
    assert [h.problem for h in state_of(calling).webhooks] == ["terminating"]


def test_the_api_servers_own_service_is_answered_for(calling: Cluster) -> None:
    webhook(calling, clientConfig={"service": {"namespace": "default", "name": "kubernetes"}})
    calling.add("v1", "Service", "kubernetes", "default")
    assert holds(calling) == []


def test_an_object_frees_no_namespace_that_a_webhook_holds(calling: Cluster) -> None:
    key = calling.break_(calling.secret("lost"))
    index = calling.index()
    assert [freed.name for freed in freed_by(index, node_of(index, key))] == ["shop"]
    webhook(calling)
    index = calling.index()
    assert freed_by(index, node_of(index, key)) == ()


# ------------------------------------------------------------------------------------------------- conversion


def define(cluster: Cluster, *, old: bool, bundle: str = "") -> str:
    client = {"clientConfig": SERVICE | {"caBundle": bundle}, "conversionReviewVersions": ["v1"]}
    conversion: dict[str, Any] = {"strategy": "Webhook", "webhook": client}
    if old:
        conversion = {"strategy": "Webhook", "webhookClientConfig": SERVICE}
    versions = [
        {"name": name, "served": True, "storage": name == "v1beta1"} for name in ("v1alpha1", "v1beta1")
    ]
    names = {"plural": "meshes", "kind": "Mesh", "listKind": "MeshList", "singular": "mesh"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": versions}
    key = cluster.key("apiextensions.k8s.io/customresourcedefinitions", "", "meshes.example.com")
    document = {
        "apiVersion": f"apiextensions.k8s.io/{'v1beta1' if old else 'v1'}",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "meshes.example.com", "uid": "uid-crd"},
        "spec": spec | {"conversion": conversion},
    }
    cluster.values[key] = json.dumps(document).encode()
    return key


@pytest.mark.parametrize("old", [False, True])
def test_a_conversion_webhook_whose_service_is_gone(calling: Cluster, old: bool) -> None:
    key = define(calling, old=old)
    assert holds(calling) == []  # nothing in the namespace is converted
    mesh = {"apiVersion": "example.com/v1beta1", "kind": "Mesh", "metadata": {"name": "m", "uid": "uid-m"}}
    calling.values[calling.key("example.com/meshes", "shop", "m")] = json.dumps(mesh).encode()
    (hold,) = state_of(calling).webhooks
    assert (hold.configuration.key, hold.webhook, hold.service.name) == (key, "", "hook")
    assert (hold.problem, hold.certain, hold.resources, hold.count) == (
        "missing", False, ("meshes.example.com",), 1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("bundle", "held"),
    [("Cg==", True), ("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t", False), ("", False), ("?", False)],
)
def test_a_conversion_webhook_without_a_certificate_holds_every_namespace(
    calling: Cluster, bundle: str, held: bool
) -> None:
    """A chart wrote a caBundle of one newline, and deleted its objects: LIST fails although there are none."""
    define(calling, old=False, bundle=bundle)
    expected = [("no-certificate", False, ("meshes.example.com",), 0)] if held else []
    assert holds(calling) == expected


def test_an_api_whose_service_is_gone(calling: Cluster) -> None:
    key = calling.key("apiregistration.k8s.io/apiservices", "", "v1.metrics.example.com")
    document = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.metrics.example.com", "uid": "uid-api"},
        "spec": {"group": "metrics.example.com", "version": "v1", **SERVICE},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    }
    calling.values[key] = json.dumps(document).encode()
    found = state_of(calling)
    assert found.certain
    assert "ops/hook" in found.unavailable_apis["v1.metrics.example.com"]
    calling.add("v1", "Service", "hook", "ops")
    assert state_of(calling).unavailable_apis == {}
