"""Says what became of every open intent of an audit log, and records it; nothing is written to etcd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.errors import RemediationRefused
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Intent, Operator, Result, Verb, unicode_text
from etcdfix.remediation.audit.syslog import Syslog
from etcdfix.remediation.backup.prune import judge_prune, settle_prune
from etcdfix.remediation.datastore import Datastore
from etcdfix.remediation.preflight.cluster import Acceptances
from etcdfix.remediation.reconcile import (
    Reconciliation,
    WasHealed,
    predict,
    read_open_intents,
    reconcile_intent,
    refuse_other_store,
)
from etcdfix.report.model import API_VERSION
from etcdfix.rules import Rule
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import quote_command


class Settled(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the open intents of a log.

    Attributes:
        log: Which.
        dry_run: Nothing was recorded.
        found: What became of each.
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
    was_healed: WasHealed | None = None,
) -> Settled:
    """Work through the open intents of a log.

    Args:
        log: Which; it must be there.
        connect: Connects to etcd, and says which cluster it holds. Called only where an intent about it is open.
        etcd_user: As whom etcd is asked, for the record.
        dry_run: Record nothing.
        accepted: As for :func:`~etcdfix.remediation.reconcile.predict`; it is recorded.
        syslog: Where each new head of the log is sent; None for nowhere.
        was_healed: Tells of a value that an API server was to write; None where nothing here can open it.

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
                was_healed=was_healed,
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
                was_healed=was_healed,
            ),
        )
    return settled


def _about_etcd(intents: Iterable[Intent]) -> list[Intent]:
    """Return those that etcd has to be asked about; what became of a backup's file, the file tells."""
    return [intent for intent in intents if intent.verb is not Verb.PRUNE]


def settled_document(settled: Settled) -> dict[str, Any]:
    """Return the result as it is published."""
    return {
        "apiVersion": API_VERSION,
        "kind": "AuditReconciliation",
        "audit_log": unicode_text(str(settled.log)),
        "dry_run": settled.dry_run,
        "intents": [
            {
                **_intent_fields(item.intent),
                "outcome": item.result,
                "detail": unicode_text(item.detail),
                "header_revision": item.header_revision,
                "record": item.record,
                "warnings": [unicode_text(text) for text in item.warnings],
            }
            for item in settled.found
        ],
        "refused": [{**_intent_fields(intent), "reason": exc.message} for intent, exc in settled.refused],
    }


def _intent_fields(intent: Intent) -> dict[str, Any]:
    return {
        "sequence": intent.link.sequence,
        "verb": intent.verb,
        "key": display(intent.subject.key),
        "key_base64": intent.subject.key,
        "backups": intent.backups,
    }


def settled_lines(settled: Settled, again: RepeatedOptions) -> Iterator[str]:
    """Yield the result for a person.

    Args:
        settled: The result.
        again: Options that commands must repeat.
    """
    found, refused = settled.found, settled.refused
    if not found and not refused:
        yield "no open intents"
    for item in found:
        intent = item.intent
        would = "would be " if settled.dry_run else ""
        yield f"{_named(intent)}: {would}{item.result}"
        yield f"  {item.detail}"
        for warning in item.warnings:
            yield f"  {warning}"
        if item.record is not None:
            yield f"  recorded as {item.record}"
        yield from _next_steps(settled.log, item, again)
    for intent, exc in refused:
        yield f"{_named(intent)}: refused"
        yield f"  {exc.message}"
        if exc.hint:
            yield f"  next: {exc.hint}"


def _next_steps(log: Path, item: Reconciliation, again: RepeatedOptions) -> Iterator[str]:
    intent = item.intent
    if item.result is Result.APPLIED_OR_GONE and intent.verb is Verb.DELETE and intent.backups:
        same = again.after_change(known_cluster=intent.cluster.is_known)
        more = ["--accept", Rule.OTHER_CLUSTER_ID] if item.other_etcd else []
        words = [
            "etcdfix",
            "restore",
            intent.backups[0],
            *same,
            *more,
            "--audit-log",
            str(log),
            "--reason",
            "TEXT",
        ]
        yield f"  to undo it: {quote_command(words)}"
    elif item.result is Result.ANOMALY or (
        item.result is Result.APPLIED_OR_GONE and intent.verb is Verb.HEAL
    ):
        yield f"  next: {again.explain(intent.subject.key)}"
    elif item.result is Result.UNKNOWN and not item.header_revision:
        yield f"  it stays open; run this again {again.when_it_answers}"
    elif item.result is Result.UNKNOWN:
        yield "  it stays open; run this again, without --no-kms, once the value can be examined:"
        yield f"  {again.explain(intent.subject.key)}"


def _named(intent: Intent) -> str:
    return f"intent {intent.link.sequence}, {intent.verb.purpose} {display(intent.subject.key)}"
