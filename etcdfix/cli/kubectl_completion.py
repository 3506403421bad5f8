"""Completion by kubectl.

Protocol: kubectl runs ``kubectl_complete-etcdfix`` with the words after ``kubectl etcdfix``, the last of which is to be
completed. It prints one completion a line, with a tab before its description, and ``:N`` at the end: what the shell is
to do with them, as in ``spf13/cobra`` ``completions.go``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import ShellComplete

from etcdfix.cli.program import PLUGIN

_DEFAULT: Final = 0
_NO_SPACE: Final = 2
_NO_FILES: Final = 4


def main() -> None:
    """Print the completions of a command line."""
    from etcdfix.cli.root import cli  # noqa: PLC0415 - its commands take their completions from here

    sys.stdout.write("".join(f"{line}\n" for line in completions(cli, sys.argv[1:])))


def completions(command: click.Command, words: Sequence[str]) -> list[str]:
    """Return what kubectl is told.

    Args:
        command: The root of the commands.
        words: After ``kubectl etcdfix``; the last is to be completed.
    """
    *before, last = words or [""]
    items = ShellComplete(command, {}, PLUGIN, "").get_completions(before, last)
    if any(item.type != "plain" for item in items):
        return [f":{_DEFAULT}"]  # names of files: the shell knows them
    unfinished = bool(items) and all(item.value.endswith("/") for item in items)
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in items]
    return [*lines, f":{_NO_FILES | _NO_SPACE if unfinished else _NO_FILES}"]
