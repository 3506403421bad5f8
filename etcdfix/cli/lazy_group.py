"""A group of commands that are imported when they are called, so that ``--help`` stays quick."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from etcdfix.cli.group import HelpGroup

Commands = dict[str, tuple[str, str]]
"""Command to module and one-line help, in the order of the help page. The module's ``command`` is the command."""


class LazyGroup(HelpGroup):
    """A group that knows of its commands where they are."""

    def __init__(
        self, *, commands_at: Commands, sections: Mapping[str, Sequence[str]] | None = None, **attributes: Any
    ) -> None:
        super().__init__(**attributes)
        self._commands_at = commands_at
        self.commands = dict.fromkeys(commands_at, click.Command(None))  # names that may have been meant
        self._sections = sections if sections is not None else {"Commands": list(commands_at)}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of the help page."""
        return list(self._commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        """Import a command; None for one that nobody knows."""
        entry = self._commands_at.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(entry[0]).command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that a word may become, without importing them, and the options."""
        commands = [
            CompletionItem(name, help=text)
            for name, (_module, text) in self._commands_at.items()
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - same
        """List the commands without importing them."""
        widest = max(map(len, self._commands_at))
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), self._commands_at[name][1]) for name in names])
