"""The value of a key in an older snapshot, or in a copied ``member/snap/db``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, examined_copy
from etcdfix.copies.same_history import history_of
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.model.closing import Closing
from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity, StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.safetext import safe_text


class Snapshots(Closing):
    """Looks into one snapshot; a :class:`~etcdfix.copies.finder.Finder`. Close it, or use it as a context manager.

    Of a key it yields the newest value, and where that does not read, the newest that does.

    Args:
        path: The file.
        source: What is stored now: the file must be of its history.
        examiner: Of the source; what it sees here speaks for no other value.
        uid: Of the source's kube-system; None where it cannot be read.
        progress: Counts keys for a display.
    """

    name = "older snapshots"

    def __init__(
        self,
        path: Path,
        source: Source,
        examiner: Examiner,
        *,
        uid: str | None,
        progress: Progress = no_progress,
    ) -> None:
        self._path, self._source, self._examiner = path, source, examiner.apart()
        self._snapshot: SnapshotSource | None = None
        self._history, detail, searched = Sameness.UNKNOWN, "", True
        self._theirs: str | None = None
        self.problems: list[str] = []
        try:
            self._snapshot = SnapshotSource(path)
            self._theirs = self._examiner.kube_system_uid(self._snapshot)
            self._history, detail = history_of(source, self._snapshot, examiner, uid=uid, progress=progress)
        except SourceError as exc:
            searched, detail = False, exc.message
            self.problems.append(exc.message)
        self.looked = [
            LookedInto(
                place=Place.SNAPSHOT,
                path=safe_text(str(path)),
                searched=searched,
                history=self._history,
                detail=detail,
            )
        ]

    def close(self) -> None:
        """Let go of the file."""
        if self._snapshot is not None:
            self._snapshot.close()

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the newest value of a key, and the newest that reads."""
        if self._snapshot is None or self._history is Sameness.OTHER:
            return
        newest: Copy | None = None
        reading: Copy | None = None
        try:
            for copy in self._copies_of(wanted.key):
                newest, reading = copy, copy if copy.reads else reading
        except SourceError as exc:
            self.problems.append(f"{safe_text(str(self._path))}: {exc.message}")
        found = dict.fromkeys(filter(None, (newest, reading)))
        yield from (
            msgspec.structs.replace(copy, history=Sameness.OTHER) if self._never_was_here(copy) else copy
            for copy in found
            if copy.value_sha256 != wanted.value_sha256
        )

    def _never_was_here(self, copy: Copy) -> bool:
        """Say whether the datastore itself still keeps that the key did not hold this write at its revision.

        A clone that goes its own way may write to nothing but this key.
        """
        kept_from = self._source.compacted_revision()
        if self._history is not Sameness.SAME or kept_from is None or copy.mod_revision < max(kept_from, 1):
            return False
        here = self._source.before(copy.key, copy.mod_revision + 1)
        if here is None:  # nothing stood there, unless that was compacted meanwhile
            return copy.mod_revision >= (self._source.compacted_revision() or 0)
        return here.mod_revision != copy.mod_revision

    def _copies_of(self, key: bytes) -> Iterator[Copy]:
        assert self._snapshot is not None  # else nothing is looked for
        before: StoredValue | None = None
        for kept in self._snapshot.history(key):
            if before is not None:
                yield self._copy_of(before, kept.revision.main - 1)
            before = kept.stored
        if before is not None:
            yield self._copy_of(before, 0)  # it stands at the file's newest revision

    def _copy_of(self, stored: StoredValue, until: int) -> Copy:
        copy = examined_copy(
            self._examiner.examine(stored),
            Place.SNAPSHOT,
            f"revision {stored.mod_revision} in snapshot {safe_text(str(self._path))}",
            f"snapshot:{self._path}",
        )
        cluster = ClusterIdentity.by_uid(self._theirs or "")
        return msgspec.structs.replace(copy, kept_at=until, history=self._history, cluster=cluster)
