"""What etcd or kine itself still keeps of a key, of a deleted one too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Life, Place, Wanted, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import Keeps, kept_of_history, reads
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Outcome, ReadableRevision, StoredValue
from etcdfix.sources.base import Source

MOST_EACH: Final = 5
"""So many of the newest values of a key are yielded,"""
MOST_THAT_READ: Final = 3
"""and so many of the newest that read."""


class Revisions(Finder):
    """Looks for earlier values of a key in the datastore.

    Args:
        source: Read at the revision of the present value, or a later one.
        examiner: Of the source; what it sees here speaks for no other value.
        revision: Only the value that the key had then is wanted; 0 for any. The present value is no copy.
        kept: Tells what the source keeps; None to ask it.
    """

    name = "earlier revisions"

    def __init__(
        self, source: Source, examiner: Examiner, *, revision: int = 0, kept: Keeps | None = None
    ) -> None:
        super().__init__(LookedInto(place=Place.REVISION))
        self._source, self._examiner, self._revision = source, examiner.independent_copy(), revision
        self._kept = kept or source

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the newest earlier values of a key, and the newest that read; every one where that is wanted."""
        newest: deque[Copy] = deque(maxlen=MOST_EACH)
        reading: deque[Copy] = deque(maxlen=MOST_THAT_READ)
        present = wanted.found.stored.mod_revision if wanted.found is not None else 0
        try:
            last = self._source.describe().revision
            for stored, until in stood(self._kept.history(wanted.key), last):
                until = until or max(last, self._revision, stored.mod_revision)
                named = not self._revision or stored.mod_revision <= self._revision <= until
                if stored.mod_revision == present or not named:
                    continue
                copy = self._copy_of(stored, until)
                if wanted.every:
                    yield copy
                    continue
                newest.append(copy)
                if copy.reads:
                    reading.append(copy)
        except SourceError as exc:
            self.problems.append(f"what is kept of the key could not be read to its end: {exc.message}")
        found = {copy.mod_revision: copy for copy in (*reading, *newest)}
        yield from (found[revision] for revision in sorted(found, reverse=True))

    def _copy_of(self, stored: StoredValue, until: int) -> Copy:
        at = stored.mod_revision
        found = self._examiner.examine(stored)
        where = (
            f"revision {self._revision} (written at {at})"
            if self._revision not in {0, at}
            else f"revision {at}"
        )
        copy = examined_copy(found, Place.REVISION, where, f"revision:{at}")
        return msgspec.structs.replace(copy, kept_at=until)


def stood(history: Iterable[KeptRevision], last: int = 0) -> Iterator[tuple[StoredValue, int]]:
    """Yield what stood at a key, the oldest first, each with the newest revision at which it stands; 0 for the last.

    Args:
        history: Of the key, oldest first.
        last: The newest revision that counts; 0 for all.
    """
    before: StoredValue | None = None
    for kept in history:
        at = kept.revision.main
        if before is not None:
            yield before, at - 1
        before = kept.stored
        if last and at > last:
            return
    if before is not None:
        yield before, 0


def kept_copy(found: Examination, kept: ReadableRevision) -> Copy:
    """Return the copy of an unreadable value that a look for its newest readable revision has found."""
    at = kept.mod_revision
    return Copy(
        key=found.stored.key,
        place=Place.REVISION,
        where=f"revision {at}",
        source=f"revision:{at}",
        mod_revision=at,
        create_revision=kept.create_revision,
        version=kept.version,
        kept_at=kept.at,
        outcome=Outcome.READABLE,
        uid=kept.uid,
    )


def life_of(
    source: Source, examiner: Examiner, key: bytes, present: StoredValue | None, *, kept: Keeps | None = None
) -> Life:
    """Return what etcd's own history tells of the object at a key, or of the last one there.

    Args:
        source: Read at the revision of the present value, or a later one.
        examiner: Of the source.
        key: Complete etcd key.
        present: What stands there; None where nothing does. Its bytes are not needed.
        kept: Tells what the source keeps; None to ask it.

    Raises:
        SourceError: The history cannot be read.
    """
    history = kept or source
    last = present
    if last is None:
        values = (one.stored for one in history.history(key) if one.stored is not None)
        last = next(iter(deque(values, maxlen=1)), None)
    if last is None:
        return Life()
    newest = kept_of_history(history, examiner.independent_copy(), key, reads, newest=present)
    told = newest.examination if newest is not None and newest.same_object else None
    uid, told_at = (told.uid, told.stored.mod_revision) if told is not None else ("", 0)
    return life_told(last, uid, told_at, "kine" if source.describe().type == "kine" else "etcd")


def life_told(newest: StoredValue, uid: str, told_at: int, kept_in: str) -> Life:
    """Return what the newest write of an object tells of it, and the uid that its revision ``told_at`` says.

    ``told_at`` is 0 where no revision of it reads.
    """
    return Life(
        create_revision=newest.create_revision,
        mod_revision=newest.mod_revision,
        version=newest.version,
        uid=uid,
        uid_from=f"mod_revision {told_at} in {kept_in}" if told_at else "",
    )
