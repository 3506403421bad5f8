"""Where a report goes: standard output, or a file that takes its name only when the report is whole.

What became of a change goes to standard error rather than nowhere.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import click

from etcdfix.errors import ConfigurationError
from etcdfix.reports.safetext import safe_text


@contextlib.contextmanager
def destination(
    path: Path | None, inputs: Iterable[Path | None], *, private: bool = False
) -> Iterator[BinaryIO]:
    """Yield where the report goes.

    A mistyped resource must not cost last night's report. A link is followed, and the mode of a file that was there is
    kept; pipes and devices are written as they are.

    Args:
        path: As named by ``--output-file``; None for standard output.
        inputs: Files that the command reads, none of which may be written over.
        private: A new file is for its owner alone, whatever the umask.

    Raises:
        ConfigurationError: It cannot be written, or is one of the inputs.
    """
    if path is None:
        if sys.stdout is None:
            raise ConfigurationError("standard output is closed", hint="name a file with --output-file")
        yield sys.stdout.buffer
        return
    before: os.stat_result | None = None
    try:
        with contextlib.suppress(FileNotFoundError):
            before = path.stat()
        if before is not None and any(os.path.samestat(before, other) for other in _status(inputs)):
            raise ConfigurationError(
                f"--output-file {path} is a file that this command reads", hint="name another one"
            )
        # /dev/stdout leads to a pipe that has no name of its own: what is no file is opened as it was named.
        in_place = before is not None and not stat.S_ISREG(before.st_mode)
        target = path if in_place else Path(os.path.realpath(path))
        partial = target if in_place else target.with_name(f".{target.name}.partial")
        stream = partial.open("wb")
    except OSError as exc:
        raise ConfigurationError(f"--output-file {path}: {exc.strerror}") from exc
    try:
        with stream:
            if before is not None and not in_place:
                os.fchmod(stream.fileno(), before.st_mode & 0o777)
            elif private and not in_place:
                os.fchmod(stream.fileno(), 0o600)
            yield stream
    except BaseException:
        if not in_place:
            partial.unlink(missing_ok=True)
        raise
    if not in_place:
        partial.replace(target)


def say(text: str) -> None:
    """Write a line to standard error."""
    click.echo(f"etcdfix: {safe_text(text)}", err=True)


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


def _status(paths: Iterable[Path | None]) -> Iterator[os.stat_result]:
    for path in paths:
        with contextlib.suppress(OSError):
            if path is not None:
                yield path.stat()
