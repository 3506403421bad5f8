"""The health checks of a kube-apiserver 1.36.2, in the order in which it tells of them."""

from __future__ import annotations

_BEFORE = (
    "poststarthook/start-encryption-provider-config-automatic-reload",
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
)
_AFTER = (
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-wait-for-first-sync",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
)
_FAIRNESS = (
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
)
_FIRST = {
    "readyz": ("ping", "log", "kms-providers", "informer-sync"),
    "livez": ("ping", "log", "loopback-serving-certificate", "etcd"),
    "healthz": ("ping", "log", "loopback-serving-certificate", "etcd", "kms-providers"),
}


def checks(which: str, *, fairness: bool) -> tuple[str, ...]:
    """Return the checks of ``readyz``, ``livez`` or ``healthz``; ``fairness``: priority and fairness is on."""
    limits = _FAIRNESS if fairness else ("poststarthook/max-in-flight-filter",)
    last = ("shutdown",) if which == "readyz" else ()
    return (*_FIRST[which], *_BEFORE, *limits, *_AFTER, *last)
