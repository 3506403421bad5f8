"""Where it was said how a cluster is reached and read: what a person checks before a change."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from etcdfix.cli.command import variable_of
from etcdfix.inputs.manifest import Manifest
from etcdfix.sources.connection import DEFAULT_ENDPOINT

_CERTIFICATES: Final = {"--cacert": "cacert", "--cert": "cert", "--key": "key_file"}


def origins_of(
    options: Mapping[str, Any], manifest: Manifest | None, path: Path | None, own: str = ""
) -> tuple[str, ...]:
    """Return where endpoints, certificates and configuration come from, a line each."""
    if options.get("kine") is not None:
        lines = [f"data: {origin_of('--kine', 'kine')}"]
    else:
        by_manifest = ", ".join(manifest.endpoints) if manifest is not None else None
        endpoints = _origin(options, "--endpoints", "endpoints", by_manifest, path)
        endpoints = endpoints or f"the default, {DEFAULT_ENDPOINT}"
        lines = [
            f"endpoints: {own}; those of the main etcd: {endpoints}" if own else f"endpoints: {endpoints}"
        ]
        lines += _certificates(options, manifest, path)
    named = manifest.encryption_config if manifest is not None else None
    configuration = _origin(options, "--encryption-config", "encryption_config", named, path, etcdctl=False)
    if configuration:
        lines.append(f"configuration: {configuration}")
    return tuple(lines)


def _certificates(options: Mapping[str, Any], manifest: Manifest | None, path: Path | None) -> list[str]:
    given = []
    for flag, name in _CERTIFICATES.items():
        named = getattr(manifest, name.removesuffix("_file")) if manifest is not None else None
        origin = _origin(options, flag, name, named, path)
        given += [origin] if origin else []
    return [f"certificates: {', '.join(dict.fromkeys(given))}"] if given else []


def _origin(
    options: Mapping[str, Any],
    flag: str,
    name: str,
    named: object,
    path: Path | None,
    *,
    etcdctl: bool = True,
) -> str:
    if options.get(name):
        return origin_of(flag, name)
    if named and path is not None:
        return f"{path} ({origin_of('--manifest', 'manifest')})"
    variable = "ETCDCTL_" + flag.removeprefix("--").upper()
    return f"variable {variable}" if etcdctl and os.environ.get(variable) else ""


def origin_of(flag: str, name: str) -> str:
    """Return where the value of an option was named."""
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(name) if context is not None else None
    return f"variable {variable_of(flag)}" if source is ParameterSource.ENVIRONMENT else flag
