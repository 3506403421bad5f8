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
    """Raised when a file is no backup of etcdfix."""

    code = "not-a-backup"


class BackupDamaged(BackupUnreadable):
    """Raised when a backup is not what was written: cut off, edited, or of another version."""

    code = "backup-damaged"


class MemberListUnusable(RemediationRefused):
    """Raised when etcd's member list cannot be true: nobody votes in it, ids repeat, or it is absurdly long."""

    code = "member-list-unusable"


@dataclass(eq=False, repr=False, kw_only=True)
class NotDurable(RemediationRefused):
    """Raised when a file, or one of the files of a backup, is not durable, or did not read back as written."""

    code = "not-durable"
    path: Path


class UnsafePlace(NotDurable):
    """Raised when a directory or file is not ours alone to write, is a link, or would not last."""

    code = "place-unsafe"


@dataclass(eq=False, repr=False, kw_only=True)
class AuditError(EtcdfixError):
    """Raised when a record cannot be made durable; so nothing is done."""

    code = "audit-not-durable"
    exit_code = 4
    path: Path


class AuditLogBroken(AuditError):
    """Raised when the chain of a log is broken, so that nothing may be added to it."""

    code = "audit-log-broken"


class AuditLogLocked(AuditError):
    """Raised when another process holds the log for longer than we wait."""

    code = "audit-log-locked"


class AuditLogUnreadable(EtcdfixError):
    """Raised when an audit log cannot be read at all, so that nothing can be said about it."""

    code = "audit-log-unreadable"
    exit_code = 5


class TransactionError(EtcdfixError):
    """Raised when a transaction did not end in an answer that can be used."""

    code = "transaction-failed"
    exit_code = 3


class TransactionNotSent(TransactionError):
    """Raised when no endpoint could be reached, or the connection ended before a transaction left; nothing changed."""

    code = "transaction-not-sent"
    exit_code = 5


class TransactionRefused(TransactionError):
    """Raised when etcd itself said no before writing anything; nothing has changed."""

    code = "transaction-refused"
    exit_code = 4


@dataclass(eq=False, repr=False, kw_only=True)
class TransactionUnanswered(TransactionError):
    """Raised when the transaction was sent and no answer came: it may have been carried out, or may still be.

    Attributes:
        ended: etcd answered with an error, so nothing is on its way any more.
    """

    code = "transaction-unanswered"
    ended: bool = False


@dataclass(eq=False, repr=False, kw_only=True)
class TransactionAnomaly(TransactionError):
    """Raised when the answer contradicts the request: what was done is not what was asked.

    Attributes:
        answer: What could be read of it, a ``remediation.writer.TxnAnswer``; its ``previous`` may be the only
            copy of a deleted value.
    """

    code = "transaction-anomaly"
    answer: Any
