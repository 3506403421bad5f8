"""What one record of the audit log says; ``record_line`` says how it is written."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec

from etcdfix.copies.model import Way
from etcdfix.model import ClusterIdentity
from etcdfix.remediation.audit.grounds import Grounds

T = TypeVar("T", bound=msgspec.Struct)

PATCH: Final = Way.PATCH.value
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
    RESCUED = "rescued"
    TORN_LINE = "torn-line"


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
    PRUNED = "pruned"


CLOSING_TYPES: Final = frozenset({RecordType.OUTCOME, RecordType.RECONCILED})
"""Types of record that say what became of an intent."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """What a record is about.

    Attributes:
        key: Complete etcd key.
        api_version: Version within the group, "" where nobody knows it.
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


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be recorded; sequence, hashes and times are added when it is drafted.

    Attributes:
        subject: The key; None only for a torn line.
        reason: ``--reason``, as given.
        cluster_uid: uid of namespace kube-system; "" where unknown.
        header_revision: Revision in the header of etcd's last answer; 0 for none.
        value_sha256: Digest of the stored bytes, ``sha256:<hex>``; "" for none.
        backups: Paths of the backup files, all with the same contents.
        backup_sha256: ``content_sha256`` of these files; "" for none.
        accepted: Safety flags that were given and what they accepted (``--accept cluster-breaking``).
        grounds: What the change rests on; None where nothing is changed (a reveal, a torn line).
        way: How a value is written, as :class:`~etcdfix.copies.model.Way` says it; "" for a deletion.
        intent: Sequence of the intent that an outcome belongs to.
        audit_id: The same for an intent and its outcome; "" makes a new one.
        saved: Digests of objects that were saved from API servers, ``sha256:<hex>``.
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
    way: str = ""
    intent: int | None = None
    audit_id: str = ""
    saved: tuple[str, ...] = ()

    @property
    def cluster(self) -> ClusterIdentity:
        """Which cluster it is about; one that the grounds do not name, is named by its uid alone."""
        if self.grounds is not None and self.grounds.cluster is not None:
            return self.grounds.cluster
        return ClusterIdentity.by_uid(self.cluster_uid)

    @property
    def closes(self) -> bool:
        """Whether the intent that this belongs to is settled by it."""
        return self.type in CLOSING_TYPES and self.result is not Result.UNKNOWN


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


def unicode_text(text: str) -> str:
    """Return text that can be encoded: words from the command line and the system may hold lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def in_unicode(value: T) -> T:
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


class Intent(Entry, frozen=True, kw_only=True):
    """An intent as the log holds it; the detail of a change that puts a value ends with the digest of that.

    Attributes:
        link: Its sequence and hash.
    """

    link: Link
    subject: Subject

    @property
    def is_patch(self) -> bool:
        """Whether an API server was asked to write the value."""
        return self.way == PATCH

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
        accepted: tuple[str, ...] = (),
    ) -> Entry:
        """Return the entry that says what became of this intent; ``unknown`` leaves it open.

        ``backups`` and ``backup_sha256`` are given where there is a second backup (an anomaly), ``accepted`` where
        another run finds it out: what that accepted stands there too.
        """
        return msgspec.structs.replace(
            Entry(**{name: getattr(self, name) for name in Entry.__struct_fields__}),
            type=RecordType.RECONCILED if reconciled else RecordType.OUTCOME,
            operator=operator,
            header_revision=header_revision,
            backups=self.backups if backups is None else backups,
            backup_sha256=self.backup_sha256 if backup_sha256 is None else backup_sha256,
            result=result,
            detail=detail,
            accepted=tuple(dict.fromkeys((*self.accepted, *accepted))),
            intent=self.link.sequence,
        )
