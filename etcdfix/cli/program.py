"""What a person calls this program: ``etcdfix``, or ``kubectl etcdfix`` where kubectl runs it as its plugin.

Help and messages say commands by that name. Reports always say ``etcdfix``: the same words for whoever reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import click

PROGRAM: Final = "etcdfix"
PLUGIN: Final = "kubectl etcdfix"


def called() -> str:
    """Return what the program was called by."""
    context = click.get_current_context(silent=True)
    return (context.find_root().info_name if context is not None else None) or PROGRAM


def as_called(text: str, name: str, commands: Iterable[str]) -> str:
    """Return a text with our commands by the name that the program was called by.

    Args:
        text: Help, or a message.
        name: As :func:`called` returns it.
        commands: Names of our commands; after any other word ``etcdfix`` is no command.
    """
    return text if name == PROGRAM else _ours(tuple(commands)).sub(name, text)


@cache
def _ours(commands: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-])(?<!kubectl ){PROGRAM}(?= (?:{'|'.join(map(re.escape, commands))})\b)")


def in_context(text: str) -> str:
    """Return a text as :func:`as_called` does, for the command that is running."""
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    root = context.find_root()
    if not isinstance(root.command, click.Group):  # a command by itself
        return text
    return as_called(text, root.info_name or PROGRAM, root.command.list_commands(root))


class CalledContext(click.Context):
    """Context of a command whose help says our commands by the name that the program was called by."""

    def get_help(self) -> str:
        """Return the help page."""
        with self.scope(cleanup=False):
            return in_context(super().get_help())
