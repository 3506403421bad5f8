"""Webhooks that nobody answers, and the namespaces that they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest

from etcdfix.graph.model import WebhookHold
from etcdfix.graph.namespaces import NamespaceState, freed_by, namespace_state
from tests.support.impact_objects import NOW, Cluster, node_of
from tests.support.memory_source import MemorySource

RULE: dict[str, Any] = {
    "operations": ["DELETE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps"],
}
SERVICE = {"service": {"namespace": "ops", "name": "hook"}}


@pytest.fixture
def ending() -> Cluster:
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


def state(cluster: Cluster, name: str = "shop", source: MemorySource | None = None) -> NamespaceState:
    found = namespace_state(cluster.index(source), name)
    assert found is not None
    return found


def holds(cluster: Cluster) -> list[tuple[str, bool, tuple[str, ...], int]]:
    return [(h.problem, h.certain, h.resources, h.count) for h in state(cluster).webhooks]


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
def test_an_admission_webhook_whose_service_is_gone(ending: Cluster, kind: str) -> None:
    key = webhook(ending, kind)
    (hold,) = state(ending).webhooks
    assert isinstance(hold, WebhookHold)
    assert (hold.configuration.key, hold.webhook, hold.position) == (key, "first.example.com", 1)
    assert (hold.service.namespace, hold.service.name, hold.problem) == ("ops", "hook", "missing")
    assert (hold.certain, hold.resources, hold.count) == (True, ("configmaps",), 1)
    found = state(ending)
    assert (found.held, found.certain) == (True, True)
    assert [c.stays for c in found.contents] == ["held-by-webhook"]


@pytest.mark.parametrize(
    "fields",
    [
        {"failurePolicy": "Ignore"},
        {"clientConfig": {"url": "https://example.com"}},
        {"rules": []},
        {"rules": [RULE | {"operations": ["CREATE", "UPDATE"]}]},
        {"rules": [RULE | {"resources": ["secrets"]}]},
        {"rules": [RULE | {"resources": ["configmaps/status"]}]},
        {"rules": [RULE | {"resources": ["*/status"]}]},
        {"rules": [RULE | {"apiGroups": ["apps"]}]},
        {"rules": [RULE | {"scope": "Cluster"}]},
        {"namespaceSelector": {"matchLabels": {"team": "b"}}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}},
        {"namespaceSelector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
        {"namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "shop"]}
            ]
        }},
    ],
)  # fmt: skip
def test_a_webhook_that_is_not_asked_holds_nothing(ending: Cluster, fields: dict[str, Any]) -> None:
    webhook(ending, **fields)
    found = state(ending)
    assert (found.webhooks, found.held) == ((), False)


@pytest.mark.parametrize(
    ("fields", "certain"),
    [
        ({"rules": [RULE | {"operations": ["*"], "apiGroups": ["*"], "resources": ["*"]}]}, True),
        ({"rules": [RULE | {"operations": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}]}, True),
        ({"rules": [RULE | {"scope": "Namespaced"}]}, True),
        ({"namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}}, True),
        ({"rules": [RULE | {"apiVersions": ["v1beta1"]}]}, False),
        ({"objectSelector": {"matchLabels": {"app": "x"}}}, False),
        ({"matchConditions": [{"name": "c", "expression": "true"}]}, False),
    ],
)  # fmt: skip
def test_a_webhook_that_is_asked_or_may_be(ending: Cluster, fields: dict[str, Any], certain: bool) -> None:
    webhook(ending, **fields)
    found = state(ending)
    assert [h.certain for h in found.webhooks] == [certain]
    assert (found.held, found.certain) == (True, certain)


def test_an_empty_namespace_asks_no_webhook_about_its_contents(ending: Cluster) -> None:
    del ending.values[ending.key("configmaps", "shop", "settings")]
    webhook(ending, rules=[RULE | {"operations": ["*"], "apiGroups": ["*"], "resources": ["*"]}])
    assert holds(ending) == []
    webhook(ending, rules=[RULE | {"operations": ["UPDATE"], "resources": ["namespaces/finalize"]}])
    assert holds(ending) == [("missing", True, ("namespaces/finalize",), 1)]


def test_what_the_namespace_reports_makes_a_doubt_certain(ending: Cluster) -> None:
    webhook(ending, objectSelector={"matchLabels": {"app": "x"}})
    assert [h.certain for h in state(ending).webhooks] == [False]
    told = {
        "type": "NamespaceDeletionContentFailure",
        "status": "True",
        "reason": "ContentDeletionFailed",
        "message": 'Internal error occurred: failed calling webhook "first.example.com": no such service',
        "lastTransitionTime": NOW,
    }
    status = {"phase": "Terminating", "conditions": [told]}
    ending.namespace("shop", terminating=True, status=status)
    assert [h.certain for h in state(ending).webhooks] == [True]


def test_a_service_without_a_ready_endpoint(ending: Cluster) -> None:
    webhook(ending)
    ending.add("v1", "Service", "hook", "ops")
    assert [(h.problem, h.certain) for h in state(ending).webhooks] == [("not-ready", False)]
    add_service(ending, ready=False)
    assert [(h.problem, h.certain) for h in state(ending).webhooks] == [("not-ready", False)]
    for ready in (True, None):
        add_service(ending, ready=ready)
        assert holds(ending) == []
    # Pods of a namespace that is being deleted go first, and do not come back.
    ending.namespace("ops", terminating=True)
    assert [(h.problem, h.certain) for h in state(ending).webhooks] == [("terminating", False)]
    add_service(ending, ready=False)
    assert [(h.problem, h.certain) for h in state(ending).webhooks] == [("not-ready", True)]


def test_the_api_servers_own_service_is_answered_for(ending: Cluster) -> None:
    webhook(ending, clientConfig={"service": {"namespace": "default", "name": "kubernetes"}})
    ending.add("v1", "Service", "kubernetes", "default")
    assert holds(ending) == []


def test_a_service_that_was_not_seen_is_not_called_gone(ending: Cluster) -> None:
    webhook(ending)
    found = state(ending, source=MemorySource(ending.values, problems=["page 7 is damaged"]))
    assert [(h.problem, h.certain) for h in found.webhooks] == [("missing", False)]
    assert not found.certain


def test_an_object_frees_no_namespace_that_a_webhook_holds(ending: Cluster) -> None:
    key = ending.break_(ending.secret("lost"))
    index = ending.index()
    assert [freed.name for freed in freed_by(index, node_of(index, key))] == ["shop"]
    webhook(ending)
    index = ending.index()
    assert freed_by(index, node_of(index, key)) == ()


# ------------------------------------------------------------------------------------------------- conversion


def define(cluster: Cluster, *, served: tuple[str, ...] = ("v1alpha1", "v1beta1"), old: bool = False) -> str:
    client = {"clientConfig": SERVICE, "conversionReviewVersions": ["v1"]}
    conversion: dict[str, Any] = {"strategy": "Webhook", "webhook": client}
    if old:
        conversion = {"strategy": "Webhook", "webhookClientConfig": SERVICE}
    versions = [{"name": name, "served": True, "storage": name == "v1beta1"} for name in served]
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


def mesh(cluster: Cluster, version: str, namespace: str = "shop") -> None:
    key = cluster.key("example.com/meshes", namespace, version)
    document = {
        "apiVersion": f"example.com/{version}",
        "kind": "Mesh",
        "metadata": {"name": version, "namespace": namespace, "uid": f"uid-{version}"},
    }
    cluster.values[key] = json.dumps(document).encode()


@pytest.mark.parametrize("old", [False, True])
def test_a_conversion_webhook_whose_service_is_gone(ending: Cluster, old: bool) -> None:
    key = define(ending, old=old)
    mesh(ending, "v1beta1")
    assert holds(ending) == []  # stored as it is asked for: nothing is converted
    mesh(ending, "v1alpha1")
    (hold,) = state(ending).webhooks
    assert (hold.configuration.key, hold.webhook, hold.service.name) == (key, "", "hook")
    assert (hold.problem, hold.certain, hold.resources, hold.count) == (
        "missing", True, ("meshes.example.com",), 1,
    )  # fmt: skip
    stays = {c.resource: c.stays for c in state(ending).contents}
    assert stays == {"configmaps": "", "meshes": "held-by-webhook"}


@pytest.mark.parametrize(
    ("served", "asked"),
    [
        (("v1", "v2"), "v2"), (("v10", "v9"), "v10"), (("v1beta2", "v1beta10"), "v1beta10"),
        (("v2alpha1", "v1beta1"), "v1beta1"), (("beta", "v1alpha1"), "v1alpha1"), (("b", "a"), "a"),
    ],
)  # fmt: skip
def test_controllers_ask_for_the_version_of_highest_priority(
    ending: Cluster, served: tuple[str, ...], asked: str
) -> None:
    define(ending, served=served)
    mesh(ending, asked)
    assert holds(ending) == []
    for version in served:
        mesh(ending, version)
    assert [(h.count, h.certain) for h in state(ending).webhooks] == [(1, True)]


def test_an_api_whose_service_is_gone(ending: Cluster) -> None:
    key = ending.key("apiregistration.k8s.io/apiservices", "", "v1.metrics.example.com")
    document = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.metrics.example.com", "uid": "uid-api"},
        "spec": {"group": "metrics.example.com", "version": "v1", **SERVICE},
        "status": {"conditions": [{"type": "Available", "status": "True"}]},
    }
    ending.values[key] = json.dumps(document).encode()
    found = state(ending)
    assert (found.unavailable_apis, found.certain) == (1, True)
    assert "ops/hook" in found.missing_apis["v1.metrics.example.com"]
    ending.add("v1", "Service", "hook", "ops")
    assert state(ending).unavailable_apis == 0
