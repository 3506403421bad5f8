"""Backups of stored bytes, and the audit record of intent that goes with them; the format is in ``backup_file``.

A backup names its intent by hash, and the intent names its backups by digest: a circle, were it one digest. There
are two. ``content_sha256`` covers the content alone and is fixed first; it and the paths go into the intent, whose
exact bytes, and so its hash, are then known before anything is written; that hash goes into the file beside the
content, and ``document_sha256`` covers both. The log stays locked from the draft to the append, so nobody takes
the sequence in between. :func:`record_intent` does all of it.

A crash between backup and intent leaves a file whose intent the log never saw, which must not look like a log
whose end was cut off. So ``NAME.unconfirmed`` is written before the backup and removed once the intent is durable;
only then may a transaction be sent. A backup with such a marker proves nothing about the log.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import AuditError, BackupNotDurable, BackupUnreadable, NotDurable, why
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import (
    Entry,
    Intent,
    Link,
    RecordType,
    Result,
    in_unicode,
    unicode_text,
)
from etcdfix.remediation.audit.search import is_there
from etcdfix.remediation.audit.verify import read_records
from etcdfix.remediation.backup.file import (
    MAX_BACKUP_SIZE,
    BackupContent,
    BackupIntent,
    digest,
    encode_content,
    encode_document,
    read_backup,
)
from etcdfix.remediation.durable import (
    SafeDirectory,
    Step,
    no_step,
    open_directory,
)

MARKER_SUFFIX: Final = ".unconfirmed"
"""Stands beside a backup until its intent is in the audit log."""

ANOMALY: Final = "anomaly"
"""Purpose of a backup of what a transaction gave back although another value was expected."""

_PUTS: Final = frozenset({"fix", "undo"})
_NAME_SIZE: Final = 16  # hexadecimal digits
_FRAME_SIZE: Final = 1 << 16  # all of a file but its content: digests, and a path
_MARKER_TEXT: Final = b"The audit record of this backup was not written yet when this file was.\n"


class BackupPlan:
    """Backup files that are decided upon: names and contents are fixed, nothing is written yet.

    Attributes:
        content_sha256: What the intent calls them by.

    Raises:
        BackupNotDurable: No directory, one of them named twice, or the file would be too large to be read again.
    """

    def __init__(
        self, content: BackupContent, directories: Sequence[SafeDirectory], *, sequence: int
    ) -> None:
        self._encoded = encode_content(content)
        self._directories = tuple(directories)
        self.content_sha256 = digest(self._encoded)
        self.value_sha256 = content.value_sha256
        key = name_of(content.key_base64)
        unique = self.content_sha256.removeprefix("sha256:")[:16]  # it covers the time, so no two are alike
        self._name = f"{key}-{content.mod_revision}-{sequence}-{unique}.json"
        self.paths = tuple(directory.path / self._name for directory in self._directories)
        self._refuse_unusable()

    def _refuse_unusable(self) -> None:
        if not self._directories:
            raise BackupNotDurable("no directory for a backup is named", path=Path(), hint="--backup-dir DIR")
        stats = [os.fstat(directory.descriptor) for directory in self._directories]
        if len({(found.st_dev, found.st_ino) for found in stats}) < len(stats):
            path = self._directories[-1].path
            raise BackupNotDurable(
                f"backup: {path} is named twice", path=path, hint="name each --backup-dir once"
            )
        if len(self._encoded) > MAX_BACKUP_SIZE - _FRAME_SIZE:
            raise BackupNotDurable(
                f"backup {self.paths[0]}: the value is too large, {MAX_BACKUP_SIZE} bytes at most can be read again",
                path=self.paths[0],
            )

    def write(self, intent: Link, *, audit_log: Path, step: Step = no_step) -> None:
        """Write every file, each with its marker; if one fails, those already written are withdrawn.

        Raises:
            BackupNotDurable: One could not be made durable.
        """
        document = encode_document(
            self._encoded, BackupIntent(intent.sequence, intent.sha256, unicode_text(str(audit_log)))
        )
        written: list[SafeDirectory] = []
        try:
            for directory in self._directories:
                written.append(directory)
                marker = self._name + MARKER_SUFFIX
                directory.create(marker, _MARKER_TEXT, what="backup marker", step=step)
                directory.create(self._name, document, what="backup", step=step)
        except NotDurable as exc:
            for directory in written:
                # The backup first: without its marker it would speak against the log.
                with suppress(NotDurable):
                    directory.remove(self._name, what="backup withdrawn")
                    directory.remove(self._name + MARKER_SUFFIX, what="backup withdrawn")
            raise BackupNotDurable(exc.message, path=exc.path, hint=exc.hint) from exc

    def confirm(self, *, step: Step = no_step) -> None:
        """Remove the markers: the intent is in the log.

        Raises:
            BackupNotDurable: One could not be removed.
        """
        try:
            for directory in self._directories:
                directory.remove(self._name + MARKER_SUFFIX, what="backup marker", step=step)
        except NotDurable as exc:
            raise BackupNotDurable(exc.message, path=exc.path, hint=exc.hint) from exc


def record_intent(
    log: AuditLog,
    entry: Entry,
    content: BackupContent,
    directories: Sequence[SafeDirectory],
    *,
    step: Step = no_step,
) -> Intent:
    """Write the backups and then the intent; when this returns, a transaction may be sent.

    What the change rests on stands in the entry, and is put into the backups from there: the two say the same.

    The log is locked until the outcome is recorded; all directories must take the backup. Digest and backups
    of the entry are filled in here.

    Raises:
        BackupNotDurable: A backup is not durable. The log has no open intent of it.
        AuditError: The intent is not durable. The backups keep their markers.
    """
    plan = BackupPlan(resting_on(content, entry), directories, sequence=log.head.sequence + 1)
    draft = log.draft(
        msgspec.structs.replace(
            entry,
            type=RecordType.INTENT,
            value_sha256=content.value_sha256,
            backups=tuple(str(path) for path in plan.paths),
            backup_sha256=plan.content_sha256,
        )
    )
    plan.write(draft.link, audit_log=log.path, step=step)
    log.append_draft(draft)
    intent = log.intent(draft.link.sequence)
    try:
        plan.confirm(step=step)
    except BackupNotDurable as exc:
        with suppress(AuditError):  # then the intent stays open, and reconciling finds that nothing was done
            log.append(intent.closed_by(Result.REFUSED, operator=entry.operator, detail=exc.message))
        raise
    return intent


def resting_on(content: BackupContent, entry: Entry) -> BackupContent:
    """Return the content of a backup with what the change rests on, as its record says it."""
    grounds = None if entry.grounds is None else in_unicode(entry.grounds)
    return msgspec.structs.replace(content, grounds=grounds)


def confirm_backups(intent: Intent, *, step: Step = no_step) -> None:
    """Remove the markers that a crash left beside the backups of an intent, which the log holds.

    Raises:
        NotDurable: A directory is not there any more, or a marker cannot be removed.
    """
    for path in map(Path, intent.backups):
        with open_directory(path.parent) as directory:
            directory.remove(path.name + MARKER_SUFFIX, what="backup marker", step=step)


def keep_second_backup(
    content: BackupContent,
    directories: Sequence[SafeDirectory],
    *,
    intent: Intent,
    audit_log: Path,
    step: Step = no_step,
) -> BackupPlan:
    """Write what a transaction gave back although another value was expected; its intent is in the log already.

    Raises:
        BackupNotDurable: It is not durable everywhere.
    """
    plan = BackupPlan(content, directories, sequence=intent.link.sequence)
    plan.write(intent.link, audit_log=audit_log, step=step)
    plan.confirm(step=step)
    return plan


def name_of(key: bytes) -> str:
    """Return what the name of every backup of an etcd key begins with."""
    return hashlib.sha256(key).hexdigest()[:_NAME_SIZE]


def unlisted_writes(
    directories: Sequence[Path], audit_log: Path, identity: ClusterIdentity
) -> frozenset[str]:
    """Return the keys, by :func:`name_of`, that we may have written although this audit log does not say so.

    A backup does not say what was put in its place, nor whether anything was; so any value there may be ours. What
    is damaged still has the name of its key, and counts too.

    Args:
        directories: Where backups lie; one that is missing holds none.
        audit_log: Speaks for the backups whose intent it holds.
        identity: Of the cluster in question; a backup counts unless it is surely of another one.

    Raises:
        BackupUnreadable: A directory cannot be listed.
        AuditLogUnreadable: The log cannot be read.
    """
    listed = {link for link, _event in read_records(audit_log)} if is_there(audit_log) else set()
    found = set()
    for path in (path for directory in directories for path in _files(directory)):
        try:
            backup = read_backup(path)
        except BackupUnreadable:
            found.add(path.name[:_NAME_SIZE])
            continue
        content = backup.content
        another = content.cluster.named.is_same(identity) is False
        if content.purpose in _PUTS and not another and backup.intent.link not in listed:
            found.add(name_of(content.key_base64))
    return frozenset(found)


def _files(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.suffix == ".json"]
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise BackupUnreadable(f"backup directory {directory}: {why(exc)}", path=directory) from exc
