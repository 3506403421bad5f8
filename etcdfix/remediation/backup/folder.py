"""What lies in backup directories, and what the audit log says of it.

Nothing outside is followed: files are reached by plain name from the descriptor of the directory, and one value at a
time is in memory.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.copies import backups as copies
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Place
from etcdfix.inputs.ownfiles import BACKUP_FAMILY
from etcdfix.model.errors import why
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.storagekey import DEFAULT_PREFIX, StorageCodec, StorageLayout, likely_prefixes
from etcdfix.remediation.audit.record import Record, RecordType, Result, unicode_text
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.audit.verify import Anchor, is_there, read_records
from etcdfix.remediation.backup.file import (
    ANOMALY,
    MARKER_SUFFIX,
    MAX_BACKUP_SIZE,
    Backup,
    name_of,
    parse_backup,
    read_backup,
)
from etcdfix.remediation.durable import read_limited
from etcdfix.remediation.errors import AuditLogUnreadable, BackupUnreadable, NotABackup
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.log import BackupRow
from etcdfix.text.safetext import key_base64, safe_text

if TYPE_CHECKING:
    from etcdfix.copies.search import Places

UNKNOWN_TO_THE_LOG: Final = "the audit log does not know the backup, or not as it is: it may have been edited"

_BACKUP_NAME: Final = re.compile(r"[0-9a-f]{16}-\d+-\d+-[0-9a-f]{16}\.json", re.ASCII)
_SECRETS: Final = "secrets"
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class FileKind(StrEnum):
    """What a file in a backup directory is."""

    BACKUP = "backup"
    DAMAGED = "damaged"
    """It has the name or the beginning of a backup, and is none that is whole."""
    UNREADABLE = "unreadable"
    OTHER = "other"


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a backup directory.

    Attributes:
        what: What it is, half a sentence; "" for a whole backup.
        backup: Without the value; None unless it is a backup that is whole.
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

    @property
    def named_as_backup(self) -> bool:
        """Whether its name is one that backups have."""
        return _BACKUP_NAME.fullmatch(self.path.name) is not None


def names_log(backup: Backup, log: Path) -> bool:
    """Say whether a backup says of an audit log that it belongs to it, whatever links lead there."""
    return os.path.realpath(backup.intent.audit_log) == os.path.realpath(log)


def standing_of(
    file: FoundFile, backup: Backup, account: Account | None, log: Path
) -> tuple[str, Listed | None]:
    """Return what an audit log says of a backup, in the words of :class:`BackupRow`; no account: no log."""
    listed = None if account is None else account.listing(backup)
    if listed is not None:
        return "listed", listed
    if account is None or file.marked:
        return ("no-log" if account is None else "unconfirmed"), None
    return ("unlisted" if names_log(backup, log) else "another-log"), None


def row_of(path: Path, backup: Backup, standing: str, listed: Listed | None) -> BackupRow:
    """Return a backup file as it is published."""
    content = backup.content
    subject = listed.intent.subject if listed is not None else None
    secret = resource_of(content.key_base64) == _SECRETS
    return BackupRow(
        path=unicode_text(str(path)),
        content_sha256=backup.content_sha256,
        key=content.key,
        key_base64=key_base64(content.key_base64),
        secret=secret or (subject is not None and (subject.group, subject.resource) == ("", _SECRETS)),
        stored_as_plaintext=content.stored_as_plaintext,
        made_at=content.created_at,
        command=content.purpose,
        value_sha256=content.value_sha256,
        value_size=content.value_size,
        mod_revision=content.mod_revision,
        cluster_uid=content.cluster.kube_system_uid,
        audit_log=backup.intent.audit_log,
        intent=backup.intent.sequence,
        log=standing,
        outcome=None if listed is None else str(listed.outcome or "open"),
    )


def resource_of(key: bytes) -> str:
    """Return the resource of an etcd key under whatever storage prefix fits, ``deployments.apps``; "" for none."""
    for prefix in (DEFAULT_PREFIX, *likely_prefixes([key])):
        directory, _shared = StorageLayout(prefix).locate(key)
        if directory.codec not in {StorageCodec.NOT_AN_OBJECT, StorageCodec.UNKNOWN}:
            return str(directory.group_resource)
    return ""


def anchors_in(files: Iterable[FoundFile], log: Path) -> list[Anchor]:
    """Return what backups prove about the audit log that they belong to: that their intents stood there.

    One with its marker proves nothing: its intent may never have been written.
    """
    return [
        Anchor(file.backup.intent.link, f"backup {file.path}")
        for file in files
        if file.backup is not None and not file.marked and names_log(file.backup, log)
    ]


def look_into(directory: Path | int, path: Path | None = None) -> Iterator[FoundFile]:
    """Yield the backups of a directory, by name, and what looks like one; or BackupUnreadable.

    ``directory`` is where it is, or an open descriptor of what is at ``path``.
    """
    where = path if path is not None else Path(str(directory))
    opened = -1
    try:
        if not isinstance(directory, int):
            directory = opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in sorted(os.listdir(directory)):  # noqa: PTH208 - pathlib does not list a descriptor
            file = look_at(directory, where / name)
            if file.kind is not FileKind.OTHER:
                yield file
    except OSError as exc:
        raise BackupUnreadable(f"backup directory {where}: {why(exc)}", path=where) from exc
    finally:
        if opened >= 0:
            os.close(opened)


def look_at(directory: int, path: Path) -> FoundFile:
    """Return what one file is; no link is followed."""
    try:
        status = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            named = _BACKUP_NAME.fullmatch(path.name) is not None
            what = "it is a link or no regular file, and is not followed"
            return FoundFile(path=path, kind=FileKind.DAMAGED if named else FileKind.OTHER, what=what)
        descriptor = os.open(path.name, _FLAGS, dir_fd=directory)
        try:
            return _look_at_open(descriptor, directory, path)
        finally:
            os.close(descriptor)
    except OSError as exc:
        return FoundFile(path=path, kind=FileKind.UNREADABLE, what=why(exc))


def _look_at_open(descriptor: int, directory: int, path: Path) -> FoundFile:
    status = os.fstat(descriptor)
    marked = _is_in(directory, path.name + MARKER_SUFFIX)
    found = partial(
        FoundFile, path=path, exposed=tuple(_exposures(status)), size=status.st_size, marked=marked
    )
    try:
        backup = parse_backup(read_limited(descriptor, limit=MAX_BACKUP_SIZE), path=path)
    except BackupUnreadable as exc:
        begins = not isinstance(exc, NotABackup) and status.st_size > len(BACKUP_FAMILY)
        kind = FileKind.DAMAGED if begins or _BACKUP_NAME.fullmatch(path.name) else FileKind.OTHER
        return found(kind=kind, what=exc.message.removeprefix(f"backup {path}: "))
    # A list of thousands must not hold their values; every digest was compared already.
    content = msgspec.structs.replace(backup.content, value_base64=b"")
    return found(kind=FileKind.BACKUP, backup=msgspec.structs.replace(backup, content=content))


def _is_in(directory: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return bool(os.stat(name, dir_fd=directory, follow_symlinks=False))
    return False


def _exposures(status: os.stat_result) -> Iterator[str]:
    if status.st_uid != os.geteuid():
        yield f"belongs to uid {status.st_uid}, expected {os.geteuid()}"
    if status.st_mode & _OTHERS:
        yield f"has mode {stat.S_IMODE(status.st_mode):04o}, expected 0600: others may get at it"
    if status.st_nlink > 1:
        yield f"has {status.st_nlink} names: another one leads to the same file"


class Listed(msgspec.Struct, kw_only=True):
    """One backup as the log has it: one content, in one or several files.

    Attributes:
        at: When the record was written, RFC 3339.
        second: It was made of what a transaction gave back although another value was expected.
        outcome: None while nobody knows.
        pruned: Files that were to be removed, and the sequence of the record that says so.
    """

    intent: Record
    content_sha256: str
    paths: tuple[str, ...]
    at: str
    second: bool = False
    outcome: Result | None = None
    pruned: dict[str, int] = msgspec.field(default_factory=dict)

    def is_of(self, backup: Backup) -> bool:
        """Say whether a file holds this backup: same record and cluster, and unless it is second, key and value."""
        content, intent = backup.content, self.intent
        if (
            backup.content_sha256 != self.content_sha256
            or backup.intent.link != intent.link
            or intent.cluster_uid != (content.cluster.kube_system_uid or "")
        ):
            return False
        if self.second:  # which may be of any key: the digest of all that it says is in the record
            return content.purpose == ANOMALY
        return (
            intent.subject.key == content.key_base64
            and intent.subject.mod_revision == content.mod_revision
            and intent.value_sha256 == content.value_sha256
        )


class Account:
    """All that a log says of backups, by ``content_sha256``, in the order in which they were made."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.listed: dict[str, Listed] = {}
        self._of_intent: dict[int, list[Listed]] = {}
        for record in records:
            if record.type is RecordType.INTENT and record.backups:
                self._add(record, record, record.backup_sha256, record.backups)
            elif record.type is RecordType.PRUNE and record.backup_sha256 in self.listed:
                pruned = dict.fromkeys(record.backups, record.link.sequence)
                self.listed[record.backup_sha256].pruned.update(pruned)
            elif record.tells_outcome:
                self._close(record)

    def _add(self, intent: Record, record: Record, content_sha256: str, paths: tuple[str, ...]) -> None:
        of_intent = self._of_intent.setdefault(intent.link.sequence, [])
        listed = Listed(
            intent=intent, content_sha256=content_sha256, paths=paths, at=record.at, second=bool(of_intent)
        )
        of_intent.append(listed)
        self.listed[content_sha256] = listed

    def _close(self, record: Record) -> None:
        of_intent = self._of_intent.get(record.intent, [])
        if record.outcome is Result.ANOMALY and of_intent:
            first = of_intent[0]
            for digest in record.backup_sha256.split():
                ending = f"-{digest.removeprefix('sha256:')[:16]}.json"
                if digest != first.content_sha256:
                    its = tuple(path for path in record.backups if path.endswith(ending))
                    self._add(first.intent, record, digest, its)
        for listed in of_intent:
            listed.outcome = None if record.outcome is Result.UNKNOWN else record.outcome

    def listing(self, backup: Backup) -> Listed | None:
        """Return what the log says of a backup file; None where it does not know it."""
        listed = self.listed.get(backup.content_sha256)
        return listed if listed is not None and listed.is_of(backup) else None


def intent_of(backup: Backup, audit_log: Path) -> Record | None:
    """Return the intent that a backup belongs to by the word of the log; None for another; or AuditLogUnreadable."""
    listed = Account(read_records(audit_log)).listing(backup)
    return None if listed is None else listed.intent


def unlisted_writes(
    directories: Sequence[Path], audit_log: Path, identity: ClusterIdentity
) -> frozenset[str]:
    """Return the keys, by :func:`name_of`, that we may have written although this audit log does not say so.

    A backup does not say what was put in its place, nor whether anything was; so any value there may be ours. What
    is damaged still has the name of its key, and counts too. Backups surely of another cluster do not.
    Raises BackupUnreadable or AuditLogUnreadable.
    """
    listed = {record.link for record in read_records(audit_log)} if is_there(audit_log) else set()
    found = set()
    for directory in filter(os.path.lexists, directories):
        for file in look_into(directory):
            if file.backup is None:
                found.add(file.path.name.partition("-")[0])
                continue
            content = file.backup.content
            another = content.cluster.named.is_same(identity) is False
            if content.purpose in {"fix", "undo"} and not another and file.backup.intent.link not in listed:
                found.add(name_of(content.key_base64))
    return frozenset(found)


def with_records(places: Places, records: RecordPaths, identity: ClusterIdentity) -> Places:
    """Return places with what our records add: the backups, and which files ``rescue`` saved."""
    files = [named.path for named in places.of(Place.BACKUP)]
    backups = SavedBackups(records, files, named_alone=places.only)
    recorded: frozenset[str] = frozenset()
    if places.rescued:
        try:
            recorded = saved_digests(records.log_path, identity.uid)
        except AuditLogUnreadable as exc:
            backups.problems.append(exc.message)
    return msgspec.structs.replace(places, backups=backups, recorded=recorded)


class SavedBackups:
    """The backups of some directories and files; :class:`~etcdfix.copies.backups.BackupRows`."""

    def __init__(
        self, records: RecordPaths, files: Sequence[Path] = (), *, named_alone: bool = False
    ) -> None:
        self.looked: list[LookedInto] = []
        self.problems: list[str] = []
        self._held: dict[bytes, dict[Path, bool]] = {}
        self._account: Account | None = None
        with suppress(AuditLogUnreadable):
            if is_there(records.log_path):
                self._account = Account(read_records(records.log_path))
        named = bool(records.backup_directories)
        for directory in () if named_alone else records.directories:
            if os.path.lexists(directory):  # one that is not there yet has no backups
                self._look_into(directory, named=named)
        for path in files:
            try:
                self._hold(path, read_backup(path), marked=False)
                self._looked(path)
            except BackupUnreadable as exc:
                self._looked(path, exc.message)
                self.problems.append(exc.message)

    def of(self, key: bytes) -> Iterator[copies.BackupRow]:
        """Yield the backups of an etcd key."""
        for path, marked in self._held.get(key, {}).items():
            try:
                backup = read_backup(path)
            except BackupUnreadable as exc:  # it was whole a moment ago
                self.problems.append(exc.message)
                continue
            content, account = backup.content, self._account
            if account is not None and account.listing(backup) is not None:
                doubt = ""
            elif marked:
                doubt = "its marker stands beside the backup: nothing says that it was ever completed"
            elif account is None:
                doubt = "no audit log says that the backup is what was stored: name its log with --audit-log"
            else:
                doubt = UNKNOWN_TO_THE_LOG
            yield copies.BackupRow(
                path=path,
                stored=content.stored,
                cluster=content.cluster.named,
                revision=max(content.cluster.header_revision, content.mod_revision),
                doubt=doubt,
            )

    def _look_into(self, directory: Path, *, named: bool) -> None:
        try:
            for file in look_into(directory):
                if file.backup is not None:
                    self._hold(file.path, file.backup, marked=file.marked)
                elif file.kind is FileKind.DAMAGED and not file.marked:
                    self.problems.append(f"backup {file.path}: {file.what}")
            self._looked(directory)
        except BackupUnreadable as exc:
            self._looked(directory, exc.message)
            if named:
                self.problems.append(exc.message)

    def _looked(self, path: Path, why_not: str = "") -> None:
        where = safe_text(str(path))
        self.looked.append(LookedInto(place=Place.BACKUP, path=where, searched=not why_not, detail=why_not))

    def _hold(self, path: Path, backup: Backup, *, marked: bool) -> None:
        self._held.setdefault(backup.content.key_base64, {}).setdefault(path, marked)
