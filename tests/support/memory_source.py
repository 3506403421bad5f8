"""The simplest source there is: a dictionary of keys. A worked example of the seam in ``sources/base.py``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.sources.base import Segment, Source, SourceDescription

REVISION = 1000


def stored(
    key: bytes | str,
    value: bytes = b"",
    *,
    mod_revision: int = 7,
    create_revision: int = 5,
    version: int = 2,
    lease: int = 0,
) -> StoredValue:
    """Return one record, with revisions that a test can recognise."""
    raw = key.encode() if isinstance(key, str) else key
    return StoredValue(raw, value, mod_revision, create_revision, version, lease)


class MemorySource(Source):
    """Holds its keys in a dictionary; shows how little a source has to do.

    Args:
        records: What it holds: records, or a mapping of keys to values (mod_revisions count up from 10).
        fails_after: Raise ``failure`` once so many records were yielded by one ``current()`` of everything.
        compacted: The oldest revision that it says it keeps.
        limited_to: The one prefix that its etcd user may read; "" for everything.
    """

    def __init__(
        self,
        records: Iterable[StoredValue] | Mapping[str, bytes] = (),
        *,
        problems: Iterable[str] = (),
        fails_after: int | None = None,
        failure: BaseException | None = None,
        compacted: int | None = 0,
        limited_to: str = "",
    ) -> None:
        if isinstance(records, Mapping):
            records = [stored(k, v, mod_revision=n) for n, (k, v) in enumerate(records.items(), start=10)]
        self._records = {record.key: record for record in records}
        self._problems = list(problems)
        self._fails_after = fails_after
        self._failure = failure or SourceError("the connection was lost")
        self._compacted = compacted
        self._limited_to = limited_to
        self.closed = False

    def describe(self) -> SourceDescription:
        """Describe a snapshot that is nowhere."""
        return SourceDescription(
            type="snapshot",
            path="memory",
            revision=REVISION,
            segments=(Segment("", REVISION),),
            sha256="sha256:" + "0" * 64,
            integrity="verified",
            limited_to=self._limited_to,
        )

    def keys(self, prefix: bytes) -> Iterator[bytes]:
        return (key for key in sorted(self._records) if key.startswith(prefix))

    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        """Yield the records below a prefix in byte order of the keys."""
        yielded = 0
        for key in sorted(self._records):
            if key.startswith(prefix):
                if prefix == b"" and yielded == self._fails_after:
                    raise self._failure
                yielded += 1
                yield self._records[key]

    def get(self, key: bytes) -> StoredValue | None:
        return self._records.get(key)

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return the newest of the history before a revision."""
        older = [kept.stored for kept in self.history(key) if kept.revision.main < revision]
        return older[-1] if older else None

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        """Never: there is no history."""
        return False

    def compacted_revision(self) -> int | None:
        """What the constructor was told."""
        return self._compacted

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        record = self._records.get(key)
        if record is not None:
            yield KeptRevision(Revision(record.mod_revision, 0), record)

    def has_several(self, key: bytes) -> bool:
        """Say whether the history of a key has more than one revision."""
        return len(list(self.history(key))) > 1

    def superseded(self) -> Iterator[StoredValue]:
        """Yield what the history of each key has besides the current value."""
        for key, record in self._records.items():
            for kept in self.history(key):
                if kept.stored is not None and kept.stored != record:
                    yield kept.stored

    def estimate(self) -> int:
        """Return the exact number."""
        return len(self._records)

    @property
    def problems(self) -> list[str]:
        """What the constructor was told."""
        return list(self._problems)

    def close(self) -> None:
        self.closed = True


class LiveMemory(MemorySource):
    """The same, as a live etcd shows it."""

    def __init__(
        self, records: Iterable[StoredValue] | Mapping[str, bytes], revision: int = REVISION, **more: Any
    ) -> None:
        super().__init__(records, **more)
        self._revision = revision

    def describe(self) -> SourceDescription:
        """Describe an etcd at one endpoint."""
        return SourceDescription(
            type="etcd",
            endpoints=("127.0.0.1:2379",),
            revision=self._revision,
            segments=(Segment("", self._revision),),
            cluster_id="c1",
            etcd_version="3.6.0",
        )
