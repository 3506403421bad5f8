"""The one way to write a file for somebody: it takes its name only when it is whole.

Until then it has a random name in the same directory, and it goes again when anything ends the work before that. What
stands at the name is replaced, never written into: no link is followed, and no backup, audit log, plan or
EncryptionConfiguration is lost.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from etcdfix.model.errors import ConfigurationError

STANDARD_OUTPUT: Final = Path("-")
_OWNER_ONLY: Final = 0o600
_PERMISSIONS: Final = 0o777
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Names that the system gives to what a process has open. They are links, to a pipe without a name as often as not.
_OPEN_ALREADY: Final = re.compile(
    r"/dev/(?:std(?P<name>out|err)|fd/(?P<dev>\d{1,6}))|/proc/self/fd/(?P<proc>\d{1,6})"
)


@contextlib.contextmanager
def destination(
    path: Path | None,
    inputs: Iterable[Path | None],
    *,
    private: bool = False,
    may_replace_plan: bool = False,
) -> Iterator[BinaryIO]:
    """Yield where a report goes: standard output, a file, or a pipe or device, which is written as it is.

    A mistyped resource must not cost last night's report, so nothing is replaced before the block has ended well.

    Args:
        path: As named by ``--output-file``; None, or ``-``, for standard output.
        inputs: Files that the command reads, none of which may be written over.
        private: The file is for its owner alone, whatever the umask, and whatever the mode of one that it replaces;
            else that mode is kept.
        may_replace_plan: What is written is a plan, and may take the place of an earlier one.

    Raises:
        ConfigurationError: It cannot be written, is a link, is one of the inputs, one of our own files, or an
            EncryptionConfiguration.
        OSError: What was written could not take its name in the end.
    """
    if path is None or path == STANDARD_OUTPUT:
        if sys.stdout is None:
            raise ConfigurationError("standard output is closed", hint="name a file with --output-file")
        yield sys.stdout.buffer
        return
    try:
        descriptor = _open_in_place(path)
    except OSError as exc:
        raise _problem(path, exc) from exc
    if descriptor is not None:
        with os.fdopen(descriptor, "wb") as opened:
            yield opened
        return
    with contextlib.ExitStack() as stack:
        try:
            # A path that leads to another directory meanwhile must not lead us there.
            directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            before = _check(path, directory, inputs, may_replace_plan=may_replace_plan)
            name, stream = stack.enter_context(_partial_file(directory, private=private))
            if before is not None and not private:
                os.fchmod(stream.fileno(), before.st_mode & _PERMISSIONS)
        except OSError as exc:
            raise _problem(path, exc) from exc
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
        _check(path, directory, inputs, may_replace_plan=may_replace_plan)  # the work may have taken hours
        os.replace(name, path.name, src_dir_fd=directory, dst_dir_fd=directory)


def is_file_by_itself(path: Path) -> bool:
    """Return whether :func:`destination` makes a file of this name: it is no standard output, pipe or device."""
    if path == STANDARD_OUTPUT or _OPEN_ALREADY.fullmatch(str(path)):
        return False
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True
    except OSError:  # destination() says what is wrong
        return False


def _problem(path: Path, exc: OSError) -> ConfigurationError:
    return ConfigurationError(f"--output-file {path}: {exc.strerror}")


def _open_in_place(path: Path) -> int | None:
    """Open what is no file, or None for what is one or is to be."""
    already = _OPEN_ALREADY.fullmatch(str(path))
    if already is not None:
        name = already["name"]
        number = {"out": 1, "err": 2}[name] if name else int(already["dev"] or already["proc"])
        return os.dup(number)
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode) or stat.S_ISREG(status.st_mode):
        return None
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ConfigurationError(f"--output-file {path}: it became a file while it was looked at")
    return descriptor


def _check(
    path: Path, directory: int, inputs: Iterable[Path | None], *, may_replace_plan: bool
) -> os.stat_result | None:
    """Return the status of the file that stands there, None where there is none.

    Raises:
        ConfigurationError: It may not be replaced, or nothing may be written under its name.
    """
    from etcdfix.inputs.ownfiles import (  # noqa: PLC0415 - few reports go to a file
        BESIDE_SQLITE,
        OwnFile,
        own_file,
    )

    where = f"--output-file {path}"
    if any(_is_called(each, directory, path.name) for each in inputs):
        # One that lacks too: what is written here would be read in its place the next time.
        raise ConfigurationError(f"{where} is a file that this command reads", hint="name another one")
    try:
        status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        if path.name.endswith(BESIDE_SQLITE):
            raise ConfigurationError(
                f"{where} would be taken for the log of a SQLite database", hint="name another file"
            ) from None
        return None
    if stat.S_ISLNK(status.st_mode):
        raise ConfigurationError(
            f"{where} is a symbolic link, which is not followed", hint="name the file itself"
        )
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{where} is not a regular file")
    own = own_file(directory, path.name)
    if own is not None and not (own is OwnFile.PLAN and may_replace_plan):
        raise ConfigurationError(
            f"{where} is {own.value}, which is never written over", hint="name another file"
        )
    return status


def _is_called(path: Path | None, directory: int, name: str) -> bool:
    """Say whether a path leads to the file of a name in a directory, or would if it was there."""
    if path is None:
        return False
    with contextlib.suppress(OSError):
        if path.name == name and os.path.samestat(path.parent.stat(), os.fstat(directory)):
            return True
    with contextlib.suppress(OSError):
        return os.path.samestat(path.stat(), os.stat(name, dir_fd=directory, follow_symlinks=False))
    return False


@contextlib.contextmanager
def _partial_file(directory: int, *, private: bool) -> Iterator[tuple[str, BinaryIO]]:
    """Yield a new file and its random name; it is gone afterwards unless it was renamed."""
    name = f".etcdfix-{secrets.token_hex(16)}.partial"
    descriptor = os.open(name, _NEW, _OWNER_ONLY if private else 0o666, dir_fd=directory)
    with contextlib.ExitStack() as stack:
        stream: BinaryIO = os.fdopen(descriptor, "wb")
        stack.enter_context(contextlib.suppress(FileNotFoundError))  # renamed, as a rule
        stack.callback(os.unlink, name, dir_fd=directory)
        stack.callback(_close, stream)
        if private:
            os.fchmod(descriptor, _OWNER_ONLY)  # whatever the umask took away
        yield name, stream


def _close(stream: BinaryIO) -> None:
    with contextlib.suppress(OSError):  # said already, where anything could not be written
        stream.close()
