"""Which resources a stand-in API server knows: the built-ins of 1.36, and what CustomResourceDefinitions add."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from etcdfix.decoding.customresource import CustomResourceInfo, crd_info
from etcdfix.model.model import GroupResource
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec, builtin_directories, custom_directory

CRDS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")


class Resource(NamedTuple):
    """One resource that is served.

    Attributes:
        crd: Of a custom resource; None for a built-in.
    """

    group: str
    version: str
    name: str
    kind: str
    namespaced: bool
    directory: ResourcePrefix
    crd: CustomResourceInfo | None = None

    @property
    def group_resource(self) -> GroupResource:
        return GroupResource(self.group, self.name)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def go_type(self) -> str:
        """What the server calls it where it says that it failed to list it."""
        if self.crd is not None:
            return f"{self.api_version}, Kind={self.kind}"
        package = self.group.split(".")[0] or "core"
        return f"*{package}.{self.kind}"

    @property
    def words(self) -> str:
        """As the server calls the resource in what it refuses: ``secrets``, ``widgets.example.com``."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def key(self, prefix: str, namespace: str, name: str) -> bytes:
        """Return the etcd key of an object; below ``prefix``, without a slash at its end."""
        place = f"{namespace}/" if self.namespaced else ""
        return f"{prefix}/{self.directory.path}/{place}{name}".encode()


@cache
def builtins() -> Mapping[GroupResource, Resource]:
    """Return every built-in that is stored."""
    return {
        directory.group_resource: Resource(
            directory.group,
            directory.version,
            directory.resource,
            directory.kind,
            bool(directory.namespaced),
            directory,
        )
        for directory in builtin_directories()
        if directory.codec in {StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN}
    }


def custom(crd: Mapping[str, Any]) -> Resource:
    """Return what a CustomResourceDefinition adds."""
    info = crd_info(crd)
    return Resource(
        info.group,
        info.storage_version,
        info.plural,
        info.kind,
        info.scope == "Namespaced",
        custom_directory(info.group, info.plural),
        info,
    )
