"""What may be put back: the content of a backup, a value in a snapshot, an earlier revision."""

from __future__ import annotations

from pathlib import Path

import msgspec

from etcdfix.errors import RevisionCompacted
from etcdfix.examine import Examiner
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.identify import identify
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.rules import Rule, refuse
from etcdfix.sources.live import LiveSource
from etcdfix.storagekey import display


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A value that may be put back.

    Attributes:
        stored: Key, bytes and lease; the revisions are those that it had.
        origin: Where it comes from, for people and for the record.
        cluster: Which cluster it comes from; None for the very etcd that it is put back into.
        backup: The file, where it comes from one.
        revision: The revision of this very etcd at which it stood; 0 for a value from elsewhere.
    """

    stored: StoredValue
    origin: str
    cluster: ClusterIdentity | None
    backup: Backup | None = None
    revision: int = 0

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
    def of_snapshot(cls, cluster: Cluster, key: bytes, path: Path) -> Candidate:
        """Return the value of a key in a snapshot file.

        Raises:
            RefusedByRule: There is none.
            SourceError: The file cannot be read.
        """
        from etcdfix.sources.snapshot import SnapshotSource  # noqa: PLC0415 - only where a file is named

        with SnapshotSource(path) as source:
            stored = source.get(key)
            here = cluster.examiner
            named = identify(source, Examiner(here.layout, here.transformers, here.decoder))
        return cls(stored=_found(key, stored, f"snapshot {path}"), origin=f"snapshot {path}", cluster=named)

    @classmethod
    def of_revision(cls, cluster: Cluster, key: bytes, revision: int) -> Candidate:
        """Return the value that a key of this very etcd had.

        Raises:
            RefusedByRule: There was none.
            SourceError: etcd could not be asked, or does not keep that revision any more.
        """
        origin = f"revision {revision}"
        try:
            with LiveSource(cluster.source.client.connection, revision=revision) as source:
                stored = source.get(key)
        except RevisionCompacted as exc:
            raise RevisionCompacted(
                exc.message,
                revision=exc.revision,
                compacted=exc.compacted,
                current=exc.current,
                hint="a snapshot may still hold it: etcdfix restore --from-snapshot FILE; etcdfix history KEY says "
                "what etcd keeps",
            ) from exc
        return cls(stored=_found(key, stored, origin), origin=origin, cluster=None, revision=revision)


def _found(key: bytes, stored: StoredValue | None, origin: str) -> StoredValue:
    if stored is None:
        raise refuse(
            Rule.GONE, f"{display(key)} does not exist in the {origin}", hint="look into an older one"
        )
    return stored
