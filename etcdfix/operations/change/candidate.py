"""What may be put back: a backup's content, a value of a snapshot, an earlier revision, another key's, an object's.

Where a value comes from, and what is known of it by that. Whether it may be put back is decided in
:mod:`~etcdfix.operations.change.restore`. What a write-ahead log holds is in
:mod:`~etcdfix.operations.change.from_log`.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from etcdfix.errors import RevisionCompacted
from etcdfix.examine import Examiner
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.operations.change.object_file import (
    ObjectFile,
    check_place,
    check_stored,
    read_object_file,
)
from etcdfix.operations.change.sealing import seal
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.identify import identify
from etcdfix.remediation.landmarks import Landmark
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.target import require_configuration
from etcdfix.rules import Rule, refuse
from etcdfix.sources.base import Source
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions
from etcdfix.verdicts.deletability import IDENTITY

_BY_API = (
    "let an API server write it: delete the unreadable value, and kubectl create -f the file without "
    "metadata.resourceVersion and metadata.uid"
)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A value that may be put back.

    Attributes:
        stored: Key, bytes and lease; the revisions are those that it had, 0 where nobody knows them.
        origin: Where it comes from, for people and for the record.
        cluster: Which cluster it comes from; None for the very etcd that it is put back into, and where nothing says
            it of an object in a file.
        unnamed: Why it is not known which cluster it comes from, a clause; "" where nothing more is to be said.
        revision: The revision of this very etcd at which it stood; 0 for a value from elsewhere.
        file: The object that it was made of; None for bytes that are put back as they were stored.
        transformer: What those bytes were sealed with now; "" for any other.
        other: The etcd key that holds the bytes now, and must not be written meanwhile; None for none.
        generation: Create revision of the key's generation that it is of, where this etcd's own log proves it; else 0.
        deleted_at: Revision at which that generation was deleted, where that log proves it and has nothing later of the
            key; else 0.
        agreed_until: Up to this revision that log has every write since.
        told: What else is to be known of where it comes from, one line each.
    """

    stored: StoredValue
    origin: str
    cluster: ClusterIdentity | None
    unnamed: str = ""
    backup: Backup | None = None
    revision: int = 0
    file: ObjectFile | None = None
    transformer: str = ""
    other: Landmark | None = None
    generation: int = 0
    deleted_at: int = 0
    agreed_until: int = 0
    told: tuple[str, ...] = ()

    @classmethod
    def of_backup(cls, backup: Backup) -> Candidate:
        """Return what a backup file holds."""
        return cls(
            stored=backup.content.stored,
            origin=f"backup {backup.path}",
            cluster=backup.content.cluster.named,
            backup=backup,
        )

    @classmethod
    def of_file(cls, path: Path) -> Candidate:
        """Return what a backup file holds.

        Raises:
            BackupUnreadable: It is none, or not what was written.
        """
        return cls.of_backup(read_backup(path.absolute()))

    @classmethod
    def of_snapshot(cls, cluster: Cluster, key: bytes, path: Path, revision: int = 0) -> Candidate:
        """Return the value of a key in a snapshot file.

        Revision 0 is the newest.

        Raises:
            RefusedByRule: There is none.
            SourceError: The file cannot be read, or does not keep that revision.
        """
        from etcdfix.sources.snapshot import SnapshotSource  # noqa: PLC0415 - only where a file is named

        origin = f"snapshot {path}" + (f" at revision {revision}" if revision else "")
        with SnapshotSource(path, revision=revision) as source:
            stored = source.get(key)
            named = identify_file(cluster, source)
        return cls(stored=_found(key, stored, origin), origin=origin, cluster=named)

    @classmethod
    def of_revision(cls, cluster: Cluster, key: bytes, revision: int) -> Candidate:
        """Return the value that a key of this very etcd had.

        Raises:
            RefusedByRule: There was none.
            SourceError: etcd could not be asked, or does not keep that revision any more.
        """
        origin = f"revision {revision}"
        try:
            with LiveSource(cluster.client.connection, revision=revision) as source:
                stored = source.get(key)
        except RevisionCompacted as exc:
            raise RevisionCompacted(
                exc.message,
                revision=exc.revision,
                compacted=exc.compacted,
                current=exc.current,
                hint="a snapshot may still hold it: etcdfix restore --from-snapshot FILE; etcdfix explain KEY says "
                "what etcd keeps",
            ) from exc
        return cls(stored=_found(key, stored, origin), origin=origin, cluster=None, revision=revision)

    @classmethod
    def of_key(cls, cluster: Cluster, key: bytes, other: bytes) -> Candidate:
        """Return the bytes of another etcd key, where a tag says that they were written for this one.

        Raises:
            RefusedByRule: That key holds nothing, or nothing shows that what it holds belongs here.
            SourceError: etcd could not be asked.
        """
        require_configuration(cluster)
        origin = f"etcd key {display(other)}"
        if other == key:
            raise refuse(
                Rule.NOT_ONE_KEY, f"--from-key names {display(key)} itself", hint="name the key that holds it"
            )
        there = _found(other, cluster.now.read_key(other).stored, "etcd now")
        moved = msgspec.structs.replace(there, key=key)
        found = cluster.examiner.apart().examine(moved)
        if found.verdict.outcome is not Outcome.READABLE or found.verdict.cause is not None:
            raise refuse(
                Rule.NOT_READABLE,
                f"the value of {display(other)} is {found.verdict.outcome} at {display(key)}: {found.verdict.message}",
                hint="where a value belongs says etcdfix explain of the key that holds it",
            )
        if not _authenticates(cluster, moved):
            raise refuse(
                Rule.NOT_READABLE,
                f"the value of {display(other)} is under {found.transformer}, which has no tag: nothing shows that it "
                f"was written for {display(key)}",
                hint="an earlier revision, a snapshot or a file may hold the object: --from-revision, --from-snapshot, "
                "--from-object",
            )
        return cls(
            stored=moved,
            origin=origin,
            cluster=None,
            other=Landmark(other, there.create_revision, there.mod_revision),
            told=(
                f"{display(other)} is left as it is; once this key reads: etcdfix explain says what to do with it",
            ),
        )

    @classmethod
    def of_object(cls, cluster: Cluster, key: bytes, path: Path) -> Candidate:
        """Return what API servers would store today, as JSON, for the object in a file; it keeps a lease that is there.

        Raises:
            ConfigurationError: The file cannot be read.
            RefusedByRule: It is no object of this key, or cannot be written so that it reads as the same.
            SourceError: etcd could not be asked.
        """
        require_configuration(cluster)
        file = read_object_file(path)
        examiner = cluster.examiner.apart()
        reader = examiner.readers.reader_for(key)
        check_place(file, key, reader, examiner)
        sealed = seal(cluster, key, reader.directory.group_resource, file.plaintext, by_api=_BY_API)
        present = cluster.now.read_key(key).stored
        lease = present.lease if present is not None else 0
        stored = StoredValue(key, sealed.data, mod_revision=0, create_revision=0, version=0, lease=lease)
        check_stored(file, stored, examiner)
        return cls(
            stored=stored,
            origin=f"object in {path}",
            cluster=ClusterIdentity.by_uid(file.cluster_uid) if file.cluster_uid else None,
            file=file,
            transformer=sealed.transformer,
        )


class RestoreRequest(ChangeRequest, frozen=True, kw_only=True):
    """One restore.

    Attributes:
        replace_mod_revision: The present value may be replaced, if it stands at this revision; None: the key must
            be absent.
        value_sha256: ``sha256:<hex>`` that the value to put back must have, "" for any.
    """

    candidate: Candidate
    replace_mod_revision: int | None = None
    value_sha256: str = ""
    run: RunOptions = RunOptions()


def identify_file(cluster: Cluster, source: Source) -> ClusterIdentity:
    """Say which cluster a file is of; it is read as the cluster is, with the file's own values."""
    here = cluster.examiner
    return identify(source, Examiner(here.layout, here.transformers, here.decoder))


def _authenticates(cluster: Cluster, stored: StoredValue) -> bool:
    transformers = cluster.examiner.readers.reader_for(stored.key).transformers
    if transformers is None:
        return False
    plain = transformers.from_storage(stored.value, stored.key)  # it opened a moment ago
    return plain.authenticated and plain.transformer != IDENTITY


def _found(key: bytes, stored: StoredValue | None, origin: str) -> StoredValue:
    if stored is None:
        raise refuse(
            Rule.GONE, f"{display(key)} does not exist in the {origin}", hint="look into an older one"
        )
    return stored
