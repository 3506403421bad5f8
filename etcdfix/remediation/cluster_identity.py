"""Which cluster an etcd belongs to, as a change knows and records it.

The uid of namespace kube-system names a cluster. On the night when that Namespace cannot be read, an earlier revision
or a backup may still say the uid; where nothing does, the revision at which the Namespace was made, together with
etcd's cluster id, stands in for it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class KnownBy(StrEnum):
    """How it is known which cluster this is, best first."""

    VALUE = "value"
    KEPT_REVISION = "kept-revision"
    BACKUP = "backup"
    CREATE_REVISION = "create-revision"
    UNKNOWN = "unknown"


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What names a cluster; every field has a value that says that nothing is known.

    Attributes:
        uid: Of namespace kube-system, "" where nothing says it.
        known_by: What the identity rests on.
        created: Create revision of namespace kube-system, 0 where there is none or it is not known.
        changed: Its mod revision, 0 likewise. It moves, and names no cluster.
        cluster_id: Of the etcd that holds that Namespace, lower-case hex; "" for unknown.
        source: What said the uid, in words: a revision, a backup; "" for the Namespace itself and for unknown.
        main_endpoints: Of the etcd that holds the Namespace, where it is another one than that of the change.
    """

    uid: str = ""
    known_by: KnownBy = KnownBy.UNKNOWN
    created: int = 0
    changed: int = 0
    cluster_id: str = ""
    source: str = ""
    main_endpoints: tuple[str, ...] = ()

    @classmethod
    def by_uid(cls, uid: str) -> ClusterIdentity:
        """Return a cluster of which the uid alone is known; "" for one of which nothing is."""
        return cls(uid=uid, known_by=KnownBy.VALUE if uid else KnownBy.UNKNOWN)

    @property
    def is_known(self) -> bool:
        """Whether anything names the cluster."""
        return self.known_by is not KnownBy.UNKNOWN

    def is_same(self, other: ClusterIdentity) -> bool | None:
        """Say whether both name one cluster; None where that cannot be told.

        The uid decides wherever both have one. A create revision alone repeats from cluster to cluster, and so do
        cluster ids; both together stand in for the uid.
        """
        if self.uid and other.uid:
            return self.uid == other.uid
        if self.created and self.cluster_id and other.created and other.cluster_id:
            return (self.created, self.cluster_id) == (other.created, other.cluster_id)
        return None

    def describe(self) -> str:
        """Return what names the cluster, for people: part of a sentence."""
        where = f" (main etcd at {', '.join(self.main_endpoints)})" if self.main_endpoints else ""
        if self.known_by is KnownBy.CREATE_REVISION:
            return (
                f"kube-system cannot be read; it was created at revision {self.created}, cluster id "
                f"{self.cluster_id}{where}"
            )
        if self.source:
            return f"kube-system uid {self.uid}, from {self.source}{where}"
        return f"kube-system uid {self.uid or 'unknown'}{where}"
