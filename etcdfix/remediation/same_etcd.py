"""Is this the etcd that a record is about, or one that only shares its past?

An etcd that was restored from another one's snapshot has the same kube-system, with the same uid. So what a record says
is held against what answers here: etcd's cluster id; the revision, which only grows; and, as long as etcd keeps it, how
the key stood at the revisions that the record names. A restore makes the id from the members' peer URLs and the cluster
token: two restores with the same ones share it, and a copied data directory keeps it. Then only the revision and the
key can tell.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import ClusterIdentity, StoredValue, digest_of
from etcdfix.model.rules import Rule, acceptance, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Record
from etcdfix.remediation.backup.file import BackupContent
from etcdfix.remediation.datastore import Datastore, KeyReading
from etcdfix.sources.errors import RevisionCompacted

_UNKNOWN_IDS: Final = frozenset({"", "0"})  # no etcd has the id 0


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """How a record says that a key stood in its etcd.

    Attributes:
        mod_revision: Of its value; 0 where nothing was there.
        cluster_id: Of the etcd that held the key, lower-case hex; "" for unknown.
        identity: Of the cluster, with the id of the etcd that holds kube-system.
        deleted_at: The transaction at this revision deleted the key; 0 where the record does not say so.
    """

    key: bytes
    mod_revision: int
    value_sha256: str
    revision: int
    cluster_id: str
    identity: ClusterIdentity
    deleted_at: int = 0

    @classmethod
    def of_backup(cls, content: BackupContent, *, deleted_at: int = 0) -> Recorded:
        """Return what a backup says."""
        return cls(
            key=content.key_base64,
            mod_revision=content.mod_revision,
            value_sha256=content.value_sha256,
            revision=max(content.cluster.header_revision, deleted_at),
            cluster_id=content.cluster.cluster_id,
            identity=content.cluster.named,
            deleted_at=deleted_at,
        )

    @classmethod
    def of_intent(cls, intent: Record, *, cluster_id: str = "") -> Recorded:
        """Return what an intent says; ``cluster_id`` is what its backup says."""
        return cls(
            key=intent.subject.key,
            mod_revision=intent.subject.mod_revision,
            value_sha256=intent.value_sha256,
            revision=intent.header_revision,
            cluster_id=cluster_id,
            identity=intent.cluster,
        )


class EtcdComparison(NamedTuple):
    """What came of holding a record against an etcd.

    Attributes:
        other_id: That the cluster ids differ, a clause; "" where they do not, or one of them is not known.
        contradiction: Why its history shows that it is another etcd, a clause; "" where nothing says so.
        unseen: What could not be compared because it is compacted, a sentence; "" for nothing.
        is_older: It stands before the revision to which the etcd of the record had come.
        has_same_id: The etcd of the key is known to have the id that the record names.
    """

    other_id: str = ""
    contradiction: str = ""
    unseen: str = ""
    is_older: bool = False
    has_same_id: bool = False


def compare_with_etcd(
    now: Datastore, recorded: Recorded, identity: ClusterIdentity, reading: KeyReading
) -> EtcdComparison:
    """Hold a record against the id and the revisions of an etcd; raises SourceError."""
    then, here = recorded.identity, f"{reading.cluster_id:x}"
    if then.has_other_id(identity):
        other = other_id(then.cluster_id, identity.cluster_id)
    else:
        other = other_id(recorded.cluster_id, here)
    same = recorded.cluster_id == here
    if recorded.cluster_id in _UNKNOWN_IDS:
        elsewhere = (
            then.main_endpoints or identity.main_endpoints
        )  # that id is of another etcd than the key's
        same = bool(then.cluster_id) and then.cluster_id == identity.cluster_id and not elsewhere
    older = older_state(max(recorded.revision, recorded.mod_revision), reading.revision)
    if older:
        return EtcdComparison(other, older, is_older=True, has_same_id=same)
    contradiction, unseen = _hold_against_history(now, recorded, reading)
    return EtcdComparison(other, contradiction, unseen, has_same_id=same)


def other_id(there: str, here: str) -> str:
    """Say that two cluster ids differ, a clause; "" where they do not, or one of them is not known."""
    differ = there != here and not _UNKNOWN_IDS & {there, here}
    return f"its etcd has the cluster id {there}, and this one has {here}" if differ else ""


def older_state(reached: int, now: int) -> str:
    """Say that an etcd stands before a revision to which it had come, a clause; "" where it does not."""
    return f"its etcd had come to revision {reached}, and this one is at {now}" if 0 < now < reached else ""


def other_etcd(what: str, why: str, *, instead: str = "name its etcd with --endpoints") -> RefusedByRule:
    """Return the refusal to raise for a record of another etcd."""
    return refuse(
        Rule.OTHER_CLUSTER_ID,
        f"{what} is of another etcd: {why}",
        hint=f"{instead}; if this etcd was made from its snapshot or its data, and is to take its place: "
        + acceptance(Rule.OTHER_CLUSTER_ID),
    )


def _hold_against_history(now: Datastore, recorded: Recorded, reading: KeyReading) -> tuple[str, str]:
    present = reading.stored
    asked = [(recorded.mod_revision, True)] if recorded.mod_revision else []
    if recorded.deleted_at:
        asked = [(recorded.deleted_at, False), (recorded.deleted_at - 1, True), *asked]
    unseen, fits = "", False
    for revision, stood in asked:
        try:
            is_present = present is not None and present.mod_revision == revision
            found = present if is_present else now.read_at(recorded.key, revision)
        except RevisionCompacted:
            if now.file is None and not unseen:  # a file is not asked about the past
                unseen = f"revision {revision} is compacted, so it cannot be seen whether this is its etcd"
            continue
        became = _became(found, recorded)
        if not stood:
            became = "" if found is None else became or "was still there"
        if became:
            return f"{display(recorded.key)} {became} at revision {revision} here", ""
        fits = fits or stood
    # The value that was seen to stand shows it, whatever else is compacted; that nothing was there shows nothing.
    return "", "" if fits else unseen


def _became(found: StoredValue | None, recorded: Recorded) -> str:
    """Say how a key stood otherwise than a record says, a clause; "" where it stood so."""
    if found is None:
        return "was not there"
    if found.mod_revision != recorded.mod_revision:
        return f"stood at mod_revision {found.mod_revision}"
    return "had other bytes" if recorded.value_sha256 not in {"", digest_of(found.value)} else ""
