from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.plan import build_plan
from etcdfix.graph.recreation import (
    MAKERS,
    RULES,
    TOKEN_TYPE,
    ComesBack,
    claimed_secrets,
)
from etcdfix.model.model import StoredValue
from etcdfix.report.plan import PlanEntry
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
from tests.support.objects import crd, json_object


def entry_of(cluster: Cluster, key: str, folder: Path, *earlier: StoredValue) -> PlanEntry:
    """Lose one object, and return its entry; ``earlier`` are readable revisions that etcd still keeps."""
    if key in cluster.values and not cluster.values[key].startswith(b"k8s:enc:"):
        lose(cluster, key)
    source = KeptMemory(cluster.values, kept=earlier)
    path = scan_to(folder / "report.json", cluster, source=source)
    plan = build_plan(source, examiner_of(cluster, source), request_for(path))
    (entry,) = plan.entries
    return entry


NOBODY = ("by hand", None, "")


@pytest.fixture
def cluster() -> Cluster:
    return base()


def openshift(cluster: Cluster) -> None:
    """Make it a cluster of OpenShift."""
    cluster.define("route.openshift.io", "Route")


def summary(entry: PlanEntry) -> tuple[str, str | None, str]:
    return entry.recreated_by, entry.recreate_confidence, entry.recreate_basis


@pytest.mark.parametrize(
    ("group", "kind", "name", "spec", "maker"),
    [
        (CERT_MANAGER, "Certificate", "site", {"secretName": "target"}, "cert-manager"),
        (CERT_MANAGER, "Issuer", "acme", {"acme": {"privateKeySecretRef": {"name": "target"}}}, "cert-manager"),
        (EXTERNAL_SECRETS, "ExternalSecret", "es", {"target": {"name": "target"}}, "External Secrets"),
        (EXTERNAL_SECRETS, "ExternalSecret", "target", {"target": {}}, "External Secrets"),
        ("bitnami.com", "SealedSecret", "target", {"encryptedData": {}}, "Sealed Secrets"),
        ("secrets.hashicorp.com", "VaultStaticSecret", "v", {"destination": {"name": "target", "create": True}},
         "Vault Secrets Operator"),
        ("isindir.github.com", "SopsSecret", "s", {"secretTemplates": [{"name": "x"}, {"name": "target"}]},
         "sops-secrets-operator"),
        ("onepassword.com", "OnePasswordItem", "target", {}, "1Password operator"),
        ("secrets.infisical.com", "InfisicalSecret", "i",
         {"managedSecretReference": {"secretName": "target", "secretNamespace": "shop"}}, "Infisical operator"),
        ("kafka.strimzi.io", "KafkaUser", "target", {"authentication": {"type": "tls"}}, "Strimzi"),
    ],
)  # fmt: skip
def test_a_spec_that_names_the_secret_is_certain(
    cluster: Cluster, tmp_path: Path, group: str, kind: str, name: str, spec: dict[str, Any], maker: str
) -> None:
    cluster.define(group, kind)
    cluster.add(f"{group}/v1", kind, name, "shop", spec=spec)
    entry = entry_of(cluster, cluster.secret("target"), tmp_path)
    assert summary(entry) == (maker, "certain", f"named by {kind.lower()}s.{group} {name}")
    assert entry.comes_back == "by-itself"


def test_a_service_of_openshift_names_its_serving_certificate(cluster: Cluster, tmp_path: Path) -> None:
    annotations = {"service.beta.openshift.io/serving-cert-secret-name": "target"}
    cluster.add("v1", "Service", "api", "shop", annotations=annotations, spec={"clusterIP": "10.0.0.1"})
    key = cluster.secret("target")
    assert summary(entry_of(cluster, key, tmp_path)) == NOBODY
    openshift(cluster)
    assert summary(entry_of(cluster, key, tmp_path)) == (
        "OpenShift service-ca",
        "certain",
        "named by services api",
    )


def test_a_token_in_its_accounts_list(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add("v1", "ServiceAccount", "robot", "shop", secrets=[{"name": "robot-token-x7k2p"}])
    entry = entry_of(cluster, cluster.secret("robot-token-x7k2p"), tmp_path)
    assert entry.recreated_by == "service-account token controller"
    assert (entry.recreate_confidence, entry.comes_back) == ("likely", "after-a-step")
    assert "since 1.24" in entry.recreate_how
    assert entry.what == "Secret, used by serviceaccounts robot"


def earlier_revision(key: str, value: bytes) -> StoredValue:
    return stored(key, value, mod_revision=6, create_revision=5, version=1)


def test_the_owner_of_the_last_readable_revision(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add(f"{CERT_MANAGER}/v1", "Certificate", "site", "shop", spec={})
    owners = (
        owner("ConfigMap", "first", api_version="v1"),
        owner("Certificate", "site", api_version=f"{CERT_MANAGER}/v1", controller=True),
    )
    key = cluster.secret("target", owners=owners, type="kubernetes.io/tls")
    before = earlier_revision(key, cluster.values[key])
    entry = entry_of(cluster, key, tmp_path, before)
    assert summary(entry) == ("cert-manager", "certain", "owned by Certificate site, which is there")
    assert f" --revision {entry.mod_revision - 1} " in entry.save  # up to there it stood
    assert entry.what == "Secret (kubernetes.io/tls)"


def of_history(cluster: Cluster, key: str, folder: Path) -> PlanEntry:
    """Lose an object of which etcd keeps the readable revision."""
    return entry_of(cluster, key, folder, earlier_revision(key, cluster.values[key]))


CERTIFICATE = f"{CERT_MANAGER}/v1"


@pytest.mark.parametrize(
    ("settings", "controller"), [({"uid": "younger"}, True), ({"terminating": True}, True), ({}, False)]
)
def test_an_owner_that_does_not_answer_for_it_makes_nothing(
    cluster: Cluster, tmp_path: Path, settings: dict[str, Any], controller: bool
) -> None:
    cluster.add(CERTIFICATE, "Certificate", "site", "shop", spec={}, **settings)
    reference = owner("Certificate", "site", api_version=CERTIFICATE, controller=controller)
    key = cluster.secret("target", owners=(reference,))
    assert summary(of_history(cluster, key, tmp_path)) == NOBODY


@pytest.mark.parametrize("controller", [True, False])
@pytest.mark.parametrize(
    ("kind", "api_version"),
    [
        ("Deployment", "apps/v1"), ("StatefulSet", "apps/v1"), ("ConfigMap", "v1"), ("Service", "v1"),
        ("Pod", "v1"),
    ],
)  # fmt: skip
def test_what_no_controller_of_kubernetes_makes_only_goes_with_its_owner(
    cluster: Cluster, tmp_path: Path, kind: str, api_version: str, *, controller: bool
) -> None:
    cluster.add(api_version, kind, "web", "shop")
    reference = owner(kind, "web", api_version=api_version, controller=controller)
    assert summary(of_history(cluster, cluster.secret("mine", owners=(reference,)), tmp_path)) == NOBODY


@pytest.mark.parametrize(
    ("kind", "api_version", "made", "made_version", "maker", "comes_back"),
    [
        ("Deployment", "apps/v1", "ReplicaSet", "apps/v1", "Deployment controller", "by-itself"),
        ("ReplicaSet", "apps/v1", "Pod", "v1", "ReplicaSet controller", "by-itself"),
        ("ReplicaSet", "extensions/v1beta1", "Pod", "v1", "ReplicaSet controller", "by-itself"),
        ("StatefulSet", "apps/v1", "ControllerRevision", "apps/v1", "StatefulSet controller", "by-itself"),
        ("CronJob", "batch/v1", "Job", "batch/v1", "CronJob controller", "not-needed"),
        ("Service", "v1", "EndpointSlice", "discovery.k8s.io/v1", "kube-controller-manager", "by-itself"),
        ("Endpoints", "v1", "EndpointSlice", "discovery.k8s.io/v1", "kube-controller-manager", "by-itself"),
    ],
)
def test_what_a_controller_of_kubernetes_makes_for_an_owner_that_is_there(
    cluster: Cluster,
    tmp_path: Path,
    kind: str,
    api_version: str,
    made: str,
    made_version: str,
    maker: str,
    comes_back: str,
) -> None:
    stored_version = "apps/v1" if api_version.startswith("extensions") else api_version
    cluster.add(stored_version, kind, "web", "shop")
    reference = owner(kind, "web", api_version=api_version, controller=True)
    key = cluster.add(made_version, made, "anything", "shop", owners=(reference,))
    entry = of_history(cluster, key, tmp_path)
    assert summary(entry) == (maker, "certain", f"owned by {kind} web, which is there")
    assert entry.comes_back == comes_back


def test_a_claim_is_never_said_to_come_back(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add("apps/v1", "StatefulSet", "db", "shop")
    key = cluster.add(
        "v1", "PersistentVolumeClaim", "data-db-0", "shop",
        owners=(owner("StatefulSet", "db", controller=True),), annotations={"meta.helm.sh/release-name": "shop"},
    )  # fmt: skip
    entry = of_history(cluster, key, tmp_path)
    assert summary(entry) == NOBODY
    assert entry.comes_back == "no"
    assert "makes an EMPTY one" in entry.recreate_how


def test_names_out_of_objects_are_safe_and_short(cluster: Cluster, tmp_path: Path) -> None:
    hostile = "X\x1b]0;pwned\x07" + "\u202e" * 200
    annotations = {"kubernetes.io/service-account.name": hostile}
    key = cluster.secret("target", annotations=annotations, type=TOKEN_TYPE)
    text = of_history(cluster, key, tmp_path).recreate_basis
    assert text.isprintable()
    assert r"X\x1b]0;pwned\x07" in text
    assert len(text) < 300


@pytest.mark.parametrize(
    ("kind", "api_version", "settings", "makers"),
    [
        ("Secret", "v1", {"reconcile.external-secrets.io/created-by": "x"}, NOBODY[:2]),
        ("Secret", "v1", {"reconcile.external-secrets.io/data-hash": "x"}, NOBODY[:2]),  # of Merge too
        ("Secret", "v1", {"cnpg.io/reload": "true"}, NOBODY[:2]),  # users put it on their own
        ("Secret", "v1", {"cnpg.io/operatorVersion": "1.27"}, ("CloudNativePG", "likely")),
        ("Deployment", "apps/v1", {"cnpg.io/operatorVersion": "1.27"}, NOBODY[:2]),
        ("Secret", "v1", {"app.kubernetes.io/managed-by": "strimzi-user-operator"}, ("Strimzi", "likely")),
        ("Secret", "v1", {"app.kubernetes.io/managed-by": "somebody"}, NOBODY[:2]),
        ("Deployment", "apps/v1", {"argocd.argoproj.io/tracking-id": "x"}, ("Argo CD", "likely")),
    ],
)
def test_marks_of_the_last_readable_revision(
    cluster: Cluster,
    tmp_path: Path,
    kind: str,
    api_version: str,
    settings: dict[str, str],
    makers: tuple[str, str | None],
) -> None:
    key = cluster.add(api_version, kind, "target", "shop", annotations=settings, labels=settings)
    assert summary(of_history(cluster, key, tmp_path))[:2] == makers


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "makers"),
    [
        ("v1", "Endpoints", "web", ("kube-controller-manager", "likely")),
        ("v1", "Endpoints", "other", NOBODY[:2]),
        ("discovery.k8s.io/v1", "EndpointSlice", "web-x7k2p", ("kube-controller-manager", "likely")),
        ("discovery.k8s.io/v1", "EndpointSlice", "web", NOBODY[:2]),
        ("v1", "ConfigMap", "web", NOBODY[:2]),
    ],
)
def test_endpoints_are_kept_for_services_with_a_selector(cluster: Cluster,
    tmp_path: Path, api_version: str, kind: str, name: str,
    makers: tuple[str, str | None],
) -> None:  # fmt: skip
    cluster.add("v1", "Service", "web", "shop", spec={"selector": {"app": "web"}})
    key = cluster.add(api_version, kind, name, "shop")
    entry = entry_of(cluster, key, tmp_path)
    assert summary(entry)[:2] == makers
    if kind == "EndpointSlice":
        del cluster.values[key]
        key = cluster.add(api_version, kind, name, "shop")
        assert summary(of_history(cluster, key, tmp_path)) == NOBODY


def test_a_token_of_the_last_readable_revision(cluster: Cluster, tmp_path: Path) -> None:
    annotations = {"kubernetes.io/service-account.name": "robot"}
    key = cluster.secret("target", annotations=annotations, type="kubernetes.io/service-account-token")
    entry = entry_of(cluster, key, tmp_path, earlier_revision(key, cluster.values[key]))
    assert summary(entry) == (
        "service-account token controller",
        "certain",
        "it was a token of ServiceAccount robot",
    )


def claimed(resource: str, spec: Any, *, name: str = "own") -> list[tuple[str, str]]:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith(f"/{resource}"))
    return claimed_secrets(rule, "shop", name, {"spec": spec})


def test_what_is_being_deleted_creates_nothing() -> None:
    (rule,) = (rule for rule in RULES.specs if rule.path.endswith("/certificates"))
    whole: dict[str, Any] = {"metadata": {"name": "own"}, "spec": {"secretName": "x"}}
    assert claimed_secrets(rule, "shop", "own", whole) == [("shop", "x")]
    whole["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    assert claimed_secrets(rule, "shop", "own", whole) == []


def policy(value: Any) -> dict[str, Any]:
    return {"target": {"name": "x", "creationPolicy": value}}


@pytest.mark.parametrize(
    ("resource", "spec", "found"),
    [
        *(("externalsecrets", policy(one), [("shop", "x")]) for one in (None, "", "Owner", "Orphan")),
        *(("externalsecrets", policy(one), []) for one in ("Merge", "None", "Something", ["Owner"])),
        ("externalsecrets", {}, [("shop", "own")]),
        ("externalsecrets", {"target": {"creationPolicy": "Merge"}}, []),
        ("externalsecrets", {"target": {"manifest": {"kind": "ConfigMap"}}}, []),
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
def test_specs_that_name_a_secret(resource: str, spec: Any, found: list[tuple[str, str]]) -> None:
    assert claimed(resource, spec) == found


RBAC, FLOW = "rbac.authorization.k8s.io/v1", "flowcontrol.apiserver.k8s.io/v1"


@pytest.mark.parametrize(
    ("api_version", "kind", "name", "namespace", "maker"),
    [
        ("v1", "Secret", "sh.helm.release.v1.shop.v3", "shop", "Helm"),
        ("v1", "Secret", "sealed-secrets-key7x2pq", "kube-system", "Sealed Secrets"),
        ("v1", "Secret", "bootstrap-token-abcdef", "kube-system", "by hand"),
        ("v1", "Secret", "kubeadm-certs", "kube-system", "by hand"),
        ("v1", "Secret", "app.db.credentials.postgresql.acid.zalan.do", "shop", "by hand"),
        ("v1", "Secret", "robot-dockercfg-x7k2p", "shop", "by hand"),
        ("v1", "Secret", "cert-manager-webhook-ca", "shop", "cert-manager"),
        ("v1", "ConfigMap", "kube-root-ca.crt", "shop", "kube-controller-manager"),
        ("v1", "ConfigMap", "kube-root-ca.crt", "gone", "by hand"),
        ("v1", "ConfigMap", "coredns", "kube-system", "by hand"),
        ("v1", "ServiceAccount", "default", "shop", "kube-controller-manager"),
        ("v1", "Namespace", "kube-public", "", "kube-apiserver"),
        ("coordination.k8s.io/v1", "Lease", "leader", "shop", "its holder"),
        ("v1", "Node", "node-1", "", "kubelet"),
        ("v1", "Endpoints", "kubernetes", "default", "kube-apiserver"),
        ("v1", "PersistentVolumeClaim", "data-db-0", "shop", "by hand"),
        (RBAC, "ClusterRole", "system:node", "", "kube-apiserver"),
        (RBAC, "ClusterRole", "system:controller:job-controller", "", "kube-apiserver"),
        (RBAC, "ClusterRole", "system:controller:newer-controller", "", "by hand"),
        (RBAC, "Role", "system:controller:token-cleaner", "kube-system", "kube-apiserver"),
        (RBAC, "Role", "system:controller:token-cleaner", "shop", "by hand"),
        (FLOW, "FlowSchema", "kube-scheduler", "", "kube-apiserver"),
    ],
)
def test_a_name_alone_is_likely_at_most(
    cluster: Cluster, tmp_path: Path, api_version: str, kind: str, name: str, namespace: str, maker: str
) -> None:
    entry = entry_of(cluster, cluster.add(api_version, kind, name, namespace), tmp_path)
    confidence = None if maker == "by hand" else "likely"
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, confidence)


@pytest.mark.parametrize(
    ("kind", "name", "maker"),
    [
        ("ServiceAccount", "deployer", "OpenShift"),
        ("ServiceAccount", "builder", "OpenShift"),
        ("ConfigMap", "openshift-service-ca.crt", "OpenShift service-ca"),
        ("Secret", "default-dockercfg-x7k2p", "OpenShift"),
    ],
)
def test_openshift_makes_objects_in_openshift_only(
    cluster: Cluster, tmp_path: Path, kind: str, name: str, maker: str
) -> None:
    cluster.add("v1", "ServiceAccount", "default", "shop", secrets=[{"name": "default-dockercfg-x7k2p"}])
    key = cluster.add("v1", kind, name, "shop")
    assert "OpenShift" not in entry_of(cluster, key, tmp_path).recreated_by
    openshift(cluster)
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, "likely")


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
        (ELASTIC, "logs-es-s3-credentials", "by hand", None),
        (CNPG, "pg-app", "CloudNativePG", "likely"),
        (KAFKA, "bus-kafka-brokers", "Strimzi", "likely"),
        (KAFKA, "bus-cluster-ca", "by hand", None),
        (METRICS, "prometheus-k8s-tls-assets-0", PROMETHEUS, "likely"),
        (
            ("acid.zalan.do", "postgresqls", "postgresql", "db"),
            "app.db.credentials.postgresql.acid.zalan.do", "postgres-operator", "likely",
        ),
    ],
)  # fmt: skip
def test_secrets_called_after_a_custom_resource(
    cluster: Cluster,
    tmp_path: Path,
    resource: tuple[str, str, str, str],
    secret: str,
    maker: str,
    confidence: str | None,
) -> None:
    key = cluster.secret(secret)
    assert summary(entry_of(cluster, key, tmp_path)) == NOBODY
    custom(cluster, resource)
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (maker, confidence)


@pytest.mark.parametrize("path", [("bootstrap", "initdb", "secret"), ("superuserSecret",)])
def test_a_secret_that_its_resource_is_told_to_use_is_the_users_own(
    cluster: Cluster, tmp_path: Path, path: tuple[str, ...]
) -> None:
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
    ("above", "made", "maker"),
    [
        (("apps/v1", "ReplicaSet", "web"), ("v1", "Pod", "web-x7k2p"), "ReplicaSet controller"),
        (("apps/v1", "StatefulSet", "web"), ("v1", "Pod", "web-0"), "StatefulSet controller"),
        (("apps/v1", "DaemonSet", "web"), ("v1", "Pod", "web-x7k2p"), "DaemonSet controller"),
        (("batch/v1", "Job", "web"), ("v1", "Pod", "web-x7k2p"), "Job controller"),
        (("apps/v1", "Deployment", "web"), ("apps/v1", "ReplicaSet", "web-6d4cf7b9c"), "Deployment controller"),
        (("batch/v1", "CronJob", "web"), ("batch/v1", "Job", "web-29012345"), "CronJob controller"),
        (("batch/v1", "CronJob", "web"), ("batch/v1", "Job", "web-1609459200"), "CronJob controller"),
        (("v1", "ServiceAccount", "web"), ("v1", "Secret", "web-token-x7k2p"), "service-account token controller"),
        # Words and dates are no suffixes.
        (("apps/v1", "Deployment", "web"), ("apps/v1", "ReplicaSet", "web-canary"), "by hand"),
        (("apps/v1", "DaemonSet", "web"), ("v1", "Pod", "web-debug"), "by hand"),
        (("v1", "ServiceAccount", "web"), ("v1", "Secret", "web-token-admin"), "by hand"),
        (("batch/v1", "CronJob", "web"), ("batch/v1", "Job", "web-20240101"), "by hand"),
    ],
)  # fmt: skip
def test_what_is_called_after_an_object_that_is_there(
    cluster: Cluster, tmp_path: Path, above: tuple[str, str, str], made: tuple[str, str, str], maker: str
) -> None:
    key = cluster.break_(cluster.add(*made, "shop"))
    assert entry_of(cluster, key, tmp_path).recreated_by == "by hand"
    cluster.add(*above, "shop")
    entry = entry_of(cluster, key, tmp_path)
    assert (entry.recreated_by, entry.recreate_confidence) == (
        maker,
        None if maker == "by hand" else "likely",
    )


@pytest.mark.parametrize(
    ("made", "namespace"),
    [
        (("v1", "Pod", "etcd-node-1.example"), "kube-system"),
        (("coordination.k8s.io/v1", "Lease", "node-1.example"), "kube-node-lease"),
    ],
)
def test_what_a_kubelet_makes_is_called_after_its_node(
    cluster: Cluster, tmp_path: Path, made: tuple[str, str, str], namespace: str
) -> None:
    key = cluster.add(*made, namespace)
    assert entry_of(cluster, key, tmp_path).recreated_by in ("by hand", "its holder")
    cluster.add("v1", "Node", "node-1.example")
    assert summary(entry_of(cluster, key, tmp_path))[:2] == ("kubelet", "likely")


@pytest.mark.parametrize("type_", ["Opaque", "helm.sh/release.v1"])
def test_a_known_type_that_does_not_fit_the_name(cluster: Cluster, tmp_path: Path, type_: str) -> None:
    entry = of_history(cluster, cluster.secret("sh.helm.release.v1.shop.v3", type=type_), tmp_path)
    assert (entry.recreated_by == "Helm") is (type_ != "Opaque")


def test_no_two_rows_answer_the_same_question() -> None:
    for keys in (
        [(rule.group, rule.kind, rule.makes) for rule in RULES.owners],
        [rule.path for rule in RULES.sole_writers],
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
