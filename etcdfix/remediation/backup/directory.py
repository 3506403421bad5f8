"""What lies in a backup directory: every file is named, whatever it is, and nothing outside is followed.

Files are reached by plain name from the descriptor of the directory, never through a link, and one value at a time is
in memory. Nothing is judged here by the audit log; :mod:`etcdfix.remediation.backup.account` does that.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import BackupUnreadable, NotABackup, why
from etcdfix.inputs.ownfiles import OwnFile, own_file
from etcdfix.remediation.audit.verify import Anchor
from etcdfix.remediation.backup.file import MAX_BACKUP_SIZE, Backup, parse_backup
from etcdfix.remediation.backup.write import MARKER_SUFFIX
from etcdfix.remediation.durable import read_limited
from etcdfix.storagekey import DEFAULT_PREFIX, StorageCodec, StorageLayout, likely_prefixes

_BACKUP_NAME: Final = re.compile(r"[0-9a-f]{16}-\d+-\d+-[0-9a-f]{16}\.json", re.ASCII)
_LEFT_BEHIND: Final = re.compile(r"^\.etcdfix-probe-|\.torn-|(\.head\.new|\.json\.new|\.reserve)$")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileKind(StrEnum):
    """What a file in a backup directory is."""

    BACKUP = "backup"
    DAMAGED = "damaged"
    """It has the name or the beginning of a backup, and is none that is whole."""
    UNREADABLE = "unreadable"
    OURS = "ours"
    """Another file of ours: an audit log, its head, a plan, what a crash left."""
    FOREIGN = "foreign"


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup directory.

    Attributes:
        what: The same for a person, half a sentence; "" for a whole backup.
        backup: What it holds, without the value; None unless it is a backup that is whole.
        marked: Its marker stands beside it: the audit log may not have its intent.
        exposed: What is wrong with its owner, mode or names, one half sentence each.
    """

    path: Path
    kind: FileKind
    what: str = ""
    backup: Backup | None = None
    marked: bool = False
    exposed: tuple[str, ...] = ()
    size: int = 0


def is_backup_name(name: str) -> bool:
    """Say whether a file name is one that backups have."""
    return _BACKUP_NAME.fullmatch(name) is not None


def names_log(backup: Backup, log: Path) -> bool:
    """Say whether a backup says of an audit log that it belongs to it, whatever links lead there."""
    return os.path.realpath(backup.intent.audit_log) == os.path.realpath(log)


def anchor_of(backup: Backup) -> Anchor | None:
    """Return what a backup proves about its audit log: that its intent stood there.

    None where the marker is still beside it: then the intent may never have been written.
    """
    if os.path.lexists(f"{backup.path}{MARKER_SUFFIX}"):
        return None
    return Anchor(backup.intent.link, f"backup {backup.path}")


def anchors_in(files: Iterable[FoundFile], log: Path) -> list[Anchor]:
    """Return where the records of an audit log must be, by the backups that belong to it."""
    ours = [file.backup for file in files if file.backup is not None and names_log(file.backup, log)]
    return [anchor for anchor in map(anchor_of, ours) if anchor is not None]


def look_into(directory: Path) -> Iterator[FoundFile]:
    """Yield every file of a directory, in the order of their names; markers only where their backup is missing.

    Raises:
        BackupUnreadable: The directory cannot be listed.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as exc:
        raise BackupUnreadable(f"backup directory {directory}: {why(exc)}", path=directory) from exc
    try:
        yield from look_through(descriptor, directory)
    finally:
        os.close(descriptor)


def look_through(descriptor: int, directory: Path) -> Iterator[FoundFile]:
    """Yield the same of a directory that is open; ``directory`` is where it is.

    Raises:
        BackupUnreadable: It cannot be listed.
    """
    try:
        names = sorted(os.listdir(descriptor))
    except OSError as exc:
        raise BackupUnreadable(f"backup directory {directory}: {why(exc)}", path=directory) from exc
    present = frozenset(names)
    for name in names:
        if name.endswith(MARKER_SUFFIX) and name.removesuffix(MARKER_SUFFIX) in present:
            continue
        yield look_at(descriptor, directory / name, marked=name + MARKER_SUFFIX in present)


def look_at(directory: int, path: Path, *, marked: bool) -> FoundFile:
    """Return what one file is."""
    try:
        status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            what = (
                "a symbolic link, which is not followed"
                if stat.S_ISLNK(status.st_mode)
                else "no regular file"
            )
            return FoundFile(path=path, kind=FileKind.FOREIGN, what=what)
        descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
        try:
            return _look_at_open(descriptor, directory, path, marked=marked)
        finally:
            os.close(descriptor)
    except OSError as exc:
        return FoundFile(path=path, kind=FileKind.UNREADABLE, what=why(exc))


def _look_at_open(descriptor: int, directory: int, path: Path, *, marked: bool) -> FoundFile:
    status = os.fstat(descriptor)
    found = partial(FoundFile, path=path, exposed=tuple(_exposures(status)), size=status.st_size)
    if path.name.endswith(MARKER_SUFFIX):
        return found(kind=FileKind.OURS, what="the marker of a backup that is not there")
    if _LEFT_BEHIND.search(path.name):
        return found(kind=FileKind.OURS, what="beside an audit log, or left behind by a crash")
    try:
        backup = parse_backup(read_limited(descriptor, limit=MAX_BACKUP_SIZE), path=path)
    except NotABackup:
        ours = own_file(directory, path.name)
        if is_backup_name(path.name) or ours is OwnFile.BACKUP:
            what = "it has the name or the end of a backup, and does not begin like one"
            return found(kind=FileKind.DAMAGED, what=what)
        if ours is not None:
            return found(kind=FileKind.OURS, what=ours.value)
        return found(kind=FileKind.FOREIGN, what="not a file of etcdfix")
    except BackupUnreadable as exc:
        what = exc.message.removeprefix(f"backup {path}: ")
        return found(kind=FileKind.DAMAGED, what=what, marked=marked)
    # A list of thousands must not hold their values; every digest was compared already.
    content = msgspec.structs.replace(backup.content, value_base64=b"")
    backup = msgspec.structs.replace(backup, content=content)
    return found(kind=FileKind.BACKUP, backup=backup, marked=marked)


def _exposures(status: os.stat_result) -> Iterator[str]:
    if status.st_uid != os.geteuid():
        yield f"belongs to uid {status.st_uid}, expected {os.geteuid()}"
    if status.st_mode & _OTHERS:
        yield f"has mode {stat.S_IMODE(status.st_mode):04o}, expected 0600: others may get at it"
    if status.st_nlink > 1:
        yield f"has {status.st_nlink} names: another one leads to the same file"


def resource_of(key: bytes) -> str:
    """Return the resource of an etcd key under whatever storage prefix fits, ``deployments.apps``; "" for none."""
    for prefix in (DEFAULT_PREFIX, *likely_prefixes([key])):
        directory, _shared = StorageLayout(prefix).locate(key)
        if directory.codec not in {StorageCodec.NOT_AN_OBJECT, StorageCodec.UNKNOWN}:
            return str(directory.group_resource)
    return ""
