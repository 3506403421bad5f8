"""Groups of commands: ``help`` explains what follows it, and commands are imported when they are called."""

from __future__ import annotations

import importlib
import keyword
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

Commands = dict[str, dict[str, str]]
"""Title of a section of the help page, to its commands with one line of help each."""


_HELP: Final = "help"


class HelpGroup(click.Group):
    """A group in which ``help`` in the place of a command shows the page of what follows."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            click.UsageError: There is none.
        """
        if args[0] != _HELP or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        words = args[1:]
        if not words or words[0].startswith("-") or words[0] == _HELP:
            click.echo(ctx.get_help())
            ctx.exit()
        name, command, rest = super().resolve_command(ctx, words)
        # What else was typed is left out: nothing of it must be done.
        return name, command, [_HELP, *rest] if isinstance(command, click.Group) else ["--help"]


class LazyGroup(HelpGroup):
    """A group that knows of its commands where they are: the ``command`` of a module of that name in its package."""

    def __init__(self, *, listed: Commands, package: str, **attributes: Any) -> None:
        settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
        super().__init__(context_settings=settings, **attributes)
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
