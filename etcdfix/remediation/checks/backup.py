"""What speaks for a backup: this audit log, and the history of this etcd."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import AuditLogUnreadable
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.audit.search import outcomes_of
from etcdfix.remediation.audit.verify import broken, is_there, trouble_with
from etcdfix.remediation.backup.file import ANOMALY, Backup
from etcdfix.remediation.backup.folder import intent_of
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.datastore import KeyReading
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.same_etcd import Recorded, hold_against, other_etcd
from etcdfix.rules import Rule, acceptance

BY_ITSELF: Final = (
    f"a backup is undone by itself with {acceptance(Rule.UNLISTED_SOURCE)} and --expect-value-sha256, the digest that "
    "the change printed"
)
_ANOTHER_LOG: Final = f"keep it as it is, and begin a new one with --audit-log; {BY_ITSELF}"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks for a backup.

    Attributes:
        intent: Of this audit log, that made it; None where the log does not know it.
        other_past: Why it is of another etcd, as the history of the key shows; "" where nothing says so.
        doubts: What was accepted of it, or could not be compared; one sentence each.
    """

    intent: Record | None
    other_past: str
    doubts: tuple[str, ...]


def standing_of(
    backup: Backup, cluster: Cluster, request: ChangeRequest, identity: ClusterIdentity, reading: KeyReading
) -> Standing:
    """Find out what speaks for a backup.

    Raises:
        RefusedByRule: It is of another etcd, and that is not accepted.
        AuditLogUnreadable: The log cannot be read, or its chain is broken.
        SourceError: What etcd keeps of the key could not be read.
    """
    log = request.record_paths.log_path
    intent = _intent_behind(backup, log)
    recorded = _recorded(backup, intent, log)
    held = hold_against(cluster.now, recorded, identity, reading)
    other = held.other_id or held.contradiction
    if other and not request.accepted.accepts(Rule.OTHER_CLUSTER_ID):
        raise other_etcd(f"the backup {backup.path}", other)
    accepted = f"the backup is of another etcd, as accepted: {other}" if other else ""
    return Standing(
        intent=intent, other_past=held.contradiction, doubts=tuple(filter(None, (accepted, held.unseen)))
    )


def lost_log(backup: Backup) -> str:
    """Say what became of the log that a backup names; if it lists the backup, it is not the one that is written now."""
    own = Path(backup.intent.audit_log)
    try:
        trouble = trouble_with(own)
        if trouble:
            return f"its audit log {own} has a broken chain: {trouble}"
        if not is_there(own):
            return f"its audit log {own} is not there"
        if intent_of(backup, own) is not None:
            return f"its audit log {own} lists it, but another one was named"
    except AuditLogUnreadable as exc:
        return f"its log cannot be read: {exc.message}"
    return f"its audit log {own} does not list it"


def _intent_behind(backup: Backup, audit_log: Path) -> Record | None:
    """Return the intent by whose word the value was at this very key of this very cluster; None where there is none."""
    try:
        trouble = trouble_with(audit_log)
        if trouble:
            raise broken(audit_log, trouble, hint=_ANOTHER_LOG)
        return intent_of(backup, audit_log) if is_there(audit_log) else None
    except AuditLogUnreadable as exc:
        raise AuditLogUnreadable(exc.message, hint=exc.hint or _ANOTHER_LOG) from exc


def _recorded(backup: Backup, intent: Record | None, log: Path) -> Recorded:
    content = backup.content
    if content.purpose == ANOMALY:
        # Members may disagree on what was there: then the history of another one says nothing of it.
        return msgspec.structs.replace(Recorded.of_backup(content), mod_revision=0)
    deleted_at = 0
    if intent is not None and intent.verb is Verb.DELETE:
        revisions = (
            int(notes.header_revision or 0)
            for notes in outcomes_of(log, intent)
            if notes.outcome == Result.DELETED
        )
        deleted_at = max(revisions, default=0)
    return Recorded.of_backup(content, deleted_at=deleted_at)
