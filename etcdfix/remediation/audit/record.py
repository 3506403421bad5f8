"""One record of the audit log: an ``audit.k8s.io/v1`` Event with annotations of ours.

Format:
    kube-apiserver 1.36, ``k8s.io/apiserver/pkg/apis/audit/v1/types.go`` (``Event``, ``ObjectReference``) and
    ``k8s.io/apiserver/pkg/endpoints/handlers/delete.go`` (the annotation of an unsafe deletion). What is ours
    stands in annotations below ``etcdfix.io/``, which are strings, as all annotations are.

    A record is one line of JSON, UTF-8, ended by one newline. Its hash is SHA-256 over all bytes of the line,
    the newline included: ``tail -n 1 FILE | sha256sum`` shows the head.
"""

from __future__ import annotations

import base64
import hashlib
import os
import pwd
import socket
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from etcdfix import __version__
from etcdfix.inputs.ownfiles import ANNOTATION_PREFIX, RECORD_API_VERSION, RECORD_KIND
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.text.safetext import safe_json

NO_PREVIOUS: Final = "0" * 64
"""What the first record names as the hash of the one before it."""


class RecordType(StrEnum):
    """What a record tells."""

    INTENT = "intent"
    OUTCOME = "outcome"
    RECONCILED = "reconciled"
    DRY_RUN = "dry-run"
    REVEAL = "reveal"
    MERGE = "merge-configurations"
    TORN_LINE = "torn-line"


class Verb(StrEnum):
    """What was to be done. The first is upstream's; the API server has no verb for the others."""

    DELETE = "unsafe-delete-ignore-read-errors"
    RESTORE = "restore"
    REENCRYPT = "reencrypt"
    REPAIR = "repair"
    REVEAL = "reveal"
    MERGE = "merge-configurations"
    RECOVER = "recover-audit-log"
    PRUNE = "prune-backup"

    @property
    def purpose(self) -> str:
        """What a backup calls it."""
        return "delete" if self is Verb.DELETE else self.value


class Result(StrEnum):
    """What became of an intent. ``unknown`` is the one that leaves it open."""

    DELETED = "deleted"
    RESTORED = "restored"
    REENCRYPTED = "reencrypted"
    REPAIRED = "repaired"
    REFUSED = "refused"
    NOT_APPLIED = "not-applied"
    APPLIED_OR_GONE = "applied-or-gone"
    UNKNOWN = "unknown"
    ANOMALY = "anomaly"
    PRUNED = "pruned"


CLOSING_TYPES: Final = frozenset({RecordType.OUTCOME, RecordType.RECONCILED})
"""Types of record that say what became of an intent."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is about.

    Attributes:
        key: Complete etcd key.
        group: API group, "" for the core group.
        api_version: Version within the group, "" where nobody knows it.
        resource: Plural resource.
        namespace: "" for none.
        name: Name in the key.
        mod_revision: As examined; 0 for a key that is not there.
        version: How often it had been written by then; 0 for a key that is not there, and where nobody knows.
    """

    key: bytes
    group: str
    api_version: str
    resource: str
    namespace: str
    name: str
    mod_revision: int = 0
    version: int = 0


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """Who does it.

    Attributes:
        os_user: Name of the real uid, or its number where it has no name.
        host: Name of this machine.
        sudo_user: ``SUDO_USER``, "" where unset. Anybody can set it: a hint, no proof.
        etcd_user: User that etcd was told, "" for none.
        authorization: ``none`` (etcd credentials were the only gate) or ``allowed`` (the API said yes).
        api_user: Who one is to the API, where it was asked.
    """

    os_user: str
    host: str
    sudo_user: str = ""
    etcd_user: str = ""
    authorization: str = "none"
    api_user: str = ""

    @classmethod
    def of_this_process(
        cls,
        *,
        etcd_user: str = "",
        authorization: str = "none",
        api_user: str = "",
        environment: Mapping[str, str] = os.environ,
    ) -> Operator:
        """Return who runs this process, as far as the system tells."""
        try:
            name = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            name = str(os.getuid())
        return cls(
            os_user=name,
            host=socket.gethostname(),
            sudo_user=environment.get("SUDO_USER", ""),
            etcd_user=etcd_user,
            authorization=authorization,
            api_user=api_user,
        )

    def in_unicode(self) -> Operator:
        """Return the same with text that can be encoded."""
        return Operator(**{name: unicode_text(text) for name, text in msgspec.structs.asdict(self).items()})


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be recorded; sequence, hashes and times are added when it is drafted.

    Attributes:
        type: What the record tells.
        verb: What was to be done.
        operator: Who.
        subject: The key; None only for a torn line.
        reason: ``--reason``, as given.
        cluster_uid: uid of namespace kube-system; "" where unknown.
        header_revision: Revision in the header of etcd's last answer; 0 for none.
        value_sha256: Digest of the stored bytes, ``sha256:<hex>``; "" for none.
        backups: Paths of the backup files, all with the same contents.
        backup_sha256: ``content_sha256`` of these files; "" for none.
        result: What became of it; None for an intent.
        detail: One sentence that a person would want to read.
        accepted: Safety flags that were given and what they accepted (``--accept-risk cluster-breaking``).
        grounds: What the change rests on; None where nothing is changed (a reveal, a torn line).
        intent: Sequence of the intent that an outcome belongs to.
        audit_id: The same for an intent and its outcome; "" makes a new one.
    """

    type: RecordType
    verb: Verb
    operator: Operator
    subject: Subject | None = None
    reason: str = ""
    cluster_uid: str = ""
    header_revision: int = 0
    value_sha256: str = ""
    backups: tuple[str, ...] = ()
    backup_sha256: str = ""
    result: Result | None = None
    detail: str = ""
    accepted: tuple[str, ...] = ()
    grounds: Grounds | None = None
    intent: int | None = None
    audit_id: str = ""

    @property
    def cluster(self) -> ClusterIdentity:
        """Which cluster it is about."""
        return cluster_of(self.grounds, self.cluster_uid)

    @property
    def closes(self) -> bool:
        """Whether the intent that this belongs to is settled by it."""
        return self.type in CLOSING_TYPES and self.result is not Result.UNKNOWN


class User(msgspec.Struct, frozen=True):
    """``authentication.k8s.io/v1`` UserInfo: the OS user; who one is to the API stands in the annotations."""

    username: str


class ObjectReference(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``audit.k8s.io/v1`` ObjectReference; ``resourceVersion`` is the mod revision."""

    resource: str
    namespace: str = ""
    name: str = ""
    api_group: str = ""
    api_version: str = ""
    resource_version: str = ""


class ResponseStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """``meta/v1`` Status, the part that an audit event holds."""

    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


def _renamed(name: str) -> str:
    if name == "unsafe_delete":
        return "apiserver.k8s.io/unsafe-delete-ignore-read-error"
    return ANNOTATION_PREFIX + name.replace("_", "-")


class Annotations(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename=_renamed):
    """Annotations of a record, under ``etcdfix.io/``; what has nothing to say is left out.

    ``unsafe_delete`` is upstream's: present, and empty, where the verb is the unsafe deletion.
    """

    type: str
    sequence: str
    previous: str
    outcome: str = ""
    intent: str = ""
    key_base64: str = ""
    mod_revision: str = ""
    version: str = ""
    header_revision: str = ""
    cluster_uid: str = ""
    value_sha256: str = ""
    backups: str = ""
    backup_sha256: str = ""
    reason: str = ""
    accepted: str = ""
    grounds: str = ""
    detail: str = ""
    os_user: str = ""
    sudo_user: str = ""
    host: str = ""
    etcd_user: str = ""
    authorization: str = ""
    api_user: str = ""
    unsafe_delete: str | UnsetType = UNSET


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``audit.k8s.io/v1`` Event, the fields that we fill."""

    kind: str
    api_version: str = msgspec.field(name="apiVersion")
    level: str
    audit_id: str = msgspec.field(name="auditID")
    stage: str
    request_uri: str = msgspec.field(name="requestURI")
    verb: str
    user: User
    user_agent: str = msgspec.field(name="userAgent", default="")
    object_ref: ObjectReference | None = msgspec.field(name="objectRef", default=None)
    response_status: ResponseStatus | None = msgspec.field(name="responseStatus", default=None)
    request_received_timestamp: str = msgspec.field(name="requestReceivedTimestamp")
    stage_timestamp: str = msgspec.field(name="stageTimestamp")
    annotations: Annotations


_STATUS: dict[Result | None, ResponseStatus] = {
    Result.REFUSED: ResponseStatus("Failure", reason="Conflict", code=409),
    Result.NOT_APPLIED: ResponseStatus("Failure", reason="Timeout", code=504),
    Result.APPLIED_OR_GONE: ResponseStatus("Failure", reason="Timeout", code=504),
    Result.UNKNOWN: ResponseStatus("Failure", reason="Timeout", code=504),
    Result.ANOMALY: ResponseStatus("Failure", reason="InternalError", code=500),
}
_SUCCESS = ResponseStatus("Success", code=200)


class Link(msgspec.Struct, frozen=True):
    """One place in the chain: a sequence and the SHA-256 of the record that has it, lower-case hex.

    Prints as ``SEQ:SHA256``, the form that ``FILE.head`` and ``--expect-head`` use.
    """

    sequence: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.sequence}:{self.sha256}"


BEGINNING: Final = Link(0, NO_PREVIOUS)
"""The head of an empty log."""


class Draft(msgspec.Struct, frozen=True):
    """A record with its place in the chain, not yet written.

    Attributes:
        link: Sequence and hash that it will have.
        previous: The link that it follows.
        line: Its exact bytes, newline included.
        entry: What it was made from, with the audit id filled in.
    """

    link: Link
    previous: Link
    line: bytes
    entry: Entry


def hash_of(line: bytes) -> str:
    """Return the SHA-256 of a record's exact bytes, lower-case hex."""
    return hashlib.sha256(line).hexdigest()


def timestamp(at: datetime) -> str:
    """Return a time as ``metav1.MicroTime`` does: RFC 3339, UTC, six digits."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def draft_entry(entry: Entry, previous: Link, *, at: datetime) -> Draft:
    """Give an entry its place after ``previous``, and its exact bytes."""
    if not entry.audit_id:
        entry = msgspec.structs.replace(entry, audit_id=str(uuid.uuid4()))
    sequence = previous.sequence + 1
    line = safe_json(msgspec.json.encode(_event(entry, sequence, previous, timestamp(at)))) + b"\n"
    return Draft(link=Link(sequence, hash_of(line)), previous=previous, line=line, entry=entry)


def _event(entry: Entry, sequence: int, previous: Link, at: str) -> Event:
    intent = entry.type is RecordType.INTENT
    status = None
    if not intent:
        status = msgspec.structs.replace(
            _STATUS.get(entry.result, _SUCCESS), message=unicode_text(entry.detail)
        )
    return Event(
        kind=RECORD_KIND,
        api_version=RECORD_API_VERSION,
        level="Metadata",
        audit_id=entry.audit_id,
        stage="RequestReceived" if intent else "ResponseComplete",
        request_uri="",
        verb=entry.verb.value,
        user=User(unicode_text(entry.operator.os_user)),
        user_agent=f"etcdfix/{__version__}",
        object_ref=_object_ref(entry.subject),
        response_status=status,
        request_received_timestamp=at,
        stage_timestamp=at,
        annotations=_annotations(entry, sequence, previous),
    )


def _object_ref(subject: Subject | None) -> ObjectReference | None:
    if subject is None:
        return None
    return ObjectReference(
        resource=unicode_text(subject.resource),
        namespace=unicode_text(subject.namespace),
        name=unicode_text(subject.name),
        api_group=unicode_text(subject.group),
        api_version=unicode_text(subject.api_version),
        resource_version=_number(subject.mod_revision),
    )


def _annotations(entry: Entry, sequence: int, previous: Link) -> Annotations:
    operator, subject = entry.operator, entry.subject
    return Annotations(
        type=entry.type.value,
        sequence=str(sequence),
        previous=f"sha256:{previous.sha256}",
        outcome=entry.result.value if entry.result is not None else "",
        intent=_number(entry.intent or 0),
        key_base64=msgspec.to_builtins(subject.key) if subject is not None else "",
        mod_revision=_number(subject.mod_revision) if subject is not None else "",
        version=_number(subject.version) if subject is not None else "",
        header_revision=_number(entry.header_revision),
        cluster_uid=unicode_text(entry.cluster_uid),
        value_sha256=entry.value_sha256,
        backups=_list(entry.backups),
        backup_sha256=entry.backup_sha256,
        reason=unicode_text(entry.reason),
        accepted=_list(entry.accepted),
        grounds=_encode_grounds(entry.grounds),
        detail=unicode_text(entry.detail),
        os_user=unicode_text(operator.os_user),
        sudo_user=unicode_text(operator.sudo_user),
        host=unicode_text(operator.host),
        etcd_user=unicode_text(operator.etcd_user),
        authorization=unicode_text(operator.authorization),
        api_user=unicode_text(operator.api_user),
        unsafe_delete="" if entry.verb is Verb.DELETE else UNSET,
    )


def cluster_of(grounds: Grounds | None, uid: str) -> ClusterIdentity:
    """Return the cluster that a record names; one of before grounds named it names it by the uid alone."""
    if grounds is not None and grounds.cluster is not None:
        return grounds.cluster
    return ClusterIdentity.by_uid(uid)


def unicode_text(text: str) -> str:
    """Return text that can be encoded: words from the command line and the system may hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def unicode_grounds(grounds: Grounds) -> Grounds:
    """Return the same with text that can be encoded: names of keys and addresses may hold anything."""
    return msgspec.convert(_encodable(msgspec.to_builtins(grounds)), Grounds)


def _encodable(value: Any) -> Any:
    match value:
        case str():
            return unicode_text(value)
        case list() | tuple():
            return [_encodable(item) for item in value]
        case dict():
            return {name: _encodable(item) for name, item in value.items()}
    return value


def _encode_grounds(grounds: Grounds | None) -> str:
    return "" if grounds is None else msgspec.json.encode(unicode_grounds(grounds)).decode()


def _number(number: int) -> str:
    return str(number) if number else ""


def _list(items: tuple[str, ...]) -> str:
    # An annotation is a string; a JSON list in it stays exact whatever the items hold.
    return msgspec.json.encode([unicode_text(item) for item in items]).decode() if items else ""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """An intent as the log holds it.

    Attributes:
        link: Its sequence and hash.
        verb: What was to be done.
        audit_id: Of the intent; its outcome gets the same.
        subject: The key.
        reason: As given.
        cluster_uid: uid of namespace kube-system, "" where it was unknown.
        header_revision: Of etcd's last answer before the intent, 0 for none.
        value_sha256: Digest of the stored bytes, ``sha256:<hex>``.
        backups: Paths of its backup files.
        backup_sha256: ``content_sha256`` of these files.
        accepted: Safety flags that were given.
        grounds: What the change rested on; None in a record that was written before there were any.
        detail: One sentence; that of a change that puts a value ends with the digest of that.
    """

    link: Link
    verb: Verb
    audit_id: str
    subject: Subject
    reason: str
    cluster_uid: str
    header_revision: int
    value_sha256: str
    backups: tuple[str, ...]
    backup_sha256: str
    accepted: tuple[str, ...]
    grounds: Grounds | None = None
    detail: str = ""

    @property
    def cluster(self) -> ClusterIdentity:
        """Which cluster it is about."""
        return cluster_of(self.grounds, self.cluster_uid)

    def closed_by(
        self,
        result: Result,
        *,
        operator: Operator,
        detail: str = "",
        header_revision: int = 0,
        backups: tuple[str, ...] | None = None,
        backup_sha256: str | None = None,
        reconciled: bool = False,
    ) -> Entry:
        """Return the entry that says what became of this intent; ``unknown`` leaves it open.

        ``backups`` and ``backup_sha256`` are given where there is a second backup (an anomaly).
        """
        return Entry(
            type=RecordType.RECONCILED if reconciled else RecordType.OUTCOME,
            verb=self.verb,
            operator=operator,
            subject=self.subject,
            reason=self.reason,
            cluster_uid=self.cluster_uid,
            header_revision=header_revision,
            value_sha256=self.value_sha256,
            backups=self.backups if backups is None else backups,
            backup_sha256=self.backup_sha256 if backup_sha256 is None else backup_sha256,
            result=result,
            detail=detail,
            accepted=self.accepted,
            grounds=self.grounds,
            intent=self.link.sequence,
            audit_id=self.audit_id,
        )


_EVENTS = msgspec.json.Decoder(Event)
_LISTS = msgspec.json.Decoder(tuple[str, ...])
_GROUNDS = msgspec.json.Decoder(Grounds)


def parse_event(line: bytes) -> Event:
    """Read one record.

    Raises:
        ValueError: The line is no record of ours.
    """
    try:
        event = _EVENTS.decode(line)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if event.kind != RECORD_KIND or event.api_version != RECORD_API_VERSION:
        raise ValueError(f"its kind is {event.kind} of {event.api_version}")
    return event


def parse_intent(line: bytes) -> Intent:
    """Read one record that is an intent.

    Raises:
        ValueError: The line is no record of ours, or no intent.
    """
    return intent_of_event(parse_event(line), hash_of(line))


def intent_of_event(event: Event, sha256: str) -> Intent:
    """Return an intent from its record, which was read already, and the hash of that.

    Raises:
        ValueError: It is no intent.
    """
    notes, reference = event.annotations, event.object_ref
    if notes.type != RecordType.INTENT or reference is None:
        raise ValueError(f"its type is {notes.type}, expected {RecordType.INTENT}")
    return Intent(
        link=Link(int(notes.sequence), sha256),
        verb=Verb(event.verb),
        audit_id=event.audit_id,
        subject=Subject(
            key=base64.b64decode(notes.key_base64, validate=True),
            group=reference.api_group,
            api_version=reference.api_version,
            resource=reference.resource,
            namespace=reference.namespace,
            name=reference.name,
            mod_revision=int(notes.mod_revision or 0),
            version=int(notes.version or 0),
        ),
        reason=notes.reason,
        cluster_uid=notes.cluster_uid,
        header_revision=int(notes.header_revision or 0),
        value_sha256=notes.value_sha256,
        backups=parse_list(notes.backups),
        backup_sha256=notes.backup_sha256,
        accepted=parse_list(notes.accepted),
        grounds=parse_grounds(notes.grounds),
        detail=notes.detail,
    )


def parse_grounds(text: str) -> Grounds | None:
    """Read the annotation that holds what a change rested on; None for "", as in records of before there was one.

    Raises:
        ValueError: It is something else.
    """
    try:
        return _GROUNDS.decode(text) if text else None
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc


def parse_list(text: str) -> tuple[str, ...]:
    """Read an annotation that holds several words: a JSON list, or "" for none.

    Raises:
        ValueError: It is no such list.
    """
    return _LISTS.decode(text) if text else ()
