"""``etcdfix profile``: which profiles there are, and what one says."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from etcdfix.cli.command import Group
from etcdfix.cli.completing import profiles
from etcdfix.cli.options import FILE, option_group
from etcdfix.cli.output import require_output
from etcdfix.cli.output_options import form_option
from etcdfix.inputs.profiles import (
    FIELDS,
    LISTS,
    PATHS,
    SOURCES,
    Profile,
    default_file,
    load_profile,
    load_profiles,
)
from etcdfix.reports.base import Output
from etcdfix.text.safetext import safe_json, safe_text

_COLUMNS = ("PROFILE", "CLUSTER NAME", "DATA", "ENCRYPTION CONFIG")

_file_options = option_group(
    click.option(
        "--config-file", type=FILE, metavar="FILE",
        help="Where profiles stand.  [default: $XDG_CONFIG_HOME/etcdfix/config.yaml, or below ~/.config]",
    ),
    form_option(("table", "json"), help_text="Form of the output."),
)  # fmt: skip


_EXAMPLE: Final = """\
profiles:
  prod-eu-1:
    endpoints: [https://10.0.0.11:2379, https://10.0.0.12:2379]
    cacert: /etc/etcdfix/prod-eu-1/ca.crt
    encryption-config: /etc/etcdfix/prod-eu-1/enc.yaml
    kubernetes-version: "1.34"
"""


def _form_of_the_file() -> str:
    example = "\n".join(["\b", "Form of the file:", *(f"  {line}" for line in _EXAMPLE.splitlines())])
    lists, paths = (", ".join(field for field in FIELDS if field in some) for some in (LISTS, PATHS))
    return (
        f"{example}\n\nFields, each called as its option: {', '.join(FIELDS)}. At least one of "
        f"{', '.join(SOURCES)} has to be there. Lists of several: {lists}. Absolute "
        f"paths: {paths}. Any other field is refused."
    )


@click.group("profile", cls=Group, epilog=_form_of_the_file())
def command() -> None:
    """Show the profiles: how clusters are reached and read, each under a name for --profile.

    A profile never holds a password, and nothing that lifts a rule.
    """


@command.command("list")
@_file_options
def list_command(*, config_file: Path | None, output: str) -> int:
    """List the profiles of the file, with where the data of each is.

    The help of "etcdfix profile" shows the form of the file.
    """
    require_output()
    found = load_profiles(config_file or default_file())
    if output == "json":
        _json([_document(profile) for profile in found.values()])
        return 0
    rows = [
        tuple(safe_text(cell) for cell in (
            profile.name, _text(profile, "cluster-name"),
            _text(profile, "snapshot") or _text(profile, "endpoints") or _text(profile, "manifest"),
            _text(profile, "encryption-config"),
        ))
        for profile in found.values()
    ]  # fmt: skip
    stream = Output(sys.stdout.buffer)
    if rows:
        stream.table(_COLUMNS, rows)
    else:
        stream.line("no profiles")
    sys.stdout.buffer.flush()
    return 0


@command.command("show")
@click.argument("name", shell_complete=profiles)
@_file_options
def show_command(*, name: str, config_file: Path | None, output: str) -> int:
    """Show what a profile says, as the options that say the same.

    The help of "etcdfix profile" shows the form of the file.
    """
    require_output()
    profile = load_profile(name, config_file or default_file())
    if output == "json":
        _json(_document(profile))
        return 0
    words = profile.words
    for option, value in zip(words[::2], words[1::2], strict=True):
        click.echo(safe_text(f"{option} {shlex.quote(value)}"))
    return 0


def _text(profile: Profile, field: str) -> str:
    value = profile.values.get(field, "")
    return value if isinstance(value, str) else ",".join(value)


def _document(profile: Profile) -> dict[str, Any]:
    return {"name": profile.name, "file": str(profile.file), **profile.values}


def _json(document: Any) -> None:
    click.echo(msgspec.json.format(safe_json(msgspec.json.encode(document)), indent=2))
