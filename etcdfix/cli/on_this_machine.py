"""What a command that looks reads where nobody names the data: the distribution whose files are on this machine.

A change rests on nothing that was only found.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from etcdfix import machine
from etcdfix.cli.command import OF_ETCDCTL, Command
from etcdfix.cli.output import say
from etcdfix.errors import ConfigurationError
from etcdfix.inputs.on_this_machine import find_distributions

_NAMING: Final = (
    "endpoints",
    "snapshot",
    "kine",
    "manifest",
    "cacert",
    "cert",
    "key_file",
    "user",
    "etcd_servers_overrides",
)


def with_what_is_found(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with what a distribution says of its data, where they and the variables name none.

    Raises:
        ConfigurationError: Two distributions fit, or the files of one are not as they have to be.
    """
    context = click.get_current_context(silent=True)
    command = context.command if context is not None else None
    if not isinstance(command, Command) or command.changing or _is_named(options, os.environ):
        return options
    found = find_distributions(machine.ROOT)
    if not found:
        return options
    if len(found) > 1:
        both = " and ".join(f"{distribution.name} ({distribution.file})" for distribution in found)
        flags = " or ".join(distribution.flags for distribution in found)
        raise ConfigurationError(f"both {both} are on this machine: name the one that is meant, {flags}")
    distribution = found[0]
    say(f"{distribution.name} found by {distribution.file}: reading {distribution.flags}")
    typed = {_parameter_of(field): value for field, value in distribution.values.items()}
    given = {name: Path(value) if name in _PATHS else value for name, value in typed.items()}
    return {**options, **{name: value for name, value in given.items() if not options.get(name)}}


_PATHS: Final = frozenset({"manifest", "kine", "encryption_config"})


def _parameter_of(field: str) -> str:
    return "key_file" if field == "key" else field.replace("-", "_")


def _is_named(options: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    return any(options.get(name) for name in _NAMING) or any(environ.get(name) for name in OF_ETCDCTL)
