"""How a record of the audit log is written as a line, and read back from one.

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
import uuid
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from etcdfix import __version__
from etcdfix.inputs.ownfiles import ANNOTATION_PREFIX, RECORD_API_VERSION, RECORD_KIND
from etcdfix.remediation.audit.grounds import Grounds
from etcdfix.remediation.audit.record import (
    Entry,
    Intent,
    Link,
    Operator,
    RecordType,
    Result,
    Subject,
    Verb,
    in_unicode,
)
from etcdfix.text.safetext import safe_json, shown_key

_MAX_DIGITS: Final = 15


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
    way: str = ""
    saved: str = ""
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
    entry = in_unicode(entry)
    if not entry.audit_id:
        entry = msgspec.structs.replace(entry, audit_id=str(uuid.uuid4()))
    sequence = previous.sequence + 1
    line = safe_json(msgspec.json.encode(_event(entry, sequence, previous, timestamp(at)))) + b"\n"
    return Draft(link=Link(sequence, hash_of(line)), previous=previous, line=line, entry=entry)


def _event(entry: Entry, sequence: int, previous: Link, at: str) -> Event:
    intent, subject = entry.type is RecordType.INTENT, entry.subject
    status = msgspec.structs.replace(_STATUS.get(entry.result, _SUCCESS), message=entry.detail)
    return Event(
        kind=RECORD_KIND,
        api_version=RECORD_API_VERSION,
        level="Metadata",
        audit_id=entry.audit_id,
        stage="RequestReceived" if intent else "ResponseComplete",
        request_uri="",
        verb=entry.verb.value,
        user=User(entry.operator.os_user),
        user_agent=f"etcdfix/{__version__}",
        object_ref=None
        if subject is None
        else ObjectReference(
            resource=subject.resource,
            namespace=subject.namespace,
            name=subject.name,
            api_group=subject.group,
            api_version=subject.api_version,
            resource_version=_number(subject.mod_revision),
        ),
        response_status=None if intent else status,
        request_received_timestamp=at,
        stage_timestamp=at,
        annotations=_annotations(entry, sequence, previous),
    )


def _annotations(entry: Entry, sequence: int, previous: Link) -> Annotations:
    subject = entry.subject
    return Annotations(
        type=entry.type.value,
        sequence=str(sequence),
        previous=f"sha256:{previous.sha256}",
        outcome=entry.result.value if entry.result is not None else "",
        intent=_number(entry.intent or 0),
        key_base64=_key(subject),
        mod_revision=_number(subject.mod_revision) if subject is not None else "",
        version=_number(subject.version) if subject is not None else "",
        header_revision=_number(entry.header_revision),
        cluster_uid=entry.cluster_uid,
        value_sha256=entry.value_sha256,
        backups=_list(entry.backups),
        backup_sha256=entry.backup_sha256,
        reason=entry.reason,
        accepted=_list(entry.accepted),
        grounds="" if entry.grounds is None else _encode(entry.grounds),
        way=entry.way,
        saved=_list(entry.saved),
        detail=entry.detail,
        **msgspec.structs.asdict(entry.operator),
        unsafe_delete="" if entry.verb is Verb.DELETE else UNSET,
    )


def _key(subject: Subject | None) -> str:
    """Return the etcd key of a record; "" for one of which part must not be shown: no change ever has such a target."""
    if subject is None or shown_key(subject.key) != subject.key:
        return ""
    return base64.b64encode(subject.key).decode()


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _number(number: int) -> str:
    return str(number) if number else ""


def _list(items: tuple[str, ...]) -> str:
    # An annotation is a string; a JSON list in it stays exact whatever the items hold.
    return _encode(items) if items else ""


_EVENTS = msgspec.json.Decoder(Event)
_LISTS = msgspec.json.Decoder(tuple[str, ...])
_GROUNDS = msgspec.json.Decoder(Grounds)


def parse_record(line: bytes) -> tuple[Link, Event]:
    """Read one record, and return its place in the chain with it.

    Raises:
        ValueError: The line is no record of ours, in words for a person.
    """
    try:
        event = _EVENTS.decode(line)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise ValueError("it is no record of etcdfix") from exc
    number = parse_number(event.annotations.sequence)
    if event.kind != RECORD_KIND or number is None:
        raise ValueError("it is no record of etcdfix")
    if event.api_version != RECORD_API_VERSION:
        found = event.api_version or "missing"
        raise ValueError(f"its apiVersion is {found}, and this etcdfix reads only {RECORD_API_VERSION}")
    return Link(number, hash_of(line)), event


def parse_number(text: str) -> int | None:
    """Return the sequence of a record that an annotation names; None where it names none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def intent_of(link: Link, event: Event) -> Intent:
    """Return an intent from its record.

    Raises:
        ValueError: It is no intent.
    """
    notes, reference = event.annotations, event.object_ref
    if notes.type != RecordType.INTENT or reference is None:
        raise ValueError(f"record {link.sequence} is no intent that can be read")
    try:
        return Intent(
            link=link,
            type=RecordType.INTENT,
            verb=Verb(event.verb),
            operator=Operator(**{name: getattr(notes, name) for name in Operator.__struct_fields__}),
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
            grounds=_GROUNDS.decode(notes.grounds) if notes.grounds else None,
            detail=notes.detail,
            way=notes.way,
        )
    except (ValueError, RecursionError) as exc:
        raise ValueError(f"record {link.sequence} is no intent that can be read") from exc


def parse_list(text: str) -> tuple[str, ...]:
    """Read an annotation that holds several words: a JSON list, or "" for none.

    Raises:
        ValueError: It is no such list.
    """
    return _LISTS.decode(text) if text else ()
