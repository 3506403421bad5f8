"""Keeps objects that API servers had in memory: one file each, never overwritten, and an index that only grows.

A file is on disk before its line in the index is. What a crash leaves between the two is a file that no line names;
the next run finds that it holds the same bytes, and adds the line. The audit log gets a record before contents are
asked for, and then the digest of each file, a hundred at a time so that the log is never held for long: an object whose
digest is on record is what an API server gave.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.apiserver.memory import Identity
from etcdfix.apiserver.objects import APIObject
from etcdfix.copies.rescued import (
    FORMAT,
    INDEX_NAME,
    MAX_OBJECT_BYTES,
    SavedObject,
    file_name,
    is_whole,
    parse_index,
)
from etcdfix.model.closing import Closing
from etcdfix.model.errors import why
from etcdfix.model.model import digest_of
from etcdfix.remediation.audit.record import Operator, Record, RecordType, Subject, Verb
from etcdfix.remediation.audit.search import saved_digests
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    announced,
    no_step,
    open_directory,
    write_fully,
)
from etcdfix.remediation.errors import NotDurable
from etcdfix.remediation.places import RecordPaths, lasting_warnings
from etcdfix.text.words import counted

BATCH: Final = 100
"""So many digests stand in one record."""
_MOST_RESOURCES: Final = 20
_WHAT: Final = "saved object"
_INDEX: Final = "index of saved objects"


class RescueStore(Closing):
    """A directory of saved objects that is open, ours, and locked; made by :meth:`open`, and a context manager."""

    def __init__(self, directory: SafeDirectory, descriptor: int) -> None:
        self.path = directory.path
        self._directory, self._descriptor, self._step = directory, descriptor, directory.step
        self._index_path = self.path / INDEX_NAME
        self._size = 0
        self._by_key: dict[bytes, list[SavedObject]] = {}

    @classmethod
    def open(cls, path: Path, *, step: Step = no_step) -> RescueStore:
        """Open a directory for saving, made where there is none, and read its index; one without gets an empty one.

        Raises UnsafePlace, NotDurable or ConfigurationError.
        """
        with ExitStack() as on_failure:
            directory = on_failure.enter_context(open_directory(path, create=True, step=step))
            try:
                descriptor = directory.open_locked(INDEX_NAME, what=_INDEX)
            except BlockingIOError as exc:
                raise NotDurable(
                    f"{_INDEX} {directory.path / INDEX_NAME}: somebody else is saving into this directory",
                    path=directory.path / INDEX_NAME,
                    hint="wait for it, or choose another --rescued DIR",
                ) from exc
            on_failure.callback(os.close, descriptor)
            store = cls(directory, descriptor)
            store._begin()
            on_failure.pop_all()
        return store

    def close(self) -> None:
        """Give the lock back; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            self._directory.close()

    def has(self, key: bytes, mod_revision: int) -> SavedObject | None:
        """Return the object of an etcd key as it was at a mod revision, where that is saved and the file is whole."""
        for saved in self._by_key.get(key, ()):
            if saved.resource_version == str(mod_revision) and is_whole(self.path, saved):
                return saved
        return None

    def save(
        self,
        key: bytes,
        thing: APIObject,
        identity: Identity,
        raw: bytes,
        *,
        server: str,
        cluster_uid: str = "",
        mod_revision: int = 0,
    ) -> SavedObject:
        """Keep an object, unless these very bytes are kept already; return its line.

        ``mod_revision`` is that of the etcd key, 0 where nothing says it. Raises NotDurable.
        """
        sha256 = digest_of(raw)
        saved = SavedObject(
            format=FORMAT,
            key_base64=key,
            group=thing.group,
            version=identity.version,
            resource=thing.resource,
            kind=identity.kind,
            namespace=identity.namespace,
            name=identity.name,
            uid=identity.uid,
            resource_version=identity.resource_version,
            deleting=identity.deleting,
            mod_revision=mod_revision,
            sha256=sha256,
            size=len(raw),
            file=file_name(key, identity.resource_version, sha256),
            server=server,
            saved_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            cluster_uid=cluster_uid,
        )
        if not self._stands(saved, raw):
            self._directory.create(saved.file, raw, what=_WHAT)
        for known in self._by_key.get(key, ()):
            if known.file == saved.file:
                return known
        self._append(saved)
        return saved

    def _stands(self, saved: SavedObject, raw: bytes) -> bool:
        """Say whether the file is there; one of that name with other bytes is never written over."""
        path = self.path / saved.file
        try:
            there = self._directory.read(saved.file, limit=MAX_OBJECT_BYTES)
        except FileNotFoundError:
            return False
        except OSError as exc:
            raise NotDurable(f"{_WHAT} {path}: {why(exc)}", path=path) from exc
        if there != raw:
            raise NotDurable(
                f"{_WHAT} {path}: other bytes stand there than were saved under that name",
                path=path,
                hint="it was changed or cut; move it away, and run again",
            )
        return True

    def _begin(self) -> None:
        try:
            with open(self._descriptor, "rb", closefd=False) as stream:
                index = parse_index(stream, self.path)
        except OSError as exc:
            raise self._not_durable(exc) from exc
        self._by_key, self._size = index.by_key(), index.size
        if index.torn:
            self._cut()

    def _append(self, saved: SavedObject) -> None:
        line = msgspec.json.encode(saved) + b"\n"
        try:
            with announced(self._step, _INDEX, "append"):
                write_fully(self._descriptor, line)
            with announced(self._step, _INDEX, "fsync"):
                os.fsync(self._descriptor)
        except OSError as exc:
            with suppress(NotDurable):
                self._cut()
            raise self._not_durable(exc) from exc
        self._size += len(line)
        self._by_key.setdefault(saved.key, []).append(saved)

    def _cut(self) -> None:
        try:
            with announced(self._step, _INDEX, "truncate"):
                os.ftruncate(self._descriptor, self._size)
                os.fsync(self._descriptor)
        except OSError as exc:
            raise self._not_durable(exc) from exc

    def _not_durable(self, error: OSError) -> NotDurable:
        return NotDurable(f"{_INDEX} {self._index_path}: {why(error)}", path=self._index_path)


class RescueRecord:
    """Writes what the audit log holds of one rescue; ``warnings`` are of where the log is."""

    def __init__(
        self, places: RecordPaths, directory: Path, *, cluster_uid: str, resources: Sequence[str]
    ) -> None:
        self.log = places.log_path
        self.warnings: list[str] = []
        self._places, self._directory, self._cluster_uid = places, directory, cluster_uid
        shown = [*resources[:_MOST_RESOURCES], *(["…"] if len(resources) > _MOST_RESOURCES else [])]
        self._subject = Subject(resource=",".join(shown))

    def announce(self, detail: str) -> frozenset[str]:
        """Return the digests on record, once it is recorded that contents are about to be asked for.

        Raises UnsafePlace or AuditError.
        """
        self._append(RecordType.REVEAL, f"{detail}, to be saved in {self._directory}")
        self.warnings += lasting_warnings(self.log.parent, named=self._places.audit_log is not None)
        return saved_digests(self.log, self._cluster_uid)

    def saved(self, objects: Sequence[SavedObject]) -> None:
        """Record the digests of objects that are saved; raises AuditError."""
        for start in range(0, len(objects), BATCH):
            batch = objects[start : start + BATCH]
            detail = f"{counted(len(batch), 'object')} saved in {self._directory}"
            self._append(RecordType.RESCUED, detail, tuple(saved.sha256 for saved in batch))

    def _append(self, kind: RecordType, detail: str, digests: tuple[str, ...] = ()) -> None:
        operator = Operator.of_this_process()
        with self._places.open_log(operator) as log:
            log.append(
                Record(
                    type=kind,
                    verb=Verb.RESCUE,
                    operator=operator,
                    subject=self._subject,
                    cluster_uid=self._cluster_uid,
                    detail=detail,
                    saved=digests,
                )
            )
