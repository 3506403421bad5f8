from __future__ import annotations

import json
from typing import Any

import pytest

from etcdfix.examine import Examiner
from etcdfix.graph import recreation as module
from etcdfix.graph.contents import ContentReader
from etcdfix.graph.recreation import (
    NeighbourReader,
    Neighbours,
    Place,
    claimed_secrets,
    endpoints_of,
    selects,
)
from etcdfix.graph.recreation_rules import RULES
from etcdfix.sources.base import Source
from tests.support.impact_objects import Cluster
from tests.support.lost_key import CERT_MANAGER, EXTERNAL_SECRETS, base, certificate, examiner_of

SECRETS_OF_SHOP = Place("secrets", "shop")


def around(cluster: Cluster) -> Neighbours:
    """Look at everything in a cluster, as if a Secret of namespace shop were broken."""
    source = cluster.source()
    examiner = examiner_of(cluster, source)
    return seen(source, examiner, SECRETS_OF_SHOP)


def seen(source: Source, examiner: Examiner, place: Place, *, many_readers: bool = False) -> Neighbours:
    """Look at everything, as if something at that place were broken; with a reader for each value, or with one."""
    reader, neighbours = NeighbourReader(ContentReader(examiner), {place}), Neighbours({place})
    for record in source.current(b""):
        found = examiner.examine(record)
        if many_readers:
            reader = NeighbourReader(ContentReader(examiner), {place})
        neighbours.absorb(found, reader.read(found))
    return neighbours


def test_claims_are_by_namespace_and_name() -> None:
    cluster = base()
    certificate(cluster, "site", "site-tls")
    found = around(cluster)
    claimed = found.claim("shop", "site-tls")
    assert claimed is not None
    assert (claimed.recreated_by.name, claimed.by) == ("cert-manager", f"certificates.{CERT_MANAGER} site")
    assert found.claim("pay", "site-tls") is None
    assert found.claim("shop", "site") is None


@pytest.mark.parametrize("many_readers", [False, True])
def test_claims_and_siblings_are_bounded(monkeypatch: pytest.MonkeyPatch, *, many_readers: bool) -> None:
    monkeypatch.setattr(module, "_MOST_CLAIMS", 2)
    monkeypatch.setattr(module, "_MOST_SIBLINGS", 3)
    cluster = base()
    for number in range(5):
        certificate(cluster, f"site-{number}", f"site-{number}-tls")
        cluster.secret(f"settings-{number}", annotations={"olm.managed": "true"})
    source = cluster.source()
    found = seen(source, examiner_of(cluster, source), SECRETS_OF_SHOP, many_readers=many_readers)
    assert [found.claim("shop", f"site-{n}-tls") is not None for n in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]
    ruler = found.ruler(SECRETS_OF_SHOP)
    assert ruler is not None
    assert ruler[1:] == (3, 3)


def test_one_or_two_labels_rule_nothing() -> None:
    cluster = base()
    for number in range(2):
        cluster.secret(f"settings-{number}", annotations={"olm.managed": "true"})
    found = around(cluster)
    assert found.ruler(SECRETS_OF_SHOP) is None
    assert found.ruler(Place("configmaps", "shop")) is None


@pytest.mark.parametrize(
    ("sibling", "name", "alike"),
    [
        ("settings-2", "settings-10", True),
        ("token-abcde", "token-x7k2p", True),
        ("settings2", "settings3", True),
        ("settings-2", "options-2", False),
        ("db-1", "db-2", False),
    ],
)
def test_names_are_alike_but_for_their_end(sibling: str, name: str, alike: bool) -> None:
    cluster = base()
    cluster.secret(sibling, annotations={"olm.managed": "true"})
    assert (around(cluster).like(SECRETS_OF_SHOP, name) is not None) is alike


@pytest.mark.parametrize(("policy", "claims"), [("Owner", True), ("Merge", False), ("None", False)])
def test_a_spec_that_creates_nothing_is_no_claim(policy: str, claims: bool) -> None:
    cluster = base()
    target = {"target": {"name": "target", "creationPolicy": policy}}
    cluster.add(f"{EXTERNAL_SECRETS}/v1", "ExternalSecret", "es", "shop", spec=target)
    assert (around(cluster).claim("shop", "target") is not None) is claims


def test_a_spec_may_name_a_secret_elsewhere() -> None:
    cluster = base()
    cluster.define("secrets.infisical.com", "InfisicalSecret")
    reference = {"secretName": "target", "secretNamespace": "pay"}
    spec = {"managedSecretReference": reference}
    cluster.add("secrets.infisical.com/v1", "InfisicalSecret", "i", "shop", spec=spec)
    found = around(cluster)
    assert found.claim("shop", "target") is None
    assert found.claim("pay", "target") is not None


def test_services_with_a_selector_claim_their_endpoints() -> None:
    cluster = base()
    cluster.add("v1", "Service", "web", "shop", spec={"selector": {"app": "web"}})
    cluster.add("v1", "Service", "outside", "shop", spec={"clusterIP": "10.0.0.1"})
    found = around(cluster)
    claimed = found.claim("shop", endpoints_of("web"))
    assert claimed is not None
    assert (claimed.recreated_by.name, claimed.by) == (
        "kube-controller-manager",
        "services web, which has a selector",
    )
    assert found.claim("shop", endpoints_of("outside")) is None
    assert found.claim("shop", "web") is None


def test_labels_of_operators_on_other_siblings_say_nothing() -> None:
    cluster = base()
    cluster.define("kafka.strimzi.io", "KafkaTopic")
    place = Place("kafka.strimzi.io/kafkatopics", "shop")
    for number in range(3):
        labels = {"app.kubernetes.io/managed-by": "strimzi-user-operator"}
        metadata = {"name": f"topic-{number}", "namespace": "shop", "uid": f"u{number}", "labels": labels}
        document = {"apiVersion": "kafka.strimzi.io/v1", "kind": "KafkaTopic", "metadata": metadata}
        cluster.values[cluster.key(place.path, "shop", f"topic-{number}")] = json.dumps(document).encode()
    source = cluster.source()
    examiner = examiner_of(cluster, source)
    found = seen(source, examiner, place)
    assert found.ruler(place) is None
    assert found.like(place, "topic-9") is None


def claimed(resource: str, spec: Any, *, name: str = "own") -> list[tuple[str, str]]:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith(f"/{resource}"))
    return claimed_secrets(rule, "shop", name, {"spec": spec})


# ------------------------------------------------------------------------------------------ specs that name a Secret


@pytest.mark.parametrize(
    ("policy", "creates"),
    [
        (None, True),
        ("", True),
        ("Owner", True),
        ("Orphan", True),
        ("Merge", False),
        ("None", False),
        ("Something", False),
        (["Owner"], False),
    ],
)
def test_external_secrets_create_by_their_policy(policy: Any, creates: bool) -> None:
    spec = {"target": {"name": "target", "creationPolicy": policy}}
    assert claimed("externalsecrets", spec) == ([("shop", "target")] if creates else [])


def test_external_secrets_have_their_own_name_where_they_say_none() -> None:
    assert claimed("externalsecrets", {}) == [("shop", "own")]
    assert claimed("externalsecrets", {"target": {"creationPolicy": "Merge"}}) == []
    assert claimed("externalsecrets", {"target": {"manifest": {"kind": "ConfigMap"}}}) == []


@pytest.mark.parametrize("resource", ["vaultstaticsecrets", "vaultdynamicsecrets", "vaultpkisecrets"])
@pytest.mark.parametrize(
    ("create", "creates"), [(True, True), (False, False), (None, False), ("true", False)]
)
def test_vault_creates_where_it_is_told_to(resource: str, create: Any, creates: bool) -> None:
    spec = {"destination": {"name": "target", "create": create}}
    assert claimed(resource, spec) == ([("shop", "target")] if creates else [])
    assert claimed(resource, {"destination": {"name": "target"}}) == []


def test_what_is_being_deleted_creates_nothing() -> None:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith("/certificates"))
    whole: dict[str, Any] = {"metadata": {"name": "own"}, "spec": {"secretName": "x"}}
    assert claimed_secrets(rule, "shop", "own", whole) == [("shop", "x")]
    whole["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    assert claimed_secrets(rule, "shop", "own", whole) == []


def test_infisical_says_the_namespace() -> None:
    assert claimed(
        "infisicalsecrets", {"managedSecretReference": {"secretName": "x", "secretNamespace": "pay"}}
    ) == [("pay", "x")]
    assert claimed("infisicalsecrets", {"managedSecretReference": {"secretName": "x"}}) == []


def test_a_sealed_secret_makes_a_secret_of_its_own_name() -> None:
    assert claimed("sealedsecrets", {"template": {"metadata": {"name": "x"}}}) == [("shop", "own")]


@pytest.mark.parametrize(
    ("resource", "spec", "found"),
    [
        ("certificates", {"secretName": "x"}, [("shop", "x")]),
        ("certificates", {"secretName": 7}, []),
        ("certificates", ["secretName"], []),
        ("issuers", {"acme": {"privateKeySecretRef": {"name": "x"}}}, [("shop", "x")]),
        (
            "issuers",
            {"acme": {"privateKeySecretRef": {"name": "x"}, "disableAccountKeyGeneration": True}},
            [],
        ),
        (
            "sopssecrets",
            {"secretTemplates": [{"name": "x"}, {}, {"name": "y"}]},
            [("shop", "x"), ("shop", "y")],
        ),
        ("sopssecrets", {"secretTemplates": [{"name": "x"}], "suspend": True}, []),
        ("kafkausers", {"authentication": {"type": "scram-sha-512"}}, [("shop", "own")]),
        ("kafkausers", {"authentication": {"type": "tls-external"}}, []),
        ("kafkausers", {}, []),
    ],
)
def test_other_claims(resource: str, spec: Any, found: list[tuple[str, str]]) -> None:
    assert claimed(resource, spec) == found


@pytest.mark.parametrize(
    ("spec", "has"),
    [
        ({"selector": {"app": "web"}}, True),
        ({"selector": {}}, False),
        ({}, False),
        (None, False),
        ({"selector": "app=web"}, False),
        ({"selector": {"app": "web"}, "type": "ExternalName"}, False),
    ],
)
def test_the_endpoints_of_a_service_with_a_selector_are_kept(spec: Any, has: bool) -> None:
    assert selects({"spec": spec}) is has


def test_no_secret_is_called_like_endpoints() -> None:
    assert "/" in endpoints_of("web")
