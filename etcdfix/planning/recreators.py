"""The table of who makes which objects again once they are gone.

Sources: Kubernetes 1.36 ``pkg/controller/*``, ``cmd/kubeadm``, and for everything else the documentation and code
of the projects named in each line. What a line says holds for their releases of 2023 to 2026.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from etcdfix.impact.uses import SECRETS


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
        field: Path of the field with the Secret's name; ``[]`` after a list.
        recreator: Its controller.
        own_name: Where the field is empty, the Secret has the resource's own name.
    """

    path: str
    field: str
    recreator: Recreator
    own_name: bool = False


class NameRule(NamedTuple):
    """A pattern of names.

    Attributes:
        path: Directory of the object.
        pattern: Must match the whole name.
        recreator: Who uses such names.
        namespace: Only there; "" for anywhere.
        counterpart: Directory of the object that explains the name: its name is the pattern's first group. Without
            it the rule does not count.
    """

    path: str
    pattern: re.Pattern[str]
    recreator: Recreator
    namespace: str = ""
    counterpart: str = ""


_CERT_MANAGER: Final = Recreator(
    "cert-manager",
    ComesBack.BY_ITSELF,
    "a new key and certificate are issued; ACME issuers have rate limits, so let them come back in portions",
)
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
_SEALING_KEY: Final = Recreator(
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

TOKEN_CONTROLLER: Final = Recreator(
    "service-account token controller",
    ComesBack.AFTER_A_STEP,
    "since 1.24 only into a Secret of type kubernetes.io/service-account-token that you create with the annotation "
    "kubernetes.io/service-account.name; the token is a new one, holders of the old one need it",
)
_DOCKERCFG: Final = Recreator(
    "OpenShift", ComesBack.BY_ITSELF, "its controller makes a new pull secret under a new name"
)
OPENSHIFT_SERVICE_CA: Final = Recreator(
    "OpenShift service-ca", ComesBack.BY_ITSELF, "a new certificate; pods that do not watch it need a restart"
)
HELM_RELEASE: Final = Recreator(
    "Helm",
    ComesBack.NO,
    "this entry of the release's history stays lost; if it is the newest one, helm upgrade --install takes the release "
    "for a new one and stops at objects that exist: restore it from a snapshot if you can",
)
_HELM: Final = Recreator("Helm", ComesBack.AFTER_A_STEP, "helm upgrade with the same chart and values")
_ARGO: Final = Recreator(
    "Argo CD", ComesBack.BY_ITSELF, "when the application is synced; by itself only with self-heal"
)
_FLUX: Final = Recreator("Flux", ComesBack.BY_ITSELF, "at its next reconciliation")
_OLM: Final = Recreator("Operator Lifecycle Manager", ComesBack.BY_ITSELF, "")
_ADDON_MANAGER: Final = Recreator("addon manager", ComesBack.BY_ITSELF, "")
_PROMETHEUS: Final = Recreator("Prometheus Operator", ComesBack.BY_ITSELF, "")
_ECK: Final = Recreator(
    "Elastic Cloud on Kubernetes", ComesBack.BY_ITSELF, "passwords and certificates are new ones"
)
_CNPG: Final = Recreator("CloudNativePG", ComesBack.BY_ITSELF, "passwords and certificates are new ones")
_STRIMZI: Final = Recreator(
    "Strimzi", ComesBack.BY_ITSELF, "a new CA or password: brokers roll, and clients need the new one"
)
_ZALANDO: Final = Recreator(
    "postgres-operator", ComesBack.BY_ITSELF, "at its next sync; the password is a new one"
)
_BOOTSTRAP: Final = Recreator(
    "kubeadm",
    ComesBack.AFTER_A_STEP,
    "kubeadm token create, when a node is to join again; else nobody needs it",
)
_UPLOAD_CERTS: Final = Recreator(
    "kubeadm",
    ComesBack.AFTER_A_STEP,
    "kubeadm init phase upload-certs --upload-certs, when a control-plane node is to join; else nobody needs it",
)


def _kubeadm(phase: str) -> Recreator:
    return Recreator("kubeadm", ComesBack.AFTER_A_STEP, f"kubeadm init phase {phase}")


_CONTROLLER_MANAGER: Final = Recreator("kube-controller-manager", ComesBack.BY_ITSELF, "")
_API_SERVER: Final = Recreator("kube-apiserver", ComesBack.BY_ITSELF, "")
_API_SERVER_START: Final = Recreator(
    "kube-apiserver",
    ComesBack.AFTER_A_STEP,
    "an API server makes it when it starts; restart none before the caches are saved",
)
_KUBELET: Final = Recreator("kubelet", ComesBack.BY_ITSELF, "")
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
_DEPLOYMENT: Final = Recreator(
    "Deployment controller",
    ComesBack.BY_ITSELF,
    "the current one comes back, older ones cannot be rolled back to",
)
_REPLICA_SET: Final = Recreator("ReplicaSet controller", ComesBack.BY_ITSELF, _POD)
_REPLICATION_CONTROLLER: Final = Recreator("ReplicationController", ComesBack.BY_ITSELF, _POD)
_DAEMON_SET: Final = Recreator("DaemonSet controller", ComesBack.BY_ITSELF, _POD)
_STATEFUL_SET: Final = Recreator(
    "StatefulSet controller",
    ComesBack.BY_ITSELF,
    "as a new Pod on the same claims; see first that the old one has stopped",
)
_JOB: Final = Recreator("Job controller", ComesBack.BY_ITSELF, "as a new Pod, if the job goes on")
_CRON_JOB: Final = Recreator("CronJob controller", ComesBack.NOT_NEEDED, "the next one runs at its own time")

CLAIMS: Final[tuple[Claim, ...]] = (
    Claim("cert-manager.io/certificates", "spec.secretName", _CERT_MANAGER),
    Claim("cert-manager.io/issuers", "spec.acme.privateKeySecretRef.name", _CERT_MANAGER),
    Claim("external-secrets.io/externalsecrets", "spec.target.name", _EXTERNAL_SECRETS, own_name=True),
    Claim("bitnami.com/sealedsecrets", "spec.template.metadata.name", _SEALED_SECRETS, own_name=True),
    Claim("secrets.hashicorp.com/vaultstaticsecrets", "spec.destination.name", _VAULT),
    Claim("secrets.hashicorp.com/vaultdynamicsecrets", "spec.destination.name", _VAULT),
    Claim("secrets.hashicorp.com/vaultpkisecrets", "spec.destination.name", _VAULT),
    Claim("isindir.github.com/sopssecrets", "spec.secretTemplates[].name", _SOPS),
    Claim("onepassword.com/onepassworditems", "", _ONE_PASSWORD, own_name=True),
    Claim("secrets.infisical.com/infisicalsecrets", "spec.managedSecretReference.secretName", _INFISICAL),
    Claim("kafka.strimzi.io/kafkausers", "", _STRIMZI, own_name=True),
)
SERVING_CERTIFICATE: Final = (
    "service.beta.openshift.io/serving-cert-secret-name",
    "service.alpha.openshift.io/serving-cert-secret-name",
)
"""Annotations of a Service that name the Secret which OpenShift's service-ca writes."""


def _rule(
    path: str, pattern: str, recreator: Recreator, *, namespace: str = "", counterpart: str = ""
) -> NameRule:
    return NameRule(path, re.compile(pattern), recreator, namespace, counterpart)


_SUFFIX: Final = "[0-9a-z]{5}"  # what generateName adds
_CONFIG_MAPS: Final = "configmaps"

NAME_RULES: Final[tuple[NameRule, ...]] = (
    _rule(SECRETS, r"sh\.helm\.release\.v1\..+\.v[0-9]+", HELM_RELEASE),
    _rule(SECRETS, r"bootstrap-token-[a-z0-9]{6}", _BOOTSTRAP, namespace="kube-system"),
    _rule(SECRETS, "kubeadm-certs", _UPLOAD_CERTS, namespace="kube-system"),
    _rule(SECRETS, rf"(.+)-token-{_SUFFIX}", TOKEN_CONTROLLER, counterpart="serviceaccounts"),
    _rule(SECRETS, rf"(.+)-dockercfg-{_SUFFIX}", _DOCKERCFG, counterpart="serviceaccounts"),
    _rule(SECRETS, rf"sealed-secrets-key(?:{_SUFFIX})?", _SEALING_KEY),
    _rule(SECRETS, "cert-manager-webhook-ca", _CERT_MANAGER._replace(how="its webhook makes a new CA")),
    _rule(SECRETS, r"(.+)-es-.+", _ECK, counterpart="elasticsearch.k8s.elastic.co/elasticsearches"),
    _rule(SECRETS, r"(.+)-kb-.+", _ECK, counterpart="kibana.k8s.elastic.co/kibanas"),
    _rule(
        SECRETS, "(.+)-(?:ca|server|replication|app|superuser)", _CNPG, counterpart="postgresql.cnpg.io/clusters"
    ),
    _rule(SECRETS, "(.+)-(?:(?:cluster|clients)-ca(?:-cert)?|kafka-brokers)", _STRIMZI,
          counterpart="kafka.strimzi.io/kafkas"),
    _rule(SECRETS, r".+\.credentials\.postgresql\.acid\.zalan\.do", _ZALANDO),
    _rule(
        SECRETS, "prometheus-(.+?)(?:-tls-assets-[0-9]+|-web-config|-thanos-prometheus-http-client-file)?", _PROMETHEUS,
        counterpart="monitoring.coreos.com/prometheuses",
    ),
    _rule(
        SECRETS, "alertmanager-(.+?)(?:-generated|-tls-assets-[0-9]+|-web-config|-cluster-tls-config)", _PROMETHEUS,
        counterpart="monitoring.coreos.com/alertmanagers",
    ),
    _rule(_CONFIG_MAPS, r"kube-root-ca\.crt", _CONTROLLER_MANAGER),
    _rule(_CONFIG_MAPS, r"openshift-service-ca\.crt", OPENSHIFT_SERVICE_CA),
    _rule(_CONFIG_MAPS, "istio-ca-root-cert", Recreator("Istio", ComesBack.BY_ITSELF, "")),
    _rule(_CONFIG_MAPS, "extension-apiserver-authentication", _API_SERVER, namespace="kube-system"),
    _rule(_CONFIG_MAPS, "kubeadm-config", _kubeadm("upload-config kubeadm"), namespace="kube-system"),
    _rule(_CONFIG_MAPS, r"kubelet-config(?:-1\.[0-9]+)?", _kubeadm("upload-config kubelet"), namespace="kube-system"),
    _rule(_CONFIG_MAPS, "kube-proxy", _kubeadm("addon kube-proxy"), namespace="kube-system"),
    _rule(_CONFIG_MAPS, "coredns", _kubeadm("addon coredns"), namespace="kube-system"),
    _rule(_CONFIG_MAPS, "cluster-info", _kubeadm("bootstrap-token"), namespace="kube-public"),
    _rule("serviceaccounts", "default", _CONTROLLER_MANAGER._replace(
        how="its uid is a new one: bound tokens of before end")),
    _rule("serviceaccounts", "builder|deployer", Recreator("OpenShift", ComesBack.BY_ITSELF, "")),
    _rule("namespaces", "default|kube-system|kube-public|kube-node-lease", _API_SERVER._replace(
        how="with a new uid; what it held is there again")),
    _rule("clusterroles", "system:.+|cluster-admin|admin|edit|view", _API_SERVER_START),
    _rule("clusterrolebindings", "system:.+|cluster-admin", _API_SERVER_START),
    _rule("roles", r"system:.+|extension-apiserver-authentication-reader", _API_SERVER_START),
    _rule("rolebindings", r"system:.+", _API_SERVER_START),
    _rule("priorityclasses", "system-(?:node|cluster)-critical", _API_SERVER_START),
    _rule("flowschemas", "exempt|catch-all|probes|system-.+|kube-.+|endpoint-controller|workload-leader-election|"
          "service-accounts|global-default", _API_SERVER),
    _rule("prioritylevelconfigurations", "exempt|catch-all|system|node-high|leader-election|workload-high|workload-low|"
          "global-default", _API_SERVER),
    _rule("leases", ".+", _KUBELET, namespace="kube-node-lease"),
    _rule("replicasets", r"(.+)-[0-9a-z]{5,10}", _DEPLOYMENT, counterpart="deployments"),
    _rule("jobs", r"(.+)-[0-9]{8,}", _CRON_JOB, counterpart="cronjobs"),
    _rule("pods", rf"(.+)-{_SUFFIX}", _REPLICA_SET, counterpart="replicasets"),
    _rule("pods", rf"(.+)-{_SUFFIX}", _DAEMON_SET, counterpart="daemonsets"),
    _rule("pods", rf"(.+)-{_SUFFIX}", _JOB, counterpart="jobs"),
    _rule("pods", rf"(.+)-{_SUFFIX}", _REPLICATION_CONTROLLER, counterpart="controllers"),
    _rule("pods", r"(.+)-[0-9]+", _STATEFUL_SET, counterpart="statefulsets"),
)  # fmt: skip
"""The first that fits counts."""

RESOURCES: Final[dict[tuple[str, str], Recreator]] = {
    ("", "events"): _NOBODY,
    ("events.k8s.io", "events"): _NOBODY,
    ("coordination.k8s.io", "leases"): _HOLDER,
    ("", "endpoints"): _CONTROLLER_MANAGER,
    ("discovery.k8s.io", "endpointslices"): _CONTROLLER_MANAGER,
    ("networking.k8s.io", "ipaddresses"): _API_SERVER,
    ("", "nodes"): _KUBELET_NODE,
    ("storage.k8s.io", "csinodes"): _KUBELET._replace(how="when the kubelet or its plugins register again"),
    ("storage.k8s.io", "volumeattachments"): _ATTACHER,
    ("certificates.k8s.io", "certificatesigningrequests"): _NOBODY,
}
"""Resources that one party alone writes."""

# Name of a label or annotation, or its beginning where it ends with "*" -> who put it there.
MARKS: Final[tuple[tuple[str, Recreator], ...]] = (
    ("cert-manager.io/certificate-name", _CERT_MANAGER),
    ("controller.cert-manager.io/fao", _CERT_MANAGER),
    ("reconcile.external-secrets.io/*", _EXTERNAL_SECRETS),
    ("sealedsecrets.bitnami.com/sealed-secrets-key", _SEALING_KEY),
    ("sealedsecrets.bitnami.com/*", _SEALED_SECRETS),
    ("secrets.hashicorp.com/*", _VAULT),
    ("operator.1password.io/*", _ONE_PASSWORD),
    ("elasticsearch.k8s.elastic.co/*", _ECK),
    ("cnpg.io/*", _CNPG),
    ("strimzi.io/*", _STRIMZI),
    ("olm.managed", _OLM),
    ("olm.owner", _OLM),
    ("service.beta.openshift.io/originating-service-name", OPENSHIFT_SERVICE_CA),
    ("service.alpha.openshift.io/originating-service-name", OPENSHIFT_SERVICE_CA),
    ("openshift.io/token-secret.name", _DOCKERCFG),
    ("argocd.argoproj.io/instance", _ARGO),
    ("argocd.argoproj.io/tracking-id", _ARGO),
    ("kustomize.toolkit.fluxcd.io/*", _FLUX),
    ("helm.toolkit.fluxcd.io/*", _FLUX),
    ("addonmanager.kubernetes.io/mode", _ADDON_MANAGER),
    ("meta.helm.sh/release-name", _HELM),
)  # fmt: skip
"""Those that say most come first: an object that Flux applies by way of Helm is Flux's."""

_MANAGED_BY: Final = "app.kubernetes.io/managed-by"
_MANAGERS: Final = {"Helm": _HELM, "external-secrets": _EXTERNAL_SECRETS, "prometheus-operator": _PROMETHEUS}

# (group, kind) of an owner -> who acts for it.
OWNERS: Final[dict[tuple[str, str], Recreator]] = {
    ("cert-manager.io", "Certificate"): _CERT_MANAGER,
    ("external-secrets.io", "ExternalSecret"): _EXTERNAL_SECRETS,
    ("bitnami.com", "SealedSecret"): _SEALED_SECRETS,
    ("secrets.hashicorp.com", "VaultStaticSecret"): _VAULT,
    ("secrets.hashicorp.com", "VaultDynamicSecret"): _VAULT,
    ("secrets.hashicorp.com", "VaultPKISecret"): _VAULT,
    ("isindir.github.com", "SopsSecret"): _SOPS,
    ("onepassword.com", "OnePasswordItem"): _ONE_PASSWORD,
    ("postgresql.cnpg.io", "Cluster"): _CNPG,
    ("kafka.strimzi.io", "Kafka"): _STRIMZI,
    ("", "Node"): _KUBELET,
    ("", "Service"): OPENSHIFT_SERVICE_CA,
    ("apps", "Deployment"): _DEPLOYMENT,
    ("apps", "ReplicaSet"): _REPLICA_SET,
    ("apps", "DaemonSet"): _DAEMON_SET,
    ("apps", "StatefulSet"): _STATEFUL_SET,
    ("batch", "Job"): _JOB,
    ("batch", "CronJob"): _CRON_JOB,
    ("", "ReplicationController"): _REPLICATION_CONTROLLER,
}


def recreator_of_marks(labels: dict[str, str], annotations: tuple[str, ...]) -> tuple[Recreator, str] | None:
    """Return who put labels and annotations on an object, and the mark that says so.

    Args:
        labels: With their values.
        annotations: Names only.
    """
    names = (*labels, *annotations)
    for mark, recreator in MARKS:
        start = mark.removesuffix("*")
        found = next((n for n in names if (n.startswith(start) if mark.endswith("*") else n == mark)), "")
        if found:
            return recreator, found
    managed_by = labels.get(_MANAGED_BY, "")
    if managed_by in _MANAGERS:
        return _MANAGERS[managed_by], f"{_MANAGED_BY}={managed_by}"
    return None
