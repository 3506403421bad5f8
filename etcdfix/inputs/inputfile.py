"""The one way to read a file that somebody names: a regular file, and no more of it than its kind may have.

A pipe without a writer would wait for ever, and a device may have no end. So neither is opened for long, and ``-``
stands for standard input where that makes sense. Every problem is an :class:`OSError` whose ``strerror`` says it in
half a sentence: callers put the name of the option and of the file before it.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from etcdfix.inputs.temporary import temporary_directory, temporary_file
from etcdfix.text.safetext import quote_command

STANDARD_INPUT: Final = Path("-")

NOT_REGULAR: Final = errno.ENODEV
"""The errno of what is a pipe, a socket or a device."""
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errnos that a file cannot be blamed for."""

MAX_REPORT_BYTES: Final = 1 << 30
"""A saved report: a million findings of a lost key are 650 MB."""

MAX_PLAN_BYTES: Final = 1 << 31
"""A plan: a million objects are 900 MB, and their commands repeat long options."""

MAX_SETTINGS_BYTES: Final = 16 << 20
"""What people write by hand, or tools for them: manifests, kubeconfigs, certificates and keys."""

SPOILED: Final = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What decoding a file raises; msgspec recurses into fields that nobody asked for, too."""

_PIECE_BYTES: Final = 1 << 20

Readable = bytes | mmap.mmap
"""All bytes of a file, in memory or mapped."""

Check = Callable[[os.stat_result], None]
"""Told the status of the file before anything is read of it; raises where it is not to be read."""


_OTHER_FORMS: Final = {
    b"\x1f\x8b": ("compressed (gzip), expected JSON", "unpack it first: gunzip FILE.gz"),
    b"\xff\xfe": ("UTF-16, expected UTF-8", "convert it first: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
    b"\xfe\xff": ("UTF-16, expected UTF-8", "convert it first: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
    b"\xef\xbb": ("UTF-8 with a mark before it", "take the mark off first: tail -c +4 FILE > NEW"),
}
"""How files begin that would have to be turned into JSON of UTF-8 first, and how that is done."""


class OtherFormError(msgspec.DecodeError):
    """Raised for a file that is JSON only once it is converted; ``hint`` says how."""

    def __init__(self, first: bytes) -> None:
        what, self.hint = _OTHER_FORMS[first]
        super().__init__(f"it begins with {first.hex(' ')}: it is {what}")


def require_json(raw: Readable) -> None:
    """Refuse what is compressed, or in another encoding.

    Raises:
        OtherFormError: It is.
    """
    if bytes(raw[:2]) in _OTHER_FORMS:
        raise OtherFormError(bytes(raw[:2]))


def spoiled(exc: Exception) -> str:
    """Return what is wrong with the contents of a file, as half a sentence."""
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    return "it is cut: its end is missing" if str(exc) == "Input data was truncated" else str(exc)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading; nothing else is waited for.

    Raises:
        OSError: It cannot be opened, or is something else; EISDIR for a directory, ELOOP for a link.
    """
    # O_NONBLOCK: opening a pipe would wait for a writer. O_NOCTTY: a terminal must not become ours.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except ValueError as exc:  # a zero byte in the name
        raise OSError(errno.EINVAL, str(exc)) from exc
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
        raise OSError(NOT_REGULAR, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def open_input(path: Path, *, follow: bool = True, standard_input: bool = True) -> Iterator[BinaryIO]:
    """Yield a regular file to be read piece by piece; for ``-`` standard input, where that is asked for.

    Raises:
        OSError: It cannot be opened, or is something else.
    """
    if not standard_input or path != STANDARD_INPUT:
        with open_regular(path, follow=follow) as stream:
            yield stream
        return
    if sys.stdin is None:
        raise OSError(errno.EBADF, "standard input is closed")
    yield sys.stdin.buffer


def read_input(path: Path, *, most_bytes: int, follow: bool = True, standard_input: bool = False) -> bytes:
    """Return all of a file.

    Raises:
        OSError: It cannot be read, is no regular file, or is too large (EFBIG).
    """
    with open_input(path, follow=follow, standard_input=standard_input) as stream:
        raw = stream.read(most_bytes + 1)
    if len(raw) > most_bytes:
        raise too_large(most_bytes)
    return raw


def read_secret(path: Path, *, most_bytes: int) -> tuple[bytes, str]:
    """Return all of a file with a secret, or of standard input; and what is wrong where others may read it, else "".

    Raises:
        OSError: As of :func:`read_input`.
    """
    raw = read_input(path, most_bytes=most_bytes, standard_input=True)
    if path == STANDARD_INPUT or not path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return raw, ""
    return raw, f"others than its owner may read or change it: {quote_command(['chmod', '600', str(path)])}"


@contextmanager
def mapped_input(
    path: Path,
    *,
    most_bytes: int,
    follow: bool = True,
    standard_input: bool = True,
    check: Check | None = None,
) -> Iterator[Readable]:
    """Yield all of a file without holding it in memory.

    It is mapped from an unlinked copy: whoever changes the file itself, or cuts it short, changes nothing of what is
    read here, however often that is.

    Raises:
        OSError: It cannot be read, is no regular file, or is too large (EFBIG); or there is no room for the copy.
    """
    with _room(path):
        temporary = temporary_file()
    with temporary as copy:
        size = 0
        with open_input(path, follow=follow, standard_input=standard_input) as stream:
            if check is not None:
                check(os.fstat(stream.fileno()))
            while piece := stream.read(_PIECE_BYTES):
                size += len(piece)
                if size > most_bytes:
                    raise too_large(most_bytes)
                with _room(path):
                    copy.write(piece)
        with _room(path):
            copy.flush()
        if not size:
            yield b""
            return
        # Not closed: parts of it may still be in use. It goes with the last of them.
        yield mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)


@contextmanager
def _room(path: Path) -> Iterator[None]:
    """Say of a full disk which one it is: not that of the file."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        said = f"no room for a copy of it in {temporary_directory()} (TMPDIR): {exc.strerror}"
        raise OSError(exc.errno, said, str(path)) from exc


def too_large(most_bytes: int) -> OSError:
    """Return what to raise for a file that is larger than its kind may be."""
    return OSError(errno.EFBIG, f"it is larger than {most_bytes} bytes")
