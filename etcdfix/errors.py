"""Every exception of etcdfix.

A broken object is data and becomes a finding; an exception means that *we* could not do our part. The
exceptions below :class:`TransformError` and :class:`DecodeError` are the two that become findings: the
pipeline catches them, in one place, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(eq=False, repr=False)
class EtcdfixError(Exception):
    """Base of everything raised on purpose; facts are attributes, never only text.

    Attributes:
        code: Stable kebab-case name of the error, unique in the package.
        exit_code: What a command returns when this error ends it.
        hint: The one next step to take, or an empty string.
    """

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 2

    message: str
    hint: str = field(default="", kw_only=True)

    def __str__(self) -> str:
        return self.message


class EndedEarly(KeyboardInterrupt):
    """Raised in the main thread where a signal, or ``--timeout``, ends a command before its work is done.

    It is a ``KeyboardInterrupt``: whoever gives a partial result after Ctrl-C gives it after these too.

    Attributes:
        reason: What happened, as a clause: ``ended by SIGTERM``.
        exit_code: What the command returns when it has a partial result.
        bare_exit_code: What it returns when it has none.
        changed: Something was changed before, and told.
    """

    def __init__(
        self, reason: str, exit_code: int, bare_exit_code: int | None = None, *, changed: bool = False
    ) -> None:
        super().__init__(reason)
        self.changed = changed
        self.reason = reason
        self.exit_code = exit_code
        self.bare_exit_code = exit_code if bare_exit_code is None else bare_exit_code

    @property
    def by_clock(self) -> bool:
        """Whether ``--timeout`` was over, and no signal came."""
        return self.exit_code < 128  # which shells add to the number of a signal

    @classmethod
    def of(cls, exc: KeyboardInterrupt) -> EndedEarly:
        """Return an interruption as one of these; Ctrl-C comes as Python's own."""
        return exc if isinstance(exc, cls) else cls("interrupted", 130)


class ConfigurationError(EtcdfixError):
    """Raised when the EncryptionConfiguration or our own options do not make sense."""

    code = "configuration-invalid"
    exit_code = 2


class KubernetesClientMissing(ConfigurationError):
    """Raised when ``--kubeconfig`` is used and the package that reads it is not installed."""

    code = "kubernetes-client-missing"


class KubeconfigInvalid(ConfigurationError):
    """Raised when the kubeconfig cannot be read, or lacks the context that is asked for."""

    code = "kubeconfig-invalid"


class ObjectNotFound(EtcdfixError):
    """Raised when an object is named without its namespace, and none of that name is found in any."""

    code = "object-not-found"
    exit_code = 5


class SourceError(EtcdfixError):
    """Raised when the place where the data lives cannot be read."""

    code = "source-unreadable"
    exit_code = 5


class SourceUnreachable(SourceError):
    """Raised when no endpoint answered: nobody listening, TLS refused, or a time-out."""

    code = "source-unreachable"


class SourceDenied(SourceError):
    """Raised when etcd refuses the user, the password or the permission."""

    code = "source-denied"


class SourceLocked(SourceError):
    """Raised when a running etcd holds the database file."""

    code = "source-locked"


class NotASnapshot(SourceError):
    """Raised when a file is no bbolt database: missing, empty, text, or without a valid meta page."""

    code = "not-a-snapshot"


class NotAKineFile(SourceError):
    """Raised when a file is no SQLite database of kine: missing, empty, something else, or without its table."""

    code = "not-a-kine-file"


@dataclass(eq=False, repr=False, kw_only=True)
class SnapshotTruncated(SourceError):
    """Raised when a file ends before the pages that it says it has.

    Attributes:
        size: File size found, bytes.
        expected_size: Smallest size that the meta page promises, bytes.
    """

    code = "snapshot-truncated"
    size: int
    expected_size: int


@dataclass(eq=False, repr=False, kw_only=True)
class PageCorrupt(SourceError):
    """Raised when a bbolt page contradicts itself or the file around it.

    Attributes:
        page_id: Page that was being read.
        file_offset: Byte in the file where the contradiction stands.
    """

    code = "page-corrupt"
    page_id: int
    file_offset: int


@dataclass(eq=False, repr=False, kw_only=True)
class RevisionCompacted(SourceError):
    """Raised when the revision asked for was compacted, or does not exist yet.

    Attributes:
        revision: Revision asked for.
        compacted: Oldest revision that can still be read, 0 where unknown.
        current: Newest revision, 0 where unknown.
    """

    code = "revision-compacted"
    revision: int
    compacted: int = 0
    current: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class ClusterMismatch(SourceError):
    """Raised when the endpoints answer for more than one cluster.

    Attributes:
        cluster_ids: Endpoint to cluster id, lower-case hex.
    """

    code = "cluster-mismatch"
    cluster_ids: dict[str, str]


class NotALog(SourceError):
    """Raised when a directory holds no segment of a write-ahead log that can be read."""

    code = "not-a-log"


class LogsDisagree(SourceError):
    """Raised when the write-ahead logs of two members are not of one history."""

    code = "logs-disagree"


class OtherHistory(SourceError):
    """Raised when nothing shows that a write-ahead log is of the history of what is stored now."""

    code = "other-history"


@dataclass(eq=False, repr=False, kw_only=True)
class BackupUnreadable(SourceError):
    """Raised when a backup file cannot be opened or read.

    Attributes:
        path: The file.
    """

    code = "backup-unreadable"
    path: Path


class NotABackup(BackupUnreadable):
    """Raised when a file is no backup of etcdfix."""

    code = "not-a-backup"


class BackupDamaged(BackupUnreadable):
    """Raised when a backup is not what was written: cut off, edited, or of another version."""

    code = "backup-damaged"


class TransformError(EtcdfixError):
    """Raised when stored bytes do not become plaintext.

    ``message`` is the API server's own wording, aggregated as the server aggregates it.
    """

    code = "transform-failed"
    exit_code = 1


class KMSError(TransformError):
    """Raised when a value needs a KMS plugin and the plugin did not give its DEK."""

    code = "kms-failed"


class KMSUnreachable(KMSError):
    """Raised when the plugin could not be asked: a statement about now, not about the value."""

    code = "kms-unreachable"


@dataclass(eq=False, repr=False, kw_only=True)
class KMSRefused(KMSError):
    """Raised when the plugin answered, and the answer was no.

    Attributes:
        status: The gRPC code of the answer, as gRPC spells it: ``INVALID_ARGUMENT``.
    """

    code = "kms-refused"
    status: str


@dataclass(eq=False, repr=False, kw_only=True)
class DecodeError(EtcdfixError):
    """Raised when plaintext does not become an object.

    ``message`` is the API server's own wording, except for CBOR; data that the server would echo is replaced by
    ``<N bytes withheld>``.

    Attributes:
        offset: Byte in the plaintext where the decoder gave up, or None where that has no meaning.
        field_path: Path of field names down to the damage (``metadata.ownerReferences[2].uid``), or "".
    """

    code = "decode-failed"
    exit_code = 1
    offset: int | None = None
    field_path: str = ""


class UnknownEncoding(DecodeError):
    """Raised when no serializer recognises the bytes."""

    code = "encoding-unknown"


class ProtobufMalformed(DecodeError):
    """Raised when a protobuf body or its envelope breaks the rules of the generated decoders."""

    code = "protobuf-malformed"


class JSONMalformed(DecodeError):
    """Raised when JSON (or YAML turned into JSON) does not parse or has the wrong types."""

    code = "json-malformed"


class CBORMalformed(DecodeError):
    """Raised when CBOR does not parse or breaks the Kubernetes profile.

    ``message`` is ours: in which words the API server refuses it, no case shows.
    """

    code = "cbor-malformed"


@dataclass(eq=False, repr=False, kw_only=True)
class KindUnknown(DecodeError):
    """Raised when the value's kind is missing, not registered, or does not convert to the key's kind.

    Attributes:
        group_version: apiVersion found in the value, as stored.
        kind: Kind found in the value, as stored.
        reason: ``not-registered``, ``version-removed``, ``missing`` or ``wrong-kind``.
        readable_until: Last Kubernetes minor version that reads it (``1.35``), or "".
    """

    code = "kind-unknown"
    group_version: str
    kind: str
    reason: str
    readable_until: str = ""


@dataclass(eq=False, repr=False, kw_only=True)
class ConversionFailed(DecodeError):
    """Raised when a well-formed object does not convert to the type that the server works with.

    Attributes:
        group_version: apiVersion of the type that it was read as.
        kind: Kind of that type.
    """

    code = "conversion-failed"
    group_version: str = ""
    kind: str = ""


class RemediationRefused(EtcdfixError):
    """Raised when a safety rule forbids a change to the cluster; nothing was changed."""

    code = "remediation-refused"
    exit_code = 4


class MemberListUnusable(RemediationRefused):
    """Raised when etcd's member list cannot be true: nobody votes in it, ids repeat, or it is absurdly long."""

    code = "member-list-unusable"


@dataclass(eq=False, repr=False, kw_only=True)
class AuthorizationRefused(RemediationRefused):
    """Raised when the API server did not clearly say yes.

    Attributes:
        reason: Which kind of no or doubt, one of ``remediation.authorization.RefusalReason``.
        detail: Why there was no answer, part of a sentence; "" where there was one.
    """

    code = "authorization-refused"
    reason: str
    detail: str = ""


@dataclass(eq=False, repr=False, kw_only=True)
class RefusedByRule(RemediationRefused):
    """Raised when safety rules forbid the change.

    Attributes:
        rule: Which one: a word of the catalogue in :mod:`etcdfix.rules`; of several the first.
        lift: Options that would lift it; empty where nothing does.
        also: What else forbids it, where all checks were asked.
        lifted: What to say of the command that no rule would refuse, a sentence; "" where not all checks were asked.
        command: That whole command; "" where there is none.
    """

    code = "refused-by-rule"
    rule: str
    lift: tuple[str, ...] = ()
    also: tuple[RefusedByRule, ...] = ()
    lifted: str = ""
    command: str = ""

    @property
    def rules(self) -> tuple[str, ...]:
        """Every rule that forbids it, the first one first."""
        return tuple(dict.fromkeys(one.rule for one in (self, *self.also)))


@dataclass(eq=False, repr=False, kw_only=True)
class NotDurable(RemediationRefused):
    """Raised when a file, or one of the files of a backup, is not durable, or did not read back as written.

    Attributes:
        path: The file or directory.
    """

    code = "not-durable"
    path: Path


class UnsafePlace(NotDurable):
    """Raised when a directory or file is not ours alone to write, is a link, or would not last."""

    code = "place-unsafe"


@dataclass(eq=False, repr=False, kw_only=True)
class AuditError(EtcdfixError):
    """Raised when a record cannot be made durable; so nothing is done.

    Attributes:
        path: The log.
    """

    code = "audit-not-durable"
    exit_code = 4
    path: Path


@dataclass(eq=False, repr=False, kw_only=True)
class AuditLogBroken(AuditError):
    """Raised when the chain of a log is broken, so that nothing may be added to it.

    Attributes:
        findings: What is wrong with it, each a ``report.log.LogFault``.
    """

    code = "audit-log-broken"
    findings: tuple[Any, ...] = ()


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


def why(exc: OSError) -> str:
    """Return what the system says of a failed call, without the path that Python adds."""
    return exc.strerror or str(exc)


def aggregate(messages: Iterable[str]) -> str:
    """Join messages as ``k8s.io/apimachinery/pkg/util/errors`` does: each once, brackets around several."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
