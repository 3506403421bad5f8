"""What an audit log says of one intent, or of one key; whether its chain holds, :mod:`~.verify` says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from etcdfix.model.model import StoredValue, digest_of
from etcdfix.remediation.audit.record import Record, RecordType, Result, Verb
from etcdfix.remediation.audit.verify import is_there, read_records

_WRITES: Final = frozenset({Verb.FIX, Verb.UNDO})
WRITTEN: Final = frozenset({Result.FIXED, Result.UNDONE})
"""Outcomes that say that a value was put."""
_NOTHING_WRITTEN: Final = frozenset({Result.REFUSED, Result.NOT_APPLIED})
_EVER: Final = 1 << 63


def outcomes_of(path: Path, intent: Record) -> Iterator[Record]:
    """Yield what the log says became of an intent, oldest first; raises AuditLogUnreadable."""
    told, asked = (intent.link.sequence, intent.audit_id), read_records(path)
    yield from (one for one in asked if one.tells_outcome and (one.intent, one.audit_id) == told)


def wrote(path: Path, intent: Record, present: StoredValue) -> bool:
    """Say whether what stands at a key now is exactly what this intent put there.

    The revision of its transaction is in the outcome, and the digest of what was put ends the intent's detail.
    Revisions alone would not do: an etcd that was put back to an older state gives the same ones to other writes.
    Raises AuditLogUnreadable.
    """
    if (
        intent.verb not in _WRITES
        or intent.is_patch
        or intent.subject.key != present.key
        or not intent.detail.endswith(digest_of(present.value))
    ):
        return False
    return any(
        record.outcome in WRITTEN and record.header_revision == present.mod_revision
        for record in outcomes_of(path, intent)
    )


def own_writes(path: Path, cluster_uid: str) -> dict[bytes, int]:
    """Return the keys that this log says we wrote, each with the revision up to which a write of ours may reach.

    A value that is not newer may be ours; where nobody knows what became of it, that revision is beyond any. A log
    that is not there says nothing. A record that does not name its cluster counts; so does each, where ``cluster_uid``
    is "". Raises AuditLogUnreadable.
    """
    found: dict[bytes, int] = {}
    unsettled: dict[int, bytes] = {}
    for record in _of_cluster(path, cluster_uid):
        if record.verb not in _WRITES or record.is_patch:
            continue
        if record.type is RecordType.INTENT:
            unsettled[record.link.sequence] = record.subject.key
        elif record.closes:
            key = unsettled.pop(record.intent, record.subject.key)
            if record.outcome not in _NOTHING_WRITTEN:
                found[key] = max(found.get(key, 0), record.header_revision)
    return found | dict.fromkeys(unsettled.values(), _EVER)


def saved_digests(path: Path, cluster_uid: str) -> frozenset[str]:
    """Return the digests of objects that were saved from API servers of a cluster, as this log says.

    A log that is not there, and a record that does not name its cluster, are taken as by :func:`own_writes`.
    Raises AuditLogUnreadable.
    """
    rescued = (record for record in _of_cluster(path, cluster_uid) if record.type is RecordType.RESCUED)
    return frozenset(digest for record in rescued for digest in record.saved)


def _of_cluster(path: Path, cluster_uid: str) -> Iterator[Record]:
    for record in read_records(path) if is_there(path) else ():
        if not record.cluster_uid or cluster_uid in {"", record.cluster_uid}:
            yield record
