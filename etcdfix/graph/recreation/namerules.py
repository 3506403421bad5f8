"""Who makes objects again, by their names: names are given by anybody, so a second object has to speak for each.

Sources: ``plugin/pkg/auth/authorizer/rbac/bootstrappolicy``, ``staging/src/k8s.io/api`` and ``apiserver``'s
``flowcontrol/bootstrap``, ``cmd/kubeadm``, ``pkg/controller/*`` of Kubernetes 1.36; for the suffix of generated names
``staging/src/k8s.io/apimachinery/pkg/util/rand``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from etcdfix.graph.recreation.recreators import (
    API_SERVER,
    CERT_MANAGER,
    CNPG,
    CONTROLLER_MANAGER,
    CRON_JOB,
    DAEMON_SET,
    DEPLOYMENT,
    DOCKERCFG,
    ECK,
    HELM_RELEASE,
    JOB,
    KUBELET,
    MIRROR,
    OPENSHIFT_ACCOUNTS,
    OPENSHIFT_SERVICE_CA,
    PROMETHEUS,
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SEALING_KEY,
    STATEFUL_SET,
    STRIMZI,
    TOKEN_CONTROLLER,
    ComesBack,
    Recreator,
)
from etcdfix.graph.uses import CONFIG_MAPS, SECRETS
from etcdfix.model import Confidence


class NameRule(NamedTuple):
    """A pattern of names.

    Attributes:
        path: Directory of the object.
        pattern: Must match the whole name.
        recreator: Who uses such names.
        namespace: Only there; "" for anywhere.
        counterpart: Key below the storage prefix of the object that explains the name. ``{name}`` stands for the
            pattern's first group, ``{namespace}`` for the object's own. Without that object the rule does not count.
        beside: Keys of objects that only a cluster with such a recreator has: without any of them the name alone is
            left, and says no more than that it is possible.
        type: Of the Secrets that are called like that; a known other one speaks against it.
        owned: Such objects have an owner reference: one that is known to have none was made by somebody else.
        confidence: How far it can be trusted where ``counterpart`` or ``beside`` are there, or none is needed.
    """

    path: str
    pattern: re.Pattern[str]
    recreator: Recreator
    namespace: str = ""
    counterpart: str = ""
    beside: tuple[str, ...] = ()
    type: str = ""
    owned: bool = False
    confidence: Confidence = Confidence.LIKELY


def _rule(path: str, pattern: str, recreator: Recreator, **more: Any) -> NameRule:
    return NameRule(path, re.compile(pattern), recreator)._replace(**more)


def _names(path: str, names: Iterable[str], recreator: Recreator, namespace: str = "") -> NameRule:
    """Return the rule for names that Kubernetes itself keeps, exactly these."""
    return NameRule(path, re.compile("|".join(map(re.escape, names))), recreator, namespace)


def crd_key(name: str) -> str:
    """Return the key of a CustomResourceDefinition."""
    return f"apiextensions.k8s.io/customresourcedefinitions/{name}"


OPENSHIFT_SIGNS: Final = tuple(
    crd_key(name)
    for name in (
        "clusterversions.config.openshift.io",
        "clusteroperators.config.openshift.io",
        "securitycontextconstraints.security.openshift.io",
        "routes.route.openshift.io",
    )
)
"""Any of them is in a cluster of OpenShift."""

_OF_KUBEADM: Final = (
    f"{CONFIG_MAPS}/kube-system/kubeadm-config",
    f"{CONFIG_MAPS}/kube-system/kubelet-config",
    f"{CONFIG_MAPS}/kube-public/cluster-info",
)
_ACCOUNT: Final = "serviceaccounts/{namespace}/{name}"
_OWN_NAMESPACE: Final = "namespaces/{namespace}"
# What generateName adds: no vowels and nothing that looks like one, so that no words come about.
_LETTERS: Final = "[bcdfghjklmnpqrstvwxz2456789]"
_SUFFIX: Final = f"{_LETTERS}{{5}}"
_SYSTEM, _PUBLIC = "kube-system", "kube-public"

# ---------------------------------------------------------------------------------------------------------- kubeadm

_WITH_CONFIG: Final = "--config FILE, with the configuration that the cluster was made with"


def _kubeadm(how: str) -> Recreator:
    return Recreator("kubeadm", ComesBack.AFTER_A_STEP, how)


def _of_kubeadm(name: str, how: str, namespace: str = _SYSTEM) -> NameRule:
    own = f"{CONFIG_MAPS}/{namespace}/{name}"
    beside = tuple(key for key in _OF_KUBEADM if key != own)
    return _rule(CONFIG_MAPS, re.escape(name), _kubeadm(how), namespace=namespace, beside=beside)


_KUBEADM: Final = (
    _rule(
        SECRETS, r"bootstrap-token-[a-z0-9]{6}",
        _kubeadm("kubeadm token create, when a node is to join again; else nobody needs it"),
        namespace=_SYSTEM, beside=_OF_KUBEADM, type="bootstrap.kubernetes.io/token",
    ),
    _rule(
        SECRETS, "kubeadm-certs",
        _kubeadm(
            "kubeadm init phase upload-certs --upload-certs, when a control-plane node is to join; else nobody needs it"
        ),
        namespace=_SYSTEM, beside=_OF_KUBEADM,
    ),
    _of_kubeadm("kubeadm-config", f"kubeadm init phase upload-config kubeadm {_WITH_CONFIG}"),
    _of_kubeadm("kubelet-config", f"kubeadm init phase upload-config kubelet {_WITH_CONFIG}"),
    _of_kubeadm("kube-proxy", f"kubeadm init phase addon kube-proxy {_WITH_CONFIG}; changes made since stay lost"),
    _of_kubeadm("coredns", f"kubeadm init phase addon coredns {_WITH_CONFIG}; a changed Corefile stays lost"),
    _of_kubeadm("cluster-info", "kubeadm init phase bootstrap-token", _PUBLIC),
)  # fmt: skip

# ------------------------------------------------------------------------- what API servers and controllers bootstrap

_AT_START: Final = Recreator(
    "kube-apiserver",
    ComesBack.AFTER_A_STEP,
    "an API server makes it when it starts; restart none before the caches are saved",
)
_OF_CONTROLLERS: Final = tuple(
    f"system:controller:{name}"
    for name in (
        "attachdetach-controller", "certificate-controller", "clusterrole-aggregation-controller",
        "cronjob-controller", "daemon-set-controller", "deployment-controller", "disruption-controller",
        "endpoint-controller", "endpointslice-controller", "endpointslicemirroring-controller",
        "ephemeral-volume-controller", "expand-controller", "generic-garbage-collector",
        "horizontal-pod-autoscaler", "job-controller", "namespace-controller", "node-controller",
        "persistent-volume-binder", "pod-garbage-collector", "pv-protection-controller", "pvc-protection-controller",
        "replicaset-controller", "replication-controller", "resourcequota-controller", "root-ca-cert-publisher",
        "route-controller", "service-account-controller", "service-controller", "statefulset-controller",
        "ttl-after-finished-controller", "ttl-controller",
    )
)  # fmt: skip
_CLUSTER_ROLES: Final = (
    "admin", "cluster-admin", "edit", "view",
    "system:aggregate-to-admin", "system:aggregate-to-edit", "system:aggregate-to-view", "system:auth-delegator",
    "system:basic-user", "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
    "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
    "system:certificates.k8s.io:kube-apiserver-client-approver",
    "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver",
    "system:certificates.k8s.io:kubelet-serving-approver", "system:certificates.k8s.io:legacy-unknown-approver",
    "system:discovery", "system:kube-aggregator", "system:kube-controller-manager", "system:kube-dns",
    "system:kube-scheduler", "system:kubelet-api-admin", "system:monitoring", "system:node", "system:node-bootstrapper",
    "system:node-problem-detector", "system:node-proxier", "system:persistent-volume-provisioner",
    "system:public-info-viewer", "system:service-account-issuer-discovery", "system:volume-scheduler",
    *_OF_CONTROLLERS,
)  # fmt: skip
_CLUSTER_ROLE_BINDINGS: Final = (
    "cluster-admin", "system:basic-user", "system:discovery", "system:kube-controller-manager", "system:kube-dns",
    "system:kube-scheduler", "system:monitoring", "system:node", "system:node-proxier", "system:public-info-viewer",
    "system:service-account-issuer-discovery", "system:volume-scheduler",
    *_OF_CONTROLLERS,
)  # fmt: skip
_OF_SYSTEM: Final = (
    "system::leader-locking-kube-controller-manager", "system::leader-locking-kube-scheduler",
    "system:controller:bootstrap-signer", "system:controller:cloud-provider", "system:controller:token-cleaner",
)  # fmt: skip
_OF_PUBLIC: Final = ("system:controller:bootstrap-signer",)
# Controllers whose role depends on a feature gate or on the release.
_OTHER_CONTROLLERS: Final = r"system:controller:[-a-z]+"

_BOOTSTRAPPED: Final = (
    _names("clusterroles", _CLUSTER_ROLES, _AT_START),
    _names("clusterrolebindings", _CLUSTER_ROLE_BINDINGS, _AT_START),
    _rule("clusterroles", _OTHER_CONTROLLERS, _AT_START, confidence=Confidence.POSSIBLE),
    _rule("clusterrolebindings", _OTHER_CONTROLLERS, _AT_START, confidence=Confidence.POSSIBLE),
    _names("roles", ("extension-apiserver-authentication-reader", *_OF_SYSTEM), _AT_START, _SYSTEM),
    _names("roles", _OF_PUBLIC, _AT_START, _PUBLIC),
    _names(
        "rolebindings", ("system::extension-apiserver-authentication-reader", *_OF_SYSTEM), _AT_START, _SYSTEM
    ),
    _names("rolebindings", _OF_PUBLIC, _AT_START, _PUBLIC),
    _names("priorityclasses", ("system-node-critical", "system-cluster-critical"), _AT_START),
    _names(
        "flowschemas",
        (
            "exempt", "catch-all", "system-nodes", "system-node-high", "probes", "system-leader-election",
            "workload-leader-election", "endpoint-controller", "kube-controller-manager", "kube-scheduler",
            "kube-system-service-accounts", "service-accounts", "global-default",
        ),
        API_SERVER,
    ),
    _names(
        "prioritylevelconfigurations",
        (
            "exempt", "catch-all", "system", "node-high", "leader-election", "workload-high", "workload-low",
            "global-default",
        ),
        API_SERVER,
    ),
    _names("namespaces", ("default", _SYSTEM, _PUBLIC, "kube-node-lease"), API_SERVER._replace(
        how="with a new uid; what it held is there again")),
    _names(CONFIG_MAPS, ("extension-apiserver-authentication",), API_SERVER, _SYSTEM),
    _names("services/endpoints", ("kubernetes",), API_SERVER, "default"),
    _names("endpointslices", ("kubernetes",), API_SERVER, "default"),
    _rule(CONFIG_MAPS, r"kube-root-ca\.crt", CONTROLLER_MANAGER, counterpart=_OWN_NAMESPACE),
    _rule("serviceaccounts", "default", CONTROLLER_MANAGER._replace(
        how="its uid is a new one: bound tokens of before end"), counterpart=_OWN_NAMESPACE),
    _rule("leases", "(.+)", KUBELET, namespace="kube-node-lease", counterpart="minions/{name}"),
)  # fmt: skip

# -------------------------------------------------------------------------------------------------------- workloads

# A CronJob's controller names jobs by their time in minutes since 1970, until 1.20 in seconds: no date looks like it.
_TIME: Final = "(?:2[6-9][0-9]{6}|3[0-9]{7}|1[4-9][0-9]{8})"
_WORKLOADS: Final = (
    _rule("replicasets", rf"(.+)-{_LETTERS}{{5,10}}", DEPLOYMENT, counterpart="deployments/{namespace}/{name}",
          owned=True),
    _rule("jobs", rf"(.+)-{_TIME}", CRON_JOB, counterpart="cronjobs/{namespace}/{name}", owned=True),
    *(
        _rule("pods", rf"(.+)-{_SUFFIX}", recreator, counterpart=f"{path}/{{namespace}}/{{name}}", owned=True)
        for path, recreator in (
            ("replicasets", REPLICA_SET),
            ("daemonsets", DAEMON_SET),
            ("jobs", JOB),
            ("controllers", REPLICATION_CONTROLLER),
        )
    ),
    _rule("pods", r"(.+)-[0-9]+", STATEFUL_SET, counterpart="statefulsets/{namespace}/{name}", owned=True),
    _rule("pods", r"(?:etcd|kube-(?:apiserver|controller-manager|scheduler))-(.+)", MIRROR,
          namespace=_SYSTEM, counterpart="minions/{name}", owned=True),
)  # fmt: skip

# -------------------------------------------------------------------------------------------------------- operators

_ZALANDO: Final = Recreator(
    "postgres-operator", ComesBack.BY_ITSELF, "at its next sync; the password is a new one"
)
_ISTIO: Final = Recreator("Istio", ComesBack.BY_ITSELF, "")


def _of(resource: str) -> str:
    return f"{resource}/{{namespace}}/{{name}}"


_OPERATORS: Final = (
    _rule(SECRETS, r"sh\.helm\.release\.v1\..+\.v[0-9]+", HELM_RELEASE, type="helm.sh/release.v1"),
    _rule(SECRETS, rf"sealed-secrets-key(?:{_SUFFIX})?", SEALING_KEY, type="kubernetes.io/tls"),
    _rule(
        SECRETS, rf"(.+)-token-{_SUFFIX}", TOKEN_CONTROLLER, counterpart=_ACCOUNT,
        type="kubernetes.io/service-account-token",
    ),
    _rule(
        SECRETS, "cert-manager-webhook-ca", CERT_MANAGER._replace(how="its webhook makes a new CA"),
        beside=(crd_key("certificates.cert-manager.io"),),
    ),
    _rule(
        SECRETS,
        r"(.+)-es-(?:elastic-user|internal-users|xpack-file-realm|remote-ca|secure-settings|file-settings|"
        r"(?:http|transport)-(?:ca-internal|certs-internal|certs-public)|.+-es-(?:config|transport-certs))",
        ECK, counterpart=_of("elasticsearch.k8s.elastic.co/elasticsearches"), owned=True,
    ),
    _rule(
        SECRETS, "(.+)-(?:kb-(?:config|es-ca|http-(?:ca-internal|certs-internal|certs-public))|kibana-user)", ECK,
        counterpart=_of("kibana.k8s.elastic.co/kibanas"), owned=True,
    ),
    _rule(
        SECRETS, "(.+)-(?:ca|server|replication|app|superuser)", CNPG,
        counterpart=_of("postgresql.cnpg.io/clusters"), owned=True,
    ),
    _rule(
        SECRETS, "(.+)-(?:kafka-brokers|cluster-operator-certs|entity-(?:topic|user)-operator-certs)", STRIMZI,
        counterpart=_of("kafka.strimzi.io/kafkas"), owned=True,
    ),
    # These may be the user's own as well: a Kafka need not generate its authorities.
    _rule(
        SECRETS, "(.+)-(?:cluster|clients)-ca(?:-cert)?", STRIMZI, counterpart=_of("kafka.strimzi.io/kafkas"),
        owned=True, confidence=Confidence.POSSIBLE,
    ),
    _rule(
        SECRETS, r".+\.([^.]+)\.credentials\.postgresql\.acid\.zalan\.do", _ZALANDO,
        counterpart=_of("acid.zalan.do/postgresqls"),
    ),
    _rule(
        SECRETS, "prometheus-(.+?)(?:-tls-assets-[0-9]+|-web-config|-thanos-prometheus-http-client-file)?", PROMETHEUS,
        counterpart=_of("monitoring.coreos.com/prometheuses"), owned=True,
    ),
    _rule(
        SECRETS, "alertmanager-(.+?)(?:-generated|-tls-assets-[0-9]+|-web-config|-cluster-tls-config)", PROMETHEUS,
        counterpart=_of("monitoring.coreos.com/alertmanagers"), owned=True,
    ),
    _rule(
        CONFIG_MAPS, "istio-ca-root-cert", _ISTIO,
        beside=(crd_key("envoyfilters.networking.istio.io"), crd_key("virtualservices.networking.istio.io")),
    ),
)  # fmt: skip
_OPENSHIFT: Final = (
    _rule(SECRETS, rf"(.+)-dockercfg-{_SUFFIX}", DOCKERCFG, counterpart=_ACCOUNT, type="kubernetes.io/dockercfg"),
    _rule(CONFIG_MAPS, r"openshift-service-ca\.crt", OPENSHIFT_SERVICE_CA),
    _rule("serviceaccounts", "builder|deployer", OPENSHIFT_ACCOUNTS),
)  # fmt: skip
"""They count in a cluster of OpenShift only."""

NAME_RULES: Final[tuple[NameRule, ...]] = (*_KUBEADM, *_BOOTSTRAPPED, *_OPERATORS, *_OPENSHIFT, *_WORKLOADS)
"""What fits and can be trusted most counts; of those alike, the first."""
