"""What a change came to, as it is published; a refusal too."""

from __future__ import annotations

from typing import Any

from etcdfix.errors import EtcdfixError, RefusedByRule, RemediationRefused
from etcdfix.operations.change.preview import follow_ups
from etcdfix.remediation.audit.record import Result, Verb, unicode_text
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.report.model import ChangeReport, Refusal
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.storagekey import display
from etcdfix.text.commands import RepeatedOptions
from etcdfix.text.safetext import key_base64


def outcome_report(
    verb: Verb,
    key: bytes,
    done: Result,
    outcome: ChangeOutcome,
    again: RepeatedOptions,
    *,
    exit_code: int,
    unread: bool = False,
) -> ChangeReport:
    """Return what became of a change.

    Args:
        verb: What was done.
        key: Which etcd key.
        done: What it is called when all goes well.
        outcome: What it came to.
        again: Options that commands must repeat.
        exit_code: Of the command.
        unread: As in :func:`~etcdfix.operations.change.preview.follow_ups`.
    """
    return _report(
        verb,
        key,
        dry_run=outcome.result is None,
        revision=outcome.revision or None,
        **outcome_fields(outcome),
        **audit_fields(outcome),
        follow_ups=list(follow_ups(key, done, outcome, again, unread=unread)),
        exit_code=exit_code,
    )


def refusal_report(verb: Verb, key: bytes | None, error: EtcdfixError, *, dry_run: bool) -> ChangeReport:
    """Return why a change was not made.

    Args:
        verb: What was to be done.
        key: Which etcd key; None where none was named as it has to be.
        error: What was raised.
        dry_run: Nothing was to be changed.
    """
    return _report(
        verb,
        key,
        dry_run=dry_run,
        result="refused" if isinstance(error, RemediationRefused) else "failed",
        refusal=refusal_by(error),
        exit_code=int(error.exit_code),
    )


def outcome_fields(outcome: ChangeOutcome) -> dict[str, Any]:
    """Return what became of one object, as it is published."""
    return {
        "result": outcome.result.value if outcome.result is not None else "dry-run",
        "detail": unicode_text(outcome.detail),
        "backups": [unicode_text(path) for path in outcome.backups],
        "value_sha256s": list(outcome.values),
        "warnings": [unicode_text(warning) for warning in outcome.warnings],
    }


def audit_fields(outcome: ChangeOutcome) -> dict[str, Any]:
    """Return where the records of a change are, as it is published."""
    return {
        "audit_log": unicode_text(str(outcome.audit_log)),
        "audit_log_head": str(outcome.head) if outcome.head is not None else None,
    }


def refusal_by(error: EtcdfixError) -> Refusal:
    """Return an error as it is published."""
    return Refusal(
        code=error.code,
        rule=error.rule if isinstance(error, RefusedByRule) else None,
        message=unicode_text(error.message),
        next_step=unicode_text(error.hint),
    )


def _report(verb: Verb, key: bytes | None, **fields: object) -> ChangeReport:
    return ChangeReport(
        tool=TOOL,
        generated_at=timestamp(),
        command=verb.purpose,
        key=display(key) if key is not None else None,
        key_base64=key_base64(key) if key is not None else None,
        **fields,  # type: ignore[arg-type] # each as its field
    )
