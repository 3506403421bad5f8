"""Which object is meant: from an owner reference's kind to a key in etcd, and which versions of kinds are served.

An object is known by its key below the storage prefix (``secrets/shop/db``): the shortest name that is unique, and
the only one that an unreadable object still has.

A version that is still registered is not always served: ``apps/v1beta1`` decodes to this day, and no server has served
it since 1.16. A reference in such a version leads nowhere.

Source: Kubernetes' deprecated API migration guide; ``pkg/controlplane/instance.go`` (beta versions made since 1.24
are off unless somebody switches them on).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.schema import kind_rows, known_minors
from etcdfix.model.storagekey import ResourcePrefix, builtin_directories, custom_directory

# Kinds that moved to another group: references written before the move still count.
_MOVED = {
    ("extensions", "DaemonSet"): "apps",
    ("extensions", "Deployment"): "apps",
    ("extensions", "ReplicaSet"): "apps",
    ("extensions", "Ingress"): "networking.k8s.io",
    ("extensions", "NetworkPolicy"): "networking.k8s.io",
}


class Kinds:
    """Which directory of etcd holds the objects of a kind."""

    def __init__(self, custom_resources: Mapping[tuple[str, str], CustomResourceInfo]) -> None:
        self._custom: dict[tuple[str, str], ResourcePrefix] = {}
        self._by_kind = {(d.group, d.kind): d for d in builtin_directories()}
        self._definitions: dict[str, CustomResourceInfo] = {}
        for (group, plural), crd in custom_resources.items():
            directory = msgspec.structs.replace(
                custom_directory(group, plural),
                kind=crd.kind,
                namespaced=crd.scope == "Namespaced",
                version=crd.storage_version,
            )
            self._by_kind.setdefault((group, crd.kind), directory)
            self._custom[group, plural] = directory
            self._definitions[directory.path] = crd
        # An API server's discovery names every kind in lower case, too, and in no other mix of cases.
        self._in_lower_case = {(group, kind.lower()): d for (group, kind), d in self._by_kind.items()}

    def custom(self, directory: ResourcePrefix) -> ResourcePrefix:
        """Return a custom resource's directory with kind and scope, as far as a readable CRD tells them."""
        return self._custom.get((directory.group, directory.resource), directory)

    def directory(self, group: str, kind: str) -> ResourcePrefix | None:
        """Return the directory of a kind; None where neither a built-in nor a readable CRD has it."""
        found = self._by_kind.get((group, kind))
        if found is None and (group, kind) in _MOVED:
            found = self._by_kind.get((_MOVED[group, kind], kind))
        return found

    def of_owner(self, api_version: str, kind: str) -> ResourcePrefix | None:
        """Return the directory for what an owner reference names; its kind may be written in lower case.

        Source: ``client-go/restmapper/discovery.go``, by which the garbage collector finds an owner's resource.
        """
        group = api_version.rpartition("/")[0]
        found = self.directory(group, kind)
        if found is None and kind == kind.lower():
            found = self._in_lower_case.get((group, kind))
        return found

    def definition(self, directory: ResourcePrefix) -> CustomResourceInfo | None:
        """Return the readable CRD of a directory; None for a built-in's."""
        return self._definitions.get(directory.path)


def relative_key(directory: ResourcePrefix, namespace: str, name: str) -> str:
    """Return an object's key below the storage prefix."""
    if directory.namespaced is False:
        return f"{directory.path}/{name}"
    return f"{directory.path}/{namespace}/{name}" if namespace else f"{directory.path}/{name}"


def crd_path(name: str) -> str:
    """Return where the objects of a CustomResourceDefinition lie below the storage prefix."""
    plural, _, group = name.partition(".")
    return f"{group}/{plural}"


class Served(StrEnum):
    """Whether an API server serves a version of a kind."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


_EXTENSIONS: Final = ("extensions", "v1beta1")
# Group and version -> the last minor release that served it; for one kind of it where it is named.
_LAST_SERVED: Final[dict[tuple[str, ...], int]] = {
    _EXTENSIONS: 15,
    (*_EXTENSIONS, "Ingress"): 21,
    ("apps", "v1beta1"): 15,
    ("apps", "v1beta2"): 15,
    ("admissionregistration.k8s.io", "v1beta1", "MutatingWebhookConfiguration"): 21,
    ("admissionregistration.k8s.io", "v1beta1", "ValidatingWebhookConfiguration"): 21,
    ("apiextensions.k8s.io", "v1beta1"): 21,
    ("apiregistration.k8s.io", "v1beta1"): 21,
    ("autoscaling", "v2beta1"): 24,
    ("autoscaling", "v2beta2"): 25,
    ("batch", "v1beta1"): 24,
    ("batch", "v2alpha1"): 20,
    ("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"): 21,
    ("coordination.k8s.io", "v1beta1", "Lease"): 21,
    ("discovery.k8s.io", "v1beta1"): 24,
    ("flowcontrol.apiserver.k8s.io", "v1beta1"): 25,
    ("flowcontrol.apiserver.k8s.io", "v1beta2"): 28,
    ("flowcontrol.apiserver.k8s.io", "v1beta3"): 31,
    ("networking.k8s.io", "v1beta1", "Ingress"): 21,
    ("networking.k8s.io", "v1beta1", "IngressClass"): 21,
    ("node.k8s.io", "v1beta1"): 24,
    ("policy", "v1beta1"): 24,
    ("rbac.authorization.k8s.io", "v1beta1"): 21,
    ("scheduling.k8s.io", "v1beta1"): 21,
    ("storage.k8s.io", "v1beta1", "CSIDriver"): 21,
    ("storage.k8s.io", "v1beta1", "CSINode"): 21,
    ("storage.k8s.io", "v1beta1", "CSIStorageCapacity"): 26,
    ("storage.k8s.io", "v1beta1", "StorageClass"): 21,
    ("storage.k8s.io", "v1beta1", "VolumeAttachment"): 21,
}


def served_builtin(group: str, version: str, kind: str, kubernetes_minor: int | None) -> Served:
    """Say whether an API server serves a built-in kind in a version.

    Args:
        group: API group, "" for core.
        version: As a reference states it.
        kind: In its own spelling.
        kubernetes_minor: Of the servers; None where it was not named, then every release from 1.17 on counts.
    """
    oldest, newest = known_minors()
    last = _LAST_SERVED.get((group, version, kind), _LAST_SERVED.get((group, version)))
    if last is not None:
        if kubernetes_minor is None:
            return Served.NO if last < oldest else Served.PERHAPS
        return Served.YES if kubernetes_minor <= last else Served.NO
    releases = [
        (row.since, row.until)
        for row in kind_rows()
        if (row.group, row.version, row.kind) == (group, version, kind)
    ]
    if not releases:
        # A release newer than the tables may have versions that they do not know.
        newer = kubernetes_minor is not None and kubernetes_minor > newest
        return Served.PERHAPS if newer else Served.NO
    if kubernetes_minor is not None:
        at = min(kubernetes_minor, newest)
        if not any(since <= at <= until for since, until in releases):
            return Served.NO
    return Served.PERHAPS if "alpha" in version or "beta" in version else Served.YES


def served_version(
    directory: ResourcePrefix,
    api_version: str,
    definition: CustomResourceInfo | None,
    kubernetes_minor: int | None,
) -> Served:
    """Say whether an API server serves what a reference calls ``apiVersion`` of a kind that is known."""
    group, _, version = api_version.rpartition("/")
    if definition is not None:
        return Served.YES if version in definition.served_versions else Served.NO
    return served_builtin(group, version, directory.kind, kubernetes_minor)
