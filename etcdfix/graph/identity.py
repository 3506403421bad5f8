"""Which object is meant: from an owner reference's kind to a key in etcd.

An object is known by its key below the storage prefix (``secrets/shop/db``): the shortest name that is unique, and
the only one that an unreadable object still has.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.storagekey import ResourcePrefix, builtin_directories, custom_directory

# Kinds that moved to another group: references written before the move still count.
_MOVED = {
    ("extensions", "DaemonSet"): "apps",
    ("extensions", "Deployment"): "apps",
    ("extensions", "ReplicaSet"): "apps",
    ("extensions", "Ingress"): "networking.k8s.io",
    ("extensions", "NetworkPolicy"): "networking.k8s.io",
}


class Kinds:
    """Which directory of etcd holds the objects of a kind.

    Args:
        custom_resources: The readable CRDs, as an examiner learned them.
    """

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
        found = self.of_api_version(api_version, kind)
        if found is None and kind == kind.lower():
            group = api_version.rpartition("/")[0]
            found = self._in_lower_case.get((group, kind))
        return found

    def definition(self, directory: ResourcePrefix) -> CustomResourceInfo | None:
        """Return the readable CRD of a directory; None for a built-in's."""
        return self._definitions.get(directory.path)

    def of_api_version(self, api_version: str, kind: str) -> ResourcePrefix | None:
        """Return the directory for what a reference calls ``apiVersion`` and ``kind``."""
        return self.directory(api_version.rpartition("/")[0], kind)


def relative_key(directory: ResourcePrefix, namespace: str, name: str) -> str:
    """Return an object's key below the storage prefix.

    Args:
        directory: Of its resource.
        namespace: Left out where the resource has none.
        name: Its name.
    """
    if directory.namespaced is False:
        return f"{directory.path}/{name}"
    return f"{directory.path}/{namespace}/{name}" if namespace else f"{directory.path}/{name}"


def crd_path(name: str) -> str:
    """Return where the objects of a CustomResourceDefinition lie below the storage prefix."""
    plural, _, group = name.partition(".")
    return f"{group}/{plural}"
