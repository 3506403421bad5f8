"""Groups of commands: an unknown one is refused with the nearest that there is, ``help`` explains them."""

from __future__ import annotations

import difflib
from typing import Final

import click

_HELP: Final = "help"


class NearestGroup(click.Group):
    """A group that says which command may have been meant; ``help`` in place of one shows the page of what follows."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Do as any group; where an option of a command stands before it, say that it belongs behind.

        Raises:
            click.UsageError: The group has no such option.
        """
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as exc:
            from etcdfix.cli.command import habits  # noqa: PLC0415 - groups are made before their commands

            of_every_command = any(exc.option_name in option.opts for option in habits())
            raise click.NoSuchOption(
                exc.option_name,
                f"No such option {exc.option_name!r}. Options stand after the command: "
                f"{ctx.command_path} COMMAND {exc.option_name}",
                None if of_every_command else exc.possibilities,
                ctx=exc.ctx,
            ) from exc

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            click.UsageError: There is none.
        """
        word = args[0]
        if word == _HELP and not ctx.resilient_parsing:
            return self._resolve_help(ctx, args[1:])
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            found = difflib.get_close_matches(word, self.list_commands(ctx), n=1)
            nearest = f" Do you mean {found[0]!r}?" if found else ""
            ctx.fail(f"No such command {word!r}.{nearest}")
        return super().resolve_command(ctx, args)

    def _resolve_help(
        self, ctx: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Show the help page of this group, or find the command that the words name and have it show its own."""
        if not words or words[0].startswith("-") or words[0] == _HELP:
            click.echo(ctx.get_help())
            ctx.exit()
        name, command, rest = self.resolve_command(ctx, words)
        # What else was typed is left out: nothing of it must be done.
        return name, command, [_HELP, *rest] if isinstance(command, click.Group) else ["--help"]
