"""The one end of every change: preview, dry run or confirmation, then backup, record and transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from etcdfix.remediation.audit.record import Operator, Record, RecordType, Result, Subject, Verb
from etcdfix.remediation.backup.file import BackupCluster, BackupContent, make_content
from etcdfix.remediation.commit import ChangeOutcome, Write, commit
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.places import RecordPaths, disk_of_etcd
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, grounds_of
from etcdfix.remediation.writer import probe_connection
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display

if TYPE_CHECKING:
    from etcdfix.apiserver.authorization import Authorization
    from etcdfix.apiserver.servers import APIAccess, ServerAnswers
    from etcdfix.copies.model import Way
    from etcdfix.model import ClusterIdentity, StoredValue
    from etcdfix.remediation.audit.log import AuditLog
    from etcdfix.remediation.commit import Sender
    from etcdfix.remediation.datastore import KeyReading, Landmark, Landmarks
    from etcdfix.remediation.preflight.deletion import Preflight
    from etcdfix.remediation.preflight.expectation import Expectation
    from etcdfix.remediation.preflight.members import LeaseState
    from etcdfix.verdicts.examination import Examination, KeyName
    from etcdfix.verdicts.key_loss import KeyCounts


DONE: Final = {
    Verb.DELETE: Result.DELETED,
    Verb.FIX: Result.FIXED,
    Verb.UNDO: Result.UNDONE,
}
"""What each change is called when all goes well."""


class Confirmer(Protocol):
    """The person before the change, or the script that stands for one."""

    def confirm_key(self, key: bytes) -> bool:
        """Show what is about to happen to the key, and say whether it was typed back (or ``--yes`` was given)."""
        ...

    def confirm_lost(self, declared: str) -> bool:
        """Say whether the declaration of a lost key was typed back; ``--yes`` never stands in at a terminal."""
        ...


class ChangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What every change needs.

    Attributes:
        api: Which API servers to ask; None for none.
        etcd_user: As whom etcd is asked, for the record.
        expected: What a reviewed plan expects of the value that is there, which may add a refusal; None without one.
        plan_flags: Names that plan, for the record; empty without one.
        log: The audit log, kept open over many changes; None where each opens it.
    """

    reason: str
    accepted: Acceptances = msgspec.field(default_factory=Acceptances)
    record_paths: RecordPaths = msgspec.field(default_factory=RecordPaths)
    api: APIAccess | None = None
    etcd_user: str = ""
    dry_run: bool = False
    expected: Expectation | None = None
    plan_flags: tuple[str, ...] = ()
    log: AuditLog | None = None


class Rewritable(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is there now, and that gets other bytes.

    Attributes:
        reading: The linearizable read on which everything rests.
    """

    reading: KeyReading
    found: Examination
    identity: ClusterIdentity
    servers: ServerAnswers
    warnings: tuple[str, ...]
    lease: LeaseState | None


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that every check has let through.

    Attributes:
        found: What the record says the change is about.
        landmarks: Of the cluster, read before anything else was.
        rests_on: Another key that must stay as it is, as the home of a moved value; None for none.
        replaced: What makes room, and is backed up; None where nothing is there.
        counts: What the values under each encryption key of what makes room came to.
        declared_lost: The declaration of a lost key was needed.
        flags: What was accepted beyond what any change can accept.
        value: What to put; None deletes, unless a sender has the change made.
        value_sha256: Of what is put, for the record; "" for what makes room.
        lease: To attach, 0 for none.
        way: How the value is written; None for a deletion.
    """

    verb: Verb
    found: Examination
    reading: KeyReading
    identity: ClusterIdentity
    servers: ServerAnswers
    landmarks: Landmarks
    rests_on: Landmark | None = None
    replaced: Rewritable | Preflight | None
    counts: Mapping[KeyName, KeyCounts] = MappingProxyType({})
    declared_lost: bool = False
    flags: tuple[str, ...] = ()
    value: bytes | None = None
    value_sha256: str = ""
    lease: int = 0
    detail: str = ""
    way: Way | None = None


def carry_out(
    cluster: Cluster,
    request: ChangeRequest,
    checked: Change,
    confirmer: Confirmer,
    *,
    preview: Callable[[], None],
    sender: Sender | None = None,
    step: Step = no_step,
) -> ChangeOutcome:
    """Show a change, and make it once it is confirmed; a dry run does all but that.

    A sender has an API server make it; without one it is a transaction of our own.

    Raises:
        RemediationRefused: It was not confirmed, or something moved meanwhile; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    step("preview")
    preview()
    change = _change(cluster, request, checked)
    operator, paths = change.entry.operator, request.record_paths
    if request.dry_run:
        if sender is None:
            step("preview only: probe connection")
            probe_connection(cluster.client)
        return commit(cluster.now, change, paths, operator=operator, by=None, log=request.log, step=step)
    step("confirm")
    if checked.declared_lost and not confirmer.confirm_lost(request.accepted.key_lost):
        raise refuse(Rule.NOT_CONFIRMED, "the lost key was not typed back; nothing was changed")
    if not confirmer.confirm_key(change.key):
        raise refuse(
            Rule.NOT_CONFIRMED,
            f"{display(change.key)} was not typed back; nothing was changed",
            hint="type the key in full at a terminal, or give --yes in a script",
        )
    by = sender or cluster.client
    return commit(cluster.now, change, paths, operator=operator, by=by, log=request.log, step=step)


def _change(cluster: Cluster, request: ChangeRequest, checked: Change) -> Write:
    operator = operator_for(checked.servers.authorization, request.etcd_user)
    present = checked.reading.stored
    landmarks = checked.landmarks
    return Write(
        entry=Record(
            type=RecordType.INTENT,
            verb=checked.verb,
            operator=operator,
            subject=_subject(checked.found, present),
            reason=request.reason,
            cluster_uid=checked.identity.uid,
            header_revision=checked.reading.revision,
            value_sha256=checked.value_sha256,
            detail=checked.detail,
            way=checked.way.value if checked.way is not None else "",
            accepted=(*request.accepted.as_flags(), *request.plan_flags, *checked.flags),
            grounds=msgspec.structs.replace(
                grounds_of(cluster, checked.found, checked.servers, checked.identity, checked.counts),
                disk_of_etcd=(disk_of_etcd(request.record_paths) if checked.replaced is not None else "")
                or msgspec.UNSET,
            ),
        ),
        landmarks=landmarks if checked.rests_on is None else landmarks.with_mark(checked.rests_on),
        content=None if checked.replaced is None else _backup_content(cluster, request, checked, operator),
        value=checked.value,
        lease=checked.lease,
        done=DONE[checked.verb],
        accepted=request.accepted.only(Rule.UNKNOWN_CLUSTER),
    )


def operator_for(authorization: Authorization | None, etcd_user: str) -> Operator:
    """Return who does it, for the record."""
    if authorization is None:
        return Operator.of_this_process(etcd_user=etcd_user)
    return Operator.of_this_process(
        etcd_user=etcd_user, authorization="allowed", api_user=authorization.user_name
    )


def _subject(found: Examination, present: StoredValue | None) -> Subject:
    directory = found.directory
    return Subject(
        key=found.stored.key,
        group=directory.group,
        api_version=directory.version,
        resource=directory.resource,
        namespace=found.namespace,
        name=found.name,
        mod_revision=present.mod_revision if present is not None else 0,
        version=present.version if present is not None else 0,
    )


def _backup_content(
    cluster: Cluster, request: ChangeRequest, checked: Change, operator: Operator
) -> BackupContent:
    """Return what a backup of the value that makes room holds: the stored bytes, nothing that we decrypted."""
    replaced = checked.replaced
    assert replaced is not None  # else there is nothing to back up
    reading = replaced.reading
    return make_content(
        replaced.found.stored,
        purpose=checked.verb.purpose,
        verdict=replaced.found.verdict,
        cluster=BackupCluster(
            replaced.identity.uid or None,
            f"{reading.cluster_id:x}",
            cluster.where,
            reading.revision,
            replaced.identity,
        ),
        operator=operator,
        reason=request.reason,
        lease_ttl_seconds=_lease_ttl(replaced.lease),
        at=datetime.now(UTC),
    )


def _lease_ttl(lease: LeaseState | None) -> int | None:
    if lease is None:
        return None
    return lease.remaining_seconds if lease.alive else -1
