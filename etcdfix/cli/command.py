"""Classes of commands and groups: they write help pages, heed variables, and import commands when called.

A page shows the options of the command; of those that several commands share it has the names alone, which
``etcdfix help options`` explains once.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from textwrap import fill, indent
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from etcdfix.cli.examples import EXAMPLES
from etcdfix.cli.output import HABITS, say

HEEDED_BY_CHANGES: Final = frozenset(
    {
        "ETCDFIX_ENDPOINTS", "ETCDFIX_CACERT", "ETCDFIX_CERT", "ETCDFIX_KEY", "ETCDFIX_USER", "ETCDFIX_PASSWORD",
        "ETCDFIX_DIAL_TIMEOUT", "ETCDFIX_COMMAND_TIMEOUT", "ETCDFIX_TIMEOUT",
        "ETCDFIX_ENCRYPTION_CONFIG", "ETCDFIX_MANIFEST",
    }
)  # fmt: skip
"""All variables of ours that a command which changes something listens to: where etcd is, and how it is encrypted."""

_HELP: Final = "help"
_UNCHECKED: Final = "insecure_skip_tls_verify"
_UNCHECKED_OF_ETCDCTL: Final = "ETCDCTL_INSECURE_SKIP_TLS_VERIFY"


def variable_of(option: str) -> str:
    """Return the variable of a long option, ``ETCDFIX_ETCD_PREFIX`` for ``--etcd-prefix``."""
    return "ETCDFIX_" + option.removeprefix("--").replace("-", "_").upper()


def long_name(option: click.Option) -> str:
    """Return the option as it is typed in full."""
    return next(name for name in option.opts if name.startswith("--"))


class Shared(click.Option):
    """An option of several commands, which ``etcdfix help options`` explains once."""


SHARED: Final[dict[str, list[Shared]]] = {}
"""Sections of that page, to their options."""


def shared(section: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds this option, and have it explained in a section."""
    SHARED.setdefault(section, []).append(Shared(names, **settings))
    return click.option(*names, cls=Shared, **settings)


def _quiet(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    HABITS.quiet = value


_quiet_option: Final = shared(
    "Every command", "-q", "--quiet", is_flag=True, expose_value=False, is_eager=True, callback=_quiet,
    envvar=variable_of("--quiet"), help="Print only errors and warnings on standard error.",
)  # fmt: skip


OF_A_LOOK: Final = """\
0  nothing is wrong
1  findings, differences, losses or failures
3  incomplete: something is undetermined or could not be read
4  a safety rule refused
5  nothing could be read"""
OF_A_CHANGE: Final = """\
0  done, or the dry run found nothing against it
3  the outcome is unknown, or not what was expected
4  a safety rule refused; changes reported before that stay
5  the key could not be read; changes reported before that stay"""


class Command(click.Command):
    """A command of etcdfix; ``epilog`` says what its exit codes mean."""

    changing = False
    exit_codes = OF_A_LOOK

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **{"epilog": self.exit_codes, **attributes})
        _quiet_option(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write examples, the options of the command, and the names of those that it shares."""
        examples = EXAMPLES.get(ctx.command_path.removeprefix("etcdfix").lstrip(), ())
        if examples:
            with formatter.section("Examples"):
                for purpose, words in examples:
                    formatter.write_text(f"# {purpose}")
                    formatter.write(indent(words, " " * formatter.current_indent) + "\n")
        own = [option for option in self.get_params(ctx) if not isinstance(option, Shared)]
        with formatter.section("Options"):
            formatter.write_dl([record for option in own if (record := option.get_help_record(ctx))])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the exit codes, and the names of the options that the command shares."""
        if self.epilog:
            with formatter.section("Exit codes"):
                formatter.write(indent(self.epilog, "  ") + "\n")
        names = ["/".join(option.opts) for option in self.get_params(ctx) if isinstance(option, Shared)]
        words = fill(" ".join(names), formatter.width - 2, break_on_hyphens=False)
        with formatter.section("Shared options, explained by etcdfix help options"):
            formatter.write(indent(words, "  ") + "\n")


class ChangingCommand(Command):
    """A command that changes something: what was exported once must not decide tonight.

    Of the variables of its options only :data:`HEEDED_BY_CHANGES` count. One that is set and does not is named on
    standard error. Whether TLS certificates are checked, no variable decides, etcdctl's neither.
    """

    changing = True
    exit_codes = OF_A_CHANGE

    def __init__(self, *args: Any, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._own = {long_name(option) for option in self.params if isinstance(option, click.Option)}
        for option in self.params:
            if isinstance(option, click.Option) and option.envvar not in HEEDED_BY_CHANGES:
                option.envvar = None
                if option.name == _UNCHECKED:
                    option.default = False  # None would ask the variable of etcdctl

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the variables that are set in vain, then do as any command."""
        of_others = {long_name(option) for section in SHARED.values() for option in section}
        ours = {variable_of(name) for name in self._own | of_others} - HEEDED_BY_CHANGES
        set_in_vain = sorted(name for name in (*ours, _UNCHECKED_OF_ETCDCTL) if os.environ.get(name))
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


class Group(click.Group):
    """A group of commands of etcdfix. ``help`` in the place of a command shows the page of what follows."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names."""
        if args[0] != _HELP or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        words = args[1:]
        if not words or words[0].startswith("-") or words[0] == _HELP:
            click.echo(ctx.get_help())
            ctx.exit()
        name, command, rest = super().resolve_command(ctx, words)
        # What else was typed is left out: nothing of it must be done.
        return name, command, [_HELP, *rest] if isinstance(command, click.Group) else ["--help"]


_NONE: Final[dict[str, str]] = {}
Commands = dict[str, dict[str, str]]
"""Title of a section of the help page, to its commands with one line of help each."""


class LazyGroup(Group):
    """A group that imports its commands when they are called, so that ``--help`` stays quick.

    A command is what a module of its name in the package calls ``command``, or what the module that it is listed in
    calls by its name.
    """

    def __init__(
        self, *, listed: Commands, package: str, modules: dict[str, str] = _NONE, **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._listed, self._package, self._modules = listed, package, modules
        self._help = {name: text for section in listed.values() for name, text in section.items()}
        self.commands = dict.fromkeys(self._help, click.Command(None))  # names that may have been meant

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of the help page."""
        return list(self._help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        """Import a command; return None where the name is unknown."""
        if cmd_name not in self._help:
            return None
        module = importlib.import_module(f"{self._package}.{self._modules.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name if cmd_name in self._modules else "command")
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that a word may become, without importing them, and the options."""
        named = [(name, text) for name, text in self._help.items() if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=text) for name, text in named]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        """List the commands without importing them."""
        widest = max(map(len, self._help))
        for title, section in self._listed.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), text) for name, text in section.items()])
