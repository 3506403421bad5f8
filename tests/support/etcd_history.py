"""A datastore that remembers every revision, as etcd does: read as it is, saved as a snapshot, cloned, compacted."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from etcdfix.model.model import KeptRevision, Revision, StoredValue
from tests.support.bbolt_writer import database, delete, put, revision_key
from tests.support.memory_source import LiveMemory
from tests.support.objects import KUBE_SYSTEM_UID, namespace_object

KUBE_SYSTEM = b"/registry/namespaces/kube-system"


class RememberedEtcd:
    """Takes writes, one revision each, from revision 2 on.

    Args:
        uid: Of kube-system, which is written first; "" for none.
    """

    def __init__(self, uid: str = KUBE_SYSTEM_UID) -> None:
        self.revision = 1
        self.compacted = 0
        self._kept: dict[bytes, list[KeptRevision]] = {}
        if uid:
            self.put(KUBE_SYSTEM, namespace_object("kube-system", uid))

    def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        self.revision += 1
        before = self.get(key)
        create, version = (before.create_revision, before.version + 1) if before else (self.revision, 1)
        stored = StoredValue(key, value, self.revision, create, version, lease)
        self._kept.setdefault(key, []).append(KeptRevision(Revision(self.revision, 0), stored))
        return self.revision

    def delete(self, key: bytes) -> int:
        self.revision += 1
        self._kept[key].append(KeptRevision(Revision(self.revision, 0), None))
        return self.revision

    def damage(self, key: bytes, value: bytes) -> None:
        """Put other bytes where the present value is, as a failing disk does."""
        kept = self._kept[key][-1]
        assert kept.stored is not None
        self._kept[key][-1] = KeptRevision(kept.revision, replace(kept.stored, value=value))

    def compact(self) -> None:
        """Forget what is not current."""
        self.compacted = self.revision
        for key, kept in list(self._kept.items()):
            if kept[-1].stored is None:
                del self._kept[key]
            else:
                self._kept[key] = kept[-1:]

    def clone(self) -> RememberedEtcd:
        """Return another one with the same past."""
        return copy.deepcopy(self)

    def get(self, key: bytes) -> StoredValue | None:
        kept = self._kept.get(key)
        return kept[-1].stored if kept else None

    def history(self, key: bytes) -> list[KeptRevision]:
        return self._kept.get(key, [])

    def known_keys(self) -> list[bytes]:
        return sorted(self._kept)

    def save(self, path: Path) -> Path:
        items = []
        for key, kept in self._kept.items():
            for one in kept:
                stored, main = one.stored, one.revision.main
                if stored is None:
                    items.append(delete(main, key))
                else:
                    items.append(
                        put(
                            main,
                            key,
                            stored.value,
                            create=stored.create_revision,
                            version=stored.version,
                            lease=stored.lease,
                        )
                    )
        meta = [(b"finishedCompactRev", revision_key(self.compacted))] if self.compacted else []
        path.write_bytes(database(sorted(items), meta=meta))
        return path


class LiveHistory(LiveMemory):
    """The same as a live etcd would show it; counts what it is asked."""

    def __init__(self, etcd: RememberedEtcd) -> None:
        present = [stored for key in etcd.known_keys() if (stored := etcd.get(key)) is not None]
        super().__init__(present, etcd.revision, compacted=etcd.compacted)
        self._etcd = etcd
        self.watched = 0

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return the newest that is older."""
        older = [kept for kept in self._etcd.history(key) if kept.revision.main < revision]
        return older[-1].stored if older else None

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        self.watched += 1
        yield from self._etcd.history(key)

    def superseded(self) -> Iterator[StoredValue]:
        """Yield every kept value that is not current, in the order in which they were replaced."""
        found = []
        for key in self._etcd.known_keys():
            kept = self._etcd.history(key)
            for one, following in itertools.pairwise(kept):
                if one.stored is not None:
                    found.append((following.revision.main, one.stored))
        for _, stored in sorted(found, key=lambda pair: pair[0]):
            yield stored
