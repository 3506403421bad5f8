"""The state that a log is replayed from: the store of a database file, or the empty one that every etcd begins with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Final

from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import AppliedState, SnapshotSource
from etcdfix.sources.wal.requests import ALL_FROM, in_range

_EMPTY: Final = AppliedState(0, None, 1, (), frozenset(), authentication=False)


class Base:
    """A whole state of the store, and the raft index that it is of.

    Args:
        source: A database file, at its newest revision; None for the store of an etcd that was never written to.
        applied: How far the log had been applied to it; its revision, leases and alarms.

    Attributes:
        name: For people, a clause.
    """

    def __init__(self, source: SnapshotSource | None = None, applied: AppliedState = _EMPTY) -> None:
        self.source, self.applied = source, applied
        self.name = "the empty store that it began with"
        if source is not None:
            self.name = f"{source.describe().path}, which shows the entries up to {applied.entry}"

    @classmethod
    def of(cls, source: Source | None) -> Base | None:
        """Return a source as a base; None where it is none."""
        applied = source.applied() if isinstance(source, SnapshotSource) else None
        return cls(source, applied) if isinstance(source, SnapshotSource) and applied is not None else None

    def get(self, key: bytes) -> StoredValue | None:
        """Return what a key holds."""
        return self.source.get(key) if self.source is not None else None

    def keys(self, begin: bytes, end: bytes) -> Iterator[bytes]:
        """Yield the keys of a range that has an end, in order."""
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(begin, end, strict=False))
        common = b"" if end == ALL_FROM else bytes(byte for byte, _ in alike)
        for stored in self.source.current(common) if self.source is not None else ():
            if in_range(stored.key, begin, end):
                yield stored.key

    def leased(self) -> Iterator[tuple[bytes, int]]:
        """Yield every key under a lease, with its id."""
        for stored in self.source.current(b"") if self.source is not None else ():
            if stored.lease:
                yield stored.key, stored.lease
