r"""The format of a backup file, and every way in which a file can fail to be one.

One file, five lines, one JSON document::

    {"format":"etcdfix.backup/v1",
    "content":{ what was stored, where, and why it is to go; see BackupContent },
    "content_sha256":"sha256:<digest of the exact bytes of the content object>",
    "intent":{"sequence":7,"sha256":"<hash of that record>","audit_log":"/var/lib/etcdfix/audit.jsonl"},
    "document_sha256":"sha256:<digest of every byte of the file before ``,\n"document_sha256"``>"}

No byte in a backup was decrypted by us; ``stored_as_plaintext`` says whether the value was stored unencrypted.
"""

from __future__ import annotations

import errno
import hashlib
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from etcdfix import __version__
from etcdfix.errors import (
    BackupEdited,
    BackupTooLarge,
    BackupTruncated,
    BackupUnreadable,
    BackupVersionUnknown,
    NotABackup,
    why,
)
from etcdfix.inputs.inputfile import read_input
from etcdfix.inputs.ownfiles import BACKUP_FAMILY, BACKUP_TAIL
from etcdfix.model import ClusterIdentity, StoredValue
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.record import Link, Operator, in_unicode, unicode_text
from etcdfix.remediation.audit.record_line import timestamp
from etcdfix.storagekey import display
from etcdfix.text.safetext import safe_json
from etcdfix.verdicts.judge import Verdict

FORMAT: Final = "etcdfix.backup/v1"

MAX_BACKUP_SIZE: Final = 768 << 20
"""Largest file that is written or read, bytes: room for the largest answer that we take from etcd, in base64."""

_OPENING: Final = f'{{"format":"{FORMAT}",\n"content":'.encode()
_VERSION: Final = re.compile(rb'\{"format":"(etcdfix\.backup/[^"\\]{1,40})"')
_TAIL_ANYWHERE: Final = b'\n"document_sha256":"sha256:'
_TAIL_REACH: Final = 4096
_ENVELOPE: Final = b"k8s:enc:"
_LEASE: Final = "[1-9a-f][0-9a-f]{0,14}|[1-7][0-9a-f]{15}"


Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0)]


class BackupVerdict(msgspec.Struct, frozen=True):
    """What was found out about the value; see :class:`etcdfix.verdicts.judge.Verdict`."""

    outcome: str
    cause: str | None
    confidence: str
    message: str
    upstream_message: str

    @classmethod
    def of(cls, verdict: Verdict) -> BackupVerdict:
        """Return the part of a verdict that a backup keeps."""
        return cls(
            outcome=verdict.outcome.value,
            cause=None if verdict.cause is None else verdict.cause.value,
            confidence=verdict.confidence.value,
            message=unicode_text(verdict.message),
            upstream_message=unicode_text(verdict.upstream_message),
        )


class BackupCluster(msgspec.Struct, frozen=True):
    """Where the value came from.

    Attributes:
        kube_system_uid: uid of namespace kube-system, which names the cluster; None where unknown.
        cluster_id: etcd's, lower-case hex.
        endpoints: As given; of kine its file.
        header_revision: Revision in the header of the answer that held the value.
        identity: What names the cluster, and what says so; None where it is not certain that the value came from that
            cluster.
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


class BackupTool(msgspec.Struct, frozen=True):
    """Who wrote it."""

    name: str
    version: str


class BackupContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds of its key.

    Attributes:
        purpose: What it was made before: ``delete``, ``fix``, ``undo``; ``anomaly`` for a value
            that a transaction gave back although another was expected.
        key: For people; what is not UTF-8 is spelled out.
        mod_revision: As in ``mvccpb.KeyValue``; so are the next two.
        create_revision: Beginning of this generation of the key.
        version: Changes since then; 0 for unknown, as of kine.
        lease_ttl_seconds: What was left of it; None without a lease, or where etcd did not say; -1 for expired.
        stored_as_plaintext: The value was stored without the envelope of an encryption provider.
        grounds: What the change rests on; None where the backup says nothing of it.
    """

    purpose: str
    created_at: str
    tool: BackupTool
    key: str
    key_base64: bytes
    mod_revision: Positive
    create_revision: Positive
    version: Natural
    lease: str | None
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
    sha256: str
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
    """Return what a backup of a stored value holds.

    Whether it was stored unencrypted, its first bytes say: no examination is needed for that, and none can be wrong
    about it.
    """
    return BackupContent(
        purpose=purpose,
        created_at=timestamp(at),
        tool=BackupTool("etcdfix", __version__),
        key=display(stored.key),
        key_base64=stored.key,
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=f"{stored.lease:x}" if stored.lease else None,
        lease_ttl_seconds=lease_ttl_seconds if stored.lease else None,
        stored_as_plaintext=not stored.value.startswith(_ENVELOPE),
        value_size=len(stored.value),
        value_sha256=digest(stored.value),
        value_base64=stored.value,
        verdict=BackupVerdict.of(verdict),
        cluster=in_unicode(cluster),
        operator=in_unicode(operator),
        reason=unicode_text(reason),
    )


def digest(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as ``sha256:<hex>``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def encode_content(content: BackupContent) -> bytes:
    """Return the exact bytes of a backup's content, which ``content_sha256`` covers."""
    return safe_json(msgspec.json.encode(content))


def encode_document(content: bytes, intent: BackupIntent) -> bytes:
    """Return the bytes of a backup file."""
    body = b"".join(
        (
            _OPENING,
            content,
            f',\n"content_sha256":"{digest(content)}",\n"intent":'.encode(),
            safe_json(msgspec.json.encode(intent)),
        )
    )
    return body + f',\n"document_sha256":"{digest(body)}"}}\n'.encode()


def read_backup(path: Path) -> Backup:
    """Read a backup file and check all of it. Links are followed, and anybody may own it: nothing is written.

    Raises:
        BackupTooLarge: Larger than any backup.
        NotABackup: Something else.
        BackupVersionUnknown: A format of another version.
        BackupTruncated: Cut off.
        BackupEdited: A digest does not fit, or it contradicts itself.
        BackupUnreadable: It cannot be read at all.
    """
    try:
        raw = read_input(path, most_bytes=MAX_BACKUP_SIZE)
    except OSError as exc:
        kind = BackupTooLarge if exc.errno == errno.EFBIG else BackupUnreadable
        raise kind(f"backup {path}: {why(exc)}", path=path) from exc
    return parse_backup(raw, path=path)


class _Document(msgspec.Struct):
    format: str
    content: msgspec.Raw
    content_sha256: str
    intent: BackupIntent
    document_sha256: str


def parse_backup(raw: bytes, *, path: Path) -> Backup:
    """Check the bytes of a backup file; ``path`` is for messages. Raises what :func:`read_backup` raises."""
    if len(raw) > MAX_BACKUP_SIZE:
        raise BackupTooLarge(f"backup {path}: it is larger than any backup", path=path)
    body, told = _check_frame(raw, path)
    problem = "its bytes are not the ones that its digest was made of"
    if digest(body) == told:
        try:
            document = msgspec.json.decode(raw, type=_Document)
            encoded = bytes(document.content)
            content = msgspec.json.decode(encoded, type=BackupContent)
            problem = _contradiction(document, encoded, content)
        except (ValueError, RecursionError) as exc:
            problem = f"the digest fits, the document does not: {exc}"
    if problem:
        raise BackupEdited(f"backup {path}: {problem}", path=path)
    return Backup(path, content, document.content_sha256, document.intent)


def _check_frame(raw: bytes, path: Path) -> tuple[bytes, str]:
    if not raw.startswith(BACKUP_FAMILY[: len(raw)]):
        raise NotABackup(f"{path} is no backup of etcdfix", path=path)
    tail = BACKUP_TAIL.search(raw, max(0, len(raw) - _TAIL_REACH))
    if raw.startswith(_OPENING) and tail is not None:
        return raw[: tail.start()], tail[1].decode()
    version = _VERSION.match(raw)
    if version is not None and version[1] != FORMAT.encode():
        found = version[1].decode("ascii", "backslashreplace")
        raise BackupVersionUnknown(
            f"backup {path}: its format is {found}, and this etcdfix reads only {FORMAT}",
            path=path,
            hint="use the version of etcdfix that wrote it",
        )
    if not raw.startswith(_OPENING[: len(raw)]):
        raise BackupEdited(f"backup {path}: its first line was changed", path=path)
    if len(raw) > len(_OPENING) and (raw.endswith(b"}\n") or _TAIL_ANYWHERE in raw[-_TAIL_REACH:]):
        raise BackupEdited(f"backup {path}: its last line was changed", path=path)
    raise BackupTruncated(f"backup {path}: it ends after {len(raw)} bytes, before its digest", path=path)


def _contradiction(document: _Document, encoded: bytes, content: BackupContent) -> str:
    value = content.value_base64
    fits = {
        "content_sha256 is not the digest of its content": document.content_sha256 == digest(encoded),
        "value_sha256 is not the digest of its value": content.value_size == len(value)
        and content.value_sha256 == digest(value),
        "key and key_base64 differ": content.key_base64 and content.key == display(content.key_base64),
        "it calls an encrypted value plaintext": not (
            content.stored_as_plaintext and value.startswith(_ENVELOPE)
        ),
        # A lease id is an int64, and etcd grants none below 1.
        "its lease is no lease id": re.fullmatch(_LEASE, content.lease or "1"),
        "the hash of its intent is no hash": re.fullmatch("[0-9a-f]{64}", document.intent.sha256),
        "the path of its audit log is none": "\0" not in document.intent.audit_log,
    }
    return next((f"the digest fits, but {problem}" for problem, fine in fits.items() if not fine), "")
