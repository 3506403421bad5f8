"""What a kube-apiserver static-pod manifest says about its etcd. Paths are those of the host.

Format: a v1 Pod as the kubelet reads it from ``/etc/kubernetes/manifests``; the flags are those of
kube-apiserver (``apiserver/pkg/server/options/etcd.go``, ``…/encryptionconfig``).
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from etcdfix.golang.document import read_document
from etcdfix.golang.errors import JSONMalformed
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.inputs.overrides import Overrides, parse_overrides
from etcdfix.inputs.startcommand import ETCD_SERVERS, etcd_flags, names_apiserver
from etcdfix.model.errors import ConfigurationError
from etcdfix.text.safetext import safe_text

_Mounts = list[tuple[PurePosixPath, PurePosixPath]]
"""Places in a container, and what of the host is there."""

_INSTEAD: Final = (
    "without the manifest, name the data yourself: --endpoints, --cacert, --cert, --key, --etcd-prefix, "
    "--encryption-config"
)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that matter here; None or empty where the manifest does not set them.

    Attributes:
        endpoints: ``--etcd-servers``. Never empty in one that was read.
        kubernetes_version: From the image tag (``1.36``).
    """

    endpoints: tuple[str, ...] = ()
    overrides: Overrides = msgspec.field(default_factory=dict)
    cacert: str | None = None
    cert: str | None = None
    key: str | None = None
    etcd_prefix: str | None = None
    encryption_config: Path | None = None
    kubernetes_version: str | None = None


def load_manifest(path: Path) -> Manifest:
    """Read a static-pod manifest.

    Raises:
        ConfigurationError: The file cannot be read, is no Pod, runs no kube-apiserver, or its flags cannot be told
            or name no etcd: there is no default.
    """
    try:
        document, _ = read_document(read_input(path, most_bytes=MAX_SETTINGS_BYTES))
    except OSError as exc:
        raise ConfigurationError(f"manifest {path}: {exc.strerror}") from exc
    except JSONMalformed as exc:
        raise ConfigurationError(f"manifest {path} is not YAML") from exc
    spec = _mapping(_mapping(document).get("spec"))
    named = [container for container in _mappings(spec.get("containers")) if names_apiserver(container)]
    if not named:
        raise ConfigurationError(
            f"manifest {path} holds no container that runs kube-apiserver",
            hint="on a kubeadm control plane it is /etc/kubernetes/manifests/kube-apiserver.yaml",
        )
    try:
        flags = [(found, container) for container in named if (found := etcd_flags(container)) is not None]
    except ValueError as exc:
        raise ConfigurationError(
            f"manifest {path}: kube-apiserver's flags cannot be read: {exc}", hint=_INSTEAD
        ) from exc
    if len(flags) != 1:
        candidates = [container for _, container in flags] or named
        names = safe_text(", ".join(str(container.get("name")) for container in candidates))
        what = "several containers run kube-apiserver" if flags else "no --etcd-servers in command and args"
        raise ConfigurationError(f"manifest {path}: {what} (container {names})", hint=_INSTEAD)
    ((found, container),) = flags
    return _from_flags(found, str(container.get("image", "")), _mounts(container, spec))


def _mounts(container: dict[str, Any], spec: dict[str, Any]) -> _Mounts:
    volumes = {
        str(volume.get("name")): _mapping(volume.get("hostPath")).get("path")
        for volume in _mappings(spec.get("volumes"))
    }
    return [
        (PurePosixPath(str(mount.get("mountPath"))), PurePosixPath(host, str(mount.get("subPath") or "")))
        for mount in _mappings(container.get("volumeMounts"))
        if isinstance(host := volumes.get(str(mount.get("name"))), str)
    ]


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: object) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _on_the_host(path: str | None, mounts: _Mounts) -> str | None:
    """Return where a file of the container is on the host: of the mounts that hold it, the innermost says that."""
    inside = PurePosixPath(path or "")
    holding = [(where, host) for where, host in mounts if inside.is_relative_to(where)]
    if not path or not holding:
        return path or None
    where, host = max(holding, key=lambda mount: len(mount[0].parts))
    return str(host / inside.relative_to(where))


def _from_flags(flags: dict[str, str], image: str, mounts: _Mounts) -> Manifest:
    tag = re.search(r":v?(1\.\d+)", image)
    config = _on_the_host(flags.get("encryption-provider-config"), mounts)
    return Manifest(
        endpoints=tuple(e.strip() for e in flags[ETCD_SERVERS].split(",") if e.strip()),
        overrides=parse_overrides(flags.get("etcd-servers-overrides", "")),
        cacert=_on_the_host(flags.get("etcd-cafile"), mounts),
        cert=_on_the_host(flags.get("etcd-certfile"), mounts),
        key=_on_the_host(flags.get("etcd-keyfile"), mounts),
        etcd_prefix=flags.get("etcd-prefix"),
        encryption_config=Path(config) if config else None,
        kubernetes_version=tag.group(1) if tag else None,
    )
