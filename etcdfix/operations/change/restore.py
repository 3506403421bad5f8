"""Puts a value back, wherever it comes from; guarded like a deletion.

Undoing needs no configuration: a backup whose digest stands in this audit log holds bytes that were at this key of
this cluster. Whatever else is put back is examined first, and must be readable. Of an earlier revision etcd itself is
the list, as long as it is one of the object that stands at the key now, or stood there last.

An object in a file is sealed under today's write key, which API servers must be known to hold. Every other value goes
back as it was stored. Of a value from elsewhere its uid must be that of the object that is at the key, or was last.

What stands at the key is replaced only if it could be deleted, or if it is the very value that we put there in place of
the one that now comes back: a restore and a re-encryption have an undo too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.errors import RefusedByRule
from etcdfix.examine_all import Progress, no_progress
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.operations.change.candidate import Candidate, RestoreRequest
from etcdfix.operations.change.freshness import freshness_at
from etcdfix.operations.change.source_checks import (
    Source,
    check_absent,
    check_digest,
    check_same_cluster,
    check_source,
    check_unknown_uid,
    check_write_key,
)
from etcdfix.remediation.audit.record import Intent, Verb
from etcdfix.remediation.audit.search import wrote
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.change import (
    Change,
    Confirmer,
    Rewritable,
    carry_out,
)
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.landmarks import Landmark
from etcdfix.remediation.places import place_warnings
from etcdfix.remediation.preflight.api_servers import check_api_servers, require_api
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, check_cluster
from etcdfix.remediation.preflight.deletion import Preflight, check_deletion
from etcdfix.remediation.preflight.members import (
    KeyReading,
    read_lease,
)
from etcdfix.remediation.preflight.noencryption import check_no_encryption
from etcdfix.remediation.preflight.release import check_release
from etcdfix.remediation.preflight.target import (
    check_alarms,
    check_expectations,
    check_members,
    require_space,
)
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.examination import Examination


class OwnWrite(Rewritable, frozen=True, kw_only=True):
    """A value that we put there ourselves, and that is to make room for what it replaced.

    Attributes:
        declared_lost: Never: no key needs to be lost for this.
    """

    intent: Intent
    declared_lost: bool = False

    @property
    def stored(self) -> StoredValue:
        """The record that is there."""
        return self.found.stored


class RestorePreview(msgspec.Struct, frozen=True, kw_only=True):
    """What is shown before a value is put back.

    Attributes:
        proof: Key of another object that is stored under the key that it was sealed with; b"" where none was needed.
        newer: Whether anything newer than an object in a file is overwritten; "" for any other value.
        replaced: What stands there now: what could be deleted, or what we wrote; None where the key is absent.
        lease: That will be attached, 0 for none.
    """

    candidate: Candidate
    found: Examination
    source: Source
    proof: bytes = b""
    newer: str = ""
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
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    candidate, key = request.candidate, request.candidate.stored.key
    require_api(request.api, request.accepted, always="--from-object" if candidate.file is not None else "")
    step("check: landmarks")
    landmarks = cluster.now.landmarks(cluster.examiner.layout, target=key)
    step("check: read the key")
    reading = cluster.now.read_key(key)
    step("check: cluster")
    identity = check_cluster(cluster, request.accepted, request.record_paths.directories)
    check_same_cluster(candidate, identity, request.accepted)
    step("check: candidate")
    check_no_encryption(cluster, candidate.stored)
    check_digest(request)
    found = cluster.examiner.apart().examine(candidate.stored)
    source = check_source(cluster, request, found, identity, reading, step)
    replaced: Preflight | OwnWrite | None = None
    warnings = [*source.doubts]
    if reading.stored is None:
        if request.replace_mod_revision is not None:
            raise refuse(
                Rule.GONE, f"{display(key)} does not exist, so there is nothing to replace",
                hint="leave --replace-mod-revision out",
            )  # fmt: skip
        check_absent(request, found)
        _check_release(cluster, request, step)
        step("check: members")
        warnings += check_members(cluster, key, reading, request.accepted)
        step("check: alarms")
        warnings += check_alarms(cluster)
        step("check: API servers")
        servers = check_api_servers(found, identity, request.api, request.accepted, held=False)
    else:
        _check_named(request, reading.stored)
        intent = source.intent
        if intent is not None and wrote(request.record_paths.log_path, intent, reading.stored):
            replaced = _check_own(cluster, request, reading, reading.stored, intent, identity, step)
        else:
            replaced = _check_replaced(cluster, request, reading.stored, progress, step)
            if source.listed and not source.same_object:
                check_unknown_uid(request, found)
        warnings += replaced.warnings
        servers = replaced.servers
    proof = check_write_key(cluster, request, found, identity, reading, step)
    step("check: space")
    require_space(cluster.client)
    step("check: lease")
    lease = _lease(cluster, candidate, without=request.accepted.accepts(Rule.EXPIRED_LEASE))
    step("check: places")
    warnings += place_warnings(request.record_paths, backup=replaced is not None)
    if source.intent is None:
        warnings += _past_state(found)
    newer = ""
    if candidate.file is not None:
        newer = freshness_at(
            cluster,
            candidate.file,
            key,
            reading,
            same_uid=source.same_object,
            cluster_known=identity.is_known,
        )
    shown = RestorePreview(
        candidate=candidate,
        found=found,
        source=source,
        proof=proof,
        newer=newer,
        replaced=replaced,
        lease=lease,
        identity=identity,
        servers=servers,
        warnings=tuple(warnings),
    )
    unreadable = replaced if isinstance(replaced, Preflight) else None
    unlisted = f" by itself, for {source.by_itself}" if source.by_itself else ""
    return carry_out(
        cluster,
        request,
        Change(
            verb=Verb.RESTORE,
            found=found,
            reading=reading,
            identity=identity,
            servers=servers,
            landmarks=landmarks,
            rests_on=_rests_on(candidate, unreadable),
            replaced=replaced,
            counts=unreadable.alike.counts if unreadable is not None else {},
            declared_lost=replaced is not None and replaced.declared_lost,
            flags=(f"--expect-value-sha256 {request.value_sha256}",) if request.value_sha256 else (),
            value=candidate.stored.value,
            value_sha256=digest(candidate.stored.value),
            lease=lease,
            detail=f"from {candidate.origin}{unlisted}, {digest(candidate.stored.value)}",
        ),
        confirmer,
        preview=lambda: preview(shown),
        step=step,
    )


def _rests_on(candidate: Candidate, unreadable: Preflight | None) -> Landmark | None:
    """Return the other etcd key that must stay as it is: that of the bytes, or the home of a moved value that goes."""
    if candidate.other is not None:
        return candidate.other
    return unreadable.moved_to if unreadable is not None else None


_CONFLICTS: Final = {
    "pods": "its node, or a controller, may have replaced it meanwhile",
    "leases.coordination.k8s.io": "whoever holds it now may lose it",
    "endpointslices.discovery.k8s.io": "it may name Pods that are gone",
    "persistentvolumes": "its volume may be bound or deleted meanwhile",
    "persistentvolumeclaims": "its volume may be bound elsewhere meanwhile",
    "services": "its address and ports may be in use elsewhere meanwhile",
}


def _past_state(found: Examination) -> list[str]:
    conflict = _CONFLICTS.get(str(found.directory.group_resource))
    return [f"a past state of {found.directory.group_resource} may conflict: {conflict}"] if conflict else []


def _check_named(request: RestoreRequest, present: StoredValue) -> None:
    if request.candidate.other is not None:
        raise refuse(
            Rule.PRESENT,
            f"{display(present.key)} exists, at mod_revision {present.mod_revision}: --from-key puts bytes only where "
            "nothing is",
            hint="what is there may be newer: look at it first, with etcdfix explain; an earlier revision of it goes "
            "back with --from-revision",
        )
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
        lease=read_lease(cluster.client, present.lease) if present.lease else None,
    )


def _check_release(cluster: Cluster, request: RestoreRequest, step: Step) -> None:
    """Hold the release against the Nodes; where a value is replaced as one is deleted, the check of that does it."""
    step("check: release")
    check_release(cluster.source, cluster.examiner, request.accepted)


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
            expected=request.expected,
            act="putting another value over this key",
            run=request.run,
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
    if read_lease(cluster.client, lease).alive:
        return lease
    raise refuse(
        Rule.EXPIRED_LEASE,
        f"the value had the lease {lease & 0xFFFFFFFFFFFFFFFF:x}, which has expired: etcd would have deleted it by now",
        hint=f"to put it back for good: {acceptance(Rule.EXPIRED_LEASE)}",
    )
