"""What a change came to, as it is published; a refusal too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etcdfix.model.errors import EtcdfixError, RefusedByRule, RemediationRefused
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.record import Result, Verb, unicode_text
from etcdfix.remediation.change import Change
from etcdfix.remediation.commit import ChangeOutcome
from etcdfix.remediation.intent import DONE
from etcdfix.report.advice.finding import unsafe_deletion
from etcdfix.report.change import ChangeReport, FollowUp, Refusal
from etcdfix.report.groups import objects_by_kind
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.text.commands import NO_COMMAND, Command, Part, RunOptions, after_change, scan
from etcdfix.text.safetext import key_base64, key_word


def outcome_report(
    verb: Verb,
    key: bytes,
    outcome: ChangeOutcome,
    run: RunOptions,
    *,
    exit_code: int,
    deleted: Change | None = None,
    unread: bool = False,
    again: Command = NO_COMMAND,
) -> ChangeReport:
    """Return what became of a change.

    With ``unread``, an encrypted value was put back without a configuration: a look at it needs one. ``again`` is the
    command that does what a dry run has checked.
    """
    afterwards = [] if deleted is None else [*_recovery(deleted)]
    after = []
    if deleted is not None:
        # Of every namespace: one value that cannot be read, wherever it is, fails the LIST of all.
        left = scan(str(deleted.present.found.directory.group_resource))
        after = [FollowUp("See what is left", left)]
    if outcome.result is None and again and not exit_code:
        after = [FollowUp("Do it", again)]
    return ChangeReport(
        **_head(verb, key),
        dry_run=outcome.result is None,
        revision=outcome.revision or None,
        afterwards=[unicode_text(text) for text in afterwards],
        **outcome_fields(outcome),
        **audit_fields(outcome),
        follow_ups=[*_follow_ups(verb, key, outcome, run, unread=unread), *after],
        exit_code=exit_code,
    )


def refusal_report(verb: Verb, key: bytes | None, error: EtcdfixError, *, dry_run: bool) -> ChangeReport:
    """Return why a change was not made."""
    return ChangeReport(
        **_head(verb, key),
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
    by_rule = error if isinstance(error, RefusedByRule) else None
    return Refusal(
        code=error.code,
        rule=by_rule.rule if by_rule else None,
        rules=list(by_rule.rules) if by_rule else [],
        message=unicode_text(error.message),
        next_step=unicode_text(error.hint),
        also=[unicode_text(one.message) for one in by_rule.also] if by_rule else [],
        command=unicode_text(by_rule.command) if by_rule else "",
    )


def settling(outcome: ChangeOutcome, run: RunOptions) -> Iterator[FollowUp]:
    """Yield how to settle what is open of a change, where something is."""
    if outcome.result is Result.UNKNOWN or outcome.head is None:
        when = "when the file can be read again" if run.of_kine else "when etcd answers again"
        words = (*_same(outcome), str(outcome.audit_log))
        yield FollowUp(f"Settle it {when}", Command(("etcdfix", "log", "settle", *words)))


def _head(verb: Verb, key: bytes | None) -> dict[str, Any]:
    return {
        "tool": TOOL,
        "generated_at": timestamp(),
        "command": verb.purpose,
        "key": display(key) if key is not None else None,
        "key_base64": key_base64(key) if key is not None else None,
    }


def _same(outcome: ChangeOutcome) -> tuple[str | Part, ...]:
    return after_change(known_cluster=not outcome.unknown_cluster)


def _follow_ups(
    verb: Verb, key: bytes, outcome: ChangeOutcome, run: RunOptions, *, unread: bool
) -> Iterator[FollowUp]:
    """Yield how to settle a change, how to undo it, and how to look at what it came to."""
    if outcome.result is None:
        return
    yield from settling(outcome, run)
    yield from _undo(verb, outcome)
    if verb is not Verb.DELETE:
        reading = Part.CONFIGURATION if unread else Part.READING
        yield FollowUp("Look again", scan(key_word(key), reading=[reading]))


def _undo(verb: Verb, outcome: ChangeOutcome) -> Iterator[FollowUp]:
    words = (*_same(outcome), "--audit-log", str(outcome.audit_log), "--reason", "REASON")
    if outcome.patched:
        return  # nobody could read the old value, and an API server wrote the new one
    if verb is Verb.DELETE:
        if outcome.result in {Result.NOT_APPLIED, Result.REFUSED}:
            return
    else:
        if outcome.result is not DONE[verb]:
            return
        # What the undo replaces is kept where the change kept what it replaced.
        places = [word for path in outcome.backups for word in ("--backup-dir", str(Path(path).parent))]
        words = (*words, *places, "--expect-mod-revision", str(outcome.revision))
    backups = dict(zip(outcome.backups[:1], ["Undo"], strict=False))
    if outcome.result is Result.ANOMALY:
        whats = ("Put back what was examined", "Put back what etcd gave back")
        backups = dict(zip(outcome.backups, whats, strict=False))
    for path, what in backups.items():
        yield FollowUp(what, Command(("etcdfix", "undo", path, *words)))


def _recovery(deleted: Change) -> Iterator[str]:
    group_resource, unread = deleted.present.found.directory.group_resource, deleted.present.alike.unread
    resource = str(group_resource)
    others = unread.get(resource, 0)
    if others:
        count, kind = objects_by_kind([(*group_resource, others)], 1).split(" ", 1)
        yield (
            f"{count} other {kind} may be unreadable; while {'they are' if others > 1 else 'it is'}, "
            "LIST and watches fail. A LIST that works may come from memory, for 30 s."
        )
    else:
        yield (
            f"No other value of {resource} is known to fail. LIST works again at once, watches and resourceVersion=0 "
            "within about a minute. You need not restart anything."
        )
    elsewhere = ", ".join(f"{name} ({number})" for name, number in sorted(unread.items()) if name != resource)
    if elsewhere:
        yield f"Other values may fail too: {elsewhere}."
    if unread:
        yield "An API server that starts may not get ready while such values are there (/readyz: informer-sync)."
    else:
        yield "An API server that was not ready because of this value is ready within about a minute too."
    request = unsafe_deletion(deleted.present.found)
    if request:
        yield f"The API call that would have done the same: {request.line(RunOptions())}"
