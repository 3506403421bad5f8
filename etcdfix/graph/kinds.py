"""Which object is meant: from an owner reference's kind to a key in etcd, and which versions of kinds are served.

An object is known by its key below the storage prefix (``secrets/shop/db``): the shortest name that is unique, and
the only one that an unreadable object still has.

A version that is still registered is not always served: ``apps/v1beta1`` decodes to this day, and no server has served
it since 1.16. Whether a server serves another alpha or beta version depends on its release and on its flags, so
etcdfix does not decide that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.schema import kind_rows
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, builtin_directories, custom_directory

# Kinds that moved to another group: references written before the move still count.
_MOVED = {
    ("extensions", "DaemonSet"): "apps",
    ("extensions", "Deployment"): "apps",
    ("extensions", "ReplicaSet"): "apps",
    ("extensions", "Ingress"): "networking.k8s.io",
    ("extensions", "NetworkPolicy"): "networking.k8s.io",
}
# No release since 1.16 serves these, but for Ingresses.
_GONE = frozenset({("extensions", "v1beta1"), ("apps", "v1beta1"), ("apps", "v1beta2")})
_MOST_KINDS = 4096


class Served(StrEnum):
    """Whether an API server serves a version of a kind."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


class Kinds:
    """Which directory of etcd holds the objects of a kind."""

    def __init__(self, custom_resources: Mapping[tuple[str, str], CustomResourceInfo]) -> None:
        self._custom: dict[str, ResourcePrefix] = {}
        self._by_kind = {(d.group, d.kind): d for d in builtin_directories()}
        self._definitions: dict[str, CustomResourceInfo] = {}
        self._owners: dict[tuple[str, str], tuple[ResourcePrefix | None, Served]] = {}
        for (group, plural), crd in custom_resources.items():
            directory = msgspec.structs.replace(
                custom_directory(group, plural),
                kind=crd.kind,
                namespaced=crd.scope == "Namespaced",
                version=crd.storage_version,
            )
            self._by_kind.setdefault((group, crd.kind), directory)
            self._custom[directory.path] = directory
            self._definitions[directory.path] = crd
        # An API server's discovery names every kind in lower case, too, and in no other mix of cases.
        self._in_lower_case = {(group, kind.lower()): d for (group, kind), d in self._by_kind.items()}

    def custom(self, directory: ResourcePrefix) -> ResourcePrefix:
        """Return a directory with kind and scope, as far as a readable CRD tells them."""
        custom = directory.codec is StorageCodec.CUSTOM_RESOURCE
        return self._custom.get(directory.path, directory) if custom else directory

    def directory(self, group: str, kind: str) -> ResourcePrefix | None:
        """Return the directory of a kind; None where neither a built-in nor a readable CRD has it."""
        found = self._by_kind.get((group, kind))
        if found is None and (group, kind) in _MOVED:
            found = self._by_kind.get((_MOVED[group, kind], kind))
        return found

    def of_owner(self, api_version: str, kind: str) -> tuple[ResourcePrefix | None, Served]:
        """Return the directory for what an owner reference names, and whether that version is served.

        Source: ``client-go/restmapper/discovery.go``, by which the garbage collector finds an owner's resource. A kind
        may be written in lower case.
        """
        found = self._owners.get((api_version, kind))
        if found is None:
            if len(self._owners) >= _MOST_KINDS:
                self._owners.clear()
            group, _, version = api_version.rpartition("/")
            directory = self.directory(group, kind)
            if directory is None and kind == kind.lower():
                directory = self._in_lower_case.get((group, kind))
            served = Served.YES if directory is None else self._served(directory, group, version)
            found = self._owners[api_version, kind] = directory, served
        return found

    def _served(self, directory: ResourcePrefix, group: str, version: str) -> Served:
        definition = self.definition(directory)
        if definition is not None:
            return Served.YES if version in definition.served_versions else Served.NO
        if (group, version) in _GONE and directory.kind != "Ingress":
            return Served.NO
        named = (group, version, directory.kind)
        if not any((row.group, row.version, row.kind) == named for row in kind_rows()):
            return Served.NO
        return Served.PERHAPS if "alpha" in version or "beta" in version else Served.YES

    def never_answered(self) -> Iterator[ResourcePrefix]:
        """Yield the directories of namespaced types of whose objects API servers answer no request."""
        for path, crd in self._definitions.items():
            if crd.bundle_broken and crd.scope == "Namespaced":
                yield self._custom[path]

    def definition(self, directory: ResourcePrefix) -> CustomResourceInfo | None:
        """Return the readable CRD of a directory; None for a built-in's."""
        return self._definitions.get(directory.path)


def relative_key(directory: ResourcePrefix, namespace: str, name: str) -> str:
    """Return an object's key below the storage prefix."""
    if directory.namespaced is False or not namespace:
        return f"{directory.path}/{name}"
    return f"{directory.path}/{namespace}/{name}"


def crd_path(name: str) -> str:
    """Return where the objects of a CustomResourceDefinition lie below the storage prefix."""
    plural, _, group = name.partition(".")
    return f"{group}/{plural}"
