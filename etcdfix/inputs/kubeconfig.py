"""The namespace that kubectl takes where none is named: that of the current context. Nothing is contacted.

Format: ``client-go/tools/clientcmd/api/v1/types.go``, ``Config``. Of several files the first that says something
counts, as in ``client-go/tools/clientcmd/loader.go``; a file that is not there is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from etcdfix.errors import JSONMalformed, KubeconfigInvalid
from etcdfix.golang.document import read_document
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input

_HINT: Final = "-n NAMESPACE says it without a kubeconfig"


class ContextNamespace(msgspec.Struct, frozen=True):
    """A namespace, and who says so.

    Attributes:
        namespace: Of the current context.
        context: Its name.
        file: Where it stands.
    """

    namespace: str
    context: str
    file: Path


def context_namespace(environment: Mapping[str, str]) -> ContextNamespace | None:
    """Return the namespace of the current context; None where there is no kubeconfig, or it names none.

    Args:
        environment: Holds ``KUBECONFIG``, a list of files; without it ``~/.kube/config`` is read.

    Raises:
        KubeconfigInvalid: A file cannot be read, or the current context does not exist.
    """
    documents = list(_documents(environment))
    current = next(
        (name for _, document in documents if (name := _string(document.get("current-context")))), ""
    )
    if not current:
        return None
    for path, document in documents:
        for entry in _list(document.get("contexts")):
            if entry.get("name") == current:
                namespace = _string(_mapping(entry.get("context")).get("namespace"))
                if "/" in namespace:
                    raise KubeconfigInvalid(
                        f"kubeconfig {path}: context {current!r} has no namespace that could be one",
                        hint=_HINT,
                    )
                return ContextNamespace(namespace, current, path) if namespace else None
    raise KubeconfigInvalid(f"kubeconfig: the current context {current!r} does not exist", hint=_HINT)


def _documents(environment: Mapping[str, str]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    named = [Path(word) for word in environment.get("KUBECONFIG", "").split(os.pathsep) if word]
    for path in named or [Path(environment.get("HOME", "/")) / ".kube" / "config"]:
        try:
            document, _ = read_document(read_input(path, most_bytes=MAX_SETTINGS_BYTES))
        except FileNotFoundError:
            continue
        except OSError as exc:
            raise KubeconfigInvalid(f"kubeconfig {path}: {exc.strerror}", hint=_HINT) from exc
        except JSONMalformed as exc:
            raise KubeconfigInvalid(f"kubeconfig {path} is not YAML", hint=_HINT) from exc
        yield path, _mapping(document)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""
