from __future__ import annotations

from typing import Any

import pytest

from etcdfix.graph.recreation.recreators import (
    CLAIMS,
    MARKS,
    NEVER,
    OWNERS,
    RESOURCES,
    ComesBack,
    claimed_secrets,
    endpoints_of,
    recreator_of_marks,
    selects,
)


def claimed(resource: str, spec: Any, *, name: str = "own") -> list[tuple[str, str]]:
    (claim,) = (claim for claim in CLAIMS if claim.path.endswith(f"/{resource}"))
    return claimed_secrets(claim, "shop", name, {"spec": spec})


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
    (claim,) = (claim for claim in CLAIMS if claim.path.endswith("/certificates"))
    whole: dict[str, Any] = {"metadata": {"name": "own"}, "spec": {"secretName": "x"}}
    assert claimed_secrets(claim, "shop", "own", whole) == [("shop", "x")]
    whole["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    assert claimed_secrets(claim, "shop", "own", whole) == []


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


# ------------------------------------------------------------------------------------------------------------- marks


def test_marks_that_say_most_win() -> None:
    found = recreator_of_marks({}, ("meta.helm.sh/release-name", "helm.toolkit.fluxcd.io/name"), "secrets")
    assert found is not None
    assert (found[0].name, found[0].comes_back) == ("Flux", ComesBack.AFTER_A_STEP)
    found = recreator_of_marks({"app.kubernetes.io/managed-by": "Helm"}, (), "secrets")
    assert found is not None
    assert (found[0].name, found[1]) == ("Helm", "app.kubernetes.io/managed-by=Helm")
    assert (
        recreator_of_marks({"app.kubernetes.io/managed-by": "me", "app": "x"}, ("note",), "secrets") is None
    )
    assert recreator_of_marks({"x": "Helm"}, ("app.kubernetes.io/managed-by",), "secrets") is None


@pytest.mark.parametrize("path", ["deployments", "kafka.strimzi.io/kafkatopics", "persistentvolumeclaims"])
@pytest.mark.parametrize(
    "mark", [mark for mark in MARKS if "secrets" in mark.paths], ids=lambda mark: mark.name
)
def test_marks_of_operators_count_on_what_they_make(path: str, mark: Any) -> None:
    labels = {mark.name: mark.value or "x"}
    found = recreator_of_marks(labels, (), "secrets")
    assert found is not None
    assert found[0] is mark.recreator
    if path not in mark.paths:
        assert recreator_of_marks(labels, (), path) is None


def test_what_applies_manifests_counts_everywhere() -> None:
    everywhere = {mark.recreator.name for mark in MARKS if not mark.paths}
    assert everywhere == {"Argo CD", "Flux", "addon manager", "Helm"}


def test_argo_needs_a_sync() -> None:
    found = recreator_of_marks({}, ("argocd.argoproj.io/tracking-id",), "secrets")
    assert found is not None
    assert found[0].comes_back is ComesBack.AFTER_A_STEP


# --------------------------------------------------------------------------------------------------- the table itself


def test_who_needs_a_step_says_which() -> None:
    everybody = {
        *(mark.recreator for mark in MARKS),
        *(recreator for made in OWNERS.values() for recreator in made.values()),
        *RESOURCES.values(),
        *(claim.recreator for claim in CLAIMS),
    }
    for recreator in everybody:
        assert recreator.how or recreator.comes_back is ComesBack.BY_ITSELF, recreator.name


def test_no_owner_makes_what_stands_for_data() -> None:
    assert not {path for made in OWNERS.values() for path in made} & NEVER.keys()


def test_every_kind_of_custom_resource_claims_once() -> None:
    assert len({claim.path for claim in CLAIMS}) == len(CLAIMS)
