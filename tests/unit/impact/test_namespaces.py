"""Why namespaces hang: blockers, the order of KEP-5080, cyclic waits."""

from __future__ import annotations

import pytest

from etcdfix.impact.namespaces import NamespaceState, namespace_state, terminating_namespaces
from etcdfix.model import Confidence
from tests.support.impact_objects import NOW, Cluster, owner
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
    (blocker,) = found.stages[0].waits_for
    assert (blocker.object.key, blocker.reason) == ("/registry/secrets/shop/lost", "unreadable")
    (secrets,) = found.contents
    assert (secrets.resource, secrets.count, secrets.unreadable) == ("secrets", 2, 1)
    assert not found.order_lost
    assert found.blockers == (blocker,)


def test_pods_go_before_network_policies(ending: Cluster) -> None:
    ending.pod("web")
    policy(ending)
    found = state(ending)
    assert [(s.name, [r.resource for r in s.resources]) for s in found.stages] == [
        ("pods", ["pods"]),
        ("rest", ["networkpolicies"]),
        ("namespace", []),
    ]
    assert found.cycles == ()


def test_an_unreadable_pod_loses_the_order(ending: Cluster) -> None:
    ending.break_(ending.pod("web"))
    policy(ending)
    found = state(ending)
    assert found.order_lost
    assert found.stages[0].name == "unreadable"


def test_of_too_many_blockers_the_pods_are_named_and_then_what_is_proven_broken(ending: Cluster) -> None:
    for number in range(120):
        ending.values[ending.key("configmaps", "shop", f"sealed-{number:03}")] = SEALED
    lost = ending.break_(ending.secret("lost"))
    pod = ending.break_(ending.pod("web"))
    stage = state(ending).stages[0]
    assert [b.object.key for b in stage.waits_for[:2]] == [pod, lost]
    assert (len(stage.waits_for), stage.blockers) == (100, 122)


def test_what_the_server_shows_as_empty_fails_no_list(ending: Cluster) -> None:
    ending.values[ending.key("secrets", "shop", "empty")] = b""
    (blocker,) = state(ending).stages[0].waits_for
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
    assert [(b.object.name, b.finalizers, b.terminating_since) for b in stage.waits_for] == [
        ("web", ("example.com/wait-for-networkpolicy",), NOW)
    ]


def test_an_opaque_finalizer_may_wait_for_anything(ending: Cluster) -> None:
    ending.pod("web", finalizers=("example.com/drain",))
    assert state(ending).cycles == ()  # nothing else is there to wait for
    policy(ending)
    (cycle,) = state(ending).cycles
    assert cycle.confidence is Confidence.POSSIBLE
    assert cycle.steps[0].waiter.name == "web"


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


def test_a_word_in_the_name_of_a_finalizer_tells_more_than_its_domain(ending: Cluster) -> None:
    ending.define("example.com", "Widget")
    ending.add("example.com/v1", "Widget", "w", "shop")
    ending.pod("web", finalizers=("example.com/wait-for-widgets",))
    (cycle,) = state(ending).cycles
    assert (cycle.confidence, cycle.steps[0].waits_for.resource) == (Confidence.LIKELY, "widgets")


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


def test_a_jobs_own_finalizer_is_no_cycle(ending: Cluster) -> None:
    ending.pod("web", finalizers=("batch.kubernetes.io/job-tracking",))
    policy(ending)
    assert state(ending).cycles == ()


def test_finalizers_of_other_objects_block_the_rest(ending: Cluster) -> None:
    ending.secret("s", finalizers=("example.com/protect",))
    (stage,) = [s for s in state(ending).stages if s.name == "rest"]
    assert [(b.object.name, b.reason) for b in stage.waits_for] == [("s", "finalizers")]
    assert stage.blockers == 1


def test_an_unreadable_namespace_freezes_them_all() -> None:
    cluster = Cluster()
    cluster.break_(cluster.namespace("shop"))
    cluster.secret("s")
    found = state(cluster)
    assert found.frozen
    assert found.exists
    assert not found.readable


def test_contents_without_a_namespace_object() -> None:
    cluster = Cluster()
    cluster.secret("s", "gone")
    found = state(cluster, "gone")
    assert not found.exists
    assert found.object.key == "/registry/namespaces/gone"
    assert namespace_state(cluster.index(), "never") is None


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


def test_namespaces_of_similar_names_are_kept_apart(ending: Cluster) -> None:
    ending.secret("shop", "other")
    ending.secret("s", "shop2")
    assert state(ending).contents == ()


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
