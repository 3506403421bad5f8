"""``etcdfix version``, ``completion`` and ``schema``: what the tool says of itself."""

from __future__ import annotations

import platform
from textwrap import fill
from typing import Any, Final

import click
import msgspec
from click.shell_completion import get_completion_class

from etcdfix import __version__
from etcdfix.cli.command import Command
from etcdfix.cli.output import require_output
from etcdfix.inputs.releases import KNOWN_RELEASES
from etcdfix.report.model import API_VERSION
from etcdfix.report.schema import SCHEMAS, schema_of

_VARIABLE: Final = "_ETCDFIX_COMPLETE"  # click's own: it answers the shell when this is set


@click.command("version", cls=Command, epilog="")
def version() -> int:
    """Print the version, the platform, and the releases of Kubernetes and of reports that etcdfix knows."""
    require_output()
    click.echo(f"etcdfix {__version__}")
    click.echo(f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}")
    click.echo(f"Kubernetes: knows {KNOWN_RELEASES}")
    click.echo(f"reports: writes and reads {API_VERSION}")
    return 0


@click.command("completion", cls=Command, epilog="")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print the script with which a shell completes commands, options and their values.

    \b
    bash:  eval "$(etcdfix completion bash)"     in ~/.bashrc
    zsh:   eval "$(etcdfix completion zsh)"      in ~/.zshrc, after compinit
    fish:  etcdfix completion fish > ~/.config/fish/completions/etcdfix.fish
    """  # noqa: D301 - the mark of click is the character itself
    require_output()
    found = get_completion_class(shell)
    assert found is not None  # click has these three
    click.echo(found(click.get_current_context().find_root().command, {}, "etcdfix", _VARIABLE).source())
    return 0


def audit_schema() -> dict[str, Any]:
    """Return the schema of one record of the audit log."""
    # The other schemas need nothing that can write.
    from etcdfix.remediation.audit.record import Event  # noqa: PLC0415

    return schema_of(Event, "A record of the audit log of etcdfix: an Event of audit.k8s.io/v1")


_ALL: Final = {**SCHEMAS, "audit": audit_schema}
_HELP = f"""\
Print the JSON Schema of a report: of a scan (default), or of another document.

NAME is one of these. change is what delete, fix and undo write. audit is one record of the audit log.

\b
{fill(", ".join(_ALL), 76, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)}

A reader ignores fields that it does not know, and treats an unknown outcome as undetermined.
"""


@click.command("schema", cls=Command, epilog="", help=_HELP)
@click.argument("name", type=click.Choice(list(_ALL)), default="report", metavar="[NAME]")
def schema(name: str) -> int:
    """Print one schema."""
    require_output()
    click.echo(msgspec.json.format(msgspec.json.encode(_ALL[name]()), indent=2))
    return 0
