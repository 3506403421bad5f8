"""Why namespaces hang: blockers, the order of KEP-5080, cyclic waits."""

from __future__ import annotations

import pytest

from etcdfix.graph.namespaces import NamespaceState, freed_by, namespace_state, terminating_namespaces
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


def policy(cluster: Cluster, name: str = "deny", **settings: object) -> str:
    return cluster.add("networking.k8s.io/v1", "NetworkPolicy", name, "shop", **settings)  # type: ignore[arg-type]


def test_terminating_since_and_conditions(ending: Cluster) -> None:
    found = state(ending)
    assert found.terminating
    assert found.terminating_since == NOW
    assert found.phase == "Terminating"
    assert found.spec_finalizers == ("kubernetes",)
    assert [c.type for c in found.conditions] == [CONTENT_FAILURE["type"], CONTENT_REMAINING["type"]]
    assert [(c.reason, c.last_transition) for c in found.problems] == [("ContentDeletionFailed", NOW)]
    assert not found.frozen
    assert [ref.name for ref in terminating_namespaces(ending.index())] == ["shop"]


def test_an_unreadable_secret_blocks_its_type_and_goes_first(ending: Cluster) -> None:
    ending.secret("fine")
    ending.break_(ending.secret("lost"))
    found = state(ending)
    assert [(s.number, s.name) for s in found.stages] == [(1, "unreadable"), (2, "rest"), (3, "namespace")]
    (blocker,) = found.stages[0].blockers
    assert (blocker.object.key, blocker.reason) == ("/registry/secrets/shop/lost", "unreadable")
    (secrets,) = found.contents
    assert (secrets.resource, secrets.count, secrets.unreadable) == ("secrets", 2, 1)
    assert not found.order_lost
    assert found.blockers == (blocker,)


def test_of_too_many_blockers_the_pods_are_named_and_then_what_is_proven_broken(ending: Cluster) -> None:
    for number in range(120):
        ending.values[ending.key("configmaps", "shop", f"sealed-{number:03}")] = SEALED
    lost = ending.break_(ending.secret("lost"))
    pod = ending.break_(ending.pod("web"))
    stage = state(ending).stages[0]
    assert [b.object.key for b in stage.blockers[:2]] == [pod, lost]
    assert (len(stage.blockers), stage.blocker_count) == (100, 122)


def test_what_the_server_shows_as_empty_fails_no_list(ending: Cluster) -> None:
    ending.values[ending.key("secrets", "shop", "empty")] = b""
    (blocker,) = state(ending).stages[0].blockers
    assert blocker.reason == "serves-empty"
    ending.values["/registry/namespaces/shop"] = b""
    found = state(ending)
    assert (found.exists, found.readable, found.frozen) == (True, False, False)


def test_a_pod_whose_finalizer_waits_for_a_network_policy_is_named(ending: Cluster) -> None:
    ending.pod("web", finalizers=("example.com/wait-for-networkpolicy",), terminating=True)
    ending.pod("other")
    policy(ending)
    ending.secret("unrelated")
    found = state(ending)
    (cycle,) = found.cycles
    assert cycle.confidence is Confidence.LIKELY
    assert [(s.waiter.name, s.waits_for.name) for s in cycle.steps] == [("web", "deny"), ("deny", "web")]
    assert "example.com/wait-for-networkpolicy" in cycle.way_out
    (stage,) = [s for s in found.stages if s.name == "pods"]
    assert [(b.object.name, b.finalizers, b.terminating_since) for b in stage.blockers] == [
        ("web", ("example.com/wait-for-networkpolicy",), NOW)
    ]


@pytest.mark.parametrize("finalizer", ["widgets.example.com/done", "example.com/drain-connections"])
def test_a_domain_tells_whose_a_finalizer_is_and_not_what_it_waits_for(
    ending: Cluster, finalizer: str
) -> None:
    ending.define("example.com", "Widget")
    ending.add("example.com/v1", "Widget", "v", "shop")
    ending.add("example.com/v1", "Widget", "w", "shop")
    policy(ending, "a")
    ending.pod("web", finalizers=(finalizer,))
    (cycle,) = state(ending).cycles
    assert cycle.confidence is Confidence.POSSIBLE
    assert (cycle.steps[0].waits_for.resource, cycle.steps[0].waits_for.name) == ("widgets", "v")
    assert "domain" in cycle.steps[0].reason


def test_a_foreground_deletion_that_waits_for_a_claim_that_waits_for_the_pod(ending: Cluster) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    ending.pod("web", finalizers=("foregroundDeletion",), spec={"volumes": [volume]})
    owners = (owner("Pod", "web", api_version="v1", blockOwnerDeletion=True),)
    finalizers = ("kubernetes.io/pvc-protection",)
    ending.add("v1", "PersistentVolumeClaim", "data", "shop", owners=owners, finalizers=finalizers)
    ending.add("v1", "ConfigMap", "harmless", "shop", owners=owners)
    (cycle,) = state(ending).cycles
    assert cycle.confidence is Confidence.CERTAIN
    assert [(s.waiter.name, s.waits_for.name) for s in cycle.steps] == [("web", "data"), ("data", "web")]
    assert "pvc-protection" in cycle.steps[1].reason


def test_what_was_not_seen_is_not_called_gone() -> None:
    cluster = Cluster()
    cluster.add("lost.example.com/v1", "Thing", "t", "shop")
    cluster.break_(cluster.define("broken.example.com", "Gadget"))
    cluster.add("broken.example.com/v1", "Gadget", "g", "shop")
    index = cluster.index(MemorySource(cluster.values, problems=["page 7 is damaged"]))
    found = namespace_state(index, "shop")
    assert found is not None
    assert not found.complete
    assert {c.resource: c.served for c in found.contents} == {"things": None, "gadgets": False}
    assert list(found.missing_apis) == ["gadgets.broken.example.com"]


def test_an_aggregated_api_serves_its_objects(ending: Cluster) -> None:
    ending.add("wardle.example.com/v1", "Flunder", "f", "shop")
    ending.secret("s")
    found = namespace_state(ending.index(), "shop", aggregated={"wardle.example.com"})
    assert found is not None
    assert found.missing_apis == {}
    assert {c.resource: (c.served, c.aggregated) for c in found.contents} == {
        "flunders": (True, True),
        "secrets": (True, False),
    }


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
        (None, True, "absent", True),
        (None, False, "absent", False),
        (UNKNOWN, True, "not-ready", True),
        (UNKNOWN, False, "not-ready", False),
        (READY, True, "ready", True),
        (READY, False, "", False),
    ],
)
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


def test_missing_apis(ending: Cluster) -> None:
    ending.break_(ending.define("broken.example.com", "Gadget"))
    ending.add("lost.example.com/v1", "Thing", "t", "shop")
    status = {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound"}]}
    ending.values["/registry/apiregistration.k8s.io/apiservices/v1.metrics.example.com"] = api_service(status)
    missing = state(ending).missing_apis
    assert missing["v1.metrics.example.com"] == "ServiceNotFound"
    assert "gadgets.broken.example.com" not in missing  # no such object is here
    assert "no CustomResourceDefinition" in missing["things.lost.example.com"]


def api_service(status: object) -> bytes:
    from tests.support.objects import json_object

    return json_object(
        "apiregistration.k8s.io/v1",
        "APIService",
        "v1.metrics.example.com",
        "",
        spec={"group": "x"},
        status=status,
    )
