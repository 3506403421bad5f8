"""Secrets that StorageClasses and snapshot classes name by template, and how the templates are filled in.

Sources: the CSI side-cars external-provisioner (``pkg/controller/controller.go``, ``getSecretReference``) and
external-snapshotter (``pkg/utils/util.go``, ``GetSecretReference``), as their documentation describes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from etcdfix.graph.uses import Role

_PREFIX: Final = "csi.storage.k8s.io/"
_TOKEN: Final = re.compile(r"\$\{([^}]*)\}")
_ANY_OPERATION: Final = (f"{_PREFIX}secret-name", f"{_PREFIX}secret-namespace")

# Role -> what the parameters with name and namespace were called once; today they are called after the role.
_OF_STORAGE: Final = {
    Role.PROVISIONER: "csiProvisioner",
    Role.CONTROLLER_PUBLISH: "csiControllerPublish",
    Role.NODE_STAGE: "csiNodeStage",
    Role.NODE_PUBLISH: "csiNodePublish",
    Role.CONTROLLER_EXPAND: "",
    Role.NODE_EXPAND: "",
    Role.CONTROLLER_MODIFY: "",
}
_OF_SNAPSHOTS: Final = (
    Role.SNAPSHOTTER,
    Role.SNAPSHOTTER_LIST,
    Role.GROUP_SNAPSHOTTER,
    Role.GROUP_SNAPSHOTTER_GET,
)


class SecretTemplate(msgspec.Struct, frozen=True):
    """A Secret that a class names; ``path`` is the field that holds the name. Both texts may hold ``${…}``."""

    role: Role
    name: str
    namespace: str
    path: str

    def resolve(self, names: Mapping[str, str], namespaces: Mapping[str, str]) -> tuple[str, str] | None:
        """Return (namespace, name), None where a token cannot be filled in."""
        name, namespace = _fill(self.name, names), _fill(self.namespace, namespaces)
        return (namespace, name) if name and namespace else None


Tokens = tuple[Mapping[str, str], Mapping[str, str]]
"""What templates can be filled in with: for a Secret's name, and for its namespace."""


def claim_tokens(namespace: str, name: str, volume: str, annotations: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a PersistentVolumeClaim."""
    namespaces = {"pv.name": volume, "pvc.namespace": namespace}
    return {**namespaces, "pvc.name": name, **_annotations("pvc", annotations)}, namespaces


def snapshot_tokens(namespace: str, name: str, content: str, annotations: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a VolumeSnapshot (or VolumeGroupSnapshot)."""
    namespaces: dict[str, str] = {}
    names: dict[str, str] = {}
    for kind in ("volumesnapshot", "volumegroupsnapshot"):
        namespaces |= {f"{kind}content.name": content, f"{kind}.namespace": namespace}
        names |= {f"{kind}.name": name, **_annotations(kind, annotations)}
    return {**namespaces, **names}, namespaces


def _annotations(kind: str, annotations: Mapping[str, Any]) -> dict[str, str]:
    return {f"{kind}.annotations['{k}']": v for k, v in annotations.items() if isinstance(v, str)}


def _fill(template: str, tokens: Mapping[str, str]) -> str:
    """Return a template filled in; "" where a token is not known or empty."""
    whole = all(tokens.get(token) for token in _TOKEN.findall(template))
    return _TOKEN.sub(lambda match: tokens[match[1]], template) if whole else ""


def storage_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a StorageClass names."""
    found: list[SecretTemplate] = []
    for role, old in _OF_STORAGE.items():
        pairs = (_pair(role), (f"{old}SecretName", f"{old}SecretNamespace"), _ANY_OPERATION)
        pair = next((pair for pair in pairs if parameters.get(pair[0])), None)
        found += _template(role, pair, parameters) if pair is not None else ()
    return tuple(found)


def snapshot_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a VolumeSnapshotClass or VolumeGroupSnapshotClass names."""
    return tuple(found for role in _OF_SNAPSHOTS for found in _template(role, _pair(role), parameters))


def _pair(role: Role) -> tuple[str, str]:
    return f"{_PREFIX}{role}-secret-name", f"{_PREFIX}{role}-secret-namespace"


def _template(role: Role, pair: tuple[str, str], parameters: Mapping[str, Any]) -> Iterator[SecretTemplate]:
    name, namespace = parameters.get(pair[0]), parameters.get(pair[1])
    if isinstance(name, str) and isinstance(namespace, str) and name and namespace:
        yield SecretTemplate(role, name, namespace, f"parameters[{pair[0]}]")
