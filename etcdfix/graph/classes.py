"""Secrets that StorageClasses and snapshot classes name by template, and how the templates are filled in.

Sources: the CSI side-cars external-provisioner (``pkg/controller/controller.go``, ``getSecretReference``) and
external-snapshotter (``pkg/utils/util.go``, ``GetSecretReference``), as their documentation describes them;
``docs/driver-parameters.md`` of azurefile-csi-driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.graph.uses import Role

_AZURE_DRIVER: Final = "file.csi.azure.com"
_PREFIX = "csi.storage.k8s.io/"
_TOKEN = re.compile(r"\$\{([^}]*)\}")

# Role -> names of the parameters that hold name and namespace: today's, then the deprecated ones.
_STORAGE_PAIRS: dict[Role, tuple[tuple[str, str], ...]] = {
    role: (
        (f"{_PREFIX}{role}-secret-name", f"{_PREFIX}{role}-secret-namespace"),
        *((f"{old}SecretName", f"{old}SecretNamespace") for old in deprecated),
    )
    for role, deprecated in (
        (Role.PROVISIONER, ("csiProvisioner",)),
        (Role.CONTROLLER_PUBLISH, ("csiControllerPublish",)),
        (Role.NODE_STAGE, ("csiNodeStage",)),
        (Role.NODE_PUBLISH, ("csiNodePublish",)),
        (Role.CONTROLLER_EXPAND, ()),
        (Role.NODE_EXPAND, ()),
        (Role.CONTROLLER_MODIFY, ()),
    )
}
_ANY_OPERATION = (f"{_PREFIX}secret-name", f"{_PREFIX}secret-namespace")
_SNAPSHOT_PAIRS = {
    role: (f"{_PREFIX}{role}-secret-name", f"{_PREFIX}{role}-secret-namespace")
    for role in (Role.SNAPSHOTTER, Role.SNAPSHOTTER_LIST, Role.GROUP_SNAPSHOTTER, Role.GROUP_SNAPSHOTTER_GET)
}


class SecretTemplate(msgspec.Struct, frozen=True):
    """A Secret that a class names.

    Attributes:
        role: What for.
        name: Its name, maybe with ``${…}`` in it.
        namespace: Its namespace, likewise.
        path: Field of the class that holds the name.
    """

    role: Role
    name: str
    namespace: str
    path: str

    @property
    def literal(self) -> bool:
        """Whether it needs no filling in."""
        return "${" not in self.name and "${" not in self.namespace

    def resolve(self, names: Mapping[str, str], namespaces: Mapping[str, str]) -> tuple[str, str] | None:
        """Return (namespace, name), None where a token cannot be filled in."""
        name, namespace = _fill(self.name, names), _fill(self.namespace, namespaces)
        return (namespace, name) if name and namespace else None


class Tokens(NamedTuple):
    """What templates can be filled in with: for a Secret's name, and for its namespace."""

    names: Mapping[str, str]
    namespaces: Mapping[str, str]


def claim_tokens(namespace: str, name: str, volume: str, annotations: Mapping[str, Any] | None) -> Tokens:
    """Return the tokens of a PersistentVolumeClaim."""
    namespaces = {"pv.name": volume, "pvc.namespace": namespace}
    quoted = {f"pvc.annotations['{k}']": v for k, v in (annotations or {}).items() if isinstance(v, str)}
    return Tokens({**namespaces, "pvc.name": name, **quoted}, namespaces)


def snapshot_tokens(namespace: str, name: str, content: str, annotations: Mapping[str, Any]) -> Tokens:
    """Return the tokens of a VolumeSnapshot (or VolumeGroupSnapshot), see :func:`claim_tokens`."""
    namespaces: dict[str, str] = {}
    names: dict[str, str] = {}
    for kind in ("volumesnapshot", "volumegroupsnapshot"):
        namespaces |= {f"{kind}content.name": content, f"{kind}.namespace": namespace}
        names |= {f"{kind}.name": name}
        names |= {f"{kind}.annotations['{k}']": v for k, v in annotations.items() if isinstance(v, str)}
    return Tokens({**namespaces, **names}, namespaces)


def _fill(template: str, tokens: Mapping[str, str]) -> str:
    values = [tokens.get(token, "") for token in _TOKEN.findall(template)]
    if not all(values):
        return ""
    pieces = iter(values)
    return _TOKEN.sub(lambda _: next(pieces), template)


def storage_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a StorageClass names."""
    pairs = (
        (role, next((pair for pair in (*own, _ANY_OPERATION) if parameters.get(pair[0])), None))
        for role, own in _STORAGE_PAIRS.items()
    )
    return tuple(
        template for role, pair in pairs if pair is not None for template in _template(role, pair, parameters)
    )


def azure_secrets(csi: Mapping[str, Any], claim_namespace: str) -> Iterator[tuple[str, str]]:
    """Yield where the key of the storage account may be with which a volume of Azure's file driver is mounted.

    The driver's ``volumeHandle`` is ``<resource group>#<account>#<share>#…``; what the class said is copied into
    ``volumeAttributes``. None of them stands in one of the Secret references of the volume.

    Args:
        csi: ``spec.csi`` of a PersistentVolume.
        claim_namespace: ``spec.claimRef.namespace``, "" for none.

    Yields:
        Namespace and name of a Secret.
    """
    attributes, handle = csi.get("volumeAttributes"), csi.get("volumeHandle")
    if csi.get("driver") != _AZURE_DRIVER:
        return
    told = {
        key.lower(): value
        for key, value in (attributes if isinstance(attributes, dict) else {}).items()
        if isinstance(value, str) and value
    }
    parts = handle.split("#") if isinstance(handle, str) else []
    account = told.get("storageaccount") or "".join(parts[1:2])
    name = told.get("secretname") or (f"azure-storage-account-{account}-secret" if account else "")
    # By release, the driver's own default is the claim's namespace or "default".
    places = [told["secretnamespace"]] if "secretnamespace" in told else [claim_namespace, "default"]
    yield from ((namespace, name) for namespace in dict.fromkeys(places) if namespace and name)


def snapshot_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a VolumeSnapshotClass or VolumeGroupSnapshotClass names."""
    return tuple(
        template for role, pair in _SNAPSHOT_PAIRS.items() for template in _template(role, pair, parameters)
    )


def _template(role: Role, pair: tuple[str, str], parameters: Mapping[str, Any]) -> Iterator[SecretTemplate]:
    name, namespace = parameters.get(pair[0]), parameters.get(pair[1])
    if isinstance(name, str) and isinstance(namespace, str) and name and namespace:
        yield SecretTemplate(role, name, namespace, f"parameters[{pair[0]}]")
