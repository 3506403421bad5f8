"""Files that must survive: opened so that nobody can slip us another, on disk before we go on.

Every write, fsync, rename, truncation and unlink is announced to a :data:`Step` before and after
(``backup: before fsync file``): tests stop the process, or fail the call, at each of them. A step that raises
``OSError`` counts as the failure of the action that it stands beside.

A directory must be ours (effective uid), writable by nobody else, and no symbolic link. Symbolic links *above* it are
followed, because systems have them: the parents are resolved once, then opened step by step without following
anything, so a link that appears in between is refused. Each parent, and each directory in which a link stands, must
belong to root, to us, or to the user who called ``sudo``, and one that everybody may write to needs the sticky bit:
whoever may change it could put another directory in our place. A group-writable parent is accepted: many systems give
each person a group of their own.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.inputs import machine
from etcdfix.model.closing import Closing
from etcdfix.model.errors import why
from etcdfix.remediation.errors import NotDurable, UnsafePlace

Step = Callable[[str], None]
"""Told the name of each action on a file, before and after it."""

_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_VOLATILE: Final = frozenset({"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"})
_CHUNK: Final = 1 << 20
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_READABLE: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_ATTEMPTS: Final = 10
_POLL_SECONDS: Final = 0.05


def no_step(name: str) -> None:
    """Take no notice of a step."""


@contextmanager
def announced(step: Step, what: str, action: str) -> Iterator[None]:
    """Announce an action before and after it."""
    step(f"{what}: before {action}")
    yield
    step(f"{what}: after {action}")


@contextmanager
def _durably(what: str, path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        reason = "it is a symbolic link" if exc.errno == errno.ELOOP else why(exc)
        raise NotDurable(f"{what} {path}: {reason}", path=path) from exc


def write_fully(descriptor: int, data: bytes) -> None:
    """Write all of ``data``, however many calls that takes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class SafeDirectory(Closing):
    """An open directory that is ours; files in it are reached through its descriptor, by plain name."""

    def __init__(self, descriptor: int, path: Path, step: Step = no_step) -> None:
        self.descriptor = descriptor
        self.path = path
        self.step = step

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def create(self, name: str, data: bytes, *, what: str) -> None:
        """Write a new file, mode 0600, on disk and read back when it returns; or none, and NotDurable."""
        path = self.path / name
        with ExitStack() as on_failure, _durably(what, path):
            with announced(self.step, what, "create file"):
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(name, flags, 0o600, dir_fd=self.descriptor)
                on_failure.callback(self.forget, name)
                on_failure.callback(os.close, descriptor)
                os.fchmod(descriptor, 0o600)  # whatever the umask took away
            with announced(self.step, what, "write file"):
                write_fully(descriptor, data)
            with announced(self.step, what, "fsync file"):
                os.fsync(descriptor)
            self._fsync(what)
            with announced(self.step, what, "read back"):
                # Clean pages go, so that the bytes come from where they were written to.
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                same = self.read(name, limit=len(data)) == data
            if not same:
                raise NotDurable(f"{what} {path}: other bytes came back than were written", path=path)
            on_failure.pop_all()
        os.close(descriptor)

    def replace(self, name: str, data: bytes, *, what: str) -> None:
        """Put ``data`` in the place of a file, all or nothing, by way of ``NAME.new``; raises NotDurable."""
        fresh = f"{name}.new"
        with _durably(what, self.path / name):
            with suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self.descriptor)
            self.create(fresh, data, what=what)
            with announced(self.step, what, "rename file"):
                os.rename(fresh, name, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
            self._fsync(what)

    def remove(self, name: str, *, what: str) -> None:
        """Remove a file, on disk before it returns; one that is gone already is fine; raises NotDurable."""
        with _durably(what, self.path / name):
            with announced(self.step, what, "unlink file"), suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self.descriptor)
            self._fsync(what)

    def scribble(self, name: str, data: bytes) -> None:
        """Write a note that need not last, mode 0600; where that fails, there is none."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        with suppress(OSError), open(name, "wb", opener=lambda path, _: self._open(path, flags)) as file:
            file.write(data)

    def forget(self, name: str) -> None:
        """Remove a file that need not be gone for good."""
        with suppress(OSError):
            os.unlink(name, dir_fd=self.descriptor)

    def read(self, name: str, *, limit: int, ours: str = "") -> bytes:
        """Return at most ``limit`` + 1 bytes of a regular file; ``ours`` is what must be ours alone, or UnsafePlace."""
        descriptor = self._open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if ours:
                refuse_foreign_file(descriptor, self.path / name, what=ours)
            return read_limited(descriptor, limit=limit)
        finally:
            os.close(descriptor)

    def open_locked(
        self,
        name: str,
        *,
        what: str,
        wait_seconds: float = 0.0,
        before_making: Callable[[], None] = lambda: None,
    ) -> int:
        """Open a file to append to, made where ``before_making`` does not refuse that, and lock it.

        Raises BlockingIOError, UnsafePlace or NotDurable.
        """
        path, deadline = self.path / name, time.monotonic() + wait_seconds
        for _ in range(_ATTEMPTS):
            with ExitStack() as on_failure:
                with _durably(what, path):
                    descriptor = self._open_or_make(name, what, before_making)
                    on_failure.callback(os.close, descriptor)
                    refuse_foreign_file(descriptor, path, what=what)
                    locked = lock(descriptor, fcntl.LOCK_EX, wait_seconds=deadline - time.monotonic())
                if not locked:
                    raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK))
                if self.leads_to(name, descriptor):
                    refuse_foreign_file(descriptor, path, what=what)
                    on_failure.pop_all()
                    return descriptor
        raise NotDurable(f"{what} {path}: it comes and goes", path=path)

    def _open_or_make(self, name: str, what: str, before_making: Callable[[], None]) -> int:
        with suppress(FileNotFoundError):
            return self._open(name, _APPEND)
        before_making()
        with announced(self.step, what, "create file"):
            try:
                descriptor = self._open(name, _APPEND | os.O_CREAT | os.O_EXCL)
            except FileExistsError:
                return self._open(name, _APPEND)  # another process made it in between
        try:
            os.fchmod(descriptor, 0o600)  # whatever the umask took away
            with announced(self.step, what, "fsync file"):
                os.fsync(descriptor)
            self._fsync(what)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor

    def leads_to(self, name: str, descriptor: int) -> bool:
        """Say whether a name is still that of an open file."""
        try:
            there = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(descriptor))

    def names(self) -> list[str]:
        """Return the names of the files in it, sorted; links that lead nowhere too."""
        return sorted(os.listdir(self.descriptor))  # noqa: PTH208 - pathlib does not list a descriptor

    def has(self, name: str) -> bool:
        """Say whether a file is in it."""
        return name in self.names()

    def _open(self, name: str, flags: int) -> int:
        return os.open(name, flags, 0o600, dir_fd=self.descriptor)

    def _fsync(self, what: str) -> None:
        with announced(self.step, what, "fsync directory"):
            os.fsync(self.descriptor)


def lock(descriptor: int, operation: int, *, wait_seconds: float) -> bool:
    """Wait for a lock on an open file (``fcntl.LOCK_EX`` or ``LOCK_SH``); say whether we got it; raises OSError."""
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        else:
            return True


def read_limited(descriptor: int, *, limit: int) -> bytes:
    """Return the bytes of an open regular file from its beginning, at most ``limit`` + 1 of them; raises OSError."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    found = bytearray()
    while part := os.pread(descriptor, min(_CHUNK, limit + 1 - len(found)), len(found)):
        found += part
    return bytes(found)


def open_directory(path: Path, *, create: bool = False, step: Step = no_step) -> SafeDirectory:
    """Open a directory that is ours alone; see the module's docstring for what is accepted.

    With ``create``, for the defaults only, it is made, and what is missing above it, with mode 0700.
    Raises UnsafePlace or NotDurable.
    """
    whole = Path.cwd() / path
    resolved = whole.parent.resolve() / whole.name
    descriptor = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _durably("directory", resolved):
            for above in whole.parents:  # as named: whoever owns a link may lead it elsewhere
                with suppress(FileNotFoundError):
                    _refuse_foreign_parent(above.stat(), resolved)
            for part in resolved.parts[1:]:
                _refuse_foreign_parent(os.fstat(descriptor), resolved)
                below = _descend(descriptor, part, resolved, create=create, step=step)
                os.close(descriptor)
                descriptor = below
            found = os.fstat(descriptor)
            # A directory that everybody shares has to stay open to them.
            own = found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX
            hint = f"chmod go-w {resolved}" if own else "choose a directory of your own"
            _refuse_others(found, f"directory {resolved}", resolved, hint)
            return SafeDirectory(os.open(".", _READABLE, dir_fd=descriptor), resolved, step)
    finally:
        os.close(descriptor)


def _descend(descriptor: int, part: str, path: Path, *, create: bool, step: Step) -> int:
    flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(part, flags, dir_fd=descriptor)
    except FileNotFoundError as exc:
        if not create:
            hint = "make it, with mode 0700"
            raise UnsafePlace(f"directory {path} does not exist", path=path, hint=hint) from exc
    except NotADirectoryError as exc:
        problem = f"directory {path}: {part} is a symbolic link or no directory"
        raise UnsafePlace(problem, path=path, hint="name the directory itself") from exc
    with announced(step, "directory", "create directory"), suppress(FileExistsError):
        os.mkdir(part, 0o700, dir_fd=descriptor)
    with announced(step, "directory", "fsync directory"):
        readable = os.open(".", _READABLE, dir_fd=descriptor)
        try:
            os.fsync(readable)
        finally:
            os.close(readable)
    return os.open(part, flags, dir_fd=descriptor)


def _refuse_foreign_parent(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in _trusted_users():
        problem = f"a directory above it belongs to uid {found.st_uid}"
    elif found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        problem = "everybody may write to a directory above it"
    else:
        return
    hint = "choose a directory whose parents only you and root can change"
    raise UnsafePlace(f"directory {path}: {problem}", path=path, hint=hint)


def _trusted_users() -> set[int]:
    users = {0, os.geteuid()}
    caller = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and re.fullmatch("[1-9][0-9]*", caller, re.ASCII):
        users.add(int(caller))
    return users


def refuse_foreign_file(descriptor: int, path: Path, *, what: str) -> None:
    """Refuse an open file that is not regular, not ours, writable by others, or known by a second name: UnsafePlace."""
    found, hint = os.fstat(descriptor), "choose a file of your own"
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePlace(f"{what} {path} is not a regular file", path=path, hint=hint)
    _refuse_others(found, f"{what} {path}", path, hint)
    if found.st_nlink > 1:
        several = f"has {found.st_nlink} names: another one leads to the same file"
        raise UnsafePlace(f"{what} {path} {several}", path=path, hint=hint)


def _refuse_others(found: os.stat_result, whose: str, path: Path, hint: str) -> None:
    if found.st_uid != os.geteuid():
        problem = f"belongs to uid {found.st_uid}, expected {os.geteuid()}"
    elif found.st_mode & _OTHERS_MAY_WRITE:
        problem = f"has mode {stat.S_IMODE(found.st_mode):04o}: others may write to it"
    else:
        return
    raise UnsafePlace(f"{whose} {problem}", path=path, hint=hint)


def probe(directory: SafeDirectory) -> None:
    """Prove by a real write, fsync, reading back and removal that files can be kept here; raises NotDurable."""
    name = f".etcdfix-probe-{os.urandom(8).hex()}"
    directory.create(name, os.urandom(4096), what="probe")
    directory.remove(name, what="probe")


class Filesystem(msgspec.Struct, frozen=True):
    """What a directory lies on: its type (``ext4``), device (``/dev/sda2``), and mount point; "" for unknown."""

    kind: str
    source: str
    mount_point: str

    @property
    def volatile(self) -> bool:
        """Whether what is written here is gone after a restart of the machine."""
        return self.kind in _VOLATILE


def filesystem_kind(path: Path) -> Filesystem:
    """Say what an existing path lies on; OSError where there is none."""
    whole = path.resolve(strict=True)
    return find_mount_above(whole, Path("/proc/self/mountinfo").read_text(errors="surrogateescape"))


def find_mount_above(path: Path, mountinfo: str) -> Filesystem:
    """Return the mount out of ``mountinfo`` that a path without links lies on; all "" where it is not there.

    Format:
        proc(5): ``/proc/self/mountinfo`` holds a line for each mount: id, parent, major:minor, root, mount point,
        options, optional fields, ``-``, type, source, options.
    """
    found = Filesystem(kind="", source="", mount_point="")
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        details, point = after.split(" "), before.split(" ")[4:5]
        for octal in ("040", "011", "012", "134"):
            point = [text.replace(f"\\{octal}", chr(int(octal, 8))) for text in point]
        # Of two at one place, the one that was mounted last is seen.
        if len(details) > 1 and path.is_relative_to(point[0]) and len(point[0]) >= len(found.mount_point):
            found = Filesystem(kind=details[0], source=details[1], mount_point=point[0])
    return found


def same_disk(one: Path, other: Path) -> bool:
    """Say whether two existing paths lie on the same file system or block device; partitions of a disk count as two."""
    if one.stat().st_dev == other.stat().st_dev:
        return True
    # Subvolumes have device numbers of their own.
    source = filesystem_kind(one).source
    return source.startswith("/dev/") and source == filesystem_kind(other).source


def default_directory() -> Path:
    """Return where backups and the audit log go unless told: root's, or the user's state directory."""
    if os.geteuid() == 0:
        return machine.state_of_root()
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    # A relative path is invalid and to be ignored (XDG Base Directory Specification).
    return (state if state.is_absolute() else Path.home() / ".local" / "state") / "etcdfix"


def default_audit_log() -> Path:
    """Return the audit log that is written unless another is named."""
    return default_directory() / "audit.jsonl"
