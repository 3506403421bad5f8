"""What is said on standard error, and what became of a change: that goes there rather than nowhere."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable

import click

from etcdfix.cli.program import in_context
from etcdfix.errors import ConfigurationError
from etcdfix.text.safetext import safe_text


def say(text: str) -> None:
    """Write a line to standard error."""
    click.echo(f"etcdfix: {safe_text(in_context(text))}", err=True)


def say_incomplete(reasons: Iterable[str]) -> None:
    """Write to standard error why something is not everything, a line each."""
    for reason in reasons:
        say(f"incomplete: {reason}")


def say_next(text: str, command: str = "") -> None:
    """Write to standard error what to do next, and the command for it."""
    click.echo(f"  next: {safe_text(in_context(text))}", err=True)
    if command:
        click.echo(f"        {safe_text(in_context(command))}", err=True)


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
        click.echo(f"etcdfix: standard output cannot be written: {exc.strerror}", err=True)
        for line in told:
            click.echo(line, err=True)


def discard_output() -> None:
    """Lead standard output nowhere: what is left in its buffer would fail once more, at the latest when Python ends."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
