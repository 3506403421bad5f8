"""What a copy of an object is, and what is known of the object that it may be a copy of."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import protected_reason
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import (
    ClusterIdentity,
    Confidence,
    GroupResource,
    Outcome,
    Repair,
    StoredValue,
    digest_of,
)
from etcdfix.model.storagekey import StorageCodec, StorageLayout, display


class Place(StrEnum):
    """Where a copy is, in the words of ``--from`` and ``--in``; of equally good copies the first place here wins."""

    BIT = "bit"
    """The value itself, with one bit, its first bytes, its line ends or a wrapped data key put right."""
    CANDIDATE = "candidate"
    """The value itself, opened by another EncryptionConfiguration."""
    MEMORY = "memory"
    """What an API server that still runs holds in memory."""
    REVISION = "revision"
    """An earlier revision that etcd or kine still keeps."""
    KEY = "key"
    """The value of another etcd key."""
    LOG = "log"
    """A write in etcd's write-ahead log."""
    SNAPSHOT = "snapshot"
    """An older snapshot, or a copied database."""
    BACKUP = "backup"
    """What etcdfix saved before it changed the key."""
    OBJECT = "object"
    """A JSON file as the API gave it; ``rescue`` saves such files."""


THE_VALUE: Final = frozenset({Place.BIT, Place.CANDIDATE})
"""Copies that are made of the bytes that stand at the key now: nothing that was written later is lost with them."""


class Way(StrEnum):
    """How a copy is written."""

    PUT = "put"
    """Its bytes go back as they are."""
    SEAL = "seal"
    """Its contents are encrypted under today's write key."""
    PATCH = "patch"
    """The API server that remembers the object writes it anew."""


class Sameness(StrEnum):
    """Whether two things are one: a copy and the object at the key, or two histories."""

    SAME = "same"
    UNKNOWN = "unknown"
    OTHER = "other"


class Freshness(StrEnum):
    """What was written to the key after a copy."""

    CURRENT = "current"
    """Nothing: it is of the newest write."""
    OLDER = "older"
    UNKNOWN = "unknown"


class Home(StrEnum):
    """What stands at the etcd key that a moved value belongs to."""

    FREE = "free"
    """Nothing, as far as it could be read: the value can be put back there."""
    TAKEN = "taken"
    """What may be another object, so that the moved value may be the only copy."""
    LATER = "later"
    """The same object, as it was written later."""
    SAME = "same"
    """The same contents."""


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the object that stands at an etcd key, or stood there last.

    Attributes:
        create_revision: Of its generation; 0 for unknown. So are the next two.
        mod_revision: Of its newest write.
        version: Of that one.
        uid: "" where nothing tells it, or what tells it says that there is none.
        uid_from: What tells it, part of a sentence; "" for nothing.
    """

    create_revision: int = 0
    mod_revision: int = 0
    version: int = 0
    uid: str = ""
    uid_from: str = ""


UNKNOWN_LIFE: Final = Life()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """An object of which copies are wanted.

    Attributes:
        key: Complete etcd key.
        found: What stands there now, perhaps without its bytes; None where nothing does.
        value_sha256: ``sha256:<hex>`` of the present value, "" for none.
        resource: Of the key.
        protected: Why the cluster may depend on an object of this key; "" where nothing says so.
        life: What is known of the object.
        every: A finder yields every value that its place has of the key, and not only the newest of them.
    """

    key: bytes
    found: Examination | None = None
    value_sha256: str = ""
    resource: GroupResource
    protected: str = ""
    life: Life = UNKNOWN_LIFE
    every: bool = False

    @classmethod
    def of(cls, found: Examination, life: Life = UNKNOWN_LIFE) -> Self:
        """Return what is wanted of a value that was examined."""
        resource = found.directory.group_resource
        return cls(
            key=found.stored.key,
            found=found,
            value_sha256=digest_of(found.stored.value),
            resource=resource,
            protected=protected_reason(resource, found.namespace),
            life=life,
        )

    @classmethod
    def gone(cls, key: bytes, layout: StorageLayout, life: Life = UNKNOWN_LIFE) -> Self:
        """Return what is wanted of a key at which nothing stands."""
        where = layout.split(key)
        resource = where.directory.group_resource
        protected = protected_reason(resource, where.namespace)
        return cls(key=key, resource=resource, protected=protected, life=life)

    def without_bytes(self) -> Self:
        """Return the same without the present bytes, to be kept where there are many."""
        if self.found is None:
            return self
        stored = msgspec.structs.replace(self.found.stored, value=b"")
        return msgspec.structs.replace(
            self, found=msgspec.structs.replace(self.found, stored=stored, decoded=None)
        )


class LogProof(msgspec.Struct, frozen=True, kw_only=True):
    """What a write-ahead log shows of the write that a copy is.

    Attributes:
        entry: Raft index of its entry.
        create_revision: Of the generation that it is of, where this etcd's own log proves it; else 0.
        deleted_at: Revision at which that generation was deleted, where the log proves it and knows of nothing later at
            the key; else 0.
    """

    entry: int
    create_revision: int = 0
    deleted_at: int = 0


class Copy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of an object, as it was examined under the object's etcd key.

    Attributes:
        where: For people: ``revision 712``, ``snapshot FILE``, ``memory of https://…``.
        source: What ``--from`` takes to name it: ``revision:712``; "" where no command can put it back.
        mod_revision: At which it was written; 0 for unknown. So are the next two.
        lease: 0 for none.
        kept_at: The newest revision at which its place reads it, where it may not read it at its own; 0 for its newest.
        sure: How sure it is that the key held it, at that revision.
        doubt: What else is not certain about it; "" for nothing.
        listed: The audit log knows it, where it is a backup.
        outcome: What it is; None where only the API server can tell.
        message: Why it does not read; "" where it does.
        uid: That it says, "" for none.
        value_sha256: ``sha256:<hex>`` of its stored bytes, "" for none.
        history: Whether its place has the same history as this etcd.
        same_object: Whether it is of the object at the key; :mod:`~etcdfix.copies.rank` says it.
        later_writes: How many writes of the object came after it; None for unknown.
        proof: What shows that it is of the object and right, a sentence without full stop; "" for nothing.
        repair: What was put right in the value; None for any other copy.
        stored: The record to write; None where only the listing is wanted, and where an API server writes.
        plaintext: What is to be sealed, where the way is that; never shown.
        cluster: Which cluster its place is of; None for this very etcd, and where nothing says it.
    """

    key: bytes
    place: Place
    where: str
    source: str
    way: Way = Way.PUT
    mod_revision: int = 0
    create_revision: int = 0
    version: int = 0
    lease: int = 0
    kept_at: int = 0
    sure: Confidence = Confidence.CERTAIN
    doubt: str = ""
    listed: bool = True
    outcome: Outcome | None = None
    cause: str | None = None
    message: str = ""
    uid: str = ""
    value_sha256: str = ""
    history: Sameness = Sameness.SAME
    same_object: Sameness = Sameness.UNKNOWN
    freshness: Freshness = Freshness.UNKNOWN
    later_writes: int | None = None
    proof: str = ""
    repair: Repair | None = None
    log: LogProof | None = None
    stored: StoredValue | None = None
    plaintext: bytes | None = None
    cluster: ClusterIdentity | None = None

    def __repr__(self) -> str:
        return f"Copy({self.where!r}, {self.same_object}, {'reads' if self.reads else self.outcome})"

    @property
    def reads(self) -> bool:
        """Whether it opens, decodes and fits its key; what an API server holds in memory it could read."""
        return self.outcome is Outcome.READABLE or (self.place is Place.MEMORY and self.outcome is None)

    def for_listing(self) -> Copy:
        """Return it without what is written: many copies are kept in a file."""
        return msgspec.structs.replace(self, stored=None, plaintext=None)


def examined_copy(found: Examination, place: Place, where: str, source: str, *, way: Way = Way.PUT) -> Copy:
    """Return the copy that an examined value is, under the etcd key that it is said to have stood at."""
    stored, verdict = found.stored, found.verdict
    outcome, cause, message = verdict.outcome, verdict.cause, verdict.message
    if is_of_another_key(found):
        outcome, message = Outcome.INCONSISTENT, "it is another object than the one that its etcd key names"
    return Copy(
        key=stored.key,
        place=place,
        where=where,
        source=source,
        way=way,
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=stored.lease,
        outcome=outcome,
        cause=cause.value if cause is not None else None,
        message="" if outcome is Outcome.READABLE else message,
        uid=found.uid,
        value_sha256=digest_of(stored.value),
        stored=stored,
    )


_OTHER_KEY = frozenset({Cause.IDENTITY_MISMATCH, Cause.WRONG_KIND_FOR_KEY, Cause.VALUE_MOVED})


def is_of_another_key(found: Examination) -> bool:
    """Say whether name, namespace or kind of a value are not those of its key.

    Of a value whose owner is unknown the examiner compares nothing, so it is compared here.
    """
    if found.verdict.cause in _OTHER_KEY:
        return True
    decoded = found.decoded
    if found.verdict.outcome is not Outcome.READABLE or decoded is None or not decoded.name:
        return False
    if found.directory.codec is StorageCodec.ALLOCATOR:
        return False
    kind = found.directory.kind
    named = (display(decoded.name), display(decoded.namespace or b""))
    return named != (found.name, found.namespace) or bool(kind and decoded.gvk.kind != kind)
