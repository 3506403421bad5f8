"""What a kube-apiserver static-pod manifest says about its etcd. Paths are those of the host.

The flags are read behind wrappers, hyperkube and references to the container's environment too. What cannot be told for
certain is refused, a shell's script among it: a flag that is missed would send the reader to another etcd, or hide the
encryption configuration.

Format: a v1 Pod as the kubelet reads it from ``/etc/kubernetes/manifests`` and starts its containers
(``kubernetes/third_party/forked/golang/expansion``); the flags are those of kube-apiserver
(``apiserver/pkg/server/options/etcd.go``, ``…/encryptionconfig``) as pflag takes them, words separated by ``-`` or
``_``.
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
from etcdfix.model.errors import ConfigurationError
from etcdfix.text.safetext import safe_text

_ETCD_SERVERS: Final = "etcd-servers"
_LISTS: Final = frozenset({_ETCD_SERVERS, "etcd-servers-overrides"})
_READ: Final = _LISTS | {
    "etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix", "encryption-provider-config",
}  # fmt: skip
_UNKNOWN: Final = "\0"
"""Stands for a value that only the node knows, such as a field of the Pod."""

_ADD_FLAGS: Final = frozenset({"eval", "xargs", "sh", "bash", "dash", "ash", "ksh", "zsh"})
_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_MENTION: Final = re.compile(r"--(?:experimental[-_])?(?:etcd[-_][a-z]|encryption[-_]provider)")

_Mounts = list[tuple[PurePosixPath, PurePosixPath]]
"""Places in a container, and what of the host is there."""

_INSTEAD: Final = (
    "without the manifest, name the data yourself: --endpoints, --cacert, --cert, --key, --etcd-prefix, "
    "--encryption-config"
)


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The flags that matter here, by the names of our options; None or empty where the manifest does not set them.

    Attributes:
        endpoints: ``--etcd-servers``. Never empty in one that was read.
        kubernetes_version: From the image tag (``1.36``).
    """

    endpoints: str = ""
    overrides: Overrides = msgspec.field(default_factory=dict)
    cacert: str | None = None
    cert: str | None = None
    key_file: str | None = None
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
    named = [container for container in _mappings(spec.get("containers")) if _names_apiserver(container)]
    if not named:
        raise ConfigurationError(
            f"manifest {path} holds no container that runs kube-apiserver",
            hint="on a kubeadm control plane it is /etc/kubernetes/manifests/kube-apiserver.yaml",
        )
    try:
        flags = [(found, container) for container in named if (found := _etcd_flags(container)) is not None]
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


def _names_apiserver(container: dict[str, Any]) -> bool:
    parts = [container.get(field) for field in ("image", "command", "args")]
    return "kube-apiserver" in str(parts) or bool(re.search(r"hyperkube\W.*\bapiserver\b", str(parts)))


def _etcd_flags(container: dict[str, Any]) -> dict[str, str] | None:
    """Return the flags about etcd and encryption by name, lists joined by commas; None without ``--etcd-servers``.

    Raises:
        ValueError: The flags cannot be told for certain. It says why.
    """
    words = _words(container)
    if not re.search("etcd[-_]servers", " ".join(words)):
        return None
    names = [word.rsplit("/", 1)[-1] for word in words]
    adding = [name for name in names if name in _ADD_FLAGS or name.endswith(".sh")]
    for number, name in enumerate(names):
        if name == "kube-apiserver" or (name == "apiserver" and "hyperkube" in names[:number]):
            words = words[number + 1 :]
            break
    else:
        if not adding and (container.get("command") or "kube-apiserver" not in str(container.get("image"))):
            return None
    if adding and _MENTION.search(" ".join(words)):
        raise ValueError(f"{adding[0]} starts it, which may give it more flags")
    flags = _flags(words)
    return flags if flags.get(_ETCD_SERVERS) else None


def _words(container: dict[str, Any]) -> list[str]:
    """Return command and args, with references to the container's environment resolved as the kubelet does."""
    known: dict[str, str] = {}
    environment = container.get("env")
    for variable in environment if isinstance(environment, list) else ():
        if isinstance(variable, dict):
            text = _UNKNOWN if "valueFrom" in variable else str(variable.get("value") or "")
            known[str(variable.get("name"))] = _expanded(text, known)
    words: list[str] = []
    for field in ("command", "args"):
        part = container.get(field) or []
        if not isinstance(part, list):
            raise ValueError(f"its {field} is not a list of words")  # noqa: TRY004 - of the file, not of a caller
        words += (_expanded(str(word), known) for word in part)
    return words


def _expanded(text: str, known: dict[str, str]) -> str:
    """Expand references; what no variable can be called stays, for a shell to run it."""

    def value_of(reference: re.Match[str]) -> str:
        name = reference[1]
        unknown = _UNKNOWN if name and re.fullmatch(r"[\w.-]+", name) else reference[0]
        return "$" if name is None else known.get(name, unknown)

    return _REFERENCE.sub(value_of, text)


def _flags(words: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        if _UNKNOWN in (flag if flag.startswith("--") else word):
            raise ValueError("some of its flags come from a variable or a command of the shell")
        name = flag.removeprefix("--").replace("_", "-").removeprefix("experimental-")
        if not flag.startswith("--") or name not in _READ:
            continue
        value = value if equals else next(rest, "")
        if _UNKNOWN in value or re.search(r"\s--", value):
            raise ValueError(f"its --{name} does not stand there in plain words")
        found.setdefault(name, []).append(value)
    return {name: ",".join(values) if name in _LISTS else values[-1] for name, values in found.items()}


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
        endpoints=",".join(e.strip() for e in flags[_ETCD_SERVERS].split(",") if e.strip()),
        overrides=parse_overrides(flags.get("etcd-servers-overrides", "")),
        cacert=_on_the_host(flags.get("etcd-cafile"), mounts),
        cert=_on_the_host(flags.get("etcd-certfile"), mounts),
        key_file=_on_the_host(flags.get("etcd-keyfile"), mounts),
        etcd_prefix=flags.get("etcd-prefix"),
        encryption_config=Path(config) if config else None,
        kubernetes_version=tag.group(1) if tag else None,
    )
