"""What a person calls this program: ``etcdfix``, or ``kubectl etcdfix`` where kubectl runs it as its plugin.

Help and messages say commands by that name. Reports always say ``etcdfix``: the same words for whoever reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

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
    return text if name == PROGRAM else _ours(tuple(commands)).sub(lambda found: found[1] or name, text)


@cache
def _ours(commands: tuple[str, ...]) -> re.Pattern[str]:
    names = "|".join(map(re.escape, commands))
    # Whatever white space: a text may be folded between two words.
    return re.compile(rf"(?<![\w./-])(?:(kubectl\s+{PROGRAM})|{PROGRAM})(?=\s+(?:{names})\b)")


def in_context(text: str) -> str:
    """Return a text as :func:`as_called` does, for the command that is running."""
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    root = context.find_root()
    if not isinstance(root.command, click.Group):  # a command by itself
        return text
    return as_called(text, root.info_name or PROGRAM, root.command.list_commands(root))


def words_below(context: click.Context) -> str:
    """Return what stands behind the name of the program: ``encryption usage``, "" for the program itself."""
    return context.command_path.removeprefix(context.find_root().info_name or "").lstrip()


class _CalledFormatter(click.HelpFormatter):
    """Renames our commands before a text is folded, so that no line gets too long by it."""

    def write_text(self, text: str) -> None:
        super().write_text(in_context(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], *args: Any, **settings: Any) -> None:
        super().write_dl([(term, in_context(text)) for term, text in rows], *args, **settings)


class CalledContext(click.Context):
    """Context of a command whose help says our commands by the name that the program was called by."""

    formatter_class = _CalledFormatter

    def get_help(self) -> str:
        """Return the help page."""
        with self.scope(cleanup=False):
            return super().get_help()
