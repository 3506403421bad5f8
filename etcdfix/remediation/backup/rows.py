"""Reads backups for whoever looks for copies: what each holds, and whether the audit log knows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.copies.backups import BackupRow
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Place
from etcdfix.errors import AuditLogUnreadable, BackupUnreadable
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.search import is_there, saved_digests
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.account import Account
from etcdfix.remediation.backup.directory import FileKind, FoundFile, look_into
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.places import RecordPaths
from etcdfix.text.safetext import safe_text

if TYPE_CHECKING:
    from etcdfix.copies.search import Places


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


UNKNOWN_TO_THE_LOG: Final = "the audit log does not know the backup, or not as it is: it may have been edited"


class SavedBackups:
    """The backups of some directories and files; :class:`~etcdfix.copies.backups.BackupRows`.

    A default directory that is not there is no place.

    Args:
        records: The directories, and the audit log that knows the backups.
        files: Backups that a person names.
        named_alone: Look into no directory.
    """

    def __init__(
        self, records: RecordPaths, files: Sequence[Path] = (), *, named_alone: bool = False
    ) -> None:
        self.looked: list[LookedInto] = []
        self.problems: list[str] = []
        self._held: dict[bytes, dict[Path, bool]] = {}
        found: list[FoundFile] = []
        for directory in () if named_alone else records.directories:
            found += self._look_into(directory, named=bool(records.backup_directories))
        self._account: Account | None = None
        with suppress(AuditLogUnreadable):
            if is_there(records.log_path):
                self._account = Account.of(records.log_path, read_records(records.log_path))
        for file in found:
            if file.backup is not None:
                self._hold(file.path, file.backup, marked=file.marked)
            elif file.kind is FileKind.DAMAGED and not file.marked:
                self.problems.append(f"backup {file.path}: {file.what}")
        for path in files:
            try:
                self._hold(path, read_backup(path), marked=False)
                self._looked(path)
            except BackupUnreadable as exc:
                self._looked(path, exc.message)
                self.problems.append(exc.message)

    def of(self, key: bytes) -> Iterator[BackupRow]:
        """Yield the backups of an etcd key."""
        for path, marked in self._held.get(key, {}).items():
            try:
                backup = read_backup(path)
            except BackupUnreadable as exc:  # it was whole a moment ago
                self.problems.append(exc.message)
                continue
            content = backup.content
            yield BackupRow(
                path=path,
                stored=content.stored,
                cluster=content.cluster.named,
                revision=max(content.cluster.header_revision, content.mod_revision),
                doubt=self._doubt_about(backup, marked=marked),
            )

    def _look_into(self, directory: Path, *, named: bool) -> list[FoundFile]:
        if not named and not os.path.lexists(directory):
            return []
        try:
            files = list(look_into(directory))
        except BackupUnreadable as exc:
            self._looked(directory, exc.message)
            if named:
                self.problems.append(exc.message)
            return []
        self._looked(directory)
        return files

    def _looked(self, path: Path, why_not: str = "") -> None:
        place = LookedInto(
            place=Place.BACKUP, path=safe_text(str(path)), searched=not why_not, detail=why_not
        )
        self.looked.append(place)

    def _hold(self, path: Path, backup: Backup, *, marked: bool) -> None:
        self._held.setdefault(backup.content.key_base64, {}).setdefault(path, marked)

    def _doubt_about(self, backup: Backup, *, marked: bool) -> str:
        account = self._account
        if account is not None and account.listing(backup) is not None:
            return ""
        if marked:
            return "its marker stands beside the backup: nothing says that it was ever completed"
        if account is None:
            return "no audit log says that the backup is what was stored: name its log with --audit-log"
        return UNKNOWN_TO_THE_LOG
