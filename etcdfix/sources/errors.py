"""What keeps us from reading an etcd, a snapshot, a kine database or a log."""

from __future__ import annotations

from dataclasses import dataclass

from etcdfix.model.errors import SourceError


class SourceDenied(SourceError):
    """Raised when etcd refuses the user, the password or the permission."""

    code = "source-denied"


class SourceLocked(SourceError):
    """Raised when a running etcd holds the database file."""

    code = "source-locked"


class NotASnapshot(SourceError):
    """Raised when a file is not a bbolt database: missing, empty, text, or without a valid meta page."""

    code = "not-a-snapshot"


class NotAKineFile(SourceError):
    """Raised when a file is not a SQLite database of kine."""

    code = "not-a-kine-file"


class PageCorrupt(SourceError):
    """Raised when a bbolt page contradicts itself or the file, or is missing."""

    code = "page-corrupt"


@dataclass(eq=False, repr=False, kw_only=True)
class RevisionCompacted(SourceError):
    """Raised when the revision was compacted, or does not exist yet.

    Attributes:
        revision: Revision asked for.
        compacted: Oldest revision that can still be read, 0 where unknown.
        current: Newest revision, 0 where unknown.
    """

    code = "revision-compacted"
    revision: int
    compacted: int = 0
    current: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class ClusterMismatch(SourceError):
    """Raised when the endpoints belong to more than one cluster.

    Attributes:
        cluster_ids: Endpoint to cluster id, lower-case hex.
    """

    code = "cluster-mismatch"
    cluster_ids: dict[str, str]


class NotALog(SourceError):
    """Raised when a directory has no readable write-ahead log."""

    code = "not-a-log"
