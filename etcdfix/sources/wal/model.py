"""What a write-ahead log tells of the keys of etcd, and how sure it is."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from etcdfix.model.model import Confidence, StoredValue


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
    - ``possible``: it may have been refused, or stands above the last commit. It has no revision.

    Attributes:
        key: Complete etcd key.
        entry_index: Raft index of its entry.
        operation: Place among the writes of that entry, from 0; those of nested transactions are counted in order.
        value: Stored bytes, envelope included; None for a deletion, and for a put that keeps the value before it.
        lease: etcd lease id, 0 for none; None where the put keeps the lease before it.
        mod_revision: Revision that it made; None where that is not known.
        create_revision: Of the generation of the key; None where it is not known, as without a replay.
        version: Changes since then, itself counted; None like ``create_revision``.
        confidence: How sure all this is.
        doubt: Why it is not certain, a clause; "" where it is.
        refused: A replay says that it changed nothing; never together with ``certain``.
    """

    key: bytes
    kind: WriteKind
    entry_index: int
    operation: int
    value: bytes | None
    lease: int | None
    mod_revision: int | None
    create_revision: int | None
    version: int | None
    confidence: Confidence
    doubt: str
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


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How the newest writes of the log compare with what is stored now.

    Attributes:
        same: Whether the log is of the history of what is stored; None where nothing could be compared.
        newest: The newest entry whose write stands there as the log has it; 0 for none.
        safe: Entries up to this one are of this history; 0 for none. One key alone may agree by chance.
        sentence: All of it for people.
    """

    same: bool | None
    newest: int
    safe: int
    sentence: str
