"""Asking a person before something is changed. Typing a key back is slow on purpose."""

from __future__ import annotations

import sys

import click

from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_text


class Terminal:
    """Asks at the terminal; implements :class:`etcdfix.commands.delete.Confirmer`."""

    def __init__(self, *, yes: bool = False) -> None:
        self._yes = yes

    def confirm_key(self, key: bytes) -> bool:
        """Have the key typed back; without a terminal only ``--yes`` confirms."""
        if self._yes:
            return True
        return is_terminal() and _typed_back("the key", safe_text(display(key)))

    def confirm_number(self, number: int, what: str = "their number") -> bool:
        """Have a number typed back; without a terminal only ``--yes`` confirms."""
        return self._yes or (is_terminal() and _typed_back(what, str(number)))

    def confirm_lost(self, declared: str) -> bool:
        """Have the lost key's name typed back, whatever ``--yes`` says.

        Without a terminal its value on the command line stands for that: the checks before have compared it with the
        transformer, letter by letter.
        """
        if not is_terminal():
            return True
        return _typed_back("the name of the key that is lost for ever", safe_text(declared))


def is_terminal() -> bool:
    """Say whether somebody can type an answer."""
    return sys.stdin is not None and sys.stdin.isatty()  # None where the shell closed it: <&-


def _typed_back(what: str, expected: str) -> bool:
    click.echo(f"Type {what} in full to go on:\n  {expected}", err=True)
    try:
        typed = click.prompt(">", prompt_suffix=" ", default="", show_default=False, err=True)
    except click.Abort:  # Ctrl-C, Ctrl-D
        # The first line break ends the line in which somebody was typing.
        click.echo(f"\n{what} was not typed back, and nothing is changed without it", err=True)
        raise
    # To the letter: who types less, more or other than what is shown has not read it, or means another key.
    return str(typed) == expected
