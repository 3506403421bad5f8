"""What a write-ahead log tells of the keys of etcd, and how sure it is."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model import Confidence, StoredValue


class WriteKind(StrEnum):
    """What a request did to one key."""

    PUT = "put"
    DELETE = "delete"
    LEASE_REVOCATION = "lease-revocation"


class LoggedWrite(msgspec.Struct, frozen=True, kw_only=True):
    r"""One change of one key, as one entry of the log asked for it.

    Committed is not applied: etcd may have refused it. ``confidence`` says how sure it is that it took effect, and at
    ``mod_revision``:

    - ``certain``: replayed from a known state, every entry between present, and what is stored later agrees.
    - ``likely``: the compares of other entries fit, and leave no other revision.
    - ``possible``: it may have been refused, or stands above the last commit. Never offer it as "the value at N".

    Attributes:
        key: Complete etcd key.
        kind: What happened; a deletion may be one of a range (``range_end``).
        entry_index: Raft index of its entry.
        operation: Place among the writes of that entry, from 0; those of nested transactions are counted in order.
        term: Raft term of its entry.
        value: Stored bytes, envelope included; None for a deletion, and where ``keeps_value``.
        keeps_value: A put with ``ignore_value``: the value before it stands on, and is not in this entry. Not empty.
        lease: etcd lease id, 0 for none; None where the put keeps the lease before it (``ignore_lease``).
        mod_revision: Revision that it made; None where that is not known.
        create_revision: Of the generation of the key; None where it is not known, as without a replay.
        version: Changes since then, itself counted; None like ``create_revision``.
        confidence: How sure all this is.
        doubt: Why it is not certain, a clause; "" where it is.
        after_revision: It made a later revision than this; None where nothing tells.
        before_revision: It made an earlier revision than this; None where nothing tells.
        user: etcd user who asked; "" where etcd's authentication was off.
        range_end: End of the range that a deletion named, b"" for one key; b"\x00" for all keys from ``key`` on.
        refused: A replay says that it changed nothing; never together with ``certain``.
    """

    key: bytes
    kind: WriteKind
    entry_index: int
    operation: int
    term: int
    value: bytes | None
    keeps_value: bool
    lease: int | None
    mod_revision: int | None
    create_revision: int | None
    version: int | None
    confidence: Confidence
    doubt: str
    after_revision: int | None
    before_revision: int | None
    user: str = ""
    range_end: bytes = b""
    refused: bool = False

    def __repr__(self) -> str:
        # Without the bytes: they may be stored unencrypted, and a traceback ends up in a ticket.
        size = "no value" if self.value is None else f"{len(self.value)} bytes"
        return (
            f"LoggedWrite({self.key!r}, {self.kind.value}, entry {self.entry_index}.{self.operation}, {size}, "
            f"mod_revision={self.mod_revision}, {self.confidence.value})"
        )

    def stored(self) -> StoredValue | None:
        """Return it as a stored value, to be examined; None where it has no value. Unknown revisions are 0."""
        if self.value is None:
            return None
        return StoredValue(
            key=self.key,
            value=self.value,
            mod_revision=self.mod_revision or 0,
            create_revision=self.create_revision or 0,
            version=self.version or 0,
            lease=self.lease or 0,
        )


class LogGap(msgspec.Struct, frozen=True):
    """Entries that could not be read: nothing is derived across them.

    Attributes:
        first: Raft index of the first.
        last: Of the last.
        why: What stands in their place, with file and offset.
    """

    first: int
    last: int
    why: str


class LogDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a log holds, for reports.

    Attributes:
        directories: As given, one for each member's log.
        cluster_id: Lower-case hex; "" where no metadata could be read. Proves nothing: defaults repeat.
        first_index: Raft index of the oldest entry that could be read; 0 for none.
        last_index: Of the newest.
        committed_index: Entries up to it were agreed on.
        entries: How many entries count.
        superseded: How many were replaced by a later leader, and do not count.
        segments: How many files.
        gaps: What is missing between first and last.
    """

    directories: tuple[str, ...]
    cluster_id: str
    first_index: int
    last_index: int
    committed_index: int
    entries: int
    superseded: int
    segments: int
    gaps: tuple[LogGap, ...]


class Kinship(StrEnum):
    """Whether the log is of the history of what is stored now."""

    SAME_HISTORY = "same-history"
    OTHER_HISTORY = "other-history"
    NOT_COMPARED = "not-compared"


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How the newest writes of the log compare with what is stored now.

    Attributes:
        kinship: Nothing of a log of another history is ever offered (its writes are empty).
        agreed: So many keys hold now what the log says was written last.
        contradicted: So many hold something that the log does not allow.
        newest_agreed_index: Entries up to this one are of this history; 0 for none.
        sentence: All of it for people.
    """

    kinship: Kinship
    agreed: int
    contradicted: int
    newest_agreed_index: int
    sentence: str
