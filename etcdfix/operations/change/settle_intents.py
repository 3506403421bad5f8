"""Says what became of every open intent of an audit log, and records it; nothing is written to etcd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.errors import RemediationRefused
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.operations.opening import Inputs, load_encryption, open_examiner, open_source
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Intent, Operator, Result, Verb, unicode_text
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.backup.prune import judge_prune, settle_prune
from etcdfix.remediation.datastore import Datastore
from etcdfix.remediation.memory.patch import was_patched
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import (
    Carried,
    Reconciliation,
    WasPatched,
    predict,
    read_open_intents,
    reconcile_intent,
    refuse_other_store,
)
from etcdfix.report.audit import AuditReconciliation, LogHead, SettledIntent
from etcdfix.report.change import FollowUp
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.rules import Rule
from etcdfix.storagekey import display
from etcdfix.text.commands import Command, RunOptions, accepting, after_change, explain


def patch_proof(inputs: Inputs) -> WasPatched:
    """Return what tells of a stored value whether it carries what an intent asked an API server for.

    What it returns raises:
        RemediationRefused: Without a configuration nothing opens, and nothing can be told.
        ConfigurationError: Options or the configuration make no sense.
        SourceError: etcd cannot be read.
    """

    def was_ours(intent: Intent, stored: StoredValue) -> Carried:
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


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the open intents of a log.

    Attributes:
        refused: Those about which nothing may be said here, and why.
    """

    log: Path
    dry_run: bool
    found: list[Reconciliation]
    refused: list[tuple[Intent, RemediationRefused]]

    @property
    def exit_code(self) -> int:
        """4 where something was refused, 3 where an intent stays open, or ended in an anomaly."""
        if self.refused:
            return 4
        open_or_odd = any(item.result in {Result.UNKNOWN, Result.ANOMALY} for item in self.found)
        return 3 if open_or_odd else 0


def settle_intents(
    log: Path,
    connect: Callable[[Sequence[Intent]], tuple[Datastore, ClusterIdentity]],
    *,
    etcd_user: str,
    dry_run: bool,
    accepted: Acceptances,
    syslog: Syslog | None = None,
    was_patched: WasPatched | None = None,
) -> Settled:
    """Work through the open intents of a log.

    It connects only where an intent about etcd is open.

    Raises:
        AuditError: The log cannot be written.
        SourceError: etcd could not be asked.
    """
    settled = Settled(log=log, dry_run=dry_run, found=[], refused=[])

    def work_through(
        intents: Iterable[Intent], one: Callable[[Datastore, Intent, ClusterIdentity], Reconciliation]
    ) -> None:
        intents = tuple(intents)
        if not intents:
            return
        now, cluster = connect(intents)
        try:
            for intent in intents:
                try:
                    refuse_other_store(now, intent)
                    settled.found.append(one(now, intent, cluster))
                except RemediationRefused as exc:
                    settled.refused.append((intent, exc))
        finally:
            now.close()

    intents = read_open_intents(log)  # also: a log that is not there is an error, and not made
    if not intents:
        return settled
    if dry_run:
        settled.found.extend(judge_prune(intent)[0] for intent in intents if intent.verb is Verb.PRUNE)
        work_through(
            _about_etcd(intents),
            lambda now, intent, cluster: predict(
                now,
                intent,
                cluster=cluster,
                accepted=accepted,
                was_patched=was_patched,
            ),
        )
        return settled
    operator = Operator.of_this_process(etcd_user=etcd_user)
    with AuditLog.open(log, operator=operator, syslog=syslog) as opened:
        prunes = [intent for intent in opened.open_intents() if intent.verb is Verb.PRUNE]
        settled.found.extend(settle_prune(opened, intent, operator) for intent in prunes)
        work_through(
            _about_etcd(opened.open_intents()),
            lambda now, intent, cluster: reconcile_intent(
                now,
                opened,
                intent,
                operator,
                cluster=cluster,
                accepted=accepted,
                was_patched=was_patched,
            ),
        )
    return settled


def _about_etcd(intents: Iterable[Intent]) -> list[Intent]:
    """Return those that etcd has to be asked about; what became of a backup's file, the file tells."""
    return [intent for intent in intents if intent.verb is not Verb.PRUNE]


def settled_report(settled: Settled, run: RunOptions) -> AuditReconciliation:
    """Return the result as it is published."""
    return AuditReconciliation(
        tool=TOOL,
        generated_at=timestamp(),
        audit_log=unicode_text(str(settled.log)),
        dry_run=settled.dry_run,
        intents=[
            SettledIntent(
                **_intent_fields(item.intent),
                outcome=item.result.value,
                detail=unicode_text(item.detail),
                header_revision=item.header_revision,
                record=None if item.record is None else LogHead(item.record.sequence, item.record.sha256),
                warnings=[unicode_text(text) for text in item.warnings],
                **_next_steps(settled.log, item, run),
            )
            for item in settled.found
        ],
        refused=[
            SettledIntent(
                **_intent_fields(intent), reason=unicode_text(exc.message), next_step=unicode_text(exc.hint)
            )
            for intent, exc in settled.refused
        ],
        exit_code=settled.exit_code,
    )


def _intent_fields(intent: Intent) -> dict[str, Any]:
    return {
        "sequence": intent.link.sequence,
        "verb": intent.verb.value,
        "key": display(intent.subject.key),
        "key_base64": intent.subject.key,
        "backups": intent.backups,
    }


def _next_steps(log: Path, item: Reconciliation, run: RunOptions) -> dict[str, Any]:
    intent = item.intent
    look = explain(intent.subject.key)
    if item.result is Result.APPLIED_OR_GONE and intent.verb is Verb.DELETE and intent.backups:
        same = after_change(known_cluster=intent.cluster.is_known)
        more = accepting([Rule.OTHER_CLUSTER_ID]) if item.other_etcd else ()
        recorded = ("--audit-log", str(log), "--reason", "TEXT")
        undo = Command(("etcdfix", "undo", intent.backups[0], *same, *more, *recorded))
        return {"follow_ups": [FollowUp("Undo", undo)]}
    if item.result is Result.ANOMALY or (item.result is Result.APPLIED_OR_GONE and intent.is_patch):
        return {"follow_ups": [FollowUp("Look at it", look)]}
    if item.result is Result.UNKNOWN and not item.header_revision:
        when = "the file can be read again" if run.of_kine else "etcd answers again"
        return {"next_step": f"The intent stays open: run this again when {when}"}
    if item.result is Result.UNKNOWN:
        what = "The intent stays open: run this again, without --no-kms, once the value can be examined"
        return {"follow_ups": [FollowUp(what, look)]}
    return {}
