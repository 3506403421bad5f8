"""What an audit log holds, and whether it is what was written."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from etcdfix.inputs.ownfiles import HEAD_SUFFIX
from etcdfix.remediation.audit.record import Record, unicode_text
from etcdfix.remediation.audit.verify import (
    NO_HEAD_FILE,
    Anchor,
    ChainState,
    parse_link,
    verify,
    without_head,
)
from etcdfix.report.document import CAP
from etcdfix.report.log import LogRecords, LogVerification
from etcdfix.report.origin import TOOL, timestamp
from etcdfix.storagekey import display

_HEAD_FILE_ALONE: Final = (
    "Whoever can rewrite the log can rewrite its head file too. Compare it with the backups (etcdfix log backups), "
    "or with --expect-head and a head that is kept elsewhere."
)


def verify_log(log: Path, *, expect_head: str | None) -> LogVerification:
    """Compare a log with itself, its head file, and a head that somebody wrote down.

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
    return LogVerification(
        tool=TOOL,
        generated_at=timestamp(),
        audit_log=unicode_text(str(log)),
        state=found.state.value,
        records=found.records,
        head=str(found.head),
        torn_size=found.torn_size,
        head_missing=found.head_missing,
        findings=found.findings,
        more_findings=found.more_findings,
        open_intents=sorted(found.open_intents),
        compared_with=[unicode_text(text) for text in compared],
        warnings=[unicode_text(text) for text in warnings],
        next_step=without_head(log, found.head) if found.head_missing and not tampered else "",
    )


def newest_records(log: Path, records: Iterable[Record]) -> LogRecords:
    """Return the newest records of a log as a person sees them: there may be more than memory holds."""
    count, newest = 0, deque[Record](maxlen=CAP)
    for count, record in enumerate(records, start=1):  # noqa: B007 - how many there were
        newest.append(record)
    return LogRecords(unicode_text(str(log)), count, list(map(_row, reversed(newest))))


def _row(record: Record) -> tuple[str | int, ...]:
    operator = record.operator
    who = f"{operator.os_user}@{operator.host}"
    if operator.sudo_user:
        who += f" (sudo: {operator.sudo_user})"
    intent = f"intent {record.intent}" if record.intent else ""
    told = "; ".join(filter(None, (intent, record.reason, record.detail)))
    return (
        record.link.sequence, record.at, record.type.value, record.verb.purpose, record.outcome or "-", who, told,
        display(record.subject.key) or "-",
    )  # fmt: skip
