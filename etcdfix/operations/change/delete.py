"""Deletes one key: examined, previewed, confirmed, backed up, compared, recorded.

The specification is section 6 of the product contract; a dry run takes the same road up to the preview, and from
there :func:`~etcdfix.remediation.commit.preview_only` instead of :func:`~etcdfix.remediation.commit.commit`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from etcdfix.apiserver.servers import APIAccess
from etcdfix.examine_all import Progress, no_progress
from etcdfix.remediation.audit.record import Entry, Operator, RecordType, Result, Subject, Verb
from etcdfix.remediation.backup.file import BackupCluster, BackupContent, make_content
from etcdfix.remediation.commit import Change, Outcome, RecordPaths, commit, place_warnings, preview_only
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.landmarks import read_landmarks
from etcdfix.remediation.preflight.checks import (
    Acceptances,
    Cluster,
    Preflight,
    check_deletion,
    grounds_of,
)
from etcdfix.remediation.preflight.expectation import Expectation
from etcdfix.remediation.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination

if TYPE_CHECKING:
    from etcdfix.apiserver.authorization import Authorization
    from etcdfix.remediation.preflight.members import LeaseState

_IDENTITY = "identity"


class Confirmer(Protocol):
    """The person before the change, or the script that stands for one."""

    def confirm_key(self, key: bytes) -> bool:
        """Show what is about to happen to the key, and say whether it was typed back (or ``--yes`` was given)."""
        ...

    def confirm_lost(self, declared: str) -> bool:
        """Say whether the declaration of a lost key was typed back; ``--yes`` never stands in at a terminal."""
        ...


class DeleteRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One deletion.

    Attributes:
        key: Complete etcd key.
        reason: For the record.
        accepted: Expectations and acceptances.
        places: Where backups and the audit log go.
        api: Which API servers to ask; None for none.
        etcd_user: As whom etcd is asked, for the record.
        dry_run: Change nothing.
        plan: How the plan is named in the record, "" for none.
    """

    key: bytes
    reason: str
    accepted: Acceptances = msgspec.field(default_factory=Acceptances)
    places: RecordPaths = msgspec.field(default_factory=RecordPaths)
    api: APIAccess | None = None
    etcd_user: str = ""
    dry_run: bool = False
    plan: str = ""


def run_delete(
    cluster: Cluster,
    request: DeleteRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Preflight], None],
    expected: Expectation | None = None,
    progress: Progress = no_progress,
    step: Step = no_step,
) -> Outcome:
    """Delete one key, or find out whether it could be deleted.

    Args:
        cluster: Where.
        request: What.
        confirmer: Confirms.
        preview: Shows what was found out, before anything is asked.
        expected: By a plan, which may add a refusal; None without one.
        progress: Counts the values of the pattern check for a display.
        step: Told the name of each step before it is taken.

    Raises:
        RemediationRefused: A rule says no, or a file cannot be made safe; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd could not be asked; nothing was changed.
    """
    step("check: landmarks")
    landmarks = read_landmarks(cluster.source.client, cluster.examiner.layout, target=request.key)
    checked = check_deletion(
        cluster,
        request.key,
        request.accepted,
        backup_directories=request.places.directories,
        api=request.api,
        expected=expected,
        progress=progress,
        step=step,
    )
    step("check: places")
    checked = msgspec.structs.replace(checked, warnings=(*checked.warnings, *place_warnings(request.places)))
    step("preview")
    preview(checked)
    operator = operator_for(checked.servers.authorization, request.etcd_user)
    change = Change(
        entry=Entry(
            type=RecordType.INTENT,
            verb=Verb.DELETE,
            operator=operator,
            subject=subject_of(checked.found),
            reason=request.reason,
            cluster_uid=checked.identity.uid,
            header_revision=checked.reading.revision,
            accepted=(*request.accepted.as_flags(), *([request.plan] if request.plan else [])),
            grounds=grounds_of(
                cluster, checked.found, checked.servers, checked.identity, checked.alike.counts
            ),
        ),
        landmarks=landmarks if checked.moved_to is None else landmarks.with_mark(checked.moved_to),
        content=backup_content(cluster, checked, "delete", operator, request.reason),
        done=Result.DELETED,
        accept_unknown_cluster=request.accepted.unknown_cluster,
    )
    client = cluster.source.client
    if request.dry_run:
        return preview_only(client, change, request.places, operator=operator, step=step)
    step("confirm")
    if checked.declared_lost and not confirmer.confirm_lost(request.accepted.key_lost):
        raise refuse(Rule.NOT_CONFIRMED, "the lost key was not typed back; nothing was changed")
    if not confirmer.confirm_key(request.key):
        raise refuse(
            Rule.NOT_CONFIRMED,
            f"{display(request.key)} was not typed back; nothing was changed",
            hint="type the key in full at a terminal, or give --yes in a script",
        )
    return commit(client, change, request.places, operator=operator, step=step)


def operator_for(authorization: Authorization | None, etcd_user: str) -> Operator:
    """Return who does it, for the record."""
    if authorization is None:
        return Operator.of_this_process(etcd_user=etcd_user)
    return Operator.of_this_process(
        etcd_user=etcd_user, authorization="allowed", api_user=authorization.user_name
    )


def subject_of(found: Examination) -> Subject:
    """Return what a record says the change is about."""
    directory = found.directory
    return Subject(
        key=found.stored.key,
        group=directory.group,
        api_version=directory.version,
        resource=directory.resource,
        namespace=found.namespace,
        name=found.name,
        mod_revision=found.stored.mod_revision,
    )


def backup_content(
    cluster: Cluster, checked: Preflight, purpose: str, operator: Operator, reason: str
) -> BackupContent:
    """Return what a backup of the examined value holds: the stored bytes, nothing that we decrypted."""
    reading = checked.reading
    return make_content(
        checked.stored,
        purpose=purpose,
        verdict=checked.found.verdict,
        cluster=BackupCluster(
            checked.identity.uid or None,
            f"{reading.cluster_id:x}",
            cluster.source.endpoints,
            reading.revision,
            checked.identity,
        ),
        operator=operator,
        reason=reason,
        lease_ttl_seconds=lease_ttl(checked.lease),
        at=now(),
    )


def lease_ttl(lease: LeaseState | None) -> int | None:
    """Return what a backup says of a lease: seconds left, -1 for expired, None for none."""
    if lease is None:
        return None
    return lease.remaining_seconds if lease.alive else -1


def now() -> datetime:
    """Return the time for a backup."""
    return datetime.now(UTC)
