"""Where distributions keep their etcd, found by their files: for commands that look, where nobody names the data.

Each distribution is known by one file or folder of its own. What is read of it are the flags of its kube-apiserver,
since an administrator may have changed any of them; where it has no such flags on disk, its own fixed paths.

Format:
    kubeadm ``cmd/kubeadm/app/constants``; kops ``nodeup/pkg/model/kube_apiserver.go``; k3s
    ``pkg/daemons/control/deps/deps.go`` and ``pkg/etcd/etcd.go``; RKE2 ``pkg/executor/staticpod``; OpenShift
    cluster-kube-apiserver-operator ``bindata/assets/kube-apiserver/pod.yaml`` and ``bindata/assets/config``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.golang.document import read_document
from etcdfix.golang.errors import JSONMalformed
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.model.errors import ConfigurationError, why

_STATIC_RESOURCES: Final = "etc/kubernetes/static-pod-resources"
_NAME_THE_DATA: Final = "name the data: --endpoints and certificates, or --snapshot"
_REVISION: Final = re.compile(rf"/{_STATIC_RESOURCES}/(kube-apiserver-pod-\d+)")


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution that was found.

    Attributes:
        values: Options, without their dashes, to what they would be given.
    """

    name: str
    file: Path
    values: Mapping[str, str]

    @property
    def flags(self) -> str:
        """The options that say where its data is, as they would be typed."""
        named = (
            field for field in ("manifest", "kine", "endpoints", "encryption-config") if field in self.values
        )
        return " ".join(f"--{field} {self.values[field]}" for field in named)


def find_distributions(root: Path) -> list[Distribution]:
    """Return every distribution whose files are there, in a fixed order.

    Raises:
        ConfigurationError: A file that says where the data is cannot be read, or says something else.
    """
    found = (find(root) for find in _FINDERS)
    return [distribution for distribution in found if distribution is not None]


def _manifest_at(distribution: str, place: str) -> Callable[[Path], Distribution | None]:
    def find(root: Path) -> Distribution | None:
        path = root / place
        there = _is(Path.is_file, path)
        return Distribution(name=distribution, file=path, values={"manifest": str(path)}) if there else None

    return find


def _k3s(root: Path) -> Distribution | None:
    server = root / "var/lib/rancher/k3s/server"
    values = _embedded_etcd(server) if _is(Path.is_dir, server / "db/etcd") else _sqlite(server)
    return Distribution(name="k3s", file=server / "db", values=values) if values else None


def _rke2(root: Path) -> Distribution | None:
    """Return RKE2: its manifest, unless that leads to kine, of which nothing can be asked."""
    server = root / "var/lib/rancher/rke2/server"
    found = _manifest_at("RKE2", "var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml")(root)
    if found is None or _is(Path.is_dir, server / "db/etcd"):
        return found
    return msgspec.structs.replace(found, values=_sqlite(server) or found.values)


def _embedded_etcd(server: Path) -> dict[str, str]:
    certificates = {"cacert": "server-ca.crt", "cert": "client.crt", "key": "client.key"}
    return {
        "endpoints": "https://127.0.0.1:2379",
        **{field: str(server / "tls/etcd" / name) for field, name in certificates.items()},
        **_written_configuration(server),
    }


def _sqlite(server: Path) -> dict[str, str]:
    """Return kine's file; nothing where there is none: the store is a database elsewhere."""
    path = server / "db/state.db"
    return {"kine": str(path), **_written_configuration(server)} if _is(Path.is_file, path) else {}


def _written_configuration(server: Path) -> dict[str, str]:
    path = server / "cred/encryption-config.json"
    return {"encryption-config": str(path)} if _is(Path.is_file, path) else {}


def _openshift(root: Path) -> Distribution | None:
    """Return OpenShift: its manifest names a revision, whose folder has the flags; paths there are the container's."""
    path = root / "etc/kubernetes/manifests/kube-apiserver-pod.yaml"
    if not _is(Path.is_file, path):
        return None
    revision = _REVISION.search(_read(path).decode("utf-8", "replace"))
    if revision is None:
        raise ConfigurationError(f"OpenShift was found by {path}, which names no revision of kube-apiserver")
    resources = root / _STATIC_RESOURCES
    folder = resources / revision[1]
    config = folder / "configmaps/config/config.yaml"
    arguments = _arguments(config)
    if not arguments.get("etcd-servers"):
        raise ConfigurationError(f"OpenShift's {config} holds no etcd-servers", hint=_NAME_THE_DATA)

    def on_the_host(name: str) -> str:
        inside = arguments.get(name, "")
        for place, where in (("resources", folder), ("certs", resources / "kube-apiserver-certs")):
            start = f"/etc/kubernetes/static-pod-{place}/"
            if inside.startswith(start):
                return str(where / inside.removeprefix(start))
        return inside

    values = {
        "endpoints": arguments["etcd-servers"],
        "cacert": on_the_host("etcd-cafile"),
        "cert": on_the_host("etcd-certfile"),
        "key": on_the_host("etcd-keyfile"),
        "etcd-prefix": arguments.get("etcd-prefix", "kubernetes.io"),
        "encryption-config": on_the_host("encryption-provider-config"),
    }
    return Distribution(
        name="OpenShift", file=path, values={field: value for field, value in values.items() if value}
    )


def _arguments(path: Path) -> dict[str, str]:
    try:
        document: Any = read_document(_read(path))[0]
        arguments = document["apiServerArguments"]
        return {name: ",".join(values) for name, values in arguments.items() if isinstance(values, list)}
    except (JSONMalformed, KeyError, TypeError, AttributeError) as exc:
        raise ConfigurationError(f"OpenShift's {path} holds no apiServerArguments") from exc


def _is(kind: Callable[[Path], bool], path: Path) -> bool:
    try:
        return kind(path)
    except OSError:  # this user may not look there
        return False


def _read(path: Path) -> bytes:
    try:
        return read_input(path, most_bytes=MAX_SETTINGS_BYTES)
    except OSError as exc:
        raise ConfigurationError(
            f"OpenShift's {path}: {why(exc)}",
            hint=_NAME_THE_DATA,
        ) from exc


_FINDERS: Final[tuple[Callable[[Path], Distribution | None], ...]] = (
    _manifest_at("kubeadm", "etc/kubernetes/manifests/kube-apiserver.yaml"),
    _manifest_at("kops", "etc/kubernetes/manifests/kube-apiserver.manifest"),
    _k3s,
    _rke2,
    _openshift,
)
