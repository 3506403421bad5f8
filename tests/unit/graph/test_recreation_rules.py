from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.graph.recreation_rules import (
    MAKERS,
    RULES,
    ComesBack,
    Maker,
    OwnershipLabel,
    labels_of,
)
from tests.support.impact_objects import Cluster
from tests.support.lost_key import base
from tests.support.objects import crd, json_object
from tests.unit.graph.test_recreation import NOBODY, entry_of, of_history, openshift, summary

RBAC, FLOW = "rbac.authorization.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1"


# ------------------------------------------------------------------------------------------- names that stand alone


@pytest.mark.parametrize(
    ("namespace", "name", "maker", "confidence", "comes_back"),
    [
        ("shop", "sh.helm.release.v1.shop.v3", "Helm", "likely", "no"),
        ("kube-system", "sealed-secrets-key7x2pq", "Sealed Secrets", "likely", "no"),
        ("kube-system", "bootstrap-token-abcdef", "by hand", None, "no"),
        ("shop", "bootstrap-token-abcdef", "by hand", None, "no"),
        ("kube-system", "kubeadm-certs", "by hand", None, "no"),
        ("shop", "kubeadm-certs", "by hand", None, "no"),
        ("shop", "app.db.credentials.postgresql.acid.zalan.do", "by hand", None, "no"),
        ("shop", "robot-dockercfg-x7k2p", "by hand", None, "no"),
        ("shop", "cert-manager-webhook-ca", "cert-manager", "likely", "by-itself"),
    ],
)
def test_secrets_by_their_names(
    tmp_path: Path, namespace: str, name: str, maker: str, confidence: str | None, comes_back: str
) -> None:
    cluster = base()
    entry = entry_of(cluster, cluster.secret(name, namespace), tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence, entry.comes_back) == (
        maker,
        confidence,
        comes_back,
    )


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "namespace", "maker", "confidence"),
    [
        ("v1", "ConfigMap", "kube-root-ca.crt", "shop", "kube-controller-manager", "likely"),
        ("v1", "ConfigMap", "kube-root-ca.crt", "gone", "by hand", None),
        ("v1", "ConfigMap", "coredns", "kube-system", "by hand", None),
        ("v1", "ConfigMap", "coredns", "shop", "by hand", None),
        ("v1", "ServiceAccount", "default", "shop", "kube-controller-manager", "likely"),
        ("v1", "Namespace", "kube-public", "", "kube-apiserver", "likely"),
        ("coordination.k8s.io/v1", "Lease", "leader", "shop", "its holder", "likely"),
        ("v1", "Event", "happened", "shop", "nobody", "likely"),
        ("v1", "Node", "node-1", "", "kubelet", "likely"),
        ("v1", "Endpoints", "kubernetes", "default", "kube-apiserver", "likely"),
        ("v1", "PersistentVolumeClaim", "data-db-0", "shop", "by hand", None),
        (RBAC, "ClusterRole", "system:node", "", "kube-apiserver", "likely"),
        (RBAC, "ClusterRole", "system:controller:job-controller", "", "kube-apiserver", "likely"),
        (RBAC, "ClusterRole", "system:controller:newer-controller", "", "by hand", None),
        (RBAC, "ClusterRole", "system:metrics-server", "", "by hand", None),
        (RBAC, "ClusterRoleBinding", "cluster-admin", "", "kube-apiserver", "likely"),
        (RBAC, "Role", "system:controller:token-cleaner", "kube-system", "kube-apiserver", "likely"),
        (RBAC, "Role", "system:controller:token-cleaner", "shop", "by hand", None),
        (RBAC, "Role", "system:controller:bootstrap-signer", "kube-public", "kube-apiserver", "likely"),
        (
            RBAC,
            "RoleBinding",
            "system::leader-locking-kube-scheduler",
            "kube-system",
            "kube-apiserver",
            "likely",
        ),
        (FLOW, "FlowSchema", "kube-scheduler", "", "kube-apiserver", "likely"),
        (FLOW, "PriorityLevelConfiguration", "workload-low", "", "kube-apiserver", "likely"),
    ],
)
def test_other_kinds(
    tmp_path: Path, api_version: str, kind: str, name: str, namespace: str, maker: str, confidence: str | None
) -> None:
    cluster = base()
    entry = entry_of(cluster, cluster.add(api_version, kind, name, namespace), tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, confidence)


# ------------------------------------------------------------------------------------------- names beside an object


@pytest.mark.parametrize(
    ("kind", "name", "maker"),
    [
        ("ServiceAccount", "deployer", "OpenShift"),
        ("ServiceAccount", "builder", "OpenShift"),
        ("ConfigMap", "openshift-service-ca.crt", "OpenShift service-ca"),
        ("Secret", "default-dockercfg-x7k2p", "OpenShift"),
    ],
)
def test_openshift_makes_objects_in_openshift_only(tmp_path: Path, kind: str, name: str, maker: str) -> None:
    cluster = base()
    cluster.add("v1", "ServiceAccount", "default", "shop", secrets=[{"name": "default-dockercfg-x7k2p"}])
    key = cluster.add("v1", kind, name, "shop")
    assert "OpenShift" not in entry_of(cluster, key, tmp_path).recreated_by
    openshift(cluster)
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, "likely")


# --------------------------------------------------------------------------------- names after an object that is there

ECK, PROMETHEUS = "Elastic Cloud on Kubernetes", "Prometheus Operator"
ELASTIC = ("elasticsearch.k8s.elastic.co", "elasticsearches", "Elasticsearch", "logs")
CNPG = ("postgresql.cnpg.io", "clusters", "Cluster", "pg")
KAFKA = ("kafka.strimzi.io", "kafkas", "Kafka", "bus")
METRICS = ("monitoring.coreos.com", "prometheuses", "Prometheus", "k8s")


def custom(cluster: Cluster, resource: tuple[str, str, str, str], spec: dict[str, Any] | None = None) -> None:
    """Add a CRD and one object of it."""
    group, plural, kind, name = resource
    cluster.values[f"/registry/apiextensions.k8s.io/customresourcedefinitions/{plural}.{group}"] = crd(
        plural, group, kind=kind, scope="Namespaced"
    )
    cluster.values[f"/registry/{group}/{plural}/shop/{name}"] = json_object(
        f"{group}/v1", kind, name, spec=spec or {}
    )


@pytest.mark.parametrize(
    ("resource", "secret", "maker", "confidence"),
    [
        (ELASTIC, "logs-es-elastic-user", ECK, "likely"),
        (ELASTIC, "logs-es-http-certs-internal", ECK, "likely"),
        (ELASTIC, "logs-es-default-es-config", ECK, "likely"),
        (ELASTIC, "logs-es-s3-credentials", "by hand", None),
        (("kibana.k8s.elastic.co", "kibanas", "Kibana", "logs"), "logs-kb-config", ECK, "likely"),
        (("kibana.k8s.elastic.co", "kibanas", "Kibana", "logs"), "logs-kb-mine", "by hand", None),
        (CNPG, "pg-superuser", "CloudNativePG", "likely"),
        (CNPG, "pg-app", "CloudNativePG", "likely"),
        (KAFKA, "bus-kafka-brokers", "Strimzi", "likely"),
        (KAFKA, "bus-cluster-ca", "by hand", None),
        (METRICS, "prometheus-k8s-tls-assets-0", PROMETHEUS, "likely"),
        (METRICS, "prometheus-k8s", PROMETHEUS, "likely"),
        (METRICS, "prometheus-k8s-additional-scrape-configs", "by hand", None),
        (
            ("monitoring.coreos.com", "alertmanagers", "Alertmanager", "main"),
            "alertmanager-main-generated", PROMETHEUS, "likely",
        ),
        (
            ("acid.zalan.do", "postgresqls", "postgresql", "db"),
            "app.db.credentials.postgresql.acid.zalan.do", "postgres-operator", "likely",
        ),
    ],
)  # fmt: skip
def test_secrets_called_after_a_custom_resource(
    tmp_path: Path, resource: tuple[str, str, str, str], secret: str, maker: str, confidence: str | None
) -> None:
    cluster = base()
    key = cluster.secret(secret)
    assert summary(entry_of(cluster, key, tmp_path)) == NOBODY
    custom(cluster, resource)
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, confidence)


@pytest.mark.parametrize("path", [("bootstrap", "initdb", "secret"), ("superuserSecret",)])
def test_a_secret_that_its_resource_is_told_to_use_is_the_users_own(
    tmp_path: Path, path: tuple[str, ...]
) -> None:
    cluster = base()
    spec: dict[str, Any] = {"name": "pg-app"}
    for name in reversed(path):
        spec = {name: spec}
    custom(cluster, CNPG, spec)
    assert summary(entry_of(cluster, cluster.secret("pg-app"), tmp_path)) == NOBODY
    other = base()
    custom(other, CNPG, spec)
    other.define("example.com", "Gadget")  # whoever else uses it does not matter
    other.add("example.com/v1", "Gadget", "g", "shop", spec={"secretName": "pg-superuser"})
    assert entry_of(other, other.secret("pg-superuser"), tmp_path).recreated_by == "CloudNativePG"


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


@pytest.mark.parametrize(
    ("above", "api_version", "kind", "name", "made"),
    [
        ("Deployment", "apps/v1", "ReplicaSet", "web-6d4cf7b9c", True),
        ("Deployment", "apps/v1", "ReplicaSet", "web-canary", False),
        ("DaemonSet", "v1", "Pod", "web-debug", False),
        ("DaemonSet", "v1", "Pod", "web-x7k2p", True),
        ("ServiceAccount", "v1", "Secret", "web-token-admin", False),
        ("ServiceAccount", "v1", "Secret", "web-token-x7k2p", True),
        ("CronJob", "batch/v1", "Job", "web-29012345", True),
        ("CronJob", "batch/v1", "Job", "web-1609459200", True),
        ("CronJob", "batch/v1", "Job", "web-20240101", False),
    ],
)
def test_words_and_dates_are_no_suffixes(
    tmp_path: Path, above: str, api_version: str, kind: str, name: str, *, made: bool
) -> None:
    cluster = base()
    version = {"CronJob": "batch/v1", "ServiceAccount": "v1"}.get(above, "apps/v1")
    cluster.add(version, above, "web", "shop")
    entry = entry_of(cluster, cluster.add(api_version, kind, name, "shop"), tmp_path)
    assert (entry.recreated_by != "by hand") is made


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "namespace"),
    [
        ("v1", "Pod", "etcd-node-1.example", "kube-system"),
        ("coordination.k8s.io/v1", "Lease", "node-1.example", "kube-node-lease"),
    ],
)
def test_what_a_kubelet_makes_is_called_after_its_node(
    tmp_path: Path, api_version: str, kind: str, name: str, namespace: str
) -> None:
    cluster = base()
    key = cluster.add(api_version, kind, name, namespace)
    assert entry_of(cluster, key, tmp_path).recreated_by in ("by hand", "its holder")
    cluster.add("v1", "Node", "node-1.example")
    expected = ("kubelet", "likely", "it is called after nodes node-1.example")
    assert summary(entry_of(cluster, key, tmp_path)) == expected


@pytest.mark.parametrize("type_", ["Opaque", "helm.sh/release.v1"])
def test_a_known_type_that_does_not_fit_the_name(tmp_path: Path, type_: str) -> None:
    cluster = base()
    entry = of_history(cluster, cluster.secret("sh.helm.release.v1.shop.v3", type=type_), tmp_path)
    assert (entry.recreated_by == "Helm") is (type_ != "Opaque")


# ------------------------------------------------------------------------------------------------------------ labels


def made_by(labels: dict[str, str], annotations: tuple[str, ...] = (), path: str = "secrets") -> Maker | None:
    """Return who the first label speaks for."""
    label = next(labels_of(labels, annotations, path), None)
    return MAKERS[label.recreated_by] if label is not None else None


@pytest.mark.parametrize("path", ["deployments", "kafka.strimzi.io/kafkatopics", "persistentvolumeclaims"])
@pytest.mark.parametrize("label", [label for label in RULES.labels if "secrets" in label.paths], ids=str)
def test_labels_of_operators_count_on_what_they_make(path: str, label: OwnershipLabel) -> None:
    labels = {label.name: label.value or "x"}
    assert made_by(labels) is MAKERS[label.recreated_by]
    if path not in label.paths:
        assert made_by(labels, path=path) is None


# --------------------------------------------------------------------------------------------------- the table itself


def test_no_two_rows_answer_the_same_question() -> None:
    for keys in (
        [(rule.group, rule.kind, rule.makes) for rule in RULES.owners],
        [(rule.group, rule.resource) for rule in RULES.sole_writers],
        [rule.path for rule in RULES.specs],
    ):
        assert len(set(keys)) == len(keys)


def test_no_owner_makes_what_stands_for_data() -> None:
    assert not {rule.makes for rule in RULES.owners} & {rule.path for rule in RULES.never}


def test_by_name_alone_nothing_of_an_operator_comes_back() -> None:
    own = {"kube-apiserver", "kube-controller-manager", "kubelet"}
    for rule in RULES.names:
        maker = MAKERS[rule.recreated_by]
        alone = not rule.counterpart and not rule.beside and not maker.openshift
        if alone and maker.name not in own:
            assert maker.comes_back is ComesBack.NO, rule
