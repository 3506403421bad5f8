"""Undoes a change: puts back exactly the bytes that it replaced or deleted, from its backup.

The audit log says that these bytes were at this key of this cluster, and that what stands there now is what the change
put: so no encryption configuration is needed, and nothing has to be unreadable. A backup whose log is lost or broken is
undone by itself, and only where nothing is: its own digests fit, it names this cluster, and whoever undoes it brings
the digest that the change printed. A file that somebody made up has fitting digests too; the digest that was written
down on the day is what it cannot have. So nothing here says it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from etcdfix.copies.model import Place, Wanted, digest_of, examined_copy
from etcdfix.model import Outcome
from etcdfix.remediation.audit.record import Verb
from etcdfix.remediation.audit.search import wrote
from etcdfix.remediation.backup.file import Backup
from etcdfix.remediation.change import Change, ChangeRequest, Confirmer, carry_out
from etcdfix.remediation.checks.backup import BY_ITSELF, Standing, lost_log, standing_of
from etcdfix.remediation.checks.copy import of_this_cluster
from etcdfix.remediation.checks.present import lease, nothing_there, our_own_write, places, room
from etcdfix.remediation.checks.situation import Check, Situation, run_checks
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.durable import Step, no_step
from etcdfix.remediation.preflight.api_servers import require_api
from etcdfix.remediation.preflight.cluster import Cluster, check_cluster
from etcdfix.remediation.preflight.target import check_expectations
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.text.commands import RunOptions, fix

WHERE_NOTHING_IS: Final[tuple[Check, ...]] = (nothing_there, room, lease, places)
OVER_OUR_OWN: Final[tuple[Check, ...]] = (our_own_write, room, lease, places)


class UndoRequest(ChangeRequest, frozen=True, kw_only=True):
    """One change to undo.

    Attributes:
        value_sha256: ``sha256:<hex>`` that the value to put back must have, "" for any.
    """

    backup: Backup
    value_sha256: str = ""
    run: RunOptions = msgspec.field(default_factory=RunOptions)


def run_undo(
    cluster: Cluster,
    request: UndoRequest,
    confirmer: Confirmer,
    *,
    preview: Callable[[Situation, str], None],
    step: Step = no_step,
) -> ChangeOutcome:
    """Undo a change, or find out whether it could be; ``preview`` is told what speaks for the backup.

    Raises:
        EtcdfixError: As of :func:`~etcdfix.remediation.change.carry_out`; nothing was changed.
    """
    backup, stored = request.backup, request.backup.content.stored
    require_api(request.api, request.accepted)
    step("check: landmarks")
    landmarks = cluster.now.landmarks(cluster.examiner.layout, target=stored.key)
    step("check: read the key")
    reading = cluster.now.read_key(stored.key)
    step("check: cluster")
    identity = check_cluster(cluster, request.accepted, request.record_paths.directories)
    found = cluster.examiner.apart().examine(stored)
    copy = examined_copy(found, Place.BACKUP, f"backup {backup.path}", f"backup:{backup.path}")
    one = Situation(
        cluster=cluster,
        request=request,
        run=request.run,
        landmarks=landmarks,
        reading=reading,
        identity=identity,
        wanted=Wanted.gone(stored.key, cluster.examiner.layout),
        copy=msgspec.structs.replace(copy, cluster=backup.content.cluster.named),
        examined=found,
        step=step,
    )
    step("check: backup")
    of_this_cluster(one)
    if request.value_sha256 and request.value_sha256 != digest_of(stored.value):
        # The digest of the value is not said: from this file it would prove nothing.
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"the value from the {copy.where} does not have the digest {request.value_sha256}",
            hint="it is another value, or was changed; the digest is the one that the change printed",
        )
    standing = standing_of(backup, cluster, request, identity, reading)
    one.warnings += standing.doubts
    said, by_itself = _speaks_for(one, request, standing), standing.intent is None
    run_checks(WHERE_NOTHING_IS if reading.stored is None else OVER_OUR_OWN, one)
    digest = digest_of(stored.value)
    return carry_out(
        cluster,
        request,
        Change(
            verb=Verb.UNDO,
            way=copy.way,
            found=one.found,
            reading=reading,
            identity=identity,
            servers=one.servers,
            landmarks=landmarks,
            replaced=one.replaced,
            flags=(f"--expect-value-sha256 {request.value_sha256}",) if request.value_sha256 else (),
            value=stored.value,
            value_sha256=digest if reading.stored is None else "",
            lease=one.lease,
            detail=f"from {copy.where}{f' {said}' if by_itself else ''}; now {digest}",
        ),
        confirmer,
        preview=lambda: preview(one, said),
        step=step,
    )


def _speaks_for(one: Situation, request: UndoRequest, standing: Standing) -> str:
    """Return what speaks for the backup.

    Raises:
        RefusedByRule: It is no true undo, and cannot be made by itself.
    """
    intent, present, backup = standing.intent, one.present, request.backup
    other_way = fix(one.key, one.copy.source, seals=True).line(request.run)
    if standing.other_past:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the {one.copy.where} is of another etcd: {standing.other_past}",
            hint=f"only a readable value may come from there: {other_way}",
        )
    if intent is None:
        _check_by_itself(one, request)
        return f"by itself: its own digests fit, and the one that was given; {lost_log(backup)}"
    if intent.is_patch:
        raise refuse(
            Rule.PRESENT,
            f"an API server wrote {one.shown} anew, so the change cannot be undone: the old bytes could not be read",
            hint="they stay in the backup; what differs can be changed through the API: kubectl edit",
        )
    if present is None:
        if request.accepted.expect_mod_revision is not None:
            raise refuse(Rule.GONE, f"{one.shown} does not exist", hint="leave --expect-mod-revision out")
        return f"record {intent.link.sequence} of this audit log lists these bytes at this key"
    check_expectations(present, request.accepted)
    if wrote(request.record_paths.log_path, intent, present):
        return f"record {intent.link.sequence} of this audit log put there what stands there now"
    raise refuse(
        Rule.PRESENT,
        f"{one.shown} exists: created at revision {present.create_revision}, mod_revision {present.mod_revision}; "
        f"record {intent.link.sequence} did not put that there, so this is no undo",
        hint=f"somebody may have created it again; where it cannot be read: {other_way}",
    )


def _check_by_itself(one: Situation, request: UndoRequest) -> None:
    """Refuse a backup that no log speaks for, unless it can only bring back what was there."""
    where, accepted, present, found = one.copy.where, request.accepted, one.present, one.found
    log = request.record_paths.log_path
    if not accepted.accepts(Rule.UNLISTED_SOURCE):
        raise refuse(
            Rule.UNLISTED_SOURCE,
            f"the {where} is no backup that this audit log ({log}) knows",
            hint=f"name the log that was used then with --audit-log; {BY_ITSELF}",
        )
    if not request.value_sha256:
        raise refuse(
            Rule.UNLISTED_SOURCE,
            f"nothing but its own file speaks for the {where}",
            hint=f"{BY_ITSELF}; a value that reads: {fix(one.key, one.copy.source, seals=True).line(request.run)}",
        )
    if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
        raise refuse(
            Rule.NOT_AN_OBJECT,
            f"the {where} is about {one.shown}, which holds no object of the API",
            hint="name the storage prefix of this cluster: --etcd-prefix",
        )
    if one.copy.cluster is None or not one.identity.is_same(one.copy.cluster):
        unknown = not one.identity.is_known
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {where} is undone by itself only in the cluster that it names; "
            + ("that cannot be read here" if unknown else "it names none that can be compared with this one"),
            hint="name the audit log that knows it with --audit-log"
            + (", or give the --encryption-config that reads namespace kube-system" if unknown else ""),
        )
    if present is not None:
        raise refuse(
            Rule.PRESENT,
            f"{one.shown} exists, at mod_revision {present.mod_revision}: a backup that no audit log speaks for is put "
            "only where nothing is",
            hint="name the audit log that knows it with --audit-log",
        )
    if one.wanted.protected and not accepted.accepts(Rule.CLUSTER_BREAKING):
        raise refuse(
            Rule.CLUSTER_BREAKING,
            f"{one.wanted.protected}; no audit log says that this value was there",
            hint=f"if that is understood: {acceptance(Rule.CLUSTER_BREAKING)}",
        )
