"""One record of the audit log: what it says, and how it is written as a line.

Format:
    kube-apiserver 1.36, ``k8s.io/apiserver/pkg/apis/audit/v1/types.go`` (``Event``, ``ObjectReference``). What is ours
    stands in annotations below ``etcdfix.io/``: text as it is, anything else as JSON, and nothing where there is
    nothing to say (``docs/formats/audit-log.md``).

    A record is one line of JSON, UTF-8, ended by one newline. Its hash is SHA-256 over all bytes of the line,
    the newline included: ``tail -n 1 FILE | sha256sum`` shows the head.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import socket
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from etcdfix import __version__
from etcdfix.copies.model import Way
from etcdfix.inputs.ownfiles import ANNOTATION_PREFIX, MAX_RECORD_SIZE, RECORD_API_VERSION, RECORD_KIND
from etcdfix.model.model import ClusterIdentity
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.text.safetext import safe_json, shown_key

T = TypeVar("T")
StructT = TypeVar("StructT", bound=msgspec.Struct)

UNSAFE_DELETION: Final = "apiserver.k8s.io/unsafe-delete-ignore-read-error"
"""Upstream's annotation: present, and empty, where the verb is the unsafe deletion."""

Sequence = Annotated[int, Meta(ge=0, lt=10**15)]


class RecordType(StrEnum):
    """What a record tells."""

    INTENT = "intent"
    OUTCOME = "outcome"
    SETTLED = "settled"
    DRY_RUN = "dry-run"
    REVEAL = "reveal"
    MERGE = "merge-configurations"
    RESCUED = "rescued"
    TORN_LINE = "torn-line"
    PRUNE = "prune"


class Verb(StrEnum):
    """What was to be done. The first is upstream's; the API server has no verb for the others."""

    DELETE = "unsafe-delete-ignore-read-errors"
    FIX = "fix"
    UNDO = "undo"
    REVEAL = "reveal"
    MERGE = "merge-configurations"
    RECOVER = "recover-audit-log"
    RESCUE = "rescue"
    PRUNE = "prune-backup"

    @property
    def purpose(self) -> str:
        """What a backup calls it."""
        return "delete" if self is Verb.DELETE else self.value


class Result(StrEnum):
    """What became of an intent. ``unknown`` is the one that leaves it open."""

    DELETED = "deleted"
    FIXED = "fixed"
    UNDONE = "undone"
    REFUSED = "refused"
    NOT_APPLIED = "not-applied"
    APPLIED_OR_GONE = "applied-or-gone"
    UNKNOWN = "unknown"
    ANOMALY = "anomaly"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is about.

    Attributes:
        key: Complete etcd key; empty for no key, and where part of it must not be shown.
        mod_revision: As examined; 0 for a key that is not there.
        version: How often it had been written by then; 0 for a key that is not there, and where nobody knows.
    """

    key: bytes = b""
    group: str = ""
    api_version: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    mod_revision: int = 0
    version: int = 0


NO_SUBJECT: Final = Subject()


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Who does it.

    Attributes:
        os_user: Name of the real uid, or its number where it has no name.
        sudo_user: ``SUDO_USER``. Anybody can set it: a hint, no proof.
        authorization: ``none`` (etcd credentials were the only gate) or ``allowed`` (the API said yes).
    """

    os_user: str
    host: str
    sudo_user: str = ""
    etcd_user: str = ""
    authorization: str = "none"
    api_user: str = ""

    @classmethod
    def of_this_process(
        cls, *, etcd_user: str = "", authorization: str = "none", api_user: str = ""
    ) -> Operator:
        """Return who runs this process, as far as the system tells."""
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = str(os.getuid())
        sudo_user, host = os.environ.get("SUDO_USER", ""), socket.gethostname()
        return cls(
            os_user=name, host=host, sudo_user=sudo_user, etcd_user=etcd_user,
            authorization=authorization, api_user=api_user,
        )  # fmt: skip


class Link(msgspec.Struct, frozen=True):
    """One place in the chain: a sequence and the SHA-256 of the record that has it; prints as ``SEQ:SHA256``."""

    sequence: Sequence
    sha256: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.sha256}"


BEGINNING: Final = Link(0, "0" * 64)
"""The head of an empty log."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A record, as it is to be written or was read; its place, time and audit id are added by :func:`placed`.

    Attributes:
        cluster_uid: uid of namespace kube-system; "" where unknown.
        header_revision: Revision in the header of etcd's last answer; 0 for none.
        value_sha256: Digest of the stored bytes, ``sha256:<hex>``, as are ``saved`` and ``previous``; "" for none.
        backups: Paths of the backup files, all with the content ``backup_sha256``.
        detail: One sentence; that of an intent that puts a value ends with the digest of the value.
        accepted: Safety flags that were given and what they accepted (``--accept cluster-breaking``).
        grounds: What the change rests on; None where nothing is changed (a reveal, a torn line).
        way: How a value is written, as :class:`~etcdfix.copies.model.Way` says it; "" for a deletion.
        intent: Sequence of the intent that an outcome belongs to; 0 for none.
        audit_id: The same for an intent and its outcome.
        saved: Objects that were saved from API servers.
        at: When it was written, RFC 3339.
    """

    type: RecordType
    verb: Verb
    operator: Operator
    subject: Subject = NO_SUBJECT
    reason: str = ""
    cluster_uid: str = ""
    header_revision: int = 0
    value_sha256: str = ""
    backups: tuple[str, ...] = ()
    backup_sha256: str = ""
    outcome: Result | None = None
    detail: str = ""
    accepted: tuple[str, ...] = ()
    grounds: Grounds | None = None
    way: str = ""
    intent: Sequence = 0
    saved: tuple[str, ...] = ()
    audit_id: str = ""
    at: str = ""
    link: Link = BEGINNING
    previous: str = ""

    @property
    def cluster(self) -> ClusterIdentity:
        """Which cluster it is about; one that the grounds do not name, is named by its uid alone."""
        if self.grounds is not None and self.grounds.cluster is not None:
            return self.grounds.cluster
        return ClusterIdentity.by_uid(self.cluster_uid)

    @property
    def is_patch(self) -> bool:
        """Whether an API server was asked to write the value."""
        return self.way == Way.PATCH

    @property
    def tells_outcome(self) -> bool:
        """Whether it says what became of an intent."""
        return self.type in {RecordType.OUTCOME, RecordType.SETTLED}

    @property
    def closes(self) -> bool:
        """Whether the intent that this belongs to is settled by it."""
        return self.tells_outcome and self.outcome is not Result.UNKNOWN

    def closed_by(
        self,
        outcome: Result,
        *,
        operator: Operator,
        detail: str = "",
        header_revision: int = 0,
        backups: tuple[str, ...] = (),
        backup_sha256: str = "",
        settled: bool = False,
        accepted: tuple[str, ...] = (),
    ) -> Record:
        """Return the record that says what became of this intent; ``unknown`` leaves it open.

        ``backups`` and ``backup_sha256`` are given where they differ (an anomaly, a pruning), ``accepted`` where
        another run finds it out: what that accepted stands there too.
        """
        return msgspec.structs.replace(
            self,
            type=RecordType.SETTLED if settled else RecordType.OUTCOME,
            operator=operator,
            header_revision=header_revision,
            backups=backups or self.backups,
            backup_sha256=backup_sha256 or self.backup_sha256,
            outcome=outcome,
            detail=detail,
            accepted=tuple(dict.fromkeys((*self.accepted, *accepted))),
            intent=self.link.sequence,
        )


_JSON: Final = frozenset(
    {
        "sequence", "mod_revision", "version", "header_revision", "intent", "backups", "accepted", "saved", "grounds"
    }
)  # fmt: skip
"""Annotations that hold JSON; all others are text."""
_PLACED: Final = frozenset({"verb", "operator", "subject", "audit_id", "at", "link", "previous"})
_AS_ANNOTATION: Final = tuple(name for name in Record.__struct_fields__ if name not in _PLACED)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``audit.k8s.io/v1`` Event, the fields that we fill."""

    kind: Literal["Event"]
    api_version: Literal["audit.k8s.io/v1"] = msgspec.field(name="apiVersion")
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: Verb
    user: dict[str, str]
    user_agent: str = msgspec.field(name="userAgent", default="")
    object_ref: dict[str, str] | None = msgspec.field(name="objectRef", default=None)
    response_status: dict[str, str | int] | None = msgspec.field(name="responseStatus", default=None)
    request_received_timestamp: str = msgspec.field(name="requestReceivedTimestamp")
    stage_timestamp: str = msgspec.field(name="stageTimestamp")
    annotations: dict[str, str]


_EVENTS: Final = msgspec.json.Decoder(Event)
_REFERENCE: Final = {
    "resource": "resource", "namespace": "namespace", "name": "name", "apiGroup": "group", "apiVersion": "api_version"
}  # fmt: skip
"""Fields of an ``ObjectReference``, and what a subject calls them; ``resourceVersion`` is the mod revision."""
_NO_ANSWER: Final[Mapping[str, str | int]] = {"status": "Failure", "reason": "Timeout", "code": 504}
_STATUS: Final[Mapping[Result | None, Mapping[str, str | int]]] = {
    Result.REFUSED: {"status": "Failure", "reason": "Conflict", "code": 409},
    Result.NOT_APPLIED: _NO_ANSWER,
    Result.APPLIED_OR_GONE: _NO_ANSWER,
    Result.UNKNOWN: _NO_ANSWER,
    Result.ANOMALY: {"status": "Failure", "reason": "InternalError", "code": 500},
}


def hash_of(line: bytes) -> str:
    """Return the SHA-256 of a record's exact bytes, lower-case hex."""
    return hashlib.sha256(line).hexdigest()


def microtime(at: datetime) -> str:
    """Return a time as ``metav1.MicroTime`` does: RFC 3339, UTC, six digits."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Draft(NamedTuple):
    """A record that has its place in the chain, and its exact bytes, newline included; not yet written."""

    record: Record
    line: bytes


def placed(record: Record, after: Link, *, at: datetime) -> Draft:
    """Give a record its place after another one."""
    record = in_unicode(
        msgspec.structs.replace(
            record,
            link=Link(after.sequence + 1, ""),
            previous=f"sha256:{after.sha256}",
            at=microtime(at),
            audit_id=record.audit_id or str(uuid.uuid4()),
        )
    )
    line = safe_json(msgspec.json.encode(_event(record))) + b"\n"
    return Draft(msgspec.structs.replace(record, link=Link(record.link.sequence, hash_of(line))), line)


def _event(record: Record) -> Event:
    is_intent, subject = record.type is RecordType.INTENT, record.subject
    status = {**_STATUS.get(record.outcome, {"status": "Success", "code": 200}), "message": record.detail}
    named = {theirs: getattr(subject, ours) for theirs, ours in _REFERENCE.items()}
    named["resourceVersion"] = str(subject.mod_revision or "")
    return Event(
        kind=RECORD_KIND,
        api_version=RECORD_API_VERSION,
        level="Metadata",
        audit_id=record.audit_id,
        stage="RequestReceived" if is_intent else "ResponseComplete",
        request_uri="",
        verb=record.verb,
        user={"username": record.operator.os_user},
        user_agent=f"etcdfix/{__version__}",
        object_ref=_without_empty(named) or None,
        response_status=None if is_intent else _without_empty(status),
        request_received_timestamp=record.at,
        stage_timestamp=record.at,
        annotations=_annotations(record),
    )


def _without_empty(told: Mapping[str, T]) -> dict[str, T]:
    return {name: value for name, value in told.items() if value}


def _annotations(record: Record) -> dict[str, str]:
    def encode(value: object) -> str:
        return msgspec.json.encode(value).decode()

    subject = record.subject
    told = {
        "sequence": record.link.sequence,
        "previous": record.previous,
        **{name: getattr(record, name) for name in _AS_ANNOTATION},
        "mod_revision": subject.mod_revision,
        "version": subject.version,
        # No change ever has a target of which part must not be shown.
        "key_base64": msgspec.to_builtins(subject.key) if shown_key(subject.key) == subject.key else "",
        **msgspec.structs.asdict(record.operator),
    }
    notes = {
        ANNOTATION_PREFIX + name.replace("_", "-"): encode(value) if name in _JSON else value
        for name, value in _without_empty(told).items()
    }
    return notes | ({UNSAFE_DELETION: ""} if record.verb is Verb.DELETE else {})


def parse_event(line: bytes, length: int = 0) -> Event:
    """Read one line; ``length`` is that of all of it, where it was too long to be taken whole; raises ValueError."""
    if length > MAX_RECORD_SIZE:
        raise ValueError(f"it has {length} bytes, a record has at most {MAX_RECORD_SIZE}")
    try:
        return _EVENTS.decode(line)
    except (ValueError, RecursionError) as exc:
        raise ValueError("it is no record of etcdfix") from exc


def parse_record(line: bytes, length: int = 0) -> Record:
    """Read one record; raises ValueError."""
    event = parse_event(line, length)
    try:
        told: dict[str, Any] = {}
        for name, text in event.annotations.items():
            if name.startswith(ANNOTATION_PREFIX):
                field = name.removeprefix(ANNOTATION_PREFIX).replace("-", "_")
                told[field] = msgspec.json.decode(text) if field in _JSON else text
        named = event.object_ref or {}
        told |= {
            "verb": event.verb,
            "audit_id": event.audit_id,
            "at": event.stage_timestamp,
            "link": {"sequence": told["sequence"], "sha256": hash_of(line)},
            "operator": {name: told[name] for name in Operator.__struct_fields__ if name in told},
            "subject": {
                "key": told.get("key_base64", ""),
                **{ours: named.get(theirs, "") for theirs, ours in _REFERENCE.items()},
                "mod_revision": told.get("mod_revision", 0),
                "version": told.get("version", 0),
            },
        }
        return msgspec.convert(told, Record)
    except (ValueError, LookupError, RecursionError) as exc:
        raise ValueError("it is no record of etcdfix") from exc


def unicode_text(text: str) -> str:
    """Return text that can be encoded: words from the command line and the system may hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def in_unicode(value: StructT) -> StructT:
    """Return a struct with text that can be encoded: names of keys, addresses and people may hold anything."""
    return msgspec.convert(_encodable(msgspec.to_builtins(value)), type(value))


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return unicode_text(value)
        case list() | tuple():
            return [_encodable(item) for item in value]
        case dict():
            return {name: _encodable(item) for name, item in value.items()}
    return value
