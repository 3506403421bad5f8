"""A group of commands that are imported when they are called, so that ``--help`` stays quick."""

from __future__ import annotations

import importlib
import keyword
from typing import Any

import click
from click.shell_completion import CompletionItem

from etcdfix.cli.group import HelpGroup

Commands = dict[str, dict[str, str]]
"""Title of a section of the help page, to its commands with one line of help each."""


class LazyGroup(HelpGroup):
    """A group that knows of its commands where they are: the ``command`` of a module of that name in its package."""

    def __init__(self, *, listed: Commands, package: str, **attributes: Any) -> None:
        super().__init__(**attributes)
        self._listed, self._package = listed, package
        self._help = {name: text for section in listed.values() for name, text in section.items()}
        self.commands = dict.fromkeys(self._help, click.Command(None))  # names that may have been meant

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names, in the order of the help page."""
        return list(self._help)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - same
        """Import a command; None for one that nobody knows."""
        if cmd_name not in self._help:
            return None
        module = cmd_name.replace("-", "_") + "_" * keyword.iskeyword(cmd_name)
        command = importlib.import_module(f"{self._package}.{module}").command
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
