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

AZURE_DRIVERS: Final = frozenset({"file.csi.azure.com"})

_AZURE_IN_TREE = "kubernetes.io/azure-file"
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
        likely: The driver falls back to it; the class does not say so.
    """

    role: Role
    name: str
    namespace: str
    path: str
    likely: bool = False

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


def storage_templates(provisioner: str, parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a StorageClass names."""
    return tuple(_storage_templates(provisioner, parameters))


def _storage_templates(provisioner: str, parameters: Mapping[str, Any]) -> Iterator[SecretTemplate]:
    for role, pairs in _STORAGE_PAIRS.items():
        for pair in (*pairs, _ANY_OPERATION):
            if parameters.get(pair[0]):
                yield from _template(role, pair, parameters)
                break
    yield from _azure_templates(provisioner, parameters)


def _azure_templates(provisioner: str, parameters: Mapping[str, Any]) -> Iterator[SecretTemplate]:
    if provisioner != _AZURE_IN_TREE and provisioner not in AZURE_DRIVERS:
        return
    folded = _folded(parameters)
    named, account = folded.get("secretname"), folded.get("storageaccount")
    if named is not None:
        (field, name), likely = named, False
    elif account is not None:
        # Without an account the driver picks one; only the volume tells which.
        field, name, likely = account[0], _azure_default(account[1]), True
    else:
        return
    for namespace, sure in _azure_namespaces(folded, "${pvc.namespace}", provisioner):
        yield SecretTemplate(
            Role.VOLUME_PLUGIN, name, namespace, f"parameters.{field}", likely=likely or not sure
        )


def azure_secrets(csi: Mapping[str, Any], claim_namespace: str) -> Iterator[SecretTemplate]:
    """Yield the Secrets with the key of a storage account that a volume of Azure's file driver is mounted with.

    The driver's ``volumeHandle`` is ``<resource group>#<account>#<share>#…``; what the class said is copied into
    ``volumeAttributes``. None of them stands in one of the Secret references of the volume.

    Args:
        csi: ``spec.csi`` of a PersistentVolume.
        claim_namespace: ``spec.claimRef.namespace``, "" for none.
    """
    driver, attributes, handle = csi.get("driver"), csi.get("volumeAttributes"), csi.get("volumeHandle")
    if not isinstance(driver, str) or driver not in AZURE_DRIVERS:
        return
    folded = _folded(attributes if isinstance(attributes, dict) else {})
    parts = handle.split("#") if isinstance(handle, str) else []
    account = folded["storageaccount"][1] if "storageaccount" in folded else "".join(parts[1:2])
    path, likely = "csi.volumeHandle", True
    if "secretname" in folded:
        (field, name), likely = folded["secretname"], False
        path = f"csi.volumeAttributes.{field}"
    elif account:
        name = _azure_default(account)
    else:
        return
    for namespace, sure in _azure_namespaces(folded, claim_namespace, driver):
        if namespace:
            yield SecretTemplate(Role.VOLUME_PLUGIN, name, namespace, path, likely=likely or not sure)


def _folded(parameters: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        key.lower(): (key, value) for key, value in parameters.items() if isinstance(value, str) and value
    }


def _azure_default(account: str) -> str:
    return f"azure-storage-account-{account}-secret"


def _azure_namespaces(
    folded: Mapping[str, tuple[str, str]], claim: str, provisioner: str
) -> Iterator[tuple[str, bool]]:
    """Yield the namespaces in which the driver looks, each with whether that is sure."""
    if "secretnamespace" in folded:
        yield folded["secretnamespace"][1], True
        return
    yield claim, True
    if provisioner in AZURE_DRIVERS:
        # By release, the driver's own default is the claim's namespace or this one.
        yield "default", False


def snapshot_templates(parameters: Mapping[str, Any]) -> tuple[SecretTemplate, ...]:
    """Return the Secrets that a VolumeSnapshotClass or VolumeGroupSnapshotClass names."""
    return tuple(
        template for role, pair in _SNAPSHOT_PAIRS.items() for template in _template(role, pair, parameters)
    )


def _template(role: Role, pair: tuple[str, str], parameters: Mapping[str, Any]) -> Iterator[SecretTemplate]:
    name, namespace = parameters.get(pair[0]), parameters.get(pair[1])
    if isinstance(name, str) and isinstance(namespace, str) and name and namespace:
        yield SecretTemplate(role, name, namespace, f"parameters[{pair[0]}]")
