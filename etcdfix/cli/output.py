"""What is said on standard error, and what became of a change: that goes there rather than nowhere.

Every line there goes through :func:`emit`, so that ``--log-format`` holds for all of them. A sentence is said unless it
is a :class:`~etcdfix.text.notes.Note` and ``--quiet`` was given.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

import click
import msgspec

from etcdfix.cli.program import in_context
from etcdfix.errors import ConfigurationError
from etcdfix.text.colour import ColourChoice
from etcdfix.text.notes import Note
from etcdfix.text.safetext import safe_json, safe_text
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.sources.etcd.trace import Exchange

Level = Literal["error", "warning", "info", "debug"]


class Habits(msgspec.Struct):
    """What the command line says of standard error.

    Attributes:
        quiet: No progress, no notes.
        json: Every line is one JSON object.
        progress: Show it, at a terminal.
        questions: Also tell of each request to etcd before its answer is there.
    """

    quiet: bool = False
    json: bool = False
    progress: bool = True
    questions: bool = False


_NO_END: Final = safe_text("\0")
"""How etcd names the end of all keys, and the first of them."""

HABITS: Final = Habits()
"""Of the command that runs."""


@contextmanager
def own_habits() -> Iterator[None]:
    """Let what a command line says of standard error hold no longer than its command."""
    before = msgspec.structs.asdict(HABITS)
    try:
        yield
    finally:
        ColourChoice.mode = "auto"
        for name, value in before.items():
            setattr(HABITS, name, value)


def emit(level: Level, line: str, message: str = "", **facts: Any) -> None:
    """Write one line to standard error.

    Args:
        level: How much it matters.
        line: It, as a person reads it; safe already.
        message: It, without what only leads a person's eye; the line itself where nothing does.
        facts: What a program wants to know apart; empty ones are left out.
    """
    if not HABITS.json:
        click.echo(line, err=True)
        return
    text = (message or line).strip()
    if text:
        told = {"time": _now(), "level": level, "message": text} | {
            k: v for k, v in facts.items() if v not in (None, "") and v is not False
        }
        click.echo(safe_json(msgspec.json.encode(told)), err=True)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def say(text: str) -> None:
    """Write a sentence to standard error; a note not where somebody wants it quiet."""
    note = isinstance(text, Note)
    if not (note and HABITS.quiet):
        shown = safe_text(in_context(text))
        emit("info" if note else "warning", f"etcdfix: {shown}", shown)


def say_incomplete(reasons: Iterable[str]) -> None:
    """Write to standard error why something is not everything, a line each."""
    for reason in reasons:
        say(f"incomplete: {reason}")


def say_next(text: str, command: str = "") -> None:
    """Write to standard error what to do next, and the command for it: it belongs to what was said before."""
    shown, command = safe_text(in_context(text)), safe_text(in_context(command))
    if HABITS.json:
        emit("info", f"next: {shown}", command=command)
        return
    emit("info", f"  next: {shown}")
    if command:
        emit("info", f"        {command}")


def say_error(message: str, hint: str, code: str = "") -> None:
    """Write to standard error what ended a command, and what to do next."""
    if HABITS.json:
        emit("error", safe_text(message), next=safe_text(hint), code=code)
        return
    emit("error", f"etcdfix: {safe_text(message)}")
    if hint:
        emit("error", f"  next: {safe_text(hint)}")


def say_lines(lines: Iterable[str]) -> None:
    """Write lines to standard error that belong together, as a preview does; safe already."""
    for line in lines:
        emit("info", line)


def say_exchange(exchange: Exchange) -> None:
    """Write to standard error what is asked of etcd, or that the answer is there."""
    from etcdfix.storagekey import display  # noqa: PLC0415 - only where somebody listens

    waiting = exchange.milliseconds is None
    if waiting and not HABITS.questions:
        return
    key, range_end = (safe_text(display(part)) if part else "" for part in (exchange.key, exchange.range_end))
    words = [exchange.endpoint, exchange.method, *_range(key, range_end)]
    words.append(f"at revision {exchange.revision}" if exchange.revision else "")
    words.append(f"at most {exchange.limit}" if exchange.limit else "")
    end = "" if waiting else f": {_came(exchange)}, {exchange.milliseconds} ms"
    line = safe_text(f"{' '.join(filter(None, words))}{end}")
    emit(
        "debug", f"etcdfix: {_now()} {line}", line,
        endpoint=exchange.endpoint, method=exchange.method, key=key, range_end=range_end,
        revision=exchange.revision or None, limit=exchange.limit or None,
        milliseconds=exchange.milliseconds, keys=exchange.keys, more=exchange.more, status=exchange.status,
    )  # fmt: skip


def _range(key: str, range_end: str) -> list[str]:
    if range_end == _NO_END:
        return ["every key"] if key == _NO_END else ["from", key]
    return [key, "to", range_end] if range_end else [key]


def _came(exchange: Exchange) -> str:
    if exchange.status:
        return f"failed, {exchange.status}"
    if exchange.keys is None:
        return "answered"
    return f"{counted(exchange.keys, 'key')}{', more follow' if exchange.more else ''}"


def require_output() -> None:
    """Refuse to begin where nobody could read what it comes to.

    Raises:
        ConfigurationError: Standard output is closed.
    """
    if sys.stdout is None:
        raise ConfigurationError("standard output is closed", hint="send it to a file, or to /dev/null")


def show_outcome(lines: Iterable[str]) -> None:
    """Write what became of a change to standard output, or to standard error where that takes it no more.

    A full disk or a reader that has gone must not hide that something was changed, and where its backup is.

    Args:
        lines: Safe already.

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


def discard_output() -> None:
    """Lead standard output nowhere: what is left in its buffer would fail once more, at the latest when Python ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
