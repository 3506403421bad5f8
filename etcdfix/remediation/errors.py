"""What keeps a change from being made, recorded or kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etcdfix.model.errors import EtcdfixError, RemediationRefused, SourceError


@dataclass(eq=False, repr=False, kw_only=True)
class BackupUnreadable(SourceError):
    """Raised when a backup file cannot be opened or read."""

    code = "backup-unreadable"
    path: Path


class NotABackup(BackupUnreadable):
    """Raised when a file is not a backup of etcdfix."""

    code = "not-a-backup"


class BackupDamaged(BackupUnreadable):
    """Raised when a backup was cut off or edited, or has another version."""

    code = "backup-damaged"


class MemberListUnusable(RemediationRefused):
    """Raised when etcd's member list is impossible: no voters, repeated ids, or far too long."""

    code = "member-list-unusable"


@dataclass(eq=False, repr=False, kw_only=True)
class NotDurable(RemediationRefused):
    """Raised when a file is not durable, or reads back differently."""

    code = "not-durable"
    path: Path


class UnsafePlace(NotDurable):
    """Raised when others can write to the directory or file, or it is a link or temporary."""

    code = "place-unsafe"


@dataclass(eq=False, repr=False, kw_only=True)
class AuditError(EtcdfixError):
    """Raised when an audit record cannot be made durable; nothing is done."""

    code = "audit-not-durable"
    exit_code = 4
    path: Path


class AuditLogBroken(AuditError):
    """Raised when the chain of the audit log is broken; nothing is added."""

    code = "audit-log-broken"


class AuditLogLocked(AuditError):
    """Raised when another process holds the audit log for too long."""

    code = "audit-log-locked"


class AuditLogUnreadable(EtcdfixError):
    """Raised when an audit log cannot be read."""

    code = "audit-log-unreadable"
    exit_code = 5


class TransactionError(EtcdfixError):
    """Raised when a transaction has no usable answer."""

    code = "transaction-failed"
    exit_code = 3


class TransactionNotSent(TransactionError):
    """Raised when a transaction did not leave; nothing changed."""

    code = "transaction-not-sent"
    exit_code = 5


class TransactionRefused(TransactionError):
    """Raised when etcd refused the transaction; nothing changed."""

    code = "transaction-refused"
    exit_code = 4


@dataclass(eq=False, repr=False, kw_only=True)
class TransactionUnanswered(TransactionError):
    """Raised when no answer came to a transaction; etcd may have carried it out.

    Attributes:
        ended: etcd answered with an error, so nothing is on its way any more.
    """

    code = "transaction-unanswered"
    ended: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class TransactionAnomaly(TransactionError):
    """Raised when etcd's answer contradicts the request.

    Attributes:
        answer: What could be read of it, a ``remediation.writer.TxnAnswer``; its ``previous`` may be the only
            copy of a deleted value.
    """

    code = "transaction-anomaly"
    answer: Any
