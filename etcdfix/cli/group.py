"""Groups of commands: ``help`` explains what follows it."""

from __future__ import annotations

from typing import Final

import click

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
