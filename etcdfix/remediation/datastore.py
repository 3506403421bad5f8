"""What stands under keys now: in etcd, read linearizably, or in the file of kine, read anew each time.

A change is decided by what stands there now, and judged by it afterwards. Everything that only asks does so here, and
need not know what keeps the keys; a transaction of our own needs an etcd (:mod:`~etcdfix.remediation.writer`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import msgspec

from etcdfix.errors import RevisionCompacted, SourceError
from etcdfix.model import StoredValue
from etcdfix.remediation.landmarks import (
    KUBE_SYSTEM,
    Landmark,
    Landmarks,
    Sighting,
    choose,
    read_landmarks,
    sight,
)
from etcdfix.remediation.preflight.members import KeyReading, read_at, read_key
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.kine import KineSource
from etcdfix.storagekey import StorageLayout, display


class Datastore(Protocol):
    """Answers about now: no answer is older than its question."""

    @property
    def file(self) -> Path | None:
        """The file that is read, which may be a copy of the one in use; None for what answers for itself."""
        ...

    def read_key(self, key: bytes) -> KeyReading:
        """Read one key.

        Raises:
            SourceError: It cannot be read.
        """
        ...

    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Read one key as it stood at a revision.

        Raises:
            RevisionCompacted: That is not kept any more.
            SourceError: It cannot be read.
        """
        ...

    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks.

        Raises:
            SourceError: They cannot be read.
        """
        ...

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """Read the landmarks of the cluster.

        Raises:
            SourceError: They cannot be read.
        """
        ...

    def close(self) -> None:
        """Let go of what was opened for it alone."""
        ...


class EtcdNow:
    """A live etcd; implements :class:`Datastore`."""

    def __init__(self, client: EtcdClient) -> None:
        self._client = client

    @property
    def file(self) -> Path | None:
        """It is no file."""
        return None

    def read_key(self, key: bytes) -> KeyReading:
        """Read one key linearizably."""
        return read_key(self._client, key)

    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Read one key as it stood at a revision."""
        return read_at(self._client, key, revision)

    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks linearizably."""
        return sight(self._client, key, landmarks)

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """List the keys of objects that stay."""
        return read_landmarks(self._client, layout, target=target)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


class KineNow:
    """The file of kine, read anew for each question; implements :class:`Datastore`.

    kine keeps no version of a key, and what can be counted of it changes with a compaction: every version is 0, for
    unknown, so that a key which nobody wrote stays the same.
    """

    def __init__(self, source: KineSource) -> None:
        self._source = source

    @property
    def file(self) -> Path | None:
        """The file of kine."""
        return self._source.path

    def read_key(self, key: bytes) -> KeyReading:
        """Read one key from the file as it stands now."""
        with self._again() as now:
            return _reading(now, key)

    def read_at(self, key: bytes, revision: int) -> StoredValue | None:
        """Tell nothing of the past: which file of kine it is, its path says."""
        raise RevisionCompacted(
            f"{display(key)}: kine is not asked for revision {revision}", revision=revision
        )

    def sight(self, key: bytes, landmarks: Landmarks) -> Sighting:
        """Read a key and the landmarks from the file, all of one moment."""
        with self._again() as now:
            marks = [(mark, now.get(mark.key)) for mark in landmarks.marks]
            return Sighting(
                reading=_reading(now, key),
                revisions=tuple(
                    0 if found is None else getattr(found, mark.compared[0]) for mark, found in marks
                ),
            )

    def landmarks(self, layout: StorageLayout, *, target: bytes) -> Landmarks:
        """List the keys of objects that stay, all of one moment."""
        with self._again() as now:
            kube_system = now.get(layout.prefix_bytes + KUBE_SYSTEM)
            return choose(
                layout,
                0 if kube_system is None else kube_system.create_revision,
                lambda prefix: [Landmark(found.key, found.create_revision) for found in now.current(prefix)],
                target=target,
                revision=now.revision,
            )

    def close(self) -> None:
        """Let go of the copy."""
        self._source.close()

    @contextmanager
    def _again(self) -> Iterator[KineSource]:
        """Read the file as it stands now; refuse one that cannot be read whole: that may be what has moved."""
        with self._source.again() as now:
            yield now
            if now.problems:
                raise SourceError(
                    f"{now.path}: not all of it can be read: {now.problems[0]}",
                    hint="nothing is decided by a damaged file; scan --kine says what can be read",
                )


def _reading(now: KineSource, key: bytes) -> KeyReading:
    stored = now.get(key)
    return KeyReading(
        stored=None if stored is None else msgspec.structs.replace(stored, version=0),
        revision=now.revision,
        cluster_id=0,
        member_id=0,
    )
