"""The value of a key in an older snapshot, or in a copied ``member/snap/db``; and whether that is of one history.

The uid of kube-system alone does not tell: a clone, and an etcd that was restored from a snapshot, share it, and their
revisions too up to the day when they parted. So every etcd key is compared. What stands there now with a mod_revision
that is not newer than the snapshot stood there when it was taken, exactly so; and what was created before then and
still stands was there, in the same generation. One key that says otherwise, and the snapshot is of another history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, examined_copy
from etcdfix.copies.revisions import stood
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.safetext import safe_text

_KUBE_SYSTEM: Final = "namespaces/kube-system"
_LEAST_AGREEING: Final = 3
"""Keys that must agree where no namespace kube-system says which cluster it is."""
_LONGEST_KEY: Final = 120


class Snapshots(Finder):
    """Looks into one snapshot.

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
        super().__init__()
        self._path, self._source, self._examiner = path, source, examiner.independent_copy()
        self._snapshot: SnapshotSource | None = None
        self._history, detail, searched = Sameness.UNKNOWN, "", True
        self._theirs: str | None = None
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
        """Yield the newest value of a key, and the newest that reads; every one where that is wanted."""
        if self._snapshot is None or self._history is Sameness.OTHER:
            return
        newest: Copy | None = None
        reading: Copy | None = None
        try:
            for stored, until in stood(self._snapshot.history(wanted.key)):
                copy = self._copy_of(stored, until)
                newest, reading = copy, copy if copy.reads else reading
                if wanted.every:
                    yield copy
        except SourceError as exc:
            self.problems.append(f"{safe_text(str(self._path))}: {exc.message}")
        if not wanted.every:
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

    def _copy_of(self, stored: StoredValue, until: int) -> Copy:
        copy = examined_copy(
            self._examiner.examine(stored),
            Place.SNAPSHOT,
            f"revision {stored.mod_revision} in snapshot {safe_text(str(self._path))}",
            f"snapshot:{self._path}",
        )
        cluster = ClusterIdentity.by_uid(self._theirs or "")
        return msgspec.structs.replace(copy, kept_at=until, history=self._history, cluster=cluster)


def history_of(
    source: Source,
    older: SnapshotSource,
    examiner: Examiner,
    *,
    uid: str | None,
    progress: Progress,
) -> tuple[Sameness, str]:
    """Say whether the history of a snapshot is that of the source, and why.

    Args:
        source: The datastore; read at one revision, or at later ones where etcd compacted that.
        older: The snapshot.
        examiner: Of the source; what it sees of the snapshot speaks for nothing else.
        uid: Of the source's kube-system; None where it cannot be read.
        progress: Counts keys for a display.

    Raises:
        SourceError: One of them cannot be read.
    """
    theirs = examiner.independent_copy().kube_system_uid(older)
    if uid and theirs and uid != theirs:
        return (
            Sameness.OTHER,
            f"its kube-system has uid {theirs}, and that of this cluster has {uid}",
        )
    revision, now = older.describe().revision, source.describe().revision
    if now and revision > now:
        return Sameness.UNKNOWN, f"it is of revision {revision}, which is newer than what is read ({now})"
    prefix = examiner.layout.path()
    agreed = 0
    kube_system = False
    reads = examiner.independent_copy()
    pairs = _paired(progress(source.current(prefix), "keys compared", None), older.current(prefix))
    for here, there in pairs:
        if here.create_revision > revision:
            continue
        wrong = _contradiction(here, there, revision, whole=not older.problems, reads=reads)
        if wrong:
            return Sameness.OTHER, f"{wrong} (etcd key {_shown(here.key)})"
        if there is not None and _agrees(here, there, revision):  # and not merely excused by damage
            agreed += 1
            kube_system = kube_system or here.key == examiner.layout.path(_KUBE_SYSTEM)
    if agreed >= _LEAST_AGREEING or kube_system:
        return Sameness.SAME, f"{agreed} keys that stand unchanged, or in the same generation, agree"
    return Sameness.UNKNOWN, "too few keys stand in both to tell whether it is of the same history"


def may_have_rotted(found: Examination) -> bool:
    """Say whether a value may have been changed on disk: it should read, and does not. Bookkeeping never reads."""
    return found.verdict.outcome not in {Outcome.READABLE, Outcome.NOT_AN_OBJECT}


def _contradiction(
    here: StoredValue, there: StoredValue | None, revision: int, *, whole: bool, reads: Examiner
) -> str:
    """Return what shows that two values of a key are not of one history; "" for nothing."""
    if there is None:
        return "it lacks what was there when it was taken" if whole else ""
    if here.mod_revision > revision:
        if there.create_revision == here.create_revision and there.version < here.version:
            return ""
        return "it holds another generation" if whole or there.create_revision > here.create_revision else ""
    if there.mod_revision == here.mod_revision:
        if (there.create_revision, there.version) != (here.create_revision, here.version):
            return "it holds another write of the same mod_revision"
        if there.value != here.value and not may_have_rotted(reads.examine(here)):
            return "it holds other bytes at the same mod_revision"
        return ""
    return "it holds another write" if whole or there.mod_revision > here.mod_revision else ""


def _agrees(here: StoredValue, there: StoredValue, revision: int) -> bool:
    """Say whether two values of a key, which do not contradict each other, show one history."""
    if here.mod_revision > revision:
        return there.create_revision == here.create_revision
    return there.mod_revision == here.mod_revision


def _paired(
    here: Iterable[StoredValue], there: Iterator[StoredValue]
) -> Iterator[tuple[StoredValue, StoredValue | None]]:
    """Yield each present value with what the snapshot holds under its key; both come in the order of the keys."""
    other = next(there, None)
    for stored in here:
        while other is not None and other.key < stored.key:
            other = next(there, None)
        yield stored, (other if other is not None and other.key == stored.key else None)


def _shown(key: bytes) -> str:
    text = display(key)
    return text if len(text) <= _LONGEST_KEY else f"{text[:_LONGEST_KEY]}…"
