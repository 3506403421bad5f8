"""Removes aged backups: what would go is shown, confirmed, and only then removed, each with its record."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, EtcdfixError
from etcdfix.operations.change.report import refusal_by
from etcdfix.remediation.audit.record import Operator
from etcdfix.remediation.backup.prune import PruneRequest, prune_backups, survey_backups
from etcdfix.report.backups import BackupPruning
from etcdfix.report.document import Document
from etcdfix.rules import Rule, refuse

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
) -> BackupPruning:
    """Remove aged backups, or say which would go.

    Raises:
        RemediationRefused: It was not confirmed, or a directory is not ours alone; nothing was removed.
        AuditError: The log cannot be relied upon, or not be written; nothing was removed.
        AuditLogUnreadable: The log cannot be read; nothing was removed.
        BackupUnreadable: A directory cannot be listed; nothing was removed.
    """
    survey = survey_backups(request)
    if dry_run or not survey.pruned:
        return msgspec.structs.replace(survey, dry_run=dry_run)
    preview(survey.document())
    if not confirm(len(survey.pruned)):
        raise refuse(
            Rule.NOT_CONFIRMED,
            "their number was not typed back; nothing was removed",
            hint="type the number at a terminal, or give --yes in a script",
        )
    return prune_backups(request, survey, operator=Operator.of_this_process())


def refused_report(request: PruneRequest, error: EtcdfixError, *, dry_run: bool) -> BackupPruning:
    """Return why nothing was removed."""
    return msgspec.structs.replace(
        request.report(), dry_run=dry_run, refusal=refusal_by(error), exit_code=int(error.exit_code)
    )
