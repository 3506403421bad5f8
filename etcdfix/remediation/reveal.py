"""Looking at a Secret's contents changes nothing, and is recorded all the same, where there is an audit log."""

from __future__ import annotations

from pathlib import Path

from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Entry, Link, Operator, RecordType, Subject, Verb


def record_reveal(path: Path, subject: Subject, operator: Operator, *, detail: str) -> Link:
    """Record that contents are about to be shown; only when this returns may they be.

    Args:
        path: The audit log.
        subject: What is shown; a name of "" stands for all objects of the resource.
        operator: To whom.
        detail: Where it is read from, and in which form.

    Raises:
        RemediationRefused: The log, or its directory, is not safe.
        AuditError: The record could not be made durable.
    """
    with AuditLog.open(path, operator=operator) as log:
        entry = Entry(
            type=RecordType.REVEAL, verb=Verb.REVEAL, operator=operator, subject=subject, detail=detail
        )
        return log.append(entry)
