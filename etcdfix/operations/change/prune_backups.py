"""Removes aged backups: what would go is shown, confirmed, and only then removed, each with its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, EtcdfixError
from etcdfix.operations.change.report import refusal_by
from etcdfix.remediation.audit.record import Operator, unicode_text
from etcdfix.remediation.backup.prune import (
    KeptBackup,
    Prunable,
    PrunedBackup,
    PruneRequest,
    Pruning,
    Survey,
    prune_backups,
    survey_backups,
)
from etcdfix.remediation.durable import Step, no_step
from etcdfix.report.backups import BackupPruning, KeptFile, PrunedFile, pruning_preview
from etcdfix.report.document import Document
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64

_AGE: Final = re.compile(r"([1-9]\d{0,5})([wdh])", re.ASCII)
_HOURS: Final = {"w": 7 * 24, "d": 24, "h": 1}


def older_than(text: str, *, now: datetime) -> datetime:
    """Return the time before which a backup is old: of an age (``90d``, ``12w``, ``36h``), or a date in UTC.

    Raises:
        ConfigurationError: It is neither, or lies ahead.
    """
    refused = ConfigurationError(
        f"--older-than: {text!r} is neither an age nor a date that is over",
        hint="an age has w, d or h: 12w, 90d, 36h; a date is 2026-03-31 or 2026-03-31T12:00:00Z",
    )
    found = _AGE.fullmatch(text)
    try:
        if found is not None:
            return now - timedelta(hours=int(found[1]) * _HOURS[found[2]])
        date = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as exc:
        raise refused from exc
    date = date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    if date > now:
        raise refused
    return date


def run_prune(
    request: PruneRequest,
    *,
    dry_run: bool,
    confirm: Callable[[int], bool],
    preview: Callable[[Document], None],
    step: Step = no_step,
) -> BackupPruning:
    """Remove aged backups, or say which would go.

    Raises:
        RemediationRefused: It was not confirmed, or a directory is not ours alone; nothing was removed.
        AuditError: The log cannot be relied upon, or not be written; nothing was removed.
        AuditLogUnreadable: The log cannot be read; nothing was removed.
        BackupUnreadable: A directory cannot be listed; nothing was removed.
    """
    survey = survey_backups(request)
    if dry_run or not survey.prunable:
        return _report(request, survey, dry_run=dry_run)
    preview(pruning_preview([_pruned(one, None) for one in survey.prunable]))
    if not confirm(len(survey.prunable)):
        raise refuse(
            Rule.NOT_CONFIRMED,
            "their number was not typed back; nothing was removed",
            hint="type the number at a terminal, or give --yes in a script",
        )
    pruning = prune_backups(request, survey, operator=Operator.of_this_process(), step=step)
    return _report(request, pruning.survey, dry_run=False, pruning=pruning)


def refused_report(request: PruneRequest, error: EtcdfixError, *, dry_run: bool) -> BackupPruning:
    """Return why nothing was removed."""
    survey = Survey(prunable=(), kept=(), younger=0)
    report = _report(request, survey, dry_run=dry_run)
    return msgspec.structs.replace(report, refusal=refusal_by(error), exit_code=int(error.exit_code))


def _report(
    request: PruneRequest, survey: Survey, *, dry_run: bool, pruning: Pruning | None = None
) -> BackupPruning:
    if pruning is not None:
        pruned = [_pruned(one.backup, one) for one in pruning.done]
    else:
        pruned = [_pruned(one, None) for one in survey.prunable]
    return BackupPruning(
        tool=TOOL,
        generated_at=timestamp(),
        directories=[unicode_text(str(path)) for path in request.places.directories],
        audit_log=unicode_text(str(request.places.log_path)),
        before=timestamp(request.before),
        dry_run=dry_run,
        pruned=pruned,
        kept=[_kept(one) for one in survey.kept],
        younger=survey.younger,
        stopped=unicode_text(pruning.stopped) if pruning is not None else "",
        audit_log_head=str(pruning.head) if pruning is not None and pruning.head is not None else None,
        warnings=[unicode_text(text) for text in pruning.warnings] if pruning is not None else [],
        exit_code=_exit_code(survey, pruning),
    )


def _exit_code(survey: Survey, pruning: Pruning | None) -> int:
    if pruning is not None:
        unfinished = any(one.problem or one.record is None for one in pruning.done)
        if pruning.stopped or unfinished:
            return 3
    return 4 if survey.kept else 0


def _pruned(backup: Prunable, done: PrunedBackup | None) -> PrunedFile:
    intent = backup.listed.intent
    key = intent.subject.key
    return PrunedFile(
        paths=list(backup.paths),
        removed=list(done.gone) if done is not None else [],
        key=display(key),
        key_base64=key_base64(key),
        command=intent.verb.purpose,
        made_at=backup.listed.at,
        outcome=backup.listed.result.value if backup.listed.result is not None else "open",
        value_sha256=intent.value_sha256,
        intent=intent.link.sequence,
        record=str(done.record) if done is not None and done.record is not None else None,
        problem=unicode_text(done.problem) if done is not None else "",
    )


def _kept(kept: KeptBackup) -> KeptFile:
    return KeptFile(
        path=unicode_text(str(kept.path)), rule=kept.rule.value, message=unicode_text(kept.message)
    )
