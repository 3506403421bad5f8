"""What an audit log holds, and whether it is what was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.remediation.audit.record import Link, Verb, unicode_text
from etcdfix.remediation.audit.record_line import Event
from etcdfix.remediation.audit.verify import (
    NO_HEAD_FILE,
    Anchor,
    ChainState,
    parse_link,
    verify,
    without_head,
)
from etcdfix.report.audit import AuditRecords, AuditVerification
from etcdfix.report.document import CAP
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.storagekey import display

_HEAD_FILE_ALONE: Final = (
    "Whoever can rewrite the log can rewrite its head file too. Compare it with the backups (etcdfix backup list), "
    "or with --expect-head and a head that is kept elsewhere."
)


def verify_log(log: Path, *, expect_head: str | None) -> tuple[AuditVerification, int]:
    """Compare a log with itself, its head file, and a head that somebody wrote down.

    Returns:
        What came of it, and the exit code.

    Raises:
        ConfigurationError: The head is none.
        AuditLogUnreadable: Nothing can be said about the log.
    """
    anchors = [] if expect_head is None else [Anchor(parse_link(expect_head), "--expect-head")]
    found = verify(log, anchors=anchors)
    tampered = found.state is ChainState.TAMPERED
    compared = [anchor.source for anchor in anchors]
    warnings = list(found.warnings)
    if found.head_missing:
        warnings.append(NO_HEAD_FILE)
    else:
        compared.insert(0, f"the head file {log}{HEAD_SUFFIX}")
        if not anchors and not tampered:
            warnings.append(_HEAD_FILE_ALONE)
    report = AuditVerification(
        tool=TOOL,
        generated_at=timestamp(),
        audit_log=unicode_text(str(log)),
        state=found.state.value,
        records=found.records,
        head=str(found.head),
        torn_size=found.torn_size,
        head_missing=found.head_missing,
        findings=list(found.findings),
        more_findings=found.more_findings,
        open_intents=sorted(found.open_intents),
        compared_with=[unicode_text(text) for text in compared],
        warnings=[unicode_text(text) for text in warnings],
        next_step=without_head(log, found.head) if found.head_missing and not tampered else "",
    )
    return report, found.exit_code


def newest_records(log: Path, records: Iterable[tuple[Link, Event]]) -> AuditRecords:
    """Return the newest records of a log as a person sees them: there may be more than memory holds."""
    count, newest = 0, deque[tuple[Link, Event]](maxlen=CAP)
    for count, record in enumerate(records, start=1):  # noqa: B007 - how many there were
        newest.append(record)
    rows = [_row(link, event) for link, event in reversed(newest)]
    return AuditRecords(unicode_text(str(log)), count, rows)


def _row(link: Link, event: Event) -> tuple[str | int, ...]:
    notes = event.annotations
    who = f"{notes.os_user or event.user.username}@{notes.host}"
    if notes.sudo_user:
        who += f" (sudo: {notes.sudo_user})"
    told = [text for text in (notes.reason, notes.detail) if text]
    if notes.intent:
        told.insert(0, f"intent {notes.intent}")
    verb = Verb.DELETE.purpose if event.verb == Verb.DELETE else event.verb
    return (
        link.sequence, event.stage_timestamp, notes.type, verb, notes.outcome or "-", who, "; ".join(told),
        _key_of(event),
    )  # fmt: skip


def _key_of(event: Event) -> str:
    try:
        return display(msgspec.convert(event.annotations.key_base64, bytes)) or "-"
    except msgspec.ValidationError:
        return "?"
