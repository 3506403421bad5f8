"""Users of Secrets: the cases of KEP-2639, and what the KEP left out."""

from __future__ import annotations

from typing import Any

import pytest

from etcdfix.graph.assess import secret_state, users_of
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import SecretState
from etcdfix.graph.references import claim_tokens, storage_templates
from tests.support.impact_objects import Cluster, node_of
from tests.support.kep2639 import CASES, build


def state_of(index: ImpactIndex, key: str) -> SecretState:
    node = node_of(index, key)
    state = secret_state(index, node)
    assert state is not None
    return state


@pytest.mark.parametrize("broken", [False, True], ids=["readable", "unreadable"])
@pytest.mark.parametrize("name", CASES)
def test_cases_of_the_kep(name: str, broken: bool) -> None:
    case = CASES[name]
    cluster, key = build(case)
    if broken:
        cluster.break_(key)
    index = cluster.index()
    assert users_of(index, node_of(index, "/registry/secrets/shop/decoy")) == ()
    users = users_of(index, node_of(index, key))
    state = state_of(index, key)
    if case.user:
        wanted = [u for u in users if u.object.name == case.user and case.field in u.path]
        assert not wanted[0].optional
        assert all(case.field in u.path for u in users)
    else:
        assert users == ()
    if not broken:
        assert state.protected is case.protected
        assert state.opted_out is (name == "opted out")
    else:
        assert not state.opted_out


def test_a_finished_pod_needs_it_no_more_and_does_not_protect(cluster: Cluster) -> None:
    cluster.secret("s")
    spec = {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}
    cluster.pod("p", spec=spec, status={"phase": "Succeeded"})
    index = cluster.index()
    found = users_of(index, node_of(index, "/registry/secrets/shop/s"))
    assert [u.optional for u in found] == [True]
    assert not state_of(index, "/registry/secrets/shop/s").protected


CSI = "csi.storage.k8s.io"


def pair(operation: str, name: str = "s", namespace: str = "n") -> dict[str, str]:
    return {f"{CSI}/{operation}secret-name": name, f"{CSI}/{operation}secret-namespace": namespace}


def test_the_pair_for_any_operation_is_a_fallback() -> None:
    found = storage_templates(pair("") | pair("node-stage-", "own"))
    of_any = [
        "provisioner",
        "controller-publish",
        "node-publish",
        "controller-expand",
        "node-expand",
        "controller-modify",
    ]
    assert {t.operation: t.name for t in found} == dict.fromkeys(of_any, "s") | {"node-stage": "own"}


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("s", "n", ("n", "s")),
        ("${pvc.name}-x", "${pvc.namespace}", ("shop", "data-x")),
        ("${pv.name}", "${pv.name}", ("pv-1", "pv-1")),
        ("${pvc.annotations['a/b']}", "n", ("n", "from-annotation")),
        ("${pvc.annotations['missing']}", "n", None),
        ("s", "${pvc.name}", None),
        ("${unknown}", "n", None),
        ("${pvc.namespace}-${pvc.name}", "n", ("n", "shop-data")),
    ],
)
def test_templates_of_storage_classes(name: str, namespace: str, expected: tuple[str, str] | None) -> None:
    (template,) = storage_templates(pair("provisioner-", name, namespace))
    tokens = claim_tokens("shop", "data", "pv-1", {"a/b": "from-annotation"})
    assert template.resolve(*tokens) == expected


def guessed(spec: Any, namespace: str = "shop") -> set[str]:
    references = list(heuristic_references({"kind": "Widget", "spec": spec}, namespace))
    assert all(reference.use.heuristic for reference in references)
    assert all(reference.use.unscoped == ("/*/" in reference.key) for reference in references)
    return {reference.key for reference in references}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # Gateway API, with the defaults that its CRDs fill in.
        ({"listeners": [{"tls": {"certificateRefs": [{"group": "", "kind": "Secret", "name": "s"}]}}]}, "shop/s"),
        ({"tls": {"certificateRefs": [{"kind": "Secret", "name": "s", "namespace": "certs"}]}}, "certs/s"),
        ({"tls": {"certificateRefs": [{"name": "s"}]}}, "shop/s"),
        # Flux and others that state the kind.
        ({"valuesFrom": [{"kind": "Secret", "name": "s", "valuesKey": "k"}]}, "shop/s"),
        ({"anything": {"apiVersion": "v1", "kind": "Secret", "name": "s"}}, "shop/s"),
        ({"anything": {"kind": "Secret", "name": "s", "group": None}}, "shop/s"),
        # Istio: in the namespace of the gateway's pods.
        ({"servers": [{"tls": {"credentialName": "s"}}]}, "*/s */s-cacert"),
        ({"servers": [{"tls": {"credentialName": "kubernetes-gateway://certs/s"}}]}, "certs/s certs/s-cacert"),
        # Names.
        ({"auth": {"adminExistingSecret": "s"}}, "shop/s"),
        ({"credentialsSecret": "s"}, "shop/s"),
        ({"secretRef": "s"}, "shop/s"),
        ({"secretRef": "other/s"}, "other/s"),
        ({"basicAuth": {"secret": "s"}}, "shop/s"),
        # Lists.
        ({"secrets": ["s", "t"]}, "shop/s shop/t"),
        ({"clientAuth": {"secretNames": ["s"]}}, "shop/s"),
        ({"imagePullSecrets": ["s"]}, "shop/s"),
        ({"imagePullSecrets": [{"name": "s"}]}, "shop/s"),
        ({"secretRefs": [{"name": "s"}, {"name": "t", "namespace": "other"}]}, "shop/s other/t"),
        # Objects.
        ({"env": [{"valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}, "shop/s"),
        ({"sources": [{"secret": {"name": "s"}}]}, "shop/s"),
        ({"writeConnectionSecretToRef": {"name": "s", "namespace": "other"}}, "other/s"),
        ({"basicAuth": {"username": {"name": "s", "key": "user"}}}, "shop/s"),
        # A namespace beside.
        ({"secretName": "s", "secretNamespace": "other"}, "other/s"),
        ({"secretRef": {"name": "s"}, "secretNamespace": "other"}, "other/s"),
        ({"tlsSecretName": "s", "tlsSecretNamespace": "other", "namespace": "third"}, "other/s"),
        ({"secrets": ["s"], "secretNamespace": "other"}, "other/s"),
        ({"auth": {"secretName": "s", "namespace": "other"}}, "other/s"),
        ({"secretName": "s", "secretNamespace": "${env}"}, "shop/s"),
        ({"secretName": "s", "secretNamespace": "*", "namespace": "other"}, "other/s"),
    ],
)  # fmt: skip
def test_shapes_of_secrets(spec: dict[str, Any], expected: str) -> None:
    assert guessed(spec) == {f"secrets/{name}" for name in expected.split()}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"valuesFrom": [{"kind": "ConfigMap", "name": "c"}]}, "configmaps/shop/c"),
        ({"configMaps": ["c"]}, "configmaps/shop/c"),
        ({"configMap": "c"}, "configmaps/shop/c"),
        ({"configMapName": "c", "configMapNamespace": "other"}, "configmaps/other/c"),
        ({"configMapRef": {"name": "c"}}, "configmaps/shop/c"),
        ({"env": [{"valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}, "configmaps/shop/c"),
        ({"template": {"serviceAccountName": "a"}}, "serviceaccounts/shop/a"),
        ({"persistence": {"existingClaim": "v"}}, "persistentvolumeclaims/shop/v"),
        ({"volumes": [{"persistentVolumeClaim": {"claimName": "v"}}]}, "persistentvolumeclaims/shop/v"),
    ],
)
def test_shapes_of_others(spec: dict[str, Any], expected: str) -> None:
    assert guessed(spec) == {expected}


@pytest.mark.parametrize(
    "spec",
    [
        {"certificateRefs": [{"group": "vault.example.com", "kind": "Secret", "name": "s"}]},
        {"certificateRefs": [{"group": ["core"], "kind": "Secret", "name": "s"}]},
        {"secretRef": {"apiVersion": "example.com/v1", "kind": "Secret", "name": "s"}},
        {"secretRef": {"kind": "VaultSecret", "name": "s"}},
        {"secretStoreRef": {"name": "s"}},
        {"service": {"name": "s"}},
        {"parameters": [{"name": "s", "value": "x", "key": "k"}]},
        [{"secretName": name} for name in ("Not A Name", "*", "", "a" * 254, "no/such/path", "x/")],
        {"secretRef": {"name": "*"}},
        {"secretRef": {"name": 7}},
        {"secrets": ["*", 7, None]},
        {"names": ["s"]},
        # As often the secret itself as the name of one.
        {"clientSecret": "s", "webhookSecret": "s", "secretKey": "s"},
    ],
)
def test_what_is_none(spec: dict[str, Any]) -> None:
    assert guessed(spec) == set()


def test_fields_outside_the_spec_and_their_paths() -> None:
    plain: dict[str, Any] = {
        "apiVersion": "example.com/v1",
        "kind": "Secret",
        "name": "s0",
        "secretName": "s1",
        "metadata": {"annotations": {"secretName": "s2"}},
        "status": {"secretName": "s3"},
        "data": {"secretRef": {"name": "s4"}},
    }
    plain["spec"] = {"a": [{"secretRef": {"name": "s", "optional": True}}, {"secrets": ["t"]}]}
    found = {reference.key: reference.use.path for reference in heuristic_references(plain, "shop")}
    assert found == {
        "secrets/shop/s1": "secretName",
        "secrets/shop/s4": "data.secretRef",
        "secrets/shop/s": "spec.a[].secretRef",
        "secrets/shop/t": "spec.a[].secrets[]",
    }


def test_there_are_no_more_guesses_than_fields_and_paths_are_short() -> None:
    deep: dict[str, Any] = {"secretName": "s"}
    for _ in range(3000):
        deep = {"level": deep}
    (found,) = heuristic_references({"spec": deep}, "shop")
    assert len(found.use.path) <= 160
    wide = {"secrets": ["s"] * 5000}
    assert len(list(heuristic_references({"spec": wide}, "shop"))) == 5000
    nested: Any = ["s"]
    for _ in range(3000):
        nested = [nested]
    (found,) = heuristic_references({"spec": {"secrets": nested}}, "shop")
    assert len(found.use.path) <= 160


def test_without_a_namespace_a_name_counts_in_every_namespace(cluster: Cluster) -> None:
    cluster.define("cert-manager.io", "ClusterIssuer", "Cluster")
    cluster.secret("account-key", "cert-manager")
    cluster.secret("account-key", "elsewhere")
    cluster.secret("other", "cert-manager")
    cluster.secret("stated", "cert-manager")
    cluster.secret("stated", "elsewhere")
    acme = {
        "privateKeySecretRef": {"name": "account-key"},
        "solver": {"secretRef": {"name": "stated", "namespace": "cert-manager"}},
    }
    cluster.add("cert-manager.io/v1", "ClusterIssuer", "letsencrypt", spec={"acme": acme})
    index = cluster.index()
    used = {
        secret: [(u.object.name, u.path, u.optional, u.heuristic) for u in users_of(index, node)]
        for secret in (
            "cert-manager/account-key", "elsewhere/account-key", "cert-manager/other",
            "cert-manager/stated", "elsewhere/stated",
        )
        if (node := node_of(index, f"/registry/secrets/{secret}")) is not None
    }  # fmt: skip
    account = ("letsencrypt", "spec.acme.privateKeySecretRef", False, True)
    stated = ("letsencrypt", "spec.acme.solver.secretRef", False, True)
    assert used == {
        "cert-manager/account-key": [account],
        "elsewhere/account-key": [account],
        "cert-manager/other": [],
        "cert-manager/stated": [stated],
        "elsewhere/stated": [],
    }


def test_a_field_longer_than_any_name_points_at_nothing() -> None:
    """Nor does it cost its length once more for each element of its list."""
    found = heuristic_references({"spec": {"x" * 300 + "SecretRef": [{"name": "db"}]}}, "shop")
    assert list(found) == []
    assert list(heuristic_references({"spec": {"x" * 200 + "SecretRef": [{"name": "db"}]}}, "shop"))
