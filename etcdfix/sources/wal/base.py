"""The state that a log is replayed from: the store of a database file, or the empty one that every etcd begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from etcdfix.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import AppliedState, SnapshotSource
from etcdfix.sources.wal.requests import ALL_FROM, in_range


class Base(Protocol):
    """A whole state of the store, and the raft index that it is of."""

    @property
    def applied(self) -> AppliedState:
        """How far the log had been applied, revision, leases, alarms."""
        ...

    @property
    def name(self) -> str:
        """Of it, for people: a clause."""
        ...

    def get(self, key: bytes) -> StoredValue | None:
        """Return what a key holds."""
        ...

    def keys(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the keys of a range, in order."""
        ...

    def leased(self) -> Iterator[tuple[bytes, int]]:
        """Yield every key under a lease, with its id."""
        ...


class EmptyBase(NamedTuple):
    """The store of an etcd that was never written to."""

    applied: AppliedState = AppliedState(0, None, 1, (), frozenset(), authentication=False)
    name: str = "the empty store that it began with"

    def get(self, _key: bytes) -> StoredValue | None:
        return None

    def keys(self, _begin: bytes, _end: bytes) -> Iterator[bytes]:
        return iter(())

    def leased(self) -> Iterator[tuple[bytes, int]]:
        return iter(())


class FileBase:
    """A database file, at its newest revision."""

    def __init__(self, source: SnapshotSource, applied: AppliedState) -> None:
        self.source = source
        self.applied = applied
        self.name = f"{source.describe().path}, which shows the entries up to {applied.entry}"

    @classmethod
    def of(cls, source: Source | None) -> FileBase | None:
        """Return a source as a base; None where it is none."""
        if not isinstance(source, SnapshotSource):
            return None
        applied = source.applied()
        return None if applied is None else cls(source, applied)

    def get(self, key: bytes) -> StoredValue | None:
        return self.source.get(key)

    def keys(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        if not end:
            if self.source.get(begin) is not None:
                yield begin
            return
        common = b"" if end == ALL_FROM else _common(begin, end)
        for stored in self.source.current(common):
            if in_range(stored.key, begin, end):
                yield stored.key

    def leased(self) -> Iterator[tuple[bytes, int]]:
        for stored in self.source.current(b""):
            if stored.lease:
                yield stored.key, stored.lease


def _common(begin: bytes, end: bytes) -> bytes:
    last = end[:-1] + (bytes([end[-1] - 1]) if end[-1] else b"")
    size = 0
    for one, other in zip(begin, last, strict=False):
        if one != other:
            break
        size += 1
    return begin[:size]
