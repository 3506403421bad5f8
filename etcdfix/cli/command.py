"""What every command is made of: the options that say how it speaks, whatever it does.

They stand after the name of the command, as its other options do, and are written down here alone.
"""

from __future__ import annotations

import os
from textwrap import indent
from typing import Any, Final

import click

from etcdfix.cli.examples import EXAMPLES
from etcdfix.cli.lazy_group import HelpGroup
from etcdfix.cli.output import HABITS, say

HEEDED_BY_CHANGES: Final = frozenset(
    {
        "ETCDFIX_ENDPOINTS", "ETCDFIX_CACERT", "ETCDFIX_CERT", "ETCDFIX_KEY", "ETCDFIX_USER", "ETCDFIX_PASSWORD",
        "ETCDFIX_DIAL_TIMEOUT", "ETCDFIX_COMMAND_TIMEOUT", "ETCDFIX_TIMEOUT",
        "ETCDFIX_ENCRYPTION_CONFIG", "ETCDFIX_MANIFEST",
    }
)  # fmt: skip
"""All variables of ours that a command which changes something listens to: where etcd is, and how it is encrypted."""

OF_ETCDCTL: Final = ("ETCDCTL_ENDPOINTS", "ETCDCTL_CACERT", "ETCDCTL_CERT", "ETCDCTL_KEY")
"""Variables of etcdctl that say which etcd is meant."""


def variable_of(option: str) -> str:
    """Return the variable of a long option, ``ETCDFIX_ETCD_PREFIX`` for ``--etcd-prefix``."""
    return "ETCDFIX_" + option.removeprefix("--").replace("-", "_").upper()


_UNCHECKED: Final = "insecure_skip_tls_verify"
_UNCHECKED_OF_ETCDCTL: Final = "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"


def _quiet(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    HABITS.quiet = value


def habits() -> list[click.Option]:
    """Return the options that say how a command speaks; eager, so that they hold for what is said of another one."""
    return [
        click.Option(
            ("-q", "--quiet"), is_flag=True, expose_value=False, is_eager=True, envvar=variable_of("--quiet"),
            callback=_quiet, help="No progress and no notes on standard error; errors and warnings stay.",
        )
    ]  # fmt: skip


class Command(click.Command):
    """A command of etcdfix."""

    changing = False

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.params += habits()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the options of the command, and those that every command has."""
        examples = EXAMPLES.get(ctx.command_path.removeprefix("etcdfix").lstrip(), ())
        if examples:
            with formatter.section("Examples"):
                for purpose, words in examples:
                    formatter.write_text(f"# {purpose}")
                    formatter.write(indent(words, " " * formatter.current_indent) + "\n")
        shared = {option.name for option in habits()}
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Options of every command": []}
        for option in self.get_params(ctx):
            record = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if record is not None:
                common = option.name in shared or option.name == "help"
                sections["Options of every command" if common else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _of_readers() -> set[str]:
    from etcdfix.cli.keys import scope_options  # noqa: PLC0415 - same
    from etcdfix.cli.options import live_options, source_options  # noqa: PLC0415 - they need this module

    reader = click.command(scope_options(source_options(lambda: None)))
    change = click.command(live_options(lambda: None))
    of_changes = {option.envvar for option in change.params}
    return {str(option.envvar) for option in reader.params if option.envvar not in {None, *of_changes}}


class ChangingCommand(Command):
    """A command that changes something: what was exported once must not decide tonight.

    Of the variables of its options only :data:`HEEDED_BY_CHANGES` count. One that is set and does not is named on
    standard error. Whether TLS certificates are checked, no variable decides, etcdctl's neither.
    """

    changing = True

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._unheeded = _of_readers()
        for option in self.params:
            if not isinstance(option, click.Option):
                continue
            own = {variable_of(name) for name in option.opts if name.startswith("--")}
            if own & HEEDED_BY_CHANGES:
                continue
            self._unheeded |= own
            option.envvar = None
            if option.name == _UNCHECKED:
                option.default = False  # None would ask the variable of etcdctl
                self._unheeded.add(_UNCHECKED_OF_ETCDCTL)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the variables that are set in vain, then do as any command."""
        set_in_vain = sorted(name for name in self._unheeded if os.environ.get(name))
        if set_in_vain and not ctx.resilient_parsing:
            say(
                f"not heeded: {', '.join(set_in_vain)}; a command that changes something takes this from its "
                "command line alone"
            )
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Have an unforeseen end point to the audit log, then do as any command."""
        HABITS.changing = True
        return super().invoke(ctx)


class Group(HelpGroup):
    """A group whose commands are commands of etcdfix."""

    command_class = Command
