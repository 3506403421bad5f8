"""What etcdfix saved of a key before it changed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.text.safetext import safe_text


class BackupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One backup, and whether it is what was stored.

    Attributes:
        stored: What it holds.
        cluster: Which one it says that it is of.
        revision: To which its etcd had come.
        doubt: Why it may not be what was stored; "" where the audit log knows it.
    """

    path: Path
    stored: StoredValue
    cluster: ClusterIdentity
    revision: int = 0
    doubt: str = ""


class BackupRows(Protocol):
    """Reads backups; remediation makes it, which knows their format and the audit log."""

    looked: list[LookedInto]
    problems: list[str]

    def of(self, key: bytes) -> Iterable[BackupRow]:
        """Yield the backups of an etcd key."""
        ...


class Backups(Finder):
    """Looks into backups.

    Args:
        rows: Reads them.
        examiner: Of the source; what it sees here speaks for no other value.
        identity: Of the cluster whose object is wanted.
        now: Revision of its live etcd; 0 where a file is read, which may be older than a backup.
    """

    name = "backups"

    def __init__(self, rows: BackupRows, examiner: Examiner, identity: ClusterIdentity, now: int = 0) -> None:
        super().__init__()
        self._rows, self._examiner, self._identity, self._now = (
            rows,
            examiner.independent_copy(),
            identity,
            now,
        )
        self.looked, self.problems = rows.looked, rows.problems

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield each backup of a key, but not of the very value that stands there."""
        for row in self._rows.of(wanted.key):
            copy = examined_copy(
                self._examiner.examine(row.stored),
                Place.BACKUP,
                f"backup {safe_text(str(row.path))}",
                f"backup:{row.path}",
            )
            if copy.value_sha256 == wanted.value_sha256:
                continue
            history, doubt = self._history_of(row.cluster), row.doubt
            if 0 < self._now < row.revision and history is Sameness.SAME:
                history = Sameness.UNKNOWN
                doubt = (
                    doubt or f"its etcd had come to revision {row.revision}, and this one is at {self._now}"
                )
            yield msgspec.structs.replace(
                copy, history=history, cluster=row.cluster, doubt=doubt, listed=not row.doubt
            )

    def _history_of(self, cluster: ClusterIdentity) -> Sameness:
        same = self._identity.is_same(cluster)
        if same is None or (same and self._identity.has_other_id(cluster)):
            return Sameness.UNKNOWN
        return Sameness.SAME if same else Sameness.OTHER
