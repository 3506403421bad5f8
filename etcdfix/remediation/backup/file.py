"""A backup of stored bytes: its format, how it is read and checked, and how it is written together with its intent.

``docs/formats/backup.md`` has the format, and why backup and intent can name each other. The log stays locked from the
draft to the append, so nobody takes the sequence in between.

A crash between backup and intent leaves a file whose intent the log never saw, which must not look like a log
whose end was cut off. So ``NAME.unconfirmed`` is written before the backup and removed once the intent is durable;
only then may a transaction be sent. A backup with such a marker proves nothing about the log.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from etcdfix import __version__
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.inputs.inputfile import read_input
from etcdfix.inputs.ownfiles import BACKUP_FAMILY, BACKUP_TAIL
from etcdfix.model.errors import why
from etcdfix.model.model import ClusterIdentity, StoredValue, digest_of
from etcdfix.model.storagekey import display
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import (
    Link,
    Operator,
    Record,
    RecordType,
    Result,
    in_unicode,
    microtime,
    unicode_text,
)
from etcdfix.remediation.durable import SafeDirectory, open_directory
from etcdfix.remediation.errors import AuditError, BackupDamaged, BackupUnreadable, NotABackup, NotDurable
from etcdfix.text.safetext import safe_json

FORMAT: Final = "etcdfix.backup/v1"

MAX_BACKUP_SIZE: Final = 768 << 20
"""Largest file that is written or read, bytes: room for the largest answer that we take from etcd, in base64."""

MARKER_SUFFIX: Final = ".unconfirmed"
"""Stands beside a backup until its intent is in the audit log."""

ANOMALY: Final = "anomaly"
"""Purpose of a backup of what a transaction gave back although another value was expected."""

_OPENING: Final = f'{{"format":"{FORMAT}",\n"content":'.encode()
_ENVELOPE: Final = b"k8s:enc:"
_FRAME_SIZE: Final = 1 << 16  # all of a file but its content: digests, and a path
_MARKER_TEXT: Final = b"The audit record of this backup was not written yet when this file was.\n"

Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
LeaseId = Annotated[str, Meta(pattern="^([1-9a-f][0-9a-f]{0,14}|[1-7][0-9a-f]{15})$")]
"""A lease id is an int64, and etcd grants none below 1."""


class BackupVerdict(msgspec.Struct, frozen=True):
    """What a backup keeps of a :class:`etcdfix.examine.verdicts.judge.Verdict`."""

    outcome: str
    cause: str | None
    confidence: str
    message: str
    upstream_message: str


class BackupCluster(msgspec.Struct, frozen=True):
    """Where the value came from.

    Attributes:
        cluster_id: etcd's, lower-case hex.
        endpoints: As given; of kine its file.
        identity: None where it is not certain that the value came from that cluster.
    """

    kube_system_uid: str | None
    cluster_id: str
    endpoints: tuple[str, ...]
    header_revision: int
    identity: ClusterIdentity | None = None

    @property
    def named(self) -> ClusterIdentity:
        """What names the cluster; the uid alone where nothing else was kept."""
        return self.identity or ClusterIdentity.by_uid(self.kube_system_uid or "")


class BackupContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds of its key.

    Attributes:
        purpose: What it was made before: ``delete``, ``fix``, ``undo``; or :data:`ANOMALY`.
        key: For people; what is not UTF-8 is spelled out.
        version: 0 for unknown, as of kine.
        lease_ttl_seconds: What was left of it; None without a lease, or where etcd did not say; -1 for expired.
        stored_as_plaintext: The value was stored without the envelope of an encryption provider.
    """

    purpose: str
    created_at: str
    tool: str
    key: str
    key_base64: Annotated[bytes, Meta(min_length=1)]
    mod_revision: Positive
    create_revision: Positive
    version: Natural
    lease: LeaseId | None
    lease_ttl_seconds: int | None
    stored_as_plaintext: bool
    value_size: int
    value_sha256: str
    verdict: BackupVerdict
    cluster: BackupCluster
    operator: Operator
    reason: str
    grounds: Grounds | None = None
    value_base64: bytes

    def __repr__(self) -> str:
        # Stored bytes may be stored unencrypted, and a traceback ends up in a ticket.
        return f"BackupContent({self.purpose!r}, {self.stored!r})"

    @property
    def stored(self) -> StoredValue:
        """The record as etcd gave it."""
        return StoredValue(
            key=self.key_base64,
            value=self.value_base64,
            mod_revision=self.mod_revision,
            create_revision=self.create_revision,
            version=self.version,
            lease=0 if self.lease is None else int(self.lease, 16),
        )


class BackupIntent(msgspec.Struct, frozen=True):
    """The audit record that a backup belongs to."""

    sequence: Positive
    sha256: Hash
    audit_log: str

    @property
    def link(self) -> Link:
        """Its place in the chain."""
        return Link(self.sequence, self.sha256)


class Backup(msgspec.Struct, frozen=True):
    """A backup file that was read and found whole."""

    path: Path
    content: BackupContent
    content_sha256: str
    intent: BackupIntent


class _Document(msgspec.Struct):
    content: msgspec.Raw
    content_sha256: str
    intent: BackupIntent


def make_content(
    stored: StoredValue,
    *,
    purpose: str,
    verdict: Verdict,
    cluster: BackupCluster,
    operator: Operator,
    reason: str,
    lease_ttl_seconds: int | None,
    at: datetime,
) -> BackupContent:
    """Return what a backup of a stored value holds."""
    return BackupContent(
        purpose=purpose,
        created_at=microtime(at),
        tool=f"etcdfix/{__version__}",
        key=display(stored.key),
        key_base64=stored.key,
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=f"{stored.lease:x}" if stored.lease else None,
        lease_ttl_seconds=lease_ttl_seconds if stored.lease else None,
        # No examination is needed for that, and none can be wrong about it.
        stored_as_plaintext=not stored.value.startswith(_ENVELOPE),
        value_size=len(stored.value),
        value_sha256=digest_of(stored.value),
        value_base64=stored.value,
        verdict=in_unicode(msgspec.convert(verdict, BackupVerdict, from_attributes=True)),
        cluster=in_unicode(cluster),
        operator=in_unicode(operator),
        reason=unicode_text(reason),
    )


def resting_on(content: BackupContent, record: Record) -> BackupContent:
    """Return the content of a backup with what the change rests on, as its record says it."""
    grounds = None if record.grounds is None else in_unicode(record.grounds)
    return msgspec.structs.replace(content, grounds=grounds)


def name_of(key: bytes) -> str:
    """Return what the name of every backup of an etcd key begins with."""
    return hashlib.sha256(key).hexdigest()[:16]


def encode_content(content: BackupContent) -> bytes:
    """Return the exact bytes of a backup's content, which ``content_sha256`` covers."""
    return safe_json(msgspec.json.encode(content))


def encode_document(content: bytes, intent: BackupIntent) -> bytes:
    """Return the bytes of a backup file."""
    told = f',\n"content_sha256":"{digest_of(content)}",\n"intent":'.encode()
    body = b"".join((_OPENING, content, told, safe_json(msgspec.json.encode(intent))))
    return body + f',\n"document_sha256":"{digest_of(body)}"}}\n'.encode()


def read_backup(path: Path) -> Backup:
    """Read a backup file and check all of it. Links are followed, and anybody may own it: nothing is written.

    Raises NotABackup, BackupDamaged or BackupUnreadable.
    """
    try:
        raw = read_input(path, most_bytes=MAX_BACKUP_SIZE)
    except OSError as exc:
        problem = "it is larger than any backup" if exc.errno == errno.EFBIG else why(exc)
        raise BackupUnreadable(f"backup {path}: {problem}", path=path) from exc
    return parse_backup(raw, path=path)


def parse_backup(raw: bytes, *, path: Path) -> Backup:
    """Check the bytes of a backup file; ``path`` is for messages. Raises what :func:`read_backup` raises."""
    if not raw.startswith(BACKUP_FAMILY[: len(raw)]):
        raise NotABackup(f"{path} is no backup of etcdfix", path=path)
    tail = BACKUP_TAIL.search(raw, max(0, len(raw) - 4096))
    if not raw.startswith(_OPENING[: len(raw)]):
        problem = f"its first line is not that of {FORMAT}: another version, or edited"
    elif tail is None:
        problem = f"it ends after {len(raw)} bytes without its digest: cut off, or edited"
    elif digest_of(raw[: tail.start()]) != tail[1].decode():
        problem = "its bytes are not the ones that its digest was made of"
    else:
        try:
            document = msgspec.json.decode(raw, type=_Document)
            content = msgspec.json.decode(document.content, type=BackupContent)
            problem = _contradiction(document, content)
            if not problem:
                return Backup(path, content, document.content_sha256, document.intent)
        except (ValueError, RecursionError) as exc:
            problem = f"the digest fits, the document does not: {exc}"
    raise BackupDamaged(f"backup {path}: {problem}", path=path)


def _contradiction(document: _Document, content: BackupContent) -> str:
    value = content.value_base64
    fits = {
        "content_sha256 is not the digest of its content": document.content_sha256
        == digest_of(bytes(document.content)),
        "value_sha256 is not the digest of its value": content.value_size == len(value)
        and content.value_sha256 == digest_of(value),
        "key and key_base64 differ": content.key == display(content.key_base64),
        "it calls an encrypted value plaintext": not (
            content.stored_as_plaintext and value.startswith(_ENVELOPE)
        ),
        "the path of its audit log is not valid": "\0" not in document.intent.audit_log,
    }
    return next((f"the digest fits, but {problem}" for problem, fine in fits.items() if not fine), "")


class BackupPlan:
    """Backup files that are decided upon: names and contents are fixed, nothing is written yet; or NotDurable."""

    def __init__(
        self, content: BackupContent, directories: Sequence[SafeDirectory], *, sequence: int
    ) -> None:
        self._encoded = encode_content(content)
        self._directories = tuple(directories)
        self.content_sha256 = digest_of(self._encoded)
        self.value_sha256 = content.value_sha256
        unique = self.content_sha256.removeprefix("sha256:")[:16]  # it covers the time, so no two are alike
        self._name = f"{name_of(content.key_base64)}-{content.mod_revision}-{sequence}-{unique}.json"
        self.paths = tuple(directory.path / self._name for directory in directories)
        problem, hint = "", ""
        path = self.paths[0] if self.paths else Path()
        stats = [os.fstat(directory.descriptor) for directory in directories]
        if not directories:
            problem, hint = "no directory for a backup is named", "--backup-dir DIR"
        elif len({(found.st_dev, found.st_ino) for found in stats}) < len(stats):
            problem, hint = "a directory is named twice", "name each --backup-dir once"
        elif len(self._encoded) > MAX_BACKUP_SIZE - _FRAME_SIZE:
            problem = f"the value is too large, {MAX_BACKUP_SIZE} bytes at most can be read again"
        if problem:
            raise NotDurable(f"backup {path}: {problem}", path=path, hint=hint)

    def write(self, intent: Link, *, audit_log: Path) -> None:
        """Write every file, each with its marker, or none: what is written already is withdrawn, and NotDurable."""
        named = BackupIntent(intent.sequence, intent.sha256, unicode_text(str(audit_log)))
        document = encode_document(self._encoded, named)
        written: list[SafeDirectory] = []
        try:
            for directory in self._directories:
                written.append(directory)
                directory.create(self._name + MARKER_SUFFIX, _MARKER_TEXT, what="backup marker")
                directory.create(self._name, document, what="backup")
        except NotDurable:
            for directory in written:
                # The backup first: without its marker it would speak against the log.
                with suppress(NotDurable):
                    directory.remove(self._name, what="backup withdrawn")
                    directory.remove(self._name + MARKER_SUFFIX, what="backup withdrawn")
            raise

    def confirm(self) -> None:
        """Remove the markers, since the intent is in the log; or NotDurable."""
        for directory in self._directories:
            directory.remove(self._name + MARKER_SUFFIX, what="backup marker")


def record_intent(
    log: AuditLog,
    record: Record,
    content: BackupContent,
    directories: Sequence[SafeDirectory],
) -> Record:
    """Write the backups and then the intent; when this returns it, a transaction may be sent.

    What the change rests on is put into the backups from the record; digest and paths of the backups into the record.
    All directories must take the backup. Raises NotDurable or AuditError.
    """
    plan = BackupPlan(resting_on(content, record), directories, sequence=log.head.sequence + 1)
    draft = log.draft(
        msgspec.structs.replace(
            record,
            type=RecordType.INTENT,
            value_sha256=content.value_sha256,
            backups=tuple(str(path) for path in plan.paths),
            backup_sha256=plan.content_sha256,
        )
    )
    plan.write(draft.record.link, audit_log=log.path)
    log.append_draft(draft)
    try:
        plan.confirm()
    except NotDurable as exc:
        with suppress(AuditError):  # then the intent stays open, and settling finds that nothing was done
            log.append(draft.record.closed_by(Result.REFUSED, operator=record.operator, detail=exc.message))
        raise
    return draft.record


def confirm_backups(intent: Record) -> None:
    """Remove the markers that a crash left beside the backups of an intent, which the log holds; or NotDurable."""
    for path in map(Path, intent.backups):
        with open_directory(path.parent) as directory:
            directory.remove(path.name + MARKER_SUFFIX, what="backup marker")


def keep_second_backup(
    content: BackupContent,
    directories: Sequence[SafeDirectory],
    *,
    intent: Record,
    audit_log: Path,
) -> BackupPlan:
    """Write what a transaction gave back although another value was expected, everywhere or NotDurable."""
    plan = BackupPlan(content, directories, sequence=intent.link.sequence)
    plan.write(intent.link, audit_log=audit_log)
    plan.confirm()
    return plan
