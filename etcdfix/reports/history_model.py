"""The published shape of what is kept of one etcd key (``etcdfix/v1alpha2``, kind ``HistoryReport``)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model import Confidence, Outcome
from etcdfix.reports.model import Remedy, SourcedReport, ValueKind


class Event(StrEnum):
    """What happened to the key."""

    PUT = "put"
    DELETE = "delete"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """When a revision was written, by what the object itself says: etcd keeps no times.

    Attributes:
        time: RFC 3339, as stored.
        by: The manager in ``metadata.managedFields`` that the time belongs to; "" for the time of its creation.
        exact: The time is new in this revision, so that the write is of about that time. Otherwise it was then, or
            later.
    """

    time: str
    by: str
    exact: bool


class ChangeKind(StrEnum):
    """What became of a field."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class FieldChange(msgspec.Struct, frozen=True):
    """A field that differs from the revision before; of its value nothing is told."""

    path: str
    change: ChangeKind


class HistoryRevision(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the key.

    Attributes:
        mod_revision: At which it was written, or deleted.
        event: What happened; after a deletion there is no value, and what speaks of one is null, 0 or "".
        present: It is what the key holds now, or at the revision that was read.
        stands_until: Newest revision at which it could be read; null where nothing came after it.
        version: 0 where kine does not tell.
        from_old_value: Kept by kine beside the next revision alone: its lease, and mostly its version, are not known.
        written: Null where the object does not say, or cannot be read.
        after_deletion: The key was deleted just before, so that this created it anew.
        same_object: It is one of the object that is there now, or was there last: null where nothing shows it, false
            where the uid is another one.
        same_value: Its bytes are those of the revision before, which says nothing of encrypted ones that differ.
        changes: Fields that differ from the revision before; null where the two cannot be compared.
        changes_left_out: How many more there are.
        not_compared: Why there are no ``changes``; "" where there are.
        get: Command that shows the object, Secrets masked; "" where it cannot be read.
        save: Command that shows the whole object, to be kept, where it cannot be put back; else "".
        restore: Command that puts it back, as a dry run; "" where it could not be put back.
        restore_note: What to know first, or why it could not be put back.
    """

    mod_revision: int
    event: Event
    present: bool
    stands_until: int | None
    create_revision: int = 0
    version: int = 0
    lease: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    confidence: Confidence | None = None
    message: str = ""
    stale: bool = False
    transformer: str = ""
    key_fingerprint: str | None = None
    kms_key_id_sha256: str | None = None
    group_version_kind: ValueKind | None = None
    uid: str = ""
    value_size: int = 0
    value_sha256: str | None = None
    from_old_value: bool = False
    written: Written | None = None
    after_deletion: bool = False
    same_object: bool | None = None
    same_value: bool = False
    changes: list[FieldChange] | None = None
    changes_left_out: int = 0
    not_compared: str = ""
    get: str = ""
    save: str = ""
    restore: str = ""
    restore_note: str = ""


class HistoryReport(SourcedReport, frozen=True, kw_only=True):
    """Every revision of one key that etcd, or a snapshot, still keeps.

    Attributes:
        key_base64: The key itself, where it is not plain text; else null.
        exists: The key holds a value now, or at the revision that was read.
        compacted_revision: The oldest revision that can be read; 0 where nothing was compacted, null for unknown.
        count: How many revisions are kept, deletions counted.
        deletions: How many of them are deletions.
        oldest_mod_revision: Of the oldest of them.
        generations: How many times the key was created, as far as it is kept.
        older_versions: How many earlier revisions of the oldest kept generation are gone.
        readable: How many of the revisions can be read.
        unreadable: How many of them cannot, or are inconsistent.
        undetermined: Of how many that could not be told.
        newest_readable: mod_revision of the newest that can be read; null for none.
        left_out: How many of the oldest revisions are not among ``revisions``.
        at_stake: What is wrong with the present value means, in one line; "" for nothing.
        do_not_restart: Why no API server should be restarted; "" where nothing speaks against it.
        next: What to do first; null where there is nothing to do.
        revisions: The newest first.
        complete: Everything that is kept was seen and could be judged.
        incomplete_reasons: Why not.
    """

    kind: str = "HistoryReport"
    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    exists: bool
    compacted_revision: int | None
    count: int
    deletions: int
    oldest_mod_revision: int
    generations: int
    older_versions: int
    readable: int
    unreadable: int
    undetermined: int
    newest_readable: int | None
    left_out: int
    at_stake: str = ""
    do_not_restart: str = ""
    next: Remedy | None
    revisions: list[HistoryRevision]
    complete: bool
    incomplete_reasons: list[str]
