"""Is an older snapshot of the same cluster, and of the same history, as the datastore that is read?

The uid of kube-system alone does not tell: a clone, and an etcd that was restored from a snapshot, share it, and their
revisions too up to the day when they parted. So every etcd key is compared. What stands there now with a mod_revision
that is not newer than the snapshot stood there when it was taken, exactly so; and what was created before then and
still stands was there, in the same generation. One key that says otherwise, and the snapshot is of another history.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from etcdfix.copies.model import Sameness
from etcdfix.examine.all import Progress
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.sources.snapshot import SnapshotSource

_KUBE_SYSTEM: Final = "namespaces/kube-system"
_LEAST_AGREEING: Final = 3
"""Keys that must agree where no namespace kube-system says which cluster it is."""
_LONGEST_KEY: Final = 120


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
    theirs = examiner.apart().kube_system_uid(older)
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
    reads = examiner.apart()
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
