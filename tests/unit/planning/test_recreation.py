from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.model import StoredValue
from etcdfix.planning.plan import build_plan
from etcdfix.planning.recreators import MARKS, NAME_RULES, OWNERS, RESOURCES, ComesBack, recreator_of_marks
from etcdfix.reports.plan_model import PlanEntry
from tests.support.impact_objects import Cluster, owner
from tests.support.lost_key import (
    CERT_MANAGER,
    EXTERNAL_SECRETS,
    KeptMemory,
    base,
    examiner_of,
    lose,
    request_for,
    scan_to,
)
from tests.support.memory_source import stored
from tests.support.objects import json_object


def entry_of(cluster: Cluster, key: str, folder: Path, *earlier: StoredValue) -> PlanEntry:
    """Lose one object, and return its entry; ``earlier`` are readable revisions that etcd still keeps."""
    if key in cluster.values and not cluster.values[key].startswith(b"k8s:enc:"):
        lose(cluster, key)
    source = KeptMemory(cluster.values, kept=earlier)
    path = scan_to(folder / "report.json", cluster, source=source)
    plan = build_plan(source, examiner_of(cluster, source), request_for(path))
    (entry,) = plan.entries
    return entry


def summary(entry: PlanEntry) -> tuple[str, str | None, str]:
    return entry.recreated_by, entry.recreate_confidence, entry.recreate_basis


# --------------------------------------------------------------------------------------- specs that name the Secret


@pytest.mark.parametrize(
    ("group", "kind", "name", "spec", "maker"),
    [
        (CERT_MANAGER, "Certificate", "site", {"secretName": "target"}, "cert-manager"),
        (CERT_MANAGER, "Issuer", "acme", {"acme": {"privateKeySecretRef": {"name": "target"}}}, "cert-manager"),
        (EXTERNAL_SECRETS, "ExternalSecret", "es", {"target": {"name": "target"}}, "External Secrets"),
        (EXTERNAL_SECRETS, "ExternalSecret", "target", {"target": {}}, "External Secrets"),
        ("bitnami.com", "SealedSecret", "target", {"encryptedData": {}}, "Sealed Secrets"),
        ("bitnami.com", "SealedSecret", "ss", {"template": {"metadata": {"name": "target"}}}, "Sealed Secrets"),
        ("secrets.hashicorp.com", "VaultStaticSecret", "v", {"destination": {"name": "target"}},
         "Vault Secrets Operator"),
        ("isindir.github.com", "SopsSecret", "s", {"secretTemplates": [{"name": "x"}, {"name": "target"}]},
         "sops-secrets-operator"),
        ("onepassword.com", "OnePasswordItem", "target", {}, "1Password operator"),
        ("secrets.infisical.com", "InfisicalSecret", "i", {"managedSecretReference": {"secretName": "target"}},
         "Infisical operator"),
        ("kafka.strimzi.io", "KafkaUser", "target", {}, "Strimzi"),
    ],
)  # fmt: skip
def test_a_spec_that_names_the_secret_is_certain(
    tmp_path: Path, group: str, kind: str, name: str, spec: dict[str, Any], maker: str
) -> None:
    cluster = base()
    cluster.define(group, kind)
    cluster.add(f"{group}/v1", kind, name, "shop", spec=spec)
    entry = entry_of(cluster, cluster.secret("target"), tmp_path)
    assert summary(entry) == (maker, "certain", f"named by {kind.lower()}s.{group} {name}")
    assert entry.comes_back == "by-itself"


@pytest.mark.parametrize(
    ("namespace", "spec"),
    [("pay", {"secretName": "target"}), ("shop", {"secretName": "another"}), ("shop", {"secretName": 7})],
)
def test_a_spec_elsewhere_or_of_another_secret_says_nothing(
    tmp_path: Path, namespace: str, spec: dict[str, Any]
) -> None:
    cluster = base()
    cluster.add(f"{CERT_MANAGER}/v1", "Certificate", "site", namespace, spec=spec)
    assert summary(entry_of(cluster, cluster.secret("target"), tmp_path)) == ("by hand", None, "")


def test_a_service_of_openshift_names_its_serving_certificate(tmp_path: Path) -> None:
    cluster = base()
    annotations = {"service.beta.openshift.io/serving-cert-secret-name": "target"}
    cluster.add("v1", "Service", "api", "shop", annotations=annotations, spec={"clusterIP": "10.0.0.1"})
    entry = entry_of(cluster, cluster.secret("target"), tmp_path)
    assert summary(entry) == ("OpenShift service-ca", "certain", "named by services api")


# ------------------------------------------------------------------------------------------ service-account tokens


def test_a_token_in_its_accounts_list(tmp_path: Path) -> None:
    cluster = base()
    cluster.add("v1", "ServiceAccount", "robot", "shop", secrets=[{"name": "robot-token-x7k2p"}])
    entry = entry_of(cluster, cluster.secret("robot-token-x7k2p"), tmp_path)
    assert entry.recreated_by == "service-account token controller"
    assert entry.recreate_confidence == "likely"
    assert entry.comes_back == "after-a-step"
    assert "since 1.24" in entry.recreate_how
    assert entry.what == "Secret (service-account token), used by serviceaccounts robot"


def test_a_token_by_name_alone_needs_its_account(tmp_path: Path) -> None:
    cluster = base()
    entry = entry_of(cluster, cluster.secret("robot-token-x7k2p"), tmp_path)
    assert entry.recreated_by == "by hand"
    cluster.add("v1", "ServiceAccount", "robot", "shop")
    assert summary(entry_of(cluster, entry.key, tmp_path)) == (
        "service-account token controller",
        "likely",
        "it is called after serviceaccounts shop/robot",
    )


def test_a_secret_in_a_list_that_a_pod_uses_too_is_no_token(tmp_path: Path) -> None:
    cluster = base()
    cluster.add("v1", "ServiceAccount", "robot", "shop", secrets=[{"name": "odd"}])
    key = cluster.secret("odd")
    entry = entry_of(cluster, key, tmp_path)
    assert summary(entry) == (
        "service-account token controller",
        "possible",
        "in the list of ServiceAccount robot",
    )
    container = {"name": "main", "envFrom": [{"secretRef": {"name": "odd"}}]}
    cluster.pod("web", spec={"containers": [container]})
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"


# ----------------------------------------------------------------------------------------------- by name and kind


@pytest.mark.parametrize(
    ("namespace", "name", "maker", "comes_back"),
    [
        ("shop", "sh.helm.release.v1.shop.v3", "Helm", "no"),
        ("kube-system", "bootstrap-token-abcdef", "kubeadm", "after-a-step"),
        ("shop", "bootstrap-token-abcdef", "by hand", "no"),
        ("kube-system", "kubeadm-certs", "kubeadm", "after-a-step"),
        ("shop", "kubeadm-certs", "by hand", "no"),
        ("kube-system", "sealed-secrets-key7x2pq", "Sealed Secrets", "no"),
        ("shop", "app.db.credentials.postgresql.acid.zalan.do", "postgres-operator", "by-itself"),
        ("shop", "robot-dockercfg-abcde", "by hand", "no"),
    ],
)
def test_secrets_by_their_names(
    tmp_path: Path, namespace: str, name: str, maker: str, comes_back: str
) -> None:
    cluster = base()
    entry = entry_of(cluster, cluster.secret(name, namespace), tmp_path)
    assert (entry.recreated_by, entry.comes_back) == (maker, comes_back)
    assert entry.recreate_confidence == (None if maker == "by hand" else "likely")


@pytest.mark.parametrize(
    ("group", "kind", "counterpart", "secret", "maker"),
    [
        ("kibana.k8s.elastic.co", "Kibana", "logs", "logs-kb-config", "Elastic Cloud on Kubernetes"),
        ("postgresql.cnpg.io", "Cluster", "pg", "pg-superuser", "CloudNativePG"),
        ("kafka.strimzi.io", "Kafka", "bus", "bus-cluster-ca-cert", "Strimzi"),
        ("monitoring.coreos.com", "Prometheus", "k8s", "prometheus-k8s-tls-assets-0", "Prometheus Operator"),
        ("monitoring.coreos.com", "Alertmanager", "main", "alertmanager-main-generated", "Prometheus Operator"),
    ],
)  # fmt: skip
def test_secrets_called_after_a_custom_resource(
    tmp_path: Path, group: str, kind: str, counterpart: str, secret: str, maker: str
) -> None:
    cluster = base()
    key = cluster.secret(secret)
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"
    cluster.define(group, kind)
    cluster.add(f"{group}/v1", kind, counterpart, "shop", spec={})
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, "likely")


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "namespace", "maker"),
    [
        ("v1", "ConfigMap", "kube-root-ca.crt", "shop", "kube-controller-manager"),
        ("v1", "ConfigMap", "coredns", "kube-system", "kubeadm"),
        ("v1", "ConfigMap", "settings", "shop", "by hand"),
        ("v1", "ServiceAccount", "default", "shop", "kube-controller-manager"),
        ("v1", "ServiceAccount", "robot", "shop", "by hand"),
        ("coordination.k8s.io/v1", "Lease", "node-1", "kube-node-lease", "kubelet"),
        ("coordination.k8s.io/v1", "Lease", "leader", "shop", "its holder"),
        ("v1", "Event", "happened", "shop", "nobody"),
        ("v1", "Node", "node-1", "", "kubelet"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "system:node", "", "kube-apiserver"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole", "shop-reader", "", "by hand"),
        ("discovery.k8s.io/v1", "EndpointSlice", "web-abcde", "shop", "kube-controller-manager"),
        ("v1", "PersistentVolumeClaim", "data-db-0", "shop", "by hand"),
    ],
)
def test_other_kinds(
    tmp_path: Path, api_version: str, kind: str, name: str, namespace: str, maker: str
) -> None:
    cluster = base()
    key = cluster.break_(cluster.add(api_version, kind, name, namespace))
    source = cluster.source()
    path = scan_to(tmp_path / "report.json", cluster)
    (entry,) = build_plan(source, examiner_of(cluster, source), request_for(path)).entries
    assert entry.key == key
    assert entry.recreated_by == maker


@pytest.mark.parametrize(
    ("api_version", "kind", "owner_name", "pod", "maker"),
    [
        ("apps/v1", "ReplicaSet", "web-6d4cf", "web-6d4cf-x7k2p", "ReplicaSet controller"),
        ("apps/v1", "DaemonSet", "agent", "agent-x7k2p", "DaemonSet controller"),
        ("apps/v1", "StatefulSet", "db", "db-0", "StatefulSet controller"),
        ("batch/v1", "Job", "once", "once-x7k2p", "Job controller"),
        ("v1", "ReplicationController", "old", "old-x7k2p", "ReplicationController"),
    ],
)
def test_pods_are_called_after_their_owners(
    tmp_path: Path, api_version: str, kind: str, owner_name: str, pod: str, maker: str
) -> None:
    cluster = base()
    key = cluster.break_(cluster.pod(pod))
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"
    cluster.add(api_version, kind, owner_name, "shop")
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence, entry.comes_back) == (maker, "likely", "by-itself")


def test_a_static_pod_is_called_after_its_node(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.break_(cluster.pod("etcd-node-1.example", "kube-system"))
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"
    cluster.add("v1", "Node", "node-1.example")
    assert summary(entry_of(cluster, key, tmp_path)) == (
        "kubelet",
        "likely",
        "it is called after node node-1.example",
    )


# --------------------------------------------------------------------- an earlier revision that can still be read


def earlier_revision(key: str, value: bytes) -> StoredValue:
    return stored(key, value, mod_revision=6, create_revision=5, version=1)


def test_the_owner_of_the_last_readable_revision(tmp_path: Path) -> None:
    cluster = base()
    cluster.add(f"{CERT_MANAGER}/v1", "Certificate", "site", "shop", spec={})
    owners = (
        owner("ConfigMap", "first", api_version="v1"),
        owner("Certificate", "site", api_version=f"{CERT_MANAGER}/v1", controller=True),
    )
    key = cluster.secret("target", owners=owners, type="kubernetes.io/tls")
    before = earlier_revision(key, cluster.values[key])
    entry = entry_of(cluster, key, tmp_path, before)
    assert summary(entry) == ("cert-manager", "certain", "owned by Certificate site, which is there")
    assert entry.readable_revision == 6
    assert entry.what == "Secret (TLS certificate)"


def test_an_owner_that_is_gone_or_another_one_is_only_possible(tmp_path: Path) -> None:
    cluster = base()
    cluster.add(f"{CERT_MANAGER}/v1", "Certificate", "site", "shop", uid="younger", spec={})
    key = cluster.secret("target", owners=(owner("Certificate", "site", api_version=f"{CERT_MANAGER}/v1"),))
    entry = entry_of(cluster, key, tmp_path, earlier_revision(key, cluster.values[key]))
    assert summary(entry) == ("cert-manager", "possible", "owned by Certificate site, which was not found")


def test_an_owner_of_a_kind_that_nobody_knows(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.secret("target", owners=(owner("Gadget", "g", api_version="example.com/v1"),))
    entry = entry_of(cluster, key, tmp_path, earlier_revision(key, cluster.values[key]))
    assert summary(entry) == ("controller of Gadget", "possible", "owned by Gadget g, which was not found")


def test_marks_and_type_of_the_last_readable_revision(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.secret("target", annotations={"meta.helm.sh/release-name": "shop"}, type="example.com/odd")
    entry = entry_of(cluster, key, tmp_path, earlier_revision(key, cluster.values[key]))
    assert summary(entry) == ("Helm", "likely", "it was marked meta.helm.sh/release-name")
    assert entry.what == "Secret (type example.com/odd)"


def test_a_token_of_the_last_readable_revision(tmp_path: Path) -> None:
    cluster = base()
    annotations = {"kubernetes.io/service-account.name": "robot"}
    key = cluster.secret("target", annotations=annotations, type="kubernetes.io/service-account-token")
    entry = entry_of(cluster, key, tmp_path, earlier_revision(key, cluster.values[key]))
    assert summary(entry) == (
        "service-account token controller",
        "certain",
        "it was a token of ServiceAccount robot",
    )


# ------------------------------------------------------------------------------------------------ readable siblings


def marked(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.secret(name, annotations={"kustomize.toolkit.fluxcd.io/name": "apps"})


def test_a_sibling_that_is_called_alike(tmp_path: Path) -> None:
    cluster = base()
    marked(cluster, "settings-2")
    cluster.secret("unmarked-1")
    entry = entry_of(cluster, cluster.secret("settings-1"), tmp_path)
    assert summary(entry) == (
        "Flux",
        "possible",
        "its sibling settings-2 is marked kustomize.toolkit.fluxcd.io/name",
    )


def test_siblings_that_are_nearly_all_marked(tmp_path: Path) -> None:
    cluster = base()
    marked(cluster, "alpha", "beta", "gamma", "delta")
    key = cluster.secret("target")
    lose(cluster, key)
    cluster.secret("unmarked")
    assert summary(entry_of(cluster, key, tmp_path)) == (
        "Flux",
        "possible",
        "4 of 5 readable secrets of its namespace are marked so",
    )
    cluster.secret("unmarked-too")
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"


def test_siblings_elsewhere_say_nothing(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.secret("target")
    lose(cluster, key)
    for name in ("alpha", "beta", "gamma"):
        cluster.secret(name, "pay", annotations={"kustomize.toolkit.fluxcd.io/name": "apps"})
        cluster.add("v1", "ConfigMap", name, "shop", annotations={"kustomize.toolkit.fluxcd.io/name": "apps"})
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"


def test_a_guess_counts_as_by_hand_in_the_order(tmp_path: Path) -> None:
    cluster = base()
    marked(cluster, "settings-2")
    guessed = cluster.secret("settings-1")
    helped = cluster.secret("robot-token-x7k2p")
    cluster.add("v1", "ServiceAccount", "robot", "shop")
    lose(cluster, guessed, helped)
    source = cluster.source()
    path = scan_to(tmp_path / "report.json", cluster)
    plan = build_plan(source, examiner_of(cluster, source), request_for(path))
    assert [entry.name for entry in plan.entries] == ["robot-token-x7k2p", "settings-1"]
    assert any("1 of them with a maker that is only guessed" in step.text for step in plan.steps)


# --------------------------------------------------------------------------------------------------- the table itself


def test_marks_that_say_most_win() -> None:
    both = ("meta.helm.sh/release-name", "helm.toolkit.fluxcd.io/name")
    found = recreator_of_marks({}, both)
    assert found is not None
    assert found[0].name == "Flux"
    found = recreator_of_marks({"app.kubernetes.io/managed-by": "Helm"}, ())
    assert found is not None
    assert (found[0].name, found[1]) == ("Helm", "app.kubernetes.io/managed-by=Helm")
    assert recreator_of_marks({"app.kubernetes.io/managed-by": "me", "app": "x"}, ("note",)) is None


def test_who_needs_a_step_says_which() -> None:
    everybody = {
        *(rule.recreator for rule in NAME_RULES),
        *(recreator for _, recreator in MARKS),
        *OWNERS.values(),
        *RESOURCES.values(),
    }
    for recreator in everybody:
        assert recreator.how or recreator.comes_back is ComesBack.BY_ITSELF, recreator.name


def test_a_rule_with_a_counterpart_names_it() -> None:
    assert all(rule.pattern.groups == bool(rule.counterpart) for rule in NAME_RULES)


def test_a_custom_resource_that_is_no_object_is_passed_over(tmp_path: Path) -> None:
    cluster = base()
    key = cluster.key(f"{CERT_MANAGER}/certificates", "shop", "site")
    cluster.values[key] = json_object(f"{CERT_MANAGER}/v1", "Certificate", "site", spec=["secretName"])
    assert entry_of(cluster, cluster.secret("target"), tmp_path).recreated_by == "by hand"
