"""Standard error, and the outcome of a change, which goes there where standard output takes nothing.

A sentence is said unless it is a :class:`~etcdfix.text.notes.Note` and ``--quiet`` was given.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, TextIO

import click
import msgspec

from etcdfix.model.errors import ConfigurationError
from etcdfix.text.notes import Note
from etcdfix.text.safetext import WITHHELD, safe_text, shown_key

if TYPE_CHECKING:
    from etcdfix.model.errors import RefusedByRule
    from etcdfix.report.document import Document
    from etcdfix.report.render import Report
    from etcdfix.text.commands import RunOptions


class Habits(msgspec.Struct):
    """Settings of one command line: whether it is quiet, whether it changes something, and its words as typed."""

    quiet: bool = False
    changing: bool = False
    words: tuple[str, ...] = ()


HABITS: Final = Habits()
"""The habits of the command that runs."""


@contextmanager
def own_habits() -> Iterator[None]:
    """Let what a command line says of standard error hold no longer than its command."""
    before = msgspec.structs.asdict(HABITS)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(HABITS, name, value)


def words_as_typed() -> tuple[str, ...]:
    """Return the words of the command that runs, but for ``--dry-run``, passwords, and what no key may show."""
    kept, rest = ["etcdfix"], iter(HABITS.words)
    for word in rest:
        option, equals, value = word.partition("=")
        if option in {"--user", "--password"}:
            value = value if equals else next(rest, "")
            kept += [option, value.partition(":")[0]] if option == "--user" else []
        elif word != "--dry-run":
            kept.append(_as_shown(word))
    return tuple(kept)


def _as_shown(word: str) -> str:
    """Return a word in which an etcd key stands as it may be shown, wherever in it that begins."""
    encoded = word.partition("base64:")[2]
    with suppress(ValueError):
        key = base64.b64decode(encoded, validate=True)
        if shown_key(key) != key:
            return f"base64:{WITHHELD}"
    for at in (0, *(mark.start() for mark in re.finditer("/", word))):
        key = os.fsencode(word[at:])
        if shown_key(key) != key:
            return f"{word[:at]}{shown_key(key).decode('utf-8', 'backslashreplace')}"
    return word


def say(text: str) -> None:
    """Write a sentence to standard error; a note not where somebody wants it quiet."""
    if not (HABITS.quiet and isinstance(text, Note)):
        click.echo(f"etcdfix: {safe_text(text)}", err=True)


def say_incomplete(reasons: Iterable[str]) -> None:
    """Write to standard error why something is not everything, a line each."""
    for reason in reasons:
        say(f"incomplete: {reason}")


def say_next(text: str, command: str = "") -> None:
    """Write to standard error what to do next, and the command for it: it belongs to what was said before."""
    click.echo(f"  next: {safe_text(text)}", err=True)
    if command:
        click.echo(f"        {safe_text(command)}", err=True)


def say_error(message: str, hint: str = "") -> None:
    """Write to standard error what ended a command, and what to do next; the exit code stands, whoever reads it."""
    with suppress(OSError):
        click.echo(f"etcdfix: {safe_text(message)}", err=True)
        if hint:
            say_next(hint)


def say_refusal(refusal: RefusedByRule) -> None:
    """Write to standard error every rule that refused, and the command that none would."""
    for one in (refusal, *refusal.also):
        say_error(one.message, one.hint)
    with suppress(OSError):
        if refusal.lifted:
            click.echo(safe_text(refusal.lifted), err=True)
        if refusal.command:
            click.echo(f"  {safe_text(refusal.command)}", err=True)


def say_lines(lines: Iterable[str]) -> None:
    """Write lines to standard error that belong together, as a preview does; safe already."""
    for line in lines:
        click.echo(line, err=True)


def require_output() -> None:
    """Refuse to begin where nobody could read what it comes to."""
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed", hint="send it to a file, or to /dev/null")


def show_outcome(lines: Iterable[str]) -> None:
    """Write what became of a change to standard output, or to standard error where that takes it no more.

    A full disk or a reader that has gone must not hide that something was changed, and where its backup is.

    Raises:
        OSError: Neither takes it.
    """
    told = list(lines)
    try:
        for line in told:
            click.echo(line)
    except OSError as exc:
        discard_output()
        say(f"standard output cannot be written: {exc.strerror}")
        say_lines(told)


def show_change(report: Report, form: str, run: RunOptions) -> None:
    """Write what a change came to, as :func:`show_outcome` does; where nothing takes it, its record has it."""
    from etcdfix.report.render import write  # noqa: PLC0415 - only where something is shown
    from etcdfix.report.render.text import text_lines  # noqa: PLC0415

    if form == "text":
        lines = [*text_lines(report.document(), run, _width(sys.stdout))]
    else:
        stream = io.BytesIO()
        write(report, form, stream, run)
        lines = stream.getvalue().decode().splitlines()
    with suppress(OSError):
        show_outcome(lines)


def show_preview(document: Document, run: RunOptions) -> None:
    """Write to standard error what a change would do."""
    from etcdfix.report.render.text import text_lines  # noqa: PLC0415 - only where something is shown

    say_lines(text_lines(document, run, _width(sys.stderr)))


def _width(stream: TextIO | None) -> int:
    from etcdfix.report.render.text import width_of  # noqa: PLC0415 - only where something is shown

    return width_of(stream.buffer if stream is not None else io.BytesIO())


def discard_output(stream: TextIO | None = None) -> None:
    """Lead a stream nowhere: what is left in its buffer would fail once more, at the latest when Python ends."""
    with suppress(OSError, AttributeError):  # None where the shell closed it: >&-
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, (stream or sys.stdout).fileno())
        os.close(nowhere)


def end_output() -> None:
    """Write out what is left; what nobody takes goes nowhere, so that Python ends with the code of the command."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:  # closed by the shell: >&-
                stream.flush()
        except OSError:
            discard_output(stream)


class Terminal:
    """Asks at the terminal; implements :class:`etcdfix.commands.delete.Confirmer`."""

    def __init__(self, *, yes: bool = False) -> None:
        self._yes = yes

    def confirm_key(self, key: bytes) -> bool:
        """Have the key typed back; without a terminal only ``--yes`` confirms."""
        from etcdfix.model.storagekey import display  # noqa: PLC0415 - only where something is asked

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
