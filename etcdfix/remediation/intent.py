"""What a change that every check has let through comes to: its record, its backup, its bytes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.copies.model import Way
from etcdfix.model.model import digest_of
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.record import Operator, Record, RecordType, Result, Subject, Verb
from etcdfix.remediation.backup.file import BackupCluster, BackupContent, make_content
from etcdfix.remediation.cluster import grounds_of
from etcdfix.remediation.commit import Write
from etcdfix.remediation.places import disk_of_etcd

if TYPE_CHECKING:
    from etcdfix.apiserver.permissions import Authorization
    from etcdfix.remediation.change import Change

DONE: Final = {Verb.DELETE: Result.DELETED, Verb.FIX: Result.FIXED, Verb.UNDO: Result.UNDONE}
"""What each change is called when all goes well."""


def write_of(change: Change) -> Write:
    """Return what is written for a change that every check has let through: its record, its backup, its bytes."""
    present, request = change.present, change.request
    operator = operator_for(present.servers.authorization, request.etcd_user)
    reading, identity, landmarks = present.reading, present.identity, present.landmarks
    stored, put = present.reading.stored, change.value
    found = change.examined if present.absent else present.found
    digest = f"--expect-value-sha256 {change.expected_digest}" if change.expected_digest else ""
    counts = present.alike.counts if not present.alone and not present.absent else {}
    disk = disk_of_etcd(request.record_paths) if stored is not None else ""
    way = Way.PATCH if change.patch else None if change.deletes else change.copy.way
    return Write(
        entry=Record(
            type=RecordType.INTENT,
            verb=change.verb,
            operator=operator,
            subject=Subject(
                key=present.key,
                group=found.directory.group,
                api_version=found.directory.version,
                resource=found.directory.resource,
                namespace=found.namespace,
                name=found.name,
                mod_revision=stored.mod_revision if stored is not None else 0,
                version=stored.version if stored is not None else 0,
            ),
            reason=request.reason,
            cluster_uid=identity.uid,
            header_revision=reading.revision,
            value_sha256=digest_of(put) if put is not None and stored is None else "",
            detail=change.detail,
            way=way.value if way is not None else "",
            accepted=(*change.accepted.as_flags(), *request.plan_flags, *filter(None, (digest,))),
            grounds=msgspec.structs.replace(
                grounds_of(present.cluster, found, present.servers, identity, counts),
                disk_of_etcd=disk or msgspec.UNSET,
            ),
        ),
        landmarks=landmarks if change.rests_on is None else landmarks.with_mark(change.rests_on),
        content=None if stored is None else _backup_content(change, operator),
        value=put,
        lease=change.lease if put is not None else 0,
        done=DONE[change.verb],
        accepted=change.accepted.only(Rule.UNKNOWN_CLUSTER),
    )


def operator_for(authorization: Authorization | None, etcd_user: str) -> Operator:
    """Return who does it, for the record."""
    if authorization is None:
        return Operator.of_this_process(etcd_user=etcd_user)
    return Operator.of_this_process(
        etcd_user=etcd_user, authorization="allowed", api_user=authorization.user_name
    )


def _backup_content(change: Change, operator: Operator) -> BackupContent:
    """Return what a backup of the value that makes room holds: the stored bytes, nothing that we decrypted."""
    present, reading, lease = change.present, change.present.reading, change.present.lease
    ttl = None if lease is None else lease.remaining_seconds if lease.alive else -1
    identity = present.identity
    return make_content(
        present.found.stored,
        purpose=change.verb.purpose,
        verdict=present.found.verdict,
        cluster=BackupCluster(
            identity.uid or None, f"{reading.cluster_id:x}", present.cluster.where, reading.revision, identity
        ),
        operator=operator,
        reason=change.request.reason,
        lease_ttl_seconds=ttl,
        at=datetime.now(UTC),
    )
