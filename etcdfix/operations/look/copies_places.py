"""Looks into the places where copies may be, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.copies.model import Sameness
from etcdfix.copies.same_history import history_of
from etcdfix.errors import AuditLogUnreadable, BackupUnreadable, ConfigurationError, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.operations.look.copies_gather import ExaminedCopies, FoundCopy, Gathered, Sought
from etcdfix.operations.look.copies_log import LogPlace
from etcdfix.operations.look.copies_memory import ask_servers
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.backup.account import Account
from etcdfix.remediation.backup.directory import FileKind, FoundFile, look_into
from etcdfix.remediation.backup.file import read_backup
from etcdfix.remediation.backup.rows import account_of
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.copies import CopyPlace, PlaceKind
from etcdfix.report.origin import shown_word
from etcdfix.rescued import SavedObject, read_index, read_saved
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource


class Search:
    """One search through all places; copies name theirs by its number."""

    def __init__(
        self, source: Source, examiner: Examiner, gathered: Gathered, *, uid: str | None, progress: Progress
    ) -> None:
        self._source = source
        self._examiner = examiner
        self._gathered = gathered
        self._uid = uid
        self._progress = progress
        self._examined = ExaminedCopies(examiner)
        self.places: list[CopyPlace] = []
        self.problems: list[str] = []

    def own_revisions(self, *, by_history: bool) -> None:
        """Look at what the datastore itself still keeps.

        Raises:
            KMSPending: Only while plugins defer.
        """
        description = self._source.describe()
        place = old_values = self._place(PlaceKind.REVISION, "", revision=description.revision)
        if description.type == "kine":
            old_values = self._place(PlaceKind.OLD_VALUE, "", revision=description.revision)
        try:
            if by_history:
                for sought in self._sought():
                    self._history_of(sought, (place, old_values), description.revision)
                return
            compacted = self._source.compacted_revision() or 0
            last = b""
            for key, stored in self._gathered.kept():
                gone = key != last  # the newest of each comes first
                last = key
                self._add(stored, place, at=max(stored.mod_revision, compacted), last=gone)
        except SourceError as exc:
            self._lost(place, f"what etcd keeps could not be read: {exc.message}")

    def _history_of(self, sought: Sought, places: tuple[int, int], revision: int) -> None:
        """Take what is kept of one key, but for its present value."""
        present = sought.found.stored.mod_revision if sought.found is not None else 0
        before: StoredValue | None = None
        place = places[0]
        for kept in self._source.history(sought.key):
            if revision and kept.revision.main > revision:
                break  # a file that is read at an older revision
            if before is not None:
                gone = kept.stored is None
                self._add(before, place, at=kept.revision.main - 1, last=gone)
            before, place = kept.stored, places[kept.from_old_value]
        if before is not None and before.mod_revision != present:
            self._add(before, place, at=before.mod_revision)

    def log(self, log: LogPlace) -> None:
        """Look into write-ahead logs."""
        self.places.append(log.place)
        place = len(self.places) - 1
        self.problems += log.problems
        try:
            log.search(self._sought(), place, self._examined, self._gathered.add)
        except SourceError as exc:
            self._lost(place, f"the write-ahead log could not be read to its end: {exc.message}")

    def no_log(self, directories: Sequence[Path], problem: str) -> None:
        """Take note of write-ahead logs that could not be opened."""
        self._missed(PlaceKind.LOG, ", ".join(shown_word(str(path)) for path in directories), problem)

    def older_snapshot(self, path: Path) -> None:
        """Look into an older snapshot: one pass over it, and one look at each object that is sought."""
        shown = shown_word(str(path))
        try:
            with SnapshotSource(path) as older:
                self._older_snapshot(older, shown)
        except SourceError as exc:
            self._missed(PlaceKind.SNAPSHOT, shown, exc.message)

    def _older_snapshot(self, older: SnapshotSource, path: str) -> None:
        fit, why = history_of(self._source, older, self._examiner, uid=self._uid, progress=self._progress)
        revision = older.describe().revision
        place = self._place(PlaceKind.SNAPSHOT, path, revision=revision, history=fit, detail=why)
        for one in self._sought():
            before: StoredValue | None = None
            for kept in older.history(one.key):
                if before is not None:
                    self._add(before, place, at=kept.revision.main - 1)
                before = kept.stored
            if before is not None:
                self._add(before, place, at=0, newest=True)
        self.problems += [f"{path}: {problem}" for problem in older.problems]

    def backups(self, records: RecordPaths, identity: ClusterIdentity) -> None:
        """Look into the directories of backups; a default one that is not there is no place."""
        named = bool(records.backup_directories)
        for directory in records.directories:
            if not named and not os.path.lexists(directory):
                continue
            shown = shown_word(str(directory))
            try:
                files = list(look_into(directory))
            except BackupUnreadable as exc:
                self._missed(PlaceKind.BACKUP, shown, exc.message, wanted=named)
                continue
            account, _state, _there, warnings = account_of(records.log_path, files)
            why = "; ".join(warnings) if any(file.backup for file in files) else ""
            place = self._place(PlaceKind.BACKUP, shown, detail=why)
            self._backups(files, account, identity, place)

    def _backups(
        self, files: Sequence[FoundFile], account: Account | None, identity: ClusterIdentity, place: int
    ) -> None:
        for file in files:
            if file.kind is FileKind.DAMAGED and not file.marked:
                self.problems.append(file.what)
        held: dict[bytes, list[FoundFile]] = {}
        for file in files:
            if file.backup is not None:
                held.setdefault(file.backup.content.key_base64, []).append(file)
        others: dict[bool | None, int] = {}
        for one in self._gathered.all_sought() if held else ():
            for file in held.get(one.key, ()):
                assert file.backup is not None
                named = file.backup.content.cluster.named
                same = identity.is_same(named)
                if same and identity.has_other_id(named):
                    same = None
                where = place
                if same is not True:
                    if same not in others:
                        others[same] = self._elsewhere(place, same)
                    where = others[same]
                try:
                    stored = read_backup(file.path).content.stored
                except BackupUnreadable as exc:  # it was whole a moment ago
                    self.problems.append(exc.message)
                    continue
                path = shown_word(str(file.path))
                self._add(stored, where, path=path, doubt=_doubt_about(file, account))

    def _elsewhere(self, place: int, same: bool | None) -> int:
        """Return the number of a place for those backups in it that are not known to be of this cluster."""
        history, why = (
            (Sameness.OTHER, "the backup is of another cluster")
            if same is False
            else (Sameness.UNKNOWN, "whether the backup is of this cluster cannot be told")
        )
        return self._place(PlaceKind.BACKUP, self.places[place].path, history=history, detail=why)

    def api_servers(self, api: APIAccess, identity: ClusterIdentity) -> None:
        """Ask API servers what they hold in memory."""
        held = ask_servers(api, identity, self._sought(), len(self.places))
        self.places += held.places
        self.problems += held.problems
        for copy in held.copies:
            self._gathered.add(copy)

    def rescued(self, directory: Path, records: RecordPaths, identity: ClusterIdentity) -> None:
        """Look into a directory of objects that were saved from the memory of API servers."""
        shown = shown_word(str(directory))
        try:
            index = read_index(directory).by_key()
            recorded = saved_digests(records.log_path, identity.uid)
        except (ConfigurationError, AuditLogUnreadable) as exc:
            self._missed(PlaceKind.RESCUED, shown, exc.message)
            return
        place = self._place(PlaceKind.RESCUED, shown)
        for one in self._gathered.all_sought() if index else ():
            for saved in index.get(one.key, ()):
                try:
                    raw = read_saved(directory, saved)
                except ConfigurationError as exc:
                    self.problems.append(exc.message)
                    continue
                copy = self._examined.object_of(one.key, raw, place)
                doubt = _doubt_about_saved(saved, copy, identity, recorded)
                path = shown_word(str(directory / saved.file))
                revision = int(saved.resource_version)
                self._gathered.add(
                    msgspec.structs.replace(copy, mod_revision=revision, path=path, doubt=doubt)
                )

    def _place(
        self,
        kind: PlaceKind,
        path: str,
        *,
        revision: int | None = None,
        history: Sameness = Sameness.SAME,
        detail: str = "",
    ) -> int:
        """Take note of a place that can be looked into, and return its number."""
        self.places.append(
            CopyPlace(kind=kind, path=path, searched=True, revision=revision, history=history, detail=detail)
        )
        return len(self.places) - 1

    def _missed(self, kind: PlaceKind, path: str, problem: str, *, wanted: bool = True) -> None:
        self.places.append(CopyPlace(kind=kind, path=path, searched=False, detail=problem))
        if wanted:
            self.problems.append(problem)

    def _lost(self, place: int, problem: str) -> None:
        self.places[place] = msgspec.structs.replace(self.places[place], detail=problem)
        self.problems.append(problem)

    def _sought(self) -> Iterator[Sought]:
        """Return what is sought, and show how far it is."""
        sought = self._gathered.all_sought()
        return self._progress(iter(sought), "objects", len(sought))

    def _add(self, stored: StoredValue, place: int, **more: Any) -> None:
        self._gathered.add(msgspec.structs.replace(self._examined.copy_of(stored, place), **more))


def _doubt_about(file: FoundFile, account: Account | None) -> str:
    """Say why a backup may not be what was stored; "" where the audit log knows it."""
    assert file.backup is not None
    if account is not None and account.listing(file.backup) is not None:
        return ""
    if file.marked:
        return "its marker stands beside the backup: nothing says that it was ever completed"
    if account is None:
        return "no audit log says that the backup is what was stored: name its log with --audit-log"
    return "the audit log does not know the backup, or not as it is: it may have been edited"


def _doubt_about_saved(
    saved: SavedObject, copy: FoundCopy, identity: ClusterIdentity, recorded: frozenset[str]
) -> str:
    """Say why a saved object may not be what an API server gave; "" where the audit log says that it is."""
    if not identity.uid or saved.cluster_uid != identity.uid:
        return "nothing says that it was saved from an API server of this cluster"
    if copy.resource_version != saved.resource_version or copy.uid != saved.uid:
        return "its index says another uid or resourceVersion than the object itself"
    if saved.sha256 not in recorded:
        return "the audit log does not have its digest: it may have been edited"
    return "it was being deleted (deletionTimestamp)" if saved.deleting else ""
