"""The published shape of the surviving copies of objects (``etcdfix/v1``, kind ``CopiesReport``)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from etcdfix.model import Confidence, Outcome
from etcdfix.report.model import Remedy, Scope, SourcedReport


class PlaceKind(StrEnum):
    """Where a copy may be: of equally new ones, the first here comes first."""

    REVISION = "revision"
    """An earlier revision that the datastore itself still keeps."""
    API_SERVER = "api-server"
    """The memory of a running API server."""
    RESCUED = "rescued-object"
    """A file that was saved from the memory of an API server."""
    LOG = "write-ahead-log"
    """etcd's log of writes."""
    SNAPSHOT = "snapshot"
    """An older snapshot."""
    BACKUP = "backup"
    """What etcdfix saved before it changed the etcd key."""
    OLD_VALUE = "kine-old-value"
    """What kine's row of a later change says that stood there before."""


class Grade(StrEnum):
    """What a copy is good for, the best first."""

    GOOD = "good"
    """It reads, it is of this object, and it stood at this etcd key."""
    DOUBTFUL = "doubtful"
    """It reads, but something is not certain: ``why`` says what."""
    UNUSABLE = "unusable"
    """It does not read, or is not of this object: ``why`` says what. No command puts it back."""


class Fit(StrEnum):
    """Whether a copy agrees with the object."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


class ObjectState(StrEnum):
    """What stands at the etcd key now."""

    UNREADABLE = "unreadable"
    UNDETERMINED = "undetermined"
    DELETED = "deleted"
    READABLE = "readable"
    INCONSISTENT = "inconsistent"


class CopyPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A place that was looked into.

    Attributes:
        kind: What it is.
        path: File, directory or address; "" for the datastore itself.
        searched: Whether it could be looked into.
        revision: Newest one that it holds; null where it has none, or it is not known.
        kube_system_uid: Of the cluster that it comes from; null for unknown.
        history: Whether its revisions are those of the datastore that is read: ``same``, ``other`` or ``unknown``.
        detail: Why that, or why it could not be looked into.
    """

    kind: PlaceKind
    path: str
    searched: bool
    revision: int | None = None
    kube_system_uid: str | None = None
    history: Fit = Fit.UNKNOWN
    detail: str = ""


class SurvivingCopy(msgspec.Struct, frozen=True, kw_only=True):
    """One copy of an object.

    Attributes:
        place: Kind of the place.
        path: Where: a file, a directory, an address; "" for the datastore itself.
        grade: What it is good for.
        why: What is not certain about it, or why it is unusable; "" for a good one.
        mod_revision: At which it was written; null for unknown.
        create_revision: Of its generation; null for unknown.
        version: How many times it had been written in its generation; null for unknown.
        confidence: How certain it is that the etcd key held it.
        lease: It had this lease, lower-case hex; null for none.
        outcome: Under today's configuration; null where it could not be examined.
        cause: Why it does not read; null where it does.
        message: The same in words.
        stale: It reads, and is not under today's write key.
        identity: Whether name, namespace and kind are those of the etcd key.
        uid: Of the object in it, "" for unknown.
        uid_fits: Whether that is the object that stands at the etcd key, or stood there last.
        value_size: Bytes; 0 where only the object is there.
        value_sha256: Of the stored bytes; null where only the object is there.
        later_writes: How many later writes to the etcd key are lost with it, unreadable ones counted; null for unknown.
        log_index: Index of its entry in the write-ahead log; null for none.
        see: Command that shows it, Secrets masked; "" for none.
        save: Command that saves it whole; "" for none.
        put_back: Command that puts it back, as a dry run; "" where nothing could.
        note: What to know before, or why nothing puts it back.
    """

    place: PlaceKind
    path: str
    grade: Grade
    why: str
    mod_revision: int | None
    create_revision: int | None = None
    version: int | None = None
    confidence: Confidence = Confidence.CERTAIN
    lease: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    message: str = ""
    stale: bool = False
    identity: Fit = Fit.UNKNOWN
    uid: str = ""
    uid_fits: Fit = Fit.UNKNOWN
    value_size: int = 0
    value_sha256: str | None = None
    later_writes: int | None = None
    log_index: int | None = None
    see: str = ""
    save: str = ""
    put_back: str = ""
    note: str = ""


class ObjectCopies(msgspec.Struct, frozen=True, kw_only=True):
    """One object and its copies.

    Attributes:
        key_base64: The etcd key itself, where it is not plain text; else null.
        state: What stands there now.
        outcome: Of the present value; null where there is none.
        cause: Likewise.
        message: What is wrong with it, in words; "" for nothing.
        mod_revision: Of the present value; null where there is none. So are the next three.
        uid: Of the object that stands there, or stood there last, where anything tells; else "".
        good: How many good copies there are.
        doubtful: How many doubtful ones.
        left_out: How many further ones are not among ``copies``: of each place the newest are told.
        next: What to do first; null where there is nothing to do.
        copies: The best first.
    """

    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    state: ObjectState
    outcome: Outcome | None
    cause: str | None
    message: str
    mod_revision: int | None
    create_revision: int | None
    version: int | None
    value_sha256: str | None
    uid: str
    good: int
    doubtful: int
    left_out: int
    next: Remedy | None
    copies: list[SurvivingCopy]


class CopiesReport(SourcedReport, frozen=True, kw_only=True):
    """Every copy that still exists of what cannot be read, or was deleted lately.

    Attributes:
        scope: What was asked for.
        places: What was looked into.
        count: How many objects there are below.
        unreadable: How many of them cannot be read.
        undetermined: Of how many that could not be told.
        deleted: How many of them were deleted.
        with_good_copy: How many have a good copy.
        with_doubtful_copy: How many have doubtful ones alone.
        without_copy: How many have neither.
        expired: How many deleted ones had a lease, so that etcd itself may have let go of them; they are not told.
        at_stake: What the unreadable values mean, in one line; "" for nothing.
        do_not_restart: Why no API server should be restarted; "" where nothing speaks against it.
        next: What to do first; null where there is nothing to do.
        complete: Everything that was named could be looked into and judged.
        incomplete_reasons: Why not.
        objects: In the order of their etcd keys.
    """

    kind: str = "CopiesReport"
    scope: Scope
    places: list[CopyPlace]
    count: int
    unreadable: int
    undetermined: int
    deleted: int
    with_good_copy: int
    with_doubtful_copy: int
    without_copy: int
    expired: int
    at_stake: str
    do_not_restart: str
    next: Remedy | None
    complete: bool
    incomplete_reasons: list[str]
    objects: Sequence[ObjectCopies]
