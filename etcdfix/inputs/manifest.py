"""What a kube-apiserver static-pod manifest says about its etcd. Paths are those of the host.

Format: a v1 Pod as the kubelet reads it from ``/etc/kubernetes/manifests``; the flags are those of
kube-apiserver (``apiserver/pkg/server/options/etcd.go``, ``…/encryptionconfig``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from etcdfix.errors import ConfigurationError, JSONMalformed
from etcdfix.golang.document import read_document
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.inputs.overrides import Overrides, parse_overrides

_Mounts = list[tuple[PurePosixPath, PurePosixPath]]
"""Places in a container, and what of the host is there."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that matter here; None or empty where the manifest does not set them.

    Attributes:
        endpoints: ``--etcd-servers``.
        overrides: ``--etcd-servers-overrides``.
        cacert: ``--etcd-cafile``.
        cert: ``--etcd-certfile``.
        key: ``--etcd-keyfile``.
        etcd_prefix: ``--etcd-prefix``.
        encryption_config: ``--encryption-provider-config``.
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
        ConfigurationError: The file cannot be read, is no Pod, runs no kube-apiserver, or one that would not start.
    """
    try:
        document, _ = read_document(read_input(path, most_bytes=MAX_SETTINGS_BYTES))
    except OSError as exc:
        raise ConfigurationError(f"manifest {path}: {exc.strerror}") from exc
    except JSONMalformed as exc:
        raise ConfigurationError(f"manifest {path} is not YAML") from exc
    for image, words, mounts in _containers(document):
        if (
            any(word.rsplit("/", 1)[-1] == "kube-apiserver" for word in words[:1])
            or "kube-apiserver" in image
        ):
            return _from_flags(dict(_flags(words)), image, mounts)
    raise ConfigurationError(
        f"manifest {path} holds no container that runs kube-apiserver",
        hint="on a kubeadm control plane it is /etc/kubernetes/manifests/kube-apiserver.yaml",
    )


def _containers(document: object) -> Iterator[tuple[str, list[str], _Mounts]]:
    spec = _mapping(document).get("spec")
    volumes = {
        str(volume.get("name")): _mapping(volume.get("hostPath")).get("path")
        for volume in _mappings(_mapping(spec).get("volumes"))
    }
    for container in _mappings(_mapping(spec).get("containers")):
        parts = [container.get("command"), container.get("args")]
        words = [str(word) for part in parts if isinstance(part, list) for word in part]
        mounts = [
            (PurePosixPath(str(mount.get("mountPath"))), PurePosixPath(host, str(mount.get("subPath") or "")))
            for mount in _mappings(container.get("volumeMounts"))
            if isinstance(host := volumes.get(str(mount.get("name"))), str)
        ]
        yield str(container.get("image", "")), words, mounts


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


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    waiting = ""
    for word in words:
        if waiting and not word.startswith("--"):
            yield waiting, word
            waiting = ""
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            waiting = "" if equals else name
            if equals:
                yield name, value


def _from_flags(flags: dict[str, str], image: str, mounts: _Mounts) -> Manifest:
    tag = re.search(r":v?(1\.\d+)", image)
    config = _on_the_host(flags.get("encryption-provider-config"), mounts)
    return Manifest(
        endpoints=tuple(e.strip() for e in flags.get("etcd-servers", "").split(",") if e.strip()),
        overrides=parse_overrides(flags.get("etcd-servers-overrides", "")),
        cacert=_on_the_host(flags.get("etcd-cafile"), mounts),
        cert=_on_the_host(flags.get("etcd-certfile"), mounts),
        key=_on_the_host(flags.get("etcd-keyfile"), mounts),
        etcd_prefix=flags.get("etcd-prefix"),
        encryption_config=Path(config) if config else None,
        kubernetes_version=tag.group(1) if tag else None,
    )
