"""The published shape of what is kept of one etcd key (``etcdfix/v1``, kind ``HistoryReport``)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model import Confidence, Outcome
from etcdfix.report.model import Remedy, SourcedReport, ValueKind


class Event(StrEnum):
    """What happened to the key."""

    PUT = "put"
    DELETE = "delete"
    LEASE_REVOCATION = "lease-revocation"


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


class LoggedRevision(msgspec.Struct, frozen=True, kw_only=True):
    """One write of the key that stands in etcd's write-ahead log, and that etcd may not keep any more.

    Attributes:
        entry_index: Raft index of its entry.
        operation: Place among the writes of the entry, from 0.
        event: What was asked for.
        mod_revision: At which it took effect; null where nothing tells.
        after_revision: It was later than this one; null for unknown.
        before_revision: It was earlier than this one; null for unknown.
        confidence: How sure it is that it took effect, so.
        doubt: Why it is not certain; "" where it is.
        kept: etcd keeps it, too: it is among ``revisions``.
        range_end: End of the range that was deleted, as text; "" for one key.
        keeps_value: A put that names no value: the one before it stands on.
        user: etcd user who asked; "" where etcd's authentication was off.
        outcome: Of its value, under the configuration of today; null where it has none. So are the fields behind it.
        restore: Command that puts it back, as a dry run; "" where there is none.
        restore_note: What to know before that, or why there is none.
    """

    entry_index: int
    operation: int
    event: Event
    mod_revision: int | None
    after_revision: int | None
    before_revision: int | None
    confidence: Confidence
    doubt: str
    kept: bool
    range_end: str = ""
    keeps_value: bool = False
    user: str = ""
    lease: str | None = None
    outcome: Outcome | None = None
    cause: str | None = None
    message: str = ""
    transformer: str = ""
    key_fingerprint: str | None = None
    kms_key_id_sha256: str | None = None
    group_version_kind: ValueKind | None = None
    uid: str = ""
    value_size: int = 0
    value_sha256: str | None = None
    restore: str = ""
    restore_note: str = ""


class HistoryLog(msgspec.Struct, frozen=True, kw_only=True):
    """etcd's write-ahead log, as far as it tells of the key.

    Attributes:
        directories: Where it was read.
        first_index: Raft index of the oldest entry that could be read.
        last_index: Of the newest.
        committed_index: Entries up to it were agreed on.
        kinship: ``same-history``, or ``not-compared`` where nothing could be compared; of another history nothing is
            told at all.
        agreement: In words.
        replayed: From which state it was replayed; "" for none, so that nothing is certain.
        refused: How many writes of the key changed nothing, by the replay; they are not among ``writes``.
        left_out: How many of the oldest writes are not among them.
        writes: The newest first.
        notes: What to know besides.
    """

    directories: list[str]
    first_index: int
    last_index: int
    committed_index: int
    kinship: str
    agreement: str
    replayed: str
    refused: int
    left_out: int
    writes: list[LoggedRevision]
    notes: list[str]


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
        log: What a write-ahead log tells besides; null where none was named.
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
    log: HistoryLog | None = None
    complete: bool
    incomplete_reasons: list[str]
