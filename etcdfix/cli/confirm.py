"""Asking a person before something is changed. Typing a key back is slow on purpose."""

from __future__ import annotations

import sys
from collections.abc import Collection, Container, Mapping
from types import MappingProxyType

import click

from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_text


class Terminal:
    """Asks at the terminal; implements :class:`etcdfix.operations.change.delete.Confirmer`.

    Args:
        yes: ``--yes`` was given: the key need not be typed back.
        counts: What ``--confirm-count`` says of each group.
        protected: Keys that ``--confirm-protected`` names.
    """

    def __init__(
        self,
        *,
        yes: bool = False,
        counts: Mapping[str, int] = MappingProxyType({}),
        protected: Collection[bytes] = (),
    ) -> None:
        self._yes = yes
        self._counts = counts
        self._protected = protected

    def confirm_key(self, key: bytes) -> bool:
        """Have the key typed back; without a terminal only ``--yes`` confirms."""
        if self._yes:
            return True
        return is_terminal() and _typed_back("the key", safe_text(display(key)))

    def confirm_number(self, number: int) -> bool:
        """Have the number of files typed back that are to be removed; without a terminal only ``--yes`` confirms."""
        return self._yes or (is_terminal() and _typed_back("their number", str(number)))

    def confirm_count(self, group: str, number: int) -> bool:
        """Have the number of objects of a group typed back; without a terminal only ``--confirm-count`` confirms."""
        given = self._counts.get(group)
        if given is not None:
            return given == number
        return is_terminal() and _typed_back(f"the number of {group}", str(number))

    def counted_besides(self, groups: Container[str]) -> Mapping[str, int]:
        """Return what was counted of other groups than these, where it was any."""
        return {group: number for group, number in self._counts.items() if number and group not in groups}

    def confirm_protected(self, key: bytes) -> bool:
        """Have the key of a protected object typed back; without a terminal only ``--confirm-protected`` confirms."""
        if key in self._protected:
            return True
        return is_terminal() and _typed_back("the key of this protected object", safe_text(display(key)))

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
