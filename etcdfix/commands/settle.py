"""Says what became of every open intent of an audit log, and records it; nothing is written to etcd."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.commands.opening import Inputs, load_encryption, open_examiner, open_source
from etcdfix.model.errors import RemediationRefused
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.model.rules import Rule
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Operator, Record, Result, Verb, unicode_text
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.audit.verify import refuse_broken, verify
from etcdfix.remediation.cluster import Acceptances
from etcdfix.remediation.datastore import Datastore
from etcdfix.remediation.memory.patch import was_patched
from etcdfix.remediation.settle import (
    PatchProof,
    WasPatched,
    predict,
    refuse_other_store,
    settle_intent,
    settled_intent,
)
from etcdfix.report.change import FollowUp
from etcdfix.report.log import LogSettling, SettledIntent
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.commands import Command, RunOptions, accepting, after_change, explain


def patch_proof(inputs: Inputs) -> WasPatched:
    """Return what tells of a stored value whether it carries what an intent asked an API server for."""

    def was_ours(intent: Record, stored: StoredValue) -> PatchProof:
        configuration = load_encryption(inputs)
        if configuration is None:
            raise RemediationRefused(
                f"intent {intent.link.sequence} asked an API server to write, and the key was written since: only the "
                "value tells by whom",
                hint="--encryption-config FILE: the one that the API servers use today",
            )
        with (
            open_source(inputs, say=lambda _said_before: None) as source,  # opened a moment ago
            open_examiner(source, inputs, configuration) as examiner,
        ):
            return was_patched(examiner, intent, stored)

    return was_ours


def settle_log(
    log: Path,
    connect: Callable[[Sequence[Record]], AbstractContextManager[tuple[Datastore, ClusterIdentity]]],
    *,
    etcd_user: str,
    dry_run: bool,
    accepted: Acceptances,
    run: RunOptions,
    syslog: Syslog | None = None,
    was_patched: WasPatched | None = None,
) -> LogSettling:
    """Work through the open intents of a log; it connects only where one is open.

    Raises AuditError, AuditLogUnreadable or SourceError.
    """
    operator = Operator.of_this_process(etcd_user=etcd_user)
    settled: list[SettledIntent] = []
    found = verify(log)
    refuse_broken(log, found)
    intents = tuple(found.open_intents.values())
    with ExitStack() as stack:
        opened: AuditLog | None = None
        if intents and not dry_run:
            opened = stack.enter_context(AuditLog.open(log, operator=operator, syslog=syslog))
            intents = opened.open_intents()
        if intents:
            now, cluster = stack.enter_context(connect(intents))
        for intent in intents:
            given: dict[str, Any] = {"cluster": cluster, "accepted": accepted, "was_patched": was_patched}
            try:
                refuse_other_store(now, intent)
                one = (
                    predict(now, intent, **given)
                    if opened is None
                    else settle_intent(now, opened, intent, operator, **given)
                )
                settled.append(advised(log, intent, one, run))
            except RemediationRefused as exc:
                hint = unicode_text(exc.hint)
                settled.append(settled_intent(intent, Result.REFUSED, exc.message, next_step=hint))
    return LogSettling(
        tool=TOOL,
        generated_at=timestamp(),
        audit_log=unicode_text(str(log)),
        dry_run=dry_run,
        intents=settled,
        exit_code=exit_code_of({one.outcome for one in settled}),
    )


def exit_code_of(outcomes: Collection[str]) -> int:
    """Return 4 where something was refused, 3 where an intent stays open, or ended in an anomaly."""
    if Result.REFUSED in outcomes:
        return 4
    return 3 if Result.UNKNOWN in outcomes or Result.ANOMALY in outcomes else 0


def advised(log: Path, intent: Record, found: SettledIntent, run: RunOptions) -> SettledIntent:
    """Return what became of one intent, with what to do about it."""
    outcome, next_step, follow_ups = found.outcome, "", []
    look = explain(intent.subject.key)
    if outcome == Result.APPLIED_OR_GONE and intent.verb is Verb.DELETE and intent.backups:
        same = after_change(known_cluster=intent.cluster.is_known)
        more = accepting([Rule.OTHER_CLUSTER_ID]) if found.other_etcd else ()
        recorded = ("--audit-log", str(log), "--reason", "TEXT")
        undo = Command(("etcdfix", "undo", intent.backups[0], *same, *more, *recorded))
        follow_ups = [FollowUp("Undo", undo)]
    elif outcome == Result.ANOMALY or (outcome == Result.APPLIED_OR_GONE and intent.is_patch):
        follow_ups = [FollowUp("Look at it", look)]
    elif not found.settled and not found.header_revision:
        when = "the file can be read again" if run.of_kine else "etcd answers again"
        next_step = f"The intent stays open: run this again when {when}"
    elif not found.settled:
        what = "The intent stays open: run this again, without --no-kms, once the value can be examined"
        follow_ups = [FollowUp(what, look)]
    return msgspec.structs.replace(found, next_step=next_step, follow_ups=follow_ups)
