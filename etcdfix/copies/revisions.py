"""What etcd or kine itself still keeps of a key, of a deleted one too."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Life, Place, Wanted, examined_copy, uid_of
from etcdfix.errors import SourceError
from etcdfix.examine import Examiner
from etcdfix.model import StoredValue
from etcdfix.readable_revision import Keeps, kept_of_history, reads
from etcdfix.sources.base import Source

MOST_EACH: Final = 5
"""So many of the newest values of a key are yielded,"""
MOST_THAT_READ: Final = 3
"""and so many of the newest that read."""


class Revisions:
    """Looks for earlier values of a key in the datastore; a :class:`~etcdfix.copies.finder.Finder`.

    Args:
        source: Read at the revision of the present value, or a later one.
        examiner: Of the source; what it sees here speaks for no other value.
        revision: Only the value that the key had then is wanted; 0 for any.
        kept: Tells what the source keeps; None to ask it.
    """

    name = "earlier revisions"

    def __init__(
        self, source: Source, examiner: Examiner, *, revision: int = 0, kept: Keeps | None = None
    ) -> None:
        self._source, self._examiner, self._revision = source, examiner.apart(), revision
        self._kept = kept or source
        self.looked = [LookedInto(place=Place.REVISION)]
        self.problems: list[str] = []

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the newest earlier values of a key, and the newest that read; every one where that is wanted."""
        newest: deque[Copy] = deque(maxlen=MOST_EACH)
        reading: deque[Copy] = deque(maxlen=MOST_THAT_READ)
        present = wanted.found.stored.mod_revision if wanted.found is not None else 0
        last = self._source.describe().revision
        try:
            for kept in self._kept.history(wanted.key):
                if (last and kept.revision.main > last) or (
                    self._revision and kept.revision.main > self._revision
                ):
                    break
                if kept.stored is None or kept.stored.mod_revision == present:
                    continue
                copy = self._copy_of(kept.stored)
                if wanted.every:
                    yield copy
                    continue
                newest.append(copy)
                if copy.reads:
                    reading.append(copy)
        except SourceError as exc:
            self.problems.append(f"what is kept of the key could not be read to its end: {exc.message}")
        if self._revision:
            yield from [*newest][-1:]
            return
        found = {copy.mod_revision: copy for copy in (*reading, *newest)}
        yield from (found[revision] for revision in sorted(found, reverse=True))

    def _copy_of(self, stored: StoredValue) -> Copy:
        at = stored.mod_revision
        return examined_copy(
            self._examiner.examine(stored), Place.REVISION, f"revision {at}", f"revision:{at}"
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
    life = Life(create_revision=last.create_revision, mod_revision=last.mod_revision, version=last.version)
    newest = kept_of_history(history, examiner.apart(), key, reads, newest=present)
    if newest is None or not newest.same_object:
        return life
    stored, uid = newest.examination.stored, uid_of(newest.examination)
    kept_in = "kine" if source.describe().type == "kine" else "etcd"
    return msgspec.structs.replace(
        life, uid=uid, uid_from=f"mod_revision {stored.mod_revision} in {kept_in}" if uid else ""
    )
