"""Groups of commands: an unknown one is refused with the nearest that there is."""

from __future__ import annotations

import difflib

import click


class NearestGroup(click.Group):
    """A group that says which command may have been meant."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that the first word names.

        Raises:
            click.UsageError: There is none.
        """
        word = args[0]
        if not ctx.resilient_parsing and not word.startswith("-") and self.get_command(ctx, word) is None:
            found = difflib.get_close_matches(word, self.list_commands(ctx), n=1)
            nearest = f" Do you mean {found[0]!r}?" if found else ""
            ctx.fail(f"No such command {word!r}.{nearest}")
        return super().resolve_command(ctx, args)
