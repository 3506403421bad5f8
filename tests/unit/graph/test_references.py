"""References of objects and users of Secrets: each field of the tables, the cases of KEP-2639, each word of alpha."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine.one import Examiner
from etcdfix.graph.assess import secret_state, users_of
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.index import ImpactIndex
from etcdfix.graph.model import SecretState
from etcdfix.graph.references import claim_tokens, storage_templates
from etcdfix.graph.uses import POD_CARRIERS
from etcdfix.model.model import Outcome
from etcdfix.model.storagekey import StorageCodec, StorageLayout
from etcdfix.sources.snapshot import SnapshotSource
from tests.support.collecting import ALPHA
from tests.support.decoders import shared_decoder
from tests.support.impact_objects import Cluster, build_index, node_of
from tests.support.kep2639 import CASES, build

POD_SPEC: dict[str, Any] = {
    "serviceAccountName": "robot",
    "nodeName": "n1",
    "imagePullSecrets": [{"name": "pull"}],
    "containers": [
        {
            "name": "c",
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k", "optional": True}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "cm-env", "key": "k"}}},
            ],
        }
    ],
    "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "init"}}]}],
    "ephemeralContainers": [
        {
            "name": "e",
            "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "debug", "key": "k"}}}],
            "envFrom": [{"configMapRef": {"name": "cm-from", "optional": True}}],
        }
    ],
    "volumes": [
        {"name": "a", "secret": {"secretName": "vol", "optional": True}},
        {"name": "b", "configMap": {"name": "cm-vol"}},
        {
            "name": "c",
            "projected": {
                "sources": [
                    {"secret": {"name": "proj"}},
                    {"configMap": {"name": "cm-proj", "optional": True}},
                ]
            },
        },
        {"name": "d", "azureFile": {"secretName": "azure", "shareName": "s"}},
        {"name": "e", "cephfs": {"secretRef": {"name": "cephfs"}}},
        {"name": "f", "cinder": {"volumeID": "v", "secretRef": {"name": "cinder"}}},
        {"name": "g", "flexVolume": {"driver": "d", "secretRef": {"name": "flex"}}},
        {"name": "h", "rbd": {"image": "i", "secretRef": {"name": "rbd"}}},
        {"name": "i", "scaleIO": {"gateway": "g", "secretRef": {"name": "scaleio"}}},
        {"name": "j", "iscsi": {"iqn": "i", "secretRef": {"name": "iscsi"}}},
        {"name": "k", "storageos": {"volumeName": "v", "secretRef": {"name": "storageos"}}},
        {"name": "l", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
        {"name": "m", "persistentVolumeClaim": {"claimName": "claim"}},
    ],
}
# Target below the storage prefix, optional.
_OPTIONAL = ("secrets/shop/env", "secrets/shop/vol", "configmaps/shop/cm-from", "configmaps/shop/cm-proj")
_SECRETS_OF_PODS = "pull env init debug vol proj azure cephfs cinder flex rbd scaleio iscsi storageos csi"
POD_USES = {
    (target, target in _OPTIONAL)
    for target in (
        "serviceaccounts/shop/robot", "minions/n1", "persistentvolumeclaims/shop/claim",
        *(f"secrets/shop/{name}" for name in _SECRETS_OF_PODS.split()),
        *(f"configmaps/shop/cm-{name}" for name in ("env", "from", "vol", "proj")),
    )
}  # fmt: skip
VERSIONS = {"": "v1", "apps": "apps/v1", "batch": "batch/v1"}


def uses(cluster: Cluster, key: str) -> set[tuple[str, bool]]:
    index = cluster.index()
    return {(index.keys[edge.target].decode(), edge.use.optional) for edge in index.uses(node_of(index, key))}


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("place", POD_CARRIERS, ids=lambda place: place[1])
def test_every_field_of_a_pod_spec_in_every_carrier(cluster: Cluster, place: tuple[str, str]) -> None:
    group, kind = place
    key = cluster.add(VERSIONS[group], kind, "x", "shop", **nested(POD_CARRIERS[place], POD_SPEC))
    assert uses(cluster, key) == POD_USES


def test_generic_ephemeral_volumes(cluster: Cluster) -> None:
    template = {"spec": {"storageClassName": "fast"}}
    spec = {
        "nodeName": "n1",
        "volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}],
    }
    key = cluster.pod("p", spec=spec)
    assert uses(cluster, key) == {
        ("persistentvolumeclaims/shop/p-scratch", False),
        ("minions/n1", False),
    }


CLAIM_REF = {"namespace": "shop", "name": "data", "uid": "u-claim"}


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"azureFile": {"secretName": "s", "shareName": "x", "secretNamespace": "other"}}, "other/s"),
        ({"azureFile": {"secretName": "s", "shareName": "x"}}, "shop/s"),
        ({"cephfs": {"secretRef": {"name": "s"}}}, "shop/s"),
        ({"flexVolume": {"driver": "d", "secretRef": {"name": "s", "namespace": "other"}}}, "other/s"),
        ({"rbd": {"image": "i", "secretRef": {"name": "s"}}}, "shop/s"),
        ({"scaleIO": {"gateway": "g", "secretRef": {"name": "s"}}}, "shop/s"),
        ({"iscsi": {"iqn": "i", "secretRef": {"name": "s"}}}, "shop/s"),
        ({"cinder": {"volumeID": "v", "secretRef": {"name": "s"}}}, ""),
        ({"cinder": {"volumeID": "v", "secretRef": {"name": "s", "namespace": "other"}}}, "other/s"),
        ({"storageos": {"secretRef": {"name": "s"}}}, ""),
        ({"csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "s"}}}, ""),
    ],
)
@pytest.mark.parametrize("inline", [False, True], ids=["PersistentVolume", "VolumeAttachment"])
def test_secrets_of_volumes(cluster: Cluster, source: dict[str, Any], target: str, inline: bool) -> None:
    spec = {**source, "claimRef": CLAIM_REF}
    if inline:
        attached = {"attacher": "d", "nodeName": "n", "source": {"inlineVolumeSpec": spec}}
        key = cluster.add("storage.k8s.io/v1", "VolumeAttachment", "a", spec=attached)
    else:
        key = cluster.add("v1", "PersistentVolume", "pv", spec=spec)
    found = {name for name, _ in uses(cluster, key) if name.startswith("secrets/")}
    assert found == ({f"secrets/{target}"} if target else set())


def test_volume_and_claim_know_each_other(cluster: Cluster) -> None:
    annotations = {
        "volume.kubernetes.io/provisioner-deletion-secret-name": "del",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": "infra",
    }
    volume = cluster.add(
        "v1", "PersistentVolume", "pv", spec={"claimRef": CLAIM_REF}, annotations=annotations
    )
    assert uses(cluster, volume) == {
        ("persistentvolumeclaims/shop/data", False),
        ("secrets/infra/del", False),
    }
    source = {"kind": "PersistentVolumeClaim", "name": "origin"}
    remote = {"apiGroup": "", "kind": "Secret", "name": "s", "namespace": "other"}
    spec = {"volumeName": "pv", "dataSource": source, "dataSourceRef": remote, "storageClassName": "fast"}
    claim = cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec=spec)
    assert uses(cluster, claim) == {
        ("persistentvolumes/pv", False),
        ("persistentvolumeclaims/shop/origin", False),
        ("secrets/other/s", False),
        ("storageclasses/fast", False),
    }
    attached = {"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}
    attachment = cluster.add("storage.k8s.io/v1", "VolumeAttachment", "a", spec=attached)
    assert uses(cluster, attachment) == {("persistentvolumes/pv", False)}


@pytest.mark.parametrize(
    ("api_version", "kind", "namespace", "fields", "expected"),
    [
        (
            "v1", "ServiceAccount", "shop",
            {"secrets": [{"name": "t", "namespace": "ignored"}], "imagePullSecrets": [{"name": "p"}]},
            {"secrets/shop/t", "secrets/shop/p"},
        ),
        (
            "networking.k8s.io/v1", "Ingress", "shop",
            {"spec": {
                "tls": [{"secretName": "tls"}],
                "defaultBackend": {"resource": {"kind": "ConfigMap", "name": "c"}},
                "rules": [{"http": {"paths": [
                    {"pathType": "Exact", "backend": {"resource": {"kind": "Secret", "name": "b"}}},
                ]}}],
            }},
            {"secrets/shop/tls", "configmaps/shop/c", "secrets/shop/b"},
        ),
        (
            "rbac.authorization.k8s.io/v1", "RoleBinding", "shop",
            {"subjects": [
                {"kind": "ServiceAccount", "name": "a", "namespace": "other"},
                {"kind": "User", "name": "b"},
            ]},
            {"serviceaccounts/other/a"},
        ),
        (
            "rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "",
            {"subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "other"}]},
            {"serviceaccounts/other/a"},
        ),
        (
            "flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "",
            {"spec": {"rules": [{"subjects": [
                {"kind": "ServiceAccount", "serviceAccount": {"name": "a", "namespace": "n"}},
                {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "n"}},
            ]}]}},
            {"serviceaccounts/n/a"},
        ),
        (
            "v1", "Node", "",
            {"spec": {"configSource": {"configMap": {"name": "c", "namespace": "kube-system"}}}},
            {"configmaps/kube-system/c"},
        ),
        (
            "certificates.k8s.io/v1beta1", "PodCertificateRequest", "shop",
            {"spec": {"serviceAccountName": "a", "serviceAccountUID": "u-9"}},
            {"serviceaccounts/shop/a"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value[:1].isupper() else None,
)  # fmt: skip
def test_other_kinds(
    cluster: Cluster,
    api_version: str,
    kind: str,
    namespace: str,
    fields: dict[str, Any],
    expected: set[str],
) -> None:
    key = cluster.add(api_version, kind, "x", namespace, **fields)
    assert {target for target, _ in uses(cluster, key)} == expected


@pytest.mark.parametrize("word", ["Validating", "Mutating"])
@pytest.mark.parametrize(
    ("reference", "targets"),
    [
        ({"name": "x", "namespace": "shop"}, {"shop/x"}), ({"name": "x"}, {"shop/x", "other/x"}),
        ({"selector": {}, "namespace": "shop"}, {"shop/x", "shop/y"}),
        ({"selector": {"matchLabels": {"a": "b"}}}, {"shop/x", "shop/y", "other/x"}),
        ({"parameterNotFoundAction": "Deny"}, set()),
    ],
)  # fmt: skip
def test_parameters_of_admission_policies(
    cluster: Cluster, word: str, reference: dict[str, Any], targets: set[str]
) -> None:
    group = f"admissionregistration.k8s.io/{'v1' if word == 'Validating' else 'v1beta1'}"
    spec = {"policyName": "p", "paramRef": reference}
    key = cluster.add(group, f"{word}AdmissionPolicyBinding", "b", spec=spec)
    named = reference.get("name")
    where = f"{reference.get('namespace', '*')}/{named}"
    of_both = {(f"{path}/{where}", False) for path in ("configmaps", "secrets")}
    assert uses(cluster, key) == (of_both if named else set())  # its policy was not read
    for kind, api_version, expected in (("Secret", "v1", targets), ("Secret", "x.example.com/v1", set())):
        parameters = {"apiVersion": api_version, "kind": kind}
        cluster.add(group, f"{word}AdmissionPolicy", "p", spec={"paramKind": parameters})
        secrets = {
            f"{ns}/{name}": cluster.secret(name, ns)
            for ns, name in (("shop", "x"), ("shop", "y"), ("other", "x"))
        }
        index = cluster.index()
        assert {name for name, at in secrets.items() if users_of(index, node_of(index, at))} == expected


def snapshot_cluster(*kinds: tuple[str, str]) -> Cluster:
    cluster = Cluster()
    for kind, scope in kinds:
        group = "groupsnapshot.storage.k8s.io" if "Group" in kind else "snapshot.storage.k8s.io"
        cluster.define(group, kind, scope)
    return cluster


@pytest.mark.parametrize(
    ("group", "kind", "prefix"),
    [
        ("snapshot.storage.k8s.io", "VolumeSnapshotContent", "snapshot"),
        ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent", "groupsnapshot"),
    ],
)
def test_deletion_secrets_of_snapshot_contents(group: str, kind: str, prefix: str) -> None:
    cluster = snapshot_cluster((kind, "Cluster"))
    base = f"{prefix}.storage.kubernetes.io/deletion-secret"
    annotations = {f"{base}-name": "s", f"{base}-namespace": "infra"}
    key = cluster.add(f"{group}/v1", kind, "c", annotations=annotations)
    assert uses(cluster, key) == {("secrets/infra/s", False)}


def test_group_snapshots_and_their_class() -> None:
    cluster = snapshot_cluster(("VolumeGroupSnapshot", "Namespaced"), ("VolumeGroupSnapshotClass", "Cluster"))
    base = "csi.storage.k8s.io/group-snapshotter-secret"
    parameters = {f"{base}-name": "${volumegroupsnapshot.name}", f"{base}-namespace": "infra"}
    group = "groupsnapshot.storage.k8s.io/v1"
    found = cluster.add(group, "VolumeGroupSnapshotClass", "c", parameters=parameters)
    status = {"boundVolumeGroupSnapshotContentName": "content"}
    key = cluster.add(
        group, "VolumeGroupSnapshot", "g", "shop", spec={"volumeGroupSnapshotClassName": "c"}, status=status
    )
    assert uses(cluster, found) == set()
    assert uses(cluster, key) == {
        ("secrets/infra/g", False),
        ("groupsnapshot.storage.k8s.io/volumegroupsnapshotcontents/content", False),
    }


def test_literal_secrets_of_a_storage_class_and_of_a_claim_that_waits(cluster: Cluster) -> None:
    base = "csi.storage.k8s.io/node-stage-secret"
    parameters = {f"{base}-name": "s", f"{base}-namespace": "infra"}
    found = cluster.add("storage.k8s.io/v1", "StorageClass", "fast", provisioner="d", parameters=parameters)
    key = cluster.add("v1", "PersistentVolumeClaim", "data", "shop", spec={"storageClassName": "fast"})
    assert uses(cluster, found) == {("secrets/infra/s", False)}
    assert ("secrets/infra/s", False) in uses(cluster, key)
    bound = cluster.add(
        "v1", "PersistentVolumeClaim", "done", "shop", spec={"storageClassName": "fast", "volumeName": "pv"}
    )
    assert ("secrets/infra/s", False) not in uses(cluster, bound)


# ------------------------------------------------------------------- alpha, and a second way to find the same


WORD = re.compile(r"[a-z0-9][-a-z0-9.]*")


def words(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every word of every string and every key in a value, metadata and all, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from ((f"{path}{{}}", word) for word in WORD.findall(key))
            yield from words(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from words(item, f"{path}[]")
    elif isinstance(value, str):
        yield from ((path, word) for word in WORD.findall(value))


def named_in(value: dict[str, Any], names: dict[str, list[str]]) -> dict[str, str]:
    """Return the Secrets whose name occurs in an object, whatever the field; ``names`` has their namespaces."""
    own = value["metadata"].get("namespace", "")
    kind = value["kind"]
    return {
        f"{namespace}/{word}": path
        for path, word in words(value)
        for namespace in names.get(word, ())
        if own in {"", namespace} and (kind, path) != ("Secret", ".metadata.name")
    }


@pytest.fixture
def alpha() -> Iterator[tuple[SnapshotSource, Examiner, ImpactIndex]]:
    transformers = Transformers.from_configuration(load_configuration(ALPHA / "config-rotated.yaml"))
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source:
        examiner = Examiner(StorageLayout(), transformers, shared_decoder())
        examiner.learn_custom_resources(source)
        yield source, examiner, build_index(source, examiner)


def whole_objects(source: SnapshotSource, examiner: Examiner) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every readable object of alpha in full: key, namespace, value."""
    reader = ObjectReader(examiner.decoder)
    for stored in source.current(b"/registry/"):
        found = examiner.examine(stored)
        if found.verdict.outcome not in {Outcome.READABLE, Outcome.INCONSISTENT} or found.decoded is None:
            continue
        if found.decoded.empty:
            continue
        directory = found.directory
        assert examiner.transformers is not None
        transformers = examiner.transformers.for_resource(directory.group_resource)
        data = transformers.from_storage(stored.value, stored.key).data
        if directory.codec is StorageCodec.BUILTIN:
            value = reader.builtin(data, directory.group, directory.kind).value
        elif directory.codec is StorageCodec.JSON_BUILTIN:
            value = reader.json_builtin(data, directory.group, directory.kind).value
        elif directory.codec is StorageCodec.CUSTOM_RESOURCE:
            crd = examiner.readers.custom_resources[directory.group, directory.resource]
            value = reader.custom_resource(data, crd).value
        else:
            continue
        yield stored.key.decode(), found.namespace, value


def test_users_of_every_secret_of_alpha(alpha: tuple[SnapshotSource, Examiner, ImpactIndex]) -> None:
    source, examiner, index = alpha
    objects = {key: value for key, _, value in whole_objects(source, examiner)}
    assert len(objects) > 400
    # Readable or not, and those that are only mentioned.
    secrets = {
        f"{ref.namespace}/{ref.name}": node
        for node in range(len(index.keys))
        if (ref := index.ref(node)).resource == "secrets"
    }
    names: dict[str, list[str]] = {}
    for secret in secrets:
        namespace, _, name = secret.partition("/")
        names.setdefault(name, []).append(namespace)
    named = {
        (secret, key): path
        for key, value in objects.items()
        for secret, path in named_in(value, names).items()
    }
    listed = {(secret, user.object.key) for secret, node in secrets.items() for user in users_of(index, node)}
    # Whoever names a Secret in any field is listed; whoever is listed names it, or its class does.
    assert {pair: path for pair, path in named.items() if pair not in listed} == {}
    kinds = {objects[key]["kind"] for _, key in listed - named.keys()}
    assert kinds == {"PersistentVolumeClaim"}
    unreadable = {secret for secret, node in secrets.items() if index.unreadable(node)}
    assert len(unreadable) > 20
    assert len({secret for secret, _ in named if secret in unreadable}) > 20


@pytest.mark.parametrize(
    ("csi", "targets"),
    [
        (
            {"volumeHandle": "group#account#share#x"},
            {"shop/azure-storage-account-account-secret", "default/azure-storage-account-account-secret"},
        ),
        ({"volumeHandle": "x", "volumeAttributes": {"secretName": "s", "secretNamespace": "n"}}, {"n/s"}),
        ({"volumeHandle": "x"}, set()),
        ({"volumeHandle": "a#b", "driver": "another"}, set()),
    ],
)
def test_where_azures_file_driver_looks_for_a_key(
    cluster: Cluster, csi: dict[str, Any], targets: set[str]
) -> None:
    spec = {"csi": {"driver": "file.csi.azure.com", **csi}, "claimRef": CLAIM_REF}
    key = cluster.add("v1", "PersistentVolume", "pv", spec=spec)
    found = {name.removeprefix("secrets/") for name, _ in uses(cluster, key) if name.startswith("secrets/")}
    assert found == targets


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
