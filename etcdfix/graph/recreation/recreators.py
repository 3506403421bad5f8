"""Who makes which objects again once they are gone: by their owners, by specs that name them, by marks on them.

What goes by names is in :mod:`etcdfix.graph.recreation.namerules`.

Sources: Kubernetes 1.36 ``pkg/controller/*``, ``cmd/kubeadm``, and for everything else the documentation and code
of the projects named in each line. What a line says holds for their releases of 2023 to 2026.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final, NamedTuple

from etcdfix.graph.uses import CLAIMS as VOLUME_CLAIMS
from etcdfix.graph.uses import CONFIG_MAPS, SECRETS, VOLUMES
from etcdfix.model import Confidence


class ComesBack(StrEnum):
    """Whether an object is there again after its deletion."""

    BY_ITSELF = "by-itself"
    AFTER_A_STEP = "after-a-step"
    NOT_NEEDED = "not-needed"
    NO = "no"


class Recreator(NamedTuple):
    """Somebody who makes objects.

    Attributes:
        name: As people call it.
        comes_back: Whether that happens without a person.
        how: What a person has to do or know, one sentence; "" for nothing.
    """

    name: str
    comes_back: ComesBack
    how: str


class Claim(NamedTuple):
    """A kind of custom resource whose spec names the Secret that its controller writes.

    Attributes:
        path: Directory below the storage prefix.
        field: Path of the field with the Secret's name, ``[]`` after a list; "" for the resource's own name.
        recreator: Its controller.
        own_name: Where the field is empty, the Secret has the resource's own name.
        when: The controller creates the Secret only where each of these fields has one of these values; None stands
            for a field that is not there. Elsewhere it writes into a Secret that somebody else has made, or not at all.
        namespace: Field that says where the Secret is; "" for the resource's own namespace.
    """

    path: str
    field: str
    recreator: Recreator
    own_name: bool = False
    when: tuple[tuple[str, tuple[object, ...]], ...] = ()
    namespace: str = ""


class Mark(NamedTuple):
    """A label or annotation that says who made an object.

    Attributes:
        name: Of the label or annotation.
        recreator: Who put it there.
        paths: Directories of the objects on which it says so; empty for all.
        value: Of the label, "" for any. Values of annotations are not known.
        confidence: How far it can be trusted.
    """

    name: str
    recreator: Recreator
    paths: frozenset[str] = frozenset()
    value: str = ""
    confidence: Confidence = Confidence.LIKELY


# ------------------------------------------------------------------------------------------------------ who there is

CERT_MANAGER: Final = Recreator(
    "cert-manager",
    ComesBack.BY_ITSELF,
    "a new key and certificate are issued; ACME issuers have rate limits, so let them come back in portions",
)
_ACME: Final = CERT_MANAGER._replace(how="a new account is registered with the ACME server")
_EXTERNAL_SECRETS: Final = Recreator(
    "External Secrets",
    ComesBack.BY_ITSELF,
    "at its next refresh, if its store can be reached and still holds the value",
)
_SEALED_SECRETS: Final = Recreator(
    "Sealed Secrets",
    ComesBack.BY_ITSELF,
    "if the controller still has the sealing key that it was sealed for",
)
SEALING_KEY: Final = Recreator(
    "Sealed Secrets",
    ComesBack.NO,
    "the controller makes another key, and that opens no SealedSecret of today: restore this one from a backup",
)
_VAULT: Final = Recreator(
    "Vault Secrets Operator", ComesBack.BY_ITSELF, "at its next refresh, if Vault can be reached"
)
_SOPS: Final = Recreator(
    "sops-secrets-operator", ComesBack.BY_ITSELF, "if it still holds the key that opens the SopsSecret"
)
_ONE_PASSWORD: Final = Recreator(
    "1Password operator", ComesBack.BY_ITSELF, "at its next poll, if 1Password can be reached"
)
_INFISICAL: Final = Recreator(
    "Infisical operator", ComesBack.BY_ITSELF, "at its next resync, if Infisical can be reached"
)
PROMETHEUS: Final = Recreator("Prometheus Operator", ComesBack.BY_ITSELF, "")
ECK: Final = Recreator(
    "Elastic Cloud on Kubernetes", ComesBack.BY_ITSELF, "passwords and certificates are new ones"
)
CNPG: Final = Recreator("CloudNativePG", ComesBack.BY_ITSELF, "passwords and certificates are new ones")
STRIMZI: Final = Recreator(
    "Strimzi", ComesBack.BY_ITSELF, "a new CA or password: brokers roll, and clients need the new one"
)

TOKEN_CONTROLLER: Final = Recreator(
    "service-account token controller",
    ComesBack.AFTER_A_STEP,
    "since 1.24 only into a Secret of type kubernetes.io/service-account-token that you create with the annotation "
    "kubernetes.io/service-account.name; the token is a new one, holders of the old one need it",
)
DOCKERCFG: Final = Recreator(
    "OpenShift", ComesBack.BY_ITSELF, "its controller makes a new pull secret under a new name"
)
OPENSHIFT_SERVICE_CA: Final = Recreator(
    "OpenShift service-ca", ComesBack.BY_ITSELF, "a new certificate; pods that do not watch it need a restart"
)
OPENSHIFT_ACCOUNTS: Final = Recreator("OpenShift", ComesBack.BY_ITSELF, "with a new uid and new pull secrets")
OPENSHIFT: Final = frozenset({DOCKERCFG, OPENSHIFT_SERVICE_CA, OPENSHIFT_ACCOUNTS})
"""They exist in a cluster of OpenShift only."""

HELM_RELEASE: Final = Recreator(
    "Helm",
    ComesBack.NO,
    "this entry of the release's history stays lost; if it is the newest one, helm upgrade --install takes the release "
    "for a new one and stops at objects that exist: restore it from a snapshot if you can",
)
_HELM: Final = Recreator(
    "Helm",
    ComesBack.AFTER_A_STEP,
    "helm upgrade with the same chart and values; what the chart makes up (a random password) is a new one",
)
_ARGO: Final = Recreator(
    "Argo CD", ComesBack.AFTER_A_STEP, "sync its application; by itself only where self-heal is on"
)
_FLUX: Final = Recreator("Flux", ComesBack.BY_ITSELF, "at its next reconciliation, if it is not suspended")
_FLUX_HELM: Final = Recreator(
    "Flux",
    ComesBack.AFTER_A_STEP,
    "flux reconcile helmrelease NAME --force; by itself only where drift detection is on",
)
_OLM: Final = Recreator("Operator Lifecycle Manager", ComesBack.BY_ITSELF, "")
_ADDON_MANAGER: Final = Recreator("addon manager", ComesBack.BY_ITSELF, "")

CONTROLLER_MANAGER: Final = Recreator("kube-controller-manager", ComesBack.BY_ITSELF, "")
API_SERVER: Final = Recreator("kube-apiserver", ComesBack.BY_ITSELF, "")
KUBELET: Final = Recreator("kubelet", ComesBack.BY_ITSELF, "")
MIRROR: Final = KUBELET._replace(how="the mirror of a static Pod of its node")
_KUBELET_NODE: Final = Recreator(
    "kubelet",
    ComesBack.AFTER_A_STEP,
    "restart the kubelet of the node: it registers again; labels and taints set by others stay lost",
)
_HOLDER: Final = Recreator("its holder", ComesBack.BY_ITSELF, "")
_NOBODY: Final = Recreator("nobody", ComesBack.NOT_NEEDED, "it would have expired by itself")
_ATTACHER: Final = Recreator(
    "attach-detach controller", ComesBack.BY_ITSELF, "the volume may be attached anew"
)

_POD: Final = "as a new Pod"
_HISTORY: Final = "the current one comes back, older ones cannot be rolled back to"
DEPLOYMENT: Final = Recreator("Deployment controller", ComesBack.BY_ITSELF, _HISTORY)
REPLICA_SET: Final = Recreator("ReplicaSet controller", ComesBack.BY_ITSELF, _POD)
REPLICATION_CONTROLLER: Final = Recreator("ReplicationController", ComesBack.BY_ITSELF, _POD)
DAEMON_SET: Final = Recreator("DaemonSet controller", ComesBack.BY_ITSELF, _POD)
STATEFUL_SET: Final = Recreator(
    "StatefulSet controller",
    ComesBack.BY_ITSELF,
    "as a new Pod on the same claims; see first that the old one has stopped",
)
JOB: Final = Recreator(
    "Job controller", ComesBack.BY_ITSELF, "as a new Pod, if the job goes on; one that has ended needs none"
)
CRON_JOB: Final = Recreator("CronJob controller", ComesBack.NOT_NEEDED, "the next one runs at its own time")

# -------------------------------------------------------------------------------------------------------- resources

NEVER: Final[dict[str, str]] = {
    VOLUME_CLAIMS: "whoever makes it again makes an EMPTY one, and the volume's reclaim policy decides what becomes of "
    "the data: set it to Retain first",
    VOLUMES: "its claim is Lost; the storage stays behind it, and only a person can make a volume for it again",
    "snapshot.storage.k8s.io/volumesnapshotcontents": "the snapshot stays at the storage, and only a person can make a "
    "content for it again",
}
"""Directories of what stands for data, and why nobody's making it again would help. No mark and no owner counts."""

RESOURCES: Final[dict[tuple[str, str], Recreator]] = {
    ("", "events"): _NOBODY,
    ("events.k8s.io", "events"): _NOBODY,
    ("coordination.k8s.io", "leases"): _HOLDER,
    ("networking.k8s.io", "ipaddresses"): API_SERVER,
    ("", "nodes"): _KUBELET_NODE,
    ("storage.k8s.io", "csinodes"): KUBELET._replace(how="when the kubelet or its plugins register again"),
    ("storage.k8s.io", "volumeattachments"): _ATTACHER,
    ("certificates.k8s.io", "certificatesigningrequests"): _NOBODY,
}
"""Resources that one party alone writes."""

# ---------------------------------------------------------------------------------------------------------- owners

_MAKES_SECRETS: Final = {
    ("cert-manager.io", "Certificate"): CERT_MANAGER,
    ("external-secrets.io", "ExternalSecret"): _EXTERNAL_SECRETS,
    ("bitnami.com", "SealedSecret"): _SEALED_SECRETS,
    ("secrets.hashicorp.com", "VaultStaticSecret"): _VAULT,
    ("secrets.hashicorp.com", "VaultDynamicSecret"): _VAULT,
    ("secrets.hashicorp.com", "VaultPKISecret"): _VAULT,
    ("isindir.github.com", "SopsSecret"): _SOPS,
    ("onepassword.com", "OnePasswordItem"): _ONE_PASSWORD,
    ("secrets.infisical.com", "InfisicalSecret"): _INFISICAL,
    ("postgresql.cnpg.io", "Cluster"): CNPG,
    ("kafka.strimzi.io", "Kafka"): STRIMZI,
    ("kafka.strimzi.io", "KafkaUser"): STRIMZI,
    ("elasticsearch.k8s.elastic.co", "Elasticsearch"): ECK,
    ("kibana.k8s.elastic.co", "Kibana"): ECK,
    ("monitoring.coreos.com", "Prometheus"): PROMETHEUS,
    ("monitoring.coreos.com", "Alertmanager"): PROMETHEUS,
}
OWNERS: Final[dict[tuple[str, str], dict[str, Recreator]]] = {
    **{kind: {SECRETS: recreator} for kind, recreator in _MAKES_SECRETS.items()},
    ("", "Node"): {"pods": MIRROR},
    ("", "Service"): {"endpointslices": CONTROLLER_MANAGER},
    ("", "Endpoints"): {"endpointslices": CONTROLLER_MANAGER},
    ("", "ReplicationController"): {"pods": REPLICATION_CONTROLLER},
    ("apps", "Deployment"): {"replicasets": DEPLOYMENT},
    ("apps", "ReplicaSet"): {"pods": REPLICA_SET},
    ("apps", "DaemonSet"): {
        "pods": DAEMON_SET,
        "controllerrevisions": DAEMON_SET._replace(how=_HISTORY),
    },
    ("apps", "StatefulSet"): {
        "pods": STATEFUL_SET,
        "controllerrevisions": STATEFUL_SET._replace(how=_HISTORY),
    },
    ("batch", "Job"): {"pods": JOB},
    ("batch", "CronJob"): {"jobs": CRON_JOB},
}
"""(group, kind) of an owner -> directory of what its controller makes -> who that is.

An owner reference alone says no more than that an object goes with its owner: anybody may set one.
"""

# ---------------------------------------------------------------------------------------- specs that name a Secret

# Of the Vault Secrets Operator; the default is false.
_CREATES: Final = (("spec.destination.create", (True,)),)
CLAIMS: Final[tuple[Claim, ...]] = (
    Claim("cert-manager.io/certificates", "spec.secretName", CERT_MANAGER),
    Claim(
        "cert-manager.io/issuers", "spec.acme.privateKeySecretRef.name", _ACME,
        when=(("spec.acme.disableAccountKeyGeneration", (None, False)),),
    ),
    Claim(
        "external-secrets.io/externalsecrets", "spec.target.name", _EXTERNAL_SECRETS, own_name=True,
        when=(
            ("spec.target.creationPolicy", (None, "", "Owner", "Orphan", "CreateOrMerge")),
            ("spec.target.manifest", (None,)),  # it writes something else than a Secret
        ),
    ),
    # The template's own name does not count: the Secret is always called like the SealedSecret.
    Claim("bitnami.com/sealedsecrets", "", _SEALED_SECRETS, own_name=True),
    Claim("secrets.hashicorp.com/vaultstaticsecrets", "spec.destination.name", _VAULT, when=_CREATES),
    Claim("secrets.hashicorp.com/vaultdynamicsecrets", "spec.destination.name", _VAULT, when=_CREATES),
    Claim("secrets.hashicorp.com/vaultpkisecrets", "spec.destination.name", _VAULT, when=_CREATES),
    Claim(
        "isindir.github.com/sopssecrets", "spec.secretTemplates[].name", _SOPS,
        when=(("spec.suspend", (None, False)),),
    ),
    Claim("onepassword.com/onepassworditems", "", _ONE_PASSWORD, own_name=True),
    Claim(
        "secrets.infisical.com/infisicalsecrets", "spec.managedSecretReference.secretName", _INFISICAL,
        namespace="spec.managedSecretReference.secretNamespace",
    ),
    Claim(
        "kafka.strimzi.io/kafkausers", "", STRIMZI, own_name=True,
        when=(("spec.authentication.type", ("tls", "scram-sha-512")),),
    ),
)  # fmt: skip
SERVING_CERTIFICATE: Final = (
    "service.beta.openshift.io/serving-cert-secret-name",
    "service.alpha.openshift.io/serving-cert-secret-name",
)
"""Annotations of a Service that name the Secret which OpenShift's service-ca writes."""


def claimed_secrets(claim: Claim, namespace: str, name: str, whole: dict[str, Any]) -> list[tuple[str, str]]:
    """Return namespace and name of each Secret that a custom resource's controller creates; none once it is deleted.

    Args:
        claim: Of its kind.
        namespace: Of the custom resource.
        name: Of the custom resource.
        whole: The custom resource.
    """
    for path, allowed in (("metadata.deletionTimestamp", (None,)), *claim.when):
        found = list(values_at(whole, path)) or [None]
        if any(item not in allowed for item in found):
            return []
    if claim.namespace:
        namespace = next(_texts(whole, claim.namespace), "")
    names = list(_texts(whole, claim.field)) if claim.field else []
    if not names and claim.own_name:
        names = [name]
    return [(namespace, secret) for secret in names] if namespace else []


def endpoints_of(service: str) -> str:
    """Return the name under which a Service with a selector claims its endpoints; no Secret is called like that."""
    return f"endpoints/{service}"


def selects(service: dict[str, Any]) -> bool:
    """Tell whether the controllers keep the endpoints of a Service: it has a selector, and is no mere alias."""
    spec = service.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    selector = spec.get("selector")
    return isinstance(selector, dict) and bool(selector) and spec.get("type") != "ExternalName"


def values_at(value: Any, path: str) -> Iterator[Any]:
    """Yield what stands at a path of fields, ``[]`` for every element; nothing where there is no such field."""
    name, _, rest = path.partition(".")
    found = value.get(name.removesuffix("[]")) if isinstance(value, dict) else None
    for item in found if name.endswith("[]") and isinstance(found, list) else [found]:
        if rest:
            yield from values_at(item, rest)
        elif item is not None:
            yield item


def _texts(value: Any, path: str) -> Iterator[str]:
    return (item for item in values_at(value, path) if isinstance(item, str) and item)


# ----------------------------------------------------------------------------------------------------------- marks

_DATA: Final = frozenset({SECRETS, CONFIG_MAPS})
_ONLY_SECRETS: Final = frozenset({SECRETS})
_OF_OLM: Final = frozenset({
    *_DATA, "services/specs", "deployments", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
})  # fmt: skip
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


def _maker(name: str, recreator: Recreator) -> Mark:
    """Return the mark of somebody who works after a custom resource that names the Secret.

    Such a resource would have been found by :data:`CLAIMS`: a mark without it says who made the Secret once.
    """
    return Mark(name, recreator, _ONLY_SECRETS, confidence=Confidence.POSSIBLE)


MARKS: Final[tuple[Mark, ...]] = (
    Mark("sealedsecrets.bitnami.com/sealed-secrets-key", SEALING_KEY, _ONLY_SECRETS),
    _maker("cert-manager.io/certificate-name", CERT_MANAGER),
    _maker("controller.cert-manager.io/fao", CERT_MANAGER),
    _maker("reconcile.external-secrets.io/created-by", _EXTERNAL_SECRETS),
    _maker("sealedsecrets.bitnami.com/cluster-wide", _SEALED_SECRETS),
    _maker("sealedsecrets.bitnami.com/namespace-wide", _SEALED_SECRETS),
    _maker("sealedsecrets.bitnami.com/managed", _SEALED_SECRETS),
    _maker("secrets.hashicorp.com/vso-ownerRefUID", _VAULT),
    _maker("operator.1password.io/item-path", _ONE_PASSWORD),
    # "cnpg.io/reload" and "strimzi.io/cluster" stand on what users give to these operators.
    Mark("cnpg.io/operatorVersion", CNPG, _DATA),
    Mark(_MANAGED_BY, STRIMZI, _DATA, "strimzi-cluster-operator"),
    Mark(_MANAGED_BY, STRIMZI, _DATA, "strimzi-user-operator"),
    Mark(_MANAGED_BY, PROMETHEUS, _DATA, "prometheus-operator"),
    Mark("elasticsearch.k8s.elastic.co/cluster-name", ECK, _DATA),
    Mark("kibana.k8s.elastic.co/name", ECK, _DATA),
    Mark("service.beta.openshift.io/originating-service-name", OPENSHIFT_SERVICE_CA, _ONLY_SECRETS),
    Mark("service.alpha.openshift.io/originating-service-name", OPENSHIFT_SERVICE_CA, _ONLY_SECRETS),
    Mark("openshift.io/token-secret.name", DOCKERCFG, _ONLY_SECRETS),
    Mark("olm.managed", _OLM, _OF_OLM),
    Mark("olm.owner", _OLM, _OF_OLM),
    Mark("argocd.argoproj.io/instance", _ARGO),
    Mark("argocd.argoproj.io/tracking-id", _ARGO),
    Mark("kustomize.toolkit.fluxcd.io/name", _FLUX),
    Mark("helm.toolkit.fluxcd.io/name", _FLUX_HELM),
    Mark("addonmanager.kubernetes.io/mode", _ADDON_MANAGER),
    Mark("meta.helm.sh/release-name", _HELM),
    Mark(_MANAGED_BY, _HELM, value="Helm"),
)
"""Those that say most come first: an object that Flux applies by way of Helm is Flux's."""


def marks_of(labels: dict[str, str], annotations: tuple[str, ...], path: str) -> Iterator[Mark]:
    """Yield what labels and annotations say of an object's maker, what says most first.

    Args:
        labels: With their values.
        annotations: Names only.
        path: Directory of the object.
    """
    for mark in MARKS:
        if mark.paths and path not in mark.paths:
            continue
        there = mark.name in labels or mark.name in annotations
        if labels.get(mark.name) == mark.value if mark.value else there:
            yield mark


def recreator_of_marks(
    labels: dict[str, str], annotations: tuple[str, ...], path: str
) -> tuple[Recreator, str] | None:
    """Return who put labels and annotations on an object, and the mark that says so; see :func:`marks_of`."""
    mark = next(marks_of(labels, annotations, path), None)
    if mark is None:
        return None
    return mark.recreator, f"{mark.name}={mark.value}" if mark.value else mark.name
