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
from typing import BinaryIO, Final, Self

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
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
        return
    with contextlib.ExitStack() as stack:
        try:
            directory = stack.enter_context(_directory_of(path))
            target = _Target(path, directory, tuple(inputs), may_replace_plan=may_replace_plan)
            before = target.check()
            partial = stack.enter_context(_Partial(directory, private=private))
            if before is not None and not private:
                os.fchmod(partial.stream.fileno(), before.st_mode & _PERMISSIONS)
        except OSError as exc:
            raise _problem(path, exc) from exc
        yield partial.stream
        partial.finish()
        target.check()  # the work may have taken hours
        partial.rename(path.name)


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


@contextlib.contextmanager
def _directory_of(path: Path) -> Iterator[int]:
    # A path that leads to another directory meanwhile must not lead us there.
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


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


class _Target:
    def __init__(
        self,
        path: Path,
        directory: int,
        inputs: tuple[Path | None, ...],
        *,
        may_replace_plan: bool,
    ) -> None:
        self._path = path
        self._where = f"--output-file {path}"
        self._directory = directory
        self._inputs = inputs
        self._may_replace_plan = may_replace_plan

    def check(self) -> os.stat_result | None:
        """Return the status of the file that stands there, None for none."""
        from etcdfix.inputs.ownfiles import (  # noqa: PLC0415 - few reports go to a file
            OwnFile,
            own_file,
            stands_beside_a_database,
        )

        where = self._where
        try:
            status = os.stat(self._path.name, dir_fd=self._directory, follow_symlinks=False)
        except FileNotFoundError:
            if stands_beside_a_database(self._directory, self._path.name):
                raise ConfigurationError(
                    f"{where} would be taken for the log of a SQLite database", hint="name another file"
                ) from None
            # One that lacks: what is written here would be read in its place the next time.
            if any(_is_called(path, self._directory, self._path.name) for path in self._inputs):
                raise self._read_too() from None
            return None
        if stat.S_ISLNK(status.st_mode):
            raise ConfigurationError(
                f"{where} is a symbolic link, which is not followed", hint="name the file itself"
            )
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{where} is no regular file")
        if any(os.path.samestat(status, other) for other in _statuses(self._inputs)):
            raise self._read_too()
        own = own_file(self._directory, self._path.name)
        if own is not None and not (own is OwnFile.PLAN and self._may_replace_plan):
            raise ConfigurationError(
                f"{where} is {own.value}, which is never written over", hint="name another file"
            )
        return status

    def _read_too(self) -> ConfigurationError:
        return ConfigurationError(f"{self._where} is a file that this command reads", hint="name another one")


def _is_called(path: Path | None, directory: int, name: str) -> bool:
    try:
        return (
            path is not None
            and path.name == name
            and os.path.samestat(path.parent.stat(), os.fstat(directory))
        )
    except OSError:
        return False


def _statuses(paths: Iterable[Path | None]) -> Iterator[os.stat_result]:
    for path in paths:
        with contextlib.suppress(OSError):
            if path is not None:
                yield path.stat()


class _Partial:
    """A new file under a random name, gone again unless it was renamed."""

    def __init__(self, directory: int, *, private: bool) -> None:
        self._directory = directory
        self._name = f".etcdfix-{secrets.token_hex(16)}.partial"
        mode = _OWNER_ONLY if private else 0o666
        descriptor = os.open(self._name, _NEW, mode, dir_fd=directory)
        if private:
            os.fchmod(descriptor, _OWNER_ONLY)  # whatever the umask took away
        self.stream: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # renamed, as a rule
            os.unlink(self._name, dir_fd=self._directory)
        with contextlib.suppress(OSError):  # said already, where anything could not be written
            self.stream.close()

    def finish(self) -> None:
        """Have everything on disk."""
        self.stream.flush()
        os.fsync(self.stream.fileno())

    def rename(self, name: str) -> None:
        """Take the name that it is meant to have."""
        os.replace(self._name, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
