"""Puts a value back: a backup of ours, the value of a snapshot, or an earlier revision; guarded like a deletion.

Undoing needs no configuration: a backup whose digest stands in this audit log holds bytes that were at this key of
this cluster. Whatever else is put back is examined first, and must be readable. Of an earlier revision etcd itself is
the list, as long as it is one of the object that stands at the key now, or stood there last.

A backup whose log is lost or broken restores by itself, unread, and only where nothing is: its own digests fit, it
names this cluster, and whoever restores it brings the digest that the deletion printed. A file that somebody made up
has fitting digests too; the digest that was written down on the day is what it cannot have. So nothing here says it.

What stands at the key is replaced only if it could be deleted, or if it is the very value that we put there in place of
the one that now comes back: a restore and a re-encryption have an undo too.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.errors import AuditLogUnreadable, RefusedByRule
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.operations.change.candidate import Candidate
from etcdfix.operations.change.execute_change import (
    ChangeRequest,
    CheckedChange,
    Confirmer,
    execute_change,
)
from etcdfix.remediation.audit.log import broken
from etcdfix.remediation.audit.record import Intent, Result, Verb
from etcdfix.remediation.audit.search import is_there, trouble_with, wrote
from etcdfix.remediation.backup.file import Backup, digest
from etcdfix.remediation.backup.write import intent_of
from etcdfix.remediation.commit import (
    ChangeOutcome,
    place_warnings,
    require_space,
)
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.landmarks import read_landmarks
from etcdfix.remediation.preflight.api_servers import check_api_servers, require_api
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, check_cluster
from etcdfix.remediation.preflight.deletion import Preflight, check_deletion
from etcdfix.remediation.preflight.members import (
    KeyReading,
    LeaseState,
    read_key,
    read_lease,
)
from etcdfix.remediation.preflight.noencryption import check_no_encryption
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.preflight.same_object import check_same_object
from etcdfix.remediation.preflight.target import check_alarms, check_expectations, check_members
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.deletability import AcceptRisk
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason

_BY_ITSELF: Final = (
    "a backup restores by itself with --accept-unlisted-source and --expect-value-sha256, the digest that the deletion "
    "printed"
)
_ANOTHER_LOG: Final = f"keep it as it is, and begin a new one with --audit-log; {_BY_ITSELF}"


class RestoreRequest(ChangeRequest, frozen=True, kw_only=True):
    """One restore.

    Attributes:
        candidate: What to put back.
        replace_mod_revision: The present value may be replaced, if it stands at this revision; None: the key must
            be absent.
        unlisted_source: A source that is no intent of this audit log is accepted.
        value_sha256: ``sha256:<hex>`` that the value to put back must have, "" for any.
        without_lease: Leave the lease out.
    """

    candidate: Candidate
    replace_mod_revision: int | None = None
    unlisted_source: bool = False
    value_sha256: str = ""
    without_lease: bool = False


class OwnWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A value that we put there ourselves, and that is to make room for what it replaced.

    Attributes:
        intent: That put it there.
        reading: The linearizable read that found it.
        found: What it is under today's configuration.
        identity: As in :class:`RestorePreview`; so are the next two.
        servers: What the API servers said.
        warnings: One sentence each.
        lease: Of the value, None for none.
        declared_lost: Never: no key needs to be lost for this.
    """

    intent: Intent
    reading: KeyReading
    found: Examination
    identity: ClusterIdentity
    servers: ServerAnswers
    warnings: tuple[str, ...]
    lease: LeaseState | None
    declared_lost: bool = False

    @property
    def stored(self) -> StoredValue:
        """The record that is there."""
        return self.found.stored


class RestorePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown before a value is put back.

    Attributes:
        candidate: What, and from where.
        found: What it is under today's configuration.
        listed: It is a true undo: an intent of this audit log made the backup.
        same_object: It is an earlier revision of the object that is at the key, or was there last.
        by_itself: Why no audit log speaks for the backup, where it restores by itself; else "".
        replaced: What stands there now: what could be deleted, or what we wrote; None where the key is absent.
        lease: That will be attached, 0 for none.
        identity: Which cluster it is; unknown where that was accepted.
        servers: What the API servers said.
        warnings: One sentence each.
    """

    candidate: Candidate
    found: Examination
    listed: bool
    same_object: bool = False
    by_itself: str = ""
    replaced: Preflight | OwnWrite | None
    lease: int
    identity: ClusterIdentity
    servers: ServerAnswers
    warnings: tuple[str, ...]


def run_restore(
    cluster: Cluster,
    request: RestoreRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[RestorePreview], None],
    progress: Progress = no_progress,
    step: Step = no_step,
) -> ChangeOutcome:
    """Put a value back, or find out whether it could be.

    Raises:
        RemediationRefused: A rule says no, or a file cannot be made safe; nothing was changed.
        AuditError: The record cannot be made durable; nothing was changed.
        TransactionNotSent: No endpoint could be reached; nothing was changed.
        TransactionRefused: etcd says no; nothing was changed.
        SourceError: etcd, or the backup, could not be read; nothing was changed.
    """
    candidate, key = request.candidate, request.candidate.stored.key
    require_api(request.api, request.accepted)
    step("check: landmarks")
    landmarks = read_landmarks(cluster.source.client, cluster.examiner.layout, target=key)
    step("check: read the key")
    reading = read_key(cluster.source.client, key)
    step("check: cluster")
    identity = check_cluster(cluster, request.accepted, request.record_paths.directories)
    _check_same_cluster(candidate, identity, request.accepted)
    step("check: candidate")
    check_no_encryption(cluster, candidate.stored)
    intent = _intent_behind(candidate, request.record_paths.log_path)
    listed = intent is not None
    _check_digest(request)
    found = cluster.examiner.examine(candidate.stored)
    same_object = False
    if candidate.revision and found.verdict.outcome is Outcome.READABLE:
        step("check: same object")
        same_object = check_same_object(cluster, reading, found)
    known = listed or same_object
    by_itself = "" if known else _check_unlisted(found, request, identity, reading.stored)
    replaced: Preflight | OwnWrite | None = None
    warnings: list[str] = []
    if reading.stored is None:
        if request.replace_mod_revision is not None:
            raise refuse(
                Rule.GONE, f"{display(key)} does not exist, so there is nothing to replace",
                hint="leave --replace-mod-revision out",
            )  # fmt: skip
        _check_release(cluster, request, step)
        step("check: members")
        warnings += check_members(cluster, key, reading, request.accepted)
        step("check: alarms")
        warnings += check_alarms(cluster)
        step("check: API servers")
        servers = check_api_servers(found, identity, request.api, request.accepted, held=False)
    else:
        _check_named(request, reading.stored)
        if intent is not None and wrote(request.record_paths.log_path, intent, reading.stored):
            replaced = _check_own(cluster, request, reading, reading.stored, intent, identity, step)
        else:
            replaced = _check_replaced(cluster, request, reading.stored, progress, step)
        warnings += replaced.warnings
        servers = replaced.servers
    step("check: space")
    require_space(cluster.source.client)
    step("check: lease")
    lease = _lease(cluster, candidate, without=request.without_lease)
    step("check: places")
    warnings += place_warnings(request.record_paths, backup=replaced is not None)
    shown = RestorePreview(
        candidate=candidate,
        found=found,
        listed=listed,
        same_object=same_object,
        by_itself=by_itself,
        replaced=replaced,
        lease=lease,
        identity=identity,
        servers=servers,
        warnings=tuple(warnings),
    )
    unreadable = replaced if isinstance(replaced, Preflight) else None
    return execute_change(
        cluster,
        request,
        CheckedChange(
            verb=Verb.RESTORE,
            done=Result.RESTORED,
            found=found,
            reading=reading,
            identity=identity,
            servers=servers,
            landmarks=landmarks,
            moved_to=unreadable.moved_to if unreadable is not None else None,
            replaced=replaced,
            counts=unreadable.alike.counts if unreadable is not None else {},
            declared_lost=replaced is not None and replaced.declared_lost,
            flags=tuple(_further_flags(request, known=known)),
            value=candidate.stored.value,
            value_sha256=digest(candidate.stored.value),
            lease=lease,
            detail=f"from {candidate.origin}{_unlisted_words(by_itself)}, {digest(candidate.stored.value)}",
        ),
        confirmer,
        preview=lambda: preview(shown),
        step=step,
    )


def _further_flags(request: RestoreRequest, *, known: bool) -> list[str]:
    flags = [] if known else ["--accept-unlisted-source"]
    if request.value_sha256:
        flags.append(f"--expect-value-sha256 {request.value_sha256}")
    return flags + (["--without-lease"] if request.without_lease and request.candidate.stored.lease else [])


def _check_same_cluster(candidate: Candidate, identity: ClusterIdentity, accepted: Acceptances) -> None:
    if candidate.cluster is None:
        return
    same = identity.is_same(candidate.cluster)
    if same is False:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the {candidate.origin} comes from the cluster with {candidate.cluster.describe()}; this etcd "
            f"holds the cluster with {identity.describe()}",
            hint="name the etcd of that cluster with --endpoints",
        )
    if same is None and not accepted.unknown_cluster:
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {candidate.origin} does not say which cluster it comes from, in a way that can be compared here",
            hint="if you are sure that it is this one: --accept-unknown-cluster",
        )


def _intent_behind(candidate: Candidate, audit_log: Path) -> Intent | None:
    """Return the intent by whose word the value was at this very key of this very cluster; None where there is none."""
    if candidate.backup is None:
        return None
    try:
        trouble = trouble_with(audit_log)
        if trouble:
            raise broken(audit_log, trouble, hint=_ANOTHER_LOG)
        return intent_of(candidate.backup, audit_log) if is_there(audit_log) else None
    except AuditLogUnreadable as exc:
        raise AuditLogUnreadable(exc.message, hint=exc.hint or _ANOTHER_LOG) from exc


def _check_digest(request: RestoreRequest) -> None:
    # The digest of the value is not said: from this file it would prove nothing.
    if request.value_sha256 and request.value_sha256 != digest(request.candidate.stored.value):
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"the value from the {request.candidate.origin} does not have the digest {request.value_sha256}",
            hint="it is another value, or was changed; the digest is the one that the deletion printed",
        )


def _check_unlisted(
    found: Examination, request: RestoreRequest, identity: ClusterIdentity, present: StoredValue | None
) -> str:
    """Check a source that this audit log does not know; say why no log speaks for it where it restores by itself."""
    candidate = request.candidate
    if candidate.revision and found.verdict.outcome is not Outcome.READABLE:
        raise refuse(
            Rule.NOT_READABLE,
            f"the value of {candidate.origin} is {found.verdict.outcome}: {found.verdict.message}",
            hint="that is the present value: name an earlier revision"
            if present == candidate.stored
            else "only a readable value may be put back; give the --encryption-config that reads it",
        )
    if candidate.revision and not request.unlisted_source:
        raise refuse(
            Rule.UNLISTED_SOURCE,
            f"nothing that etcd keeps shows that the value of {candidate.origin} is of the object that is at "
            f"{display(candidate.stored.key)}, or was there last",
            hint="look at it with etcdfix get --revision; if it is the right one: --accept-unlisted-source",
        )
    if not request.unlisted_source:
        raise refuse(
            Rule.UNLISTED_SOURCE,
            f"the {candidate.origin} is no backup that this audit log ({request.record_paths.log_path}) knows",
            hint="name the log that was used then with --audit-log, or --accept-unlisted-source",
        )
    if found.verdict.outcome is Outcome.READABLE:
        return ""
    if candidate.backup is None or not request.value_sha256:
        more = "" if candidate.backup is None else f"; {_BY_ITSELF}"
        raise refuse(
            Rule.NOT_READABLE,
            f"the value from the {candidate.origin} is {found.verdict.outcome}: {found.verdict.message}",
            hint="only a readable value may come from elsewhere; give the --encryption-config that reads it"
            + more,
        )
    _check_by_itself(found, request, identity, present)
    return _lost_log(candidate.backup)


def _check_by_itself(
    found: Examination, request: RestoreRequest, identity: ClusterIdentity, present: StoredValue | None
) -> None:
    """Refuse a backup that no log speaks for, unless it can only bring back what was there."""
    origin = request.candidate.origin
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        raise refuse(
            Rule.NOT_AN_OBJECT,
            f"the {origin} is about {display(found.stored.key)}, which holds no object of the API",
            hint="name the storage prefix of this cluster: --etcd-prefix",
        )
    if request.candidate.cluster is None or not identity.is_same(request.candidate.cluster):
        unknown = not identity.is_known
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {origin} restores by itself only in the cluster that it names; "
            + ("that cannot be read here" if unknown else "it names none that can be compared with this one"),
            hint="name the audit log that knows it with --audit-log"
            + (", or give the --encryption-config that reads namespace kube-system" if unknown else ""),
        )
    if present is not None:
        raise refuse(
            Rule.PRESENT,
            f"{display(present.key)} exists, at mod_revision {present.mod_revision}: a backup that no audit log speaks "
            "for is put only where nothing is",
            hint="name the audit log that knows it with --audit-log",
        )
    reason = protected_reason(found.directory.group_resource, found.namespace)
    if reason and AcceptRisk.CLUSTER_BREAKING not in request.accepted.risks:
        raise refuse(
            Rule.PROTECTED,
            f"{reason}; no audit log says that this value was there",
            hint=f"if that is understood: --accept-risk {AcceptRisk.CLUSTER_BREAKING}",
        )


def _lost_log(backup: Backup) -> str:
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


def _unlisted_words(by_itself: str) -> str:
    return f" by itself, for {by_itself}" if by_itself else ""


def _check_named(request: RestoreRequest, present: StoredValue) -> None:
    if request.replace_mod_revision is None:
        raise refuse(
            Rule.PRESENT,
            f"{display(present.key)} exists: created at revision {present.create_revision}, mod_revision "
            f"{present.mod_revision}",
            hint="somebody may have created it again; to replace what is unreadable, or what we wrote ourselves: "
            f"--replace-mod-revision {present.mod_revision}",
        )


def _check_own(
    cluster: Cluster,
    request: RestoreRequest,
    reading: KeyReading,
    present: StoredValue,
    intent: Intent,
    identity: ClusterIdentity,
    step: Step,
) -> OwnWrite:
    """Check what holds for any change; that the value is as we put it stands for the proof that it is unreadable."""
    step("check: expectations")
    check_expectations(present, _as_named(request))
    found = cluster.examiner.examine(present)
    _check_release(cluster, request, step)
    step("check: members")
    warnings = check_members(cluster, present.key, reading, request.accepted, readable_is_fine=True)
    step("check: alarms")
    warnings += check_alarms(cluster)
    step("check: API servers")
    servers = check_api_servers(found, identity, request.api, request.accepted, readable_is_fine=True)
    return OwnWrite(
        intent=intent,
        reading=reading,
        found=found,
        identity=identity,
        servers=servers,
        warnings=tuple(warnings),
        lease=read_lease(cluster.source.client, present.lease) if present.lease else None,
    )


def _check_release(cluster: Cluster, request: RestoreRequest, step: Step) -> None:
    """Hold the release against the Nodes; where a value is replaced as one is deleted, the check of that does it."""
    step("check: release")
    check_release(cluster.source, cluster.examiner, accept_unknown=request.accepted.unknown_release)


def _as_named(request: RestoreRequest) -> Acceptances:
    return msgspec.structs.replace(request.accepted, expect_mod_revision=request.replace_mod_revision)


def _check_replaced(
    cluster: Cluster,
    request: RestoreRequest,
    present: StoredValue,
    progress: Progress,
    step: Step,
) -> Preflight:
    try:
        return check_deletion(
            cluster,
            present.key,
            _as_named(request),
            backup_directories=request.record_paths.directories,
            api=request.api,
            act="putting another value over this key",
            progress=progress,
            step=step,
        )
    except RefusedByRule as refusal:
        if refusal.rule != Rule.READABLE:
            raise
        hint = "nothing has to be put back; what differs can be changed through the API: kubectl edit"
        raise refuse(Rule.READABLE, refusal.message, hint=hint) from None


def _lease(cluster: Cluster, candidate: Candidate, *, without: bool) -> int:
    lease = candidate.stored.lease
    if not lease or without:
        return 0
    if read_lease(cluster.source.client, lease).alive:
        return lease
    raise refuse(
        Rule.LEASE_EXPIRED,
        f"the value had the lease {lease & 0xFFFFFFFFFFFFFFFF:x}, which has expired: etcd would have deleted it by now",
        hint="to put it back for good: --without-lease",
    )
