"""What the datastore keeps of many keys besides their present values, read in one pass; and which were deleted.

A live etcd takes a tenth of a second for the history of one key, and little more for that of all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter

import msgspec

from etcdfix.examine.all import Progress
from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.sources.base import Source


class _Known(msgspec.Struct, frozen=True):
    """A value that is not the present one; without it where the datastore yields it again, or a log has it."""

    key: bytes
    leased: bool = False
    stored: StoredValue | None = None


class KeptValues:
    """Takes what is known of keys in a scope, into a temporary file; SourceError where there is no room for it."""

    def __init__(self, source: Source, scope: Container[bytes]) -> None:
        self._source, self._scope = source, scope
        self._known = SortedRows(_Known)
        self._count = 0
        self._failed: SourceError | None = None
        self._compacted: int | None = None
        self._rows: Iterable[_Known] = ()

    def read(self, progress: Progress, *, values: bool) -> None:
        """Take note of every value that the datastore keeps; of its bytes where ``values`` are wanted again.

        Raises:
            SourceError: They cannot be read to their end.
        """
        try:
            for stored in progress(self._source.superseded(), "earlier values", 0):
                kept = stored if values else None
                self._add(_Known(stored.key, bool(stored.lease), kept), stored.mod_revision)
        except SourceError as exc:
            self._failed = exc
            raise

    def know(self, key: bytes) -> None:
        """Take note that something was at a key once."""
        self._add(_Known(key), 0)

    def _add(self, row: _Known, revision: int) -> None:
        if row.key in self._scope:
            self._count += 1
            self._known.add(turn_of(row.key) + revision.to_bytes(8) + self._count.to_bytes(8), row)

    def noting_deleted(
        self,
        values: Iterable[StoredValue],
        may_tell: Callable[[], bool],
        deleted: Callable[[bytes, bool], None],
    ) -> Iterator[StoredValue]:
        """Yield the present values in the order of their keys, and tell which known keys are not among them.

        Nothing can be taken note of after this.

        Args:
            values: The present values.
            may_tell: Says, once all were yielded, whether these were all: what could not be read is not deleted.
            deleted: Told each known key that is not there, and whether its newest value had a lease.
        """
        self._rows = self._known.finish()
        ended = False

        def present() -> Iterator[tuple[bytes, StoredValue | _Known]]:
            nonlocal ended
            yield from ((stored.key, stored) for stored in values)
            ended = True

        by_key = merge(((one.key, one) for one in self._rows), present(), key=itemgetter(0))
        for key, rows in groupby(by_key, key=itemgetter(0)):
            *_, (_key, newest) = rows
            if isinstance(newest, StoredValue):
                yield newest
            elif not ended or may_tell():
                deleted(key, newest.leased)

    def knows_below(self, prefix: bytes) -> bool:
        """Say whether a known key starts with a prefix, once the deleted ones were noted."""
        return any(one.key.startswith(prefix) for one in self._rows)

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every value of a key that is kept, the present one included, and where it was gone in between.

        When it was deleted is not known: it is told at the first revision at which that may have been.

        Raises:
            SourceError: Behind what was seen there may be more: not everything could be read.
        """
        if self._compacted is None:  # a live etcd takes a tenth of a second to tell it
            self._compacted = self._source.compacted_revision() or 0
        before: StoredValue | None = None
        for stored in chain((one.stored for one in self._known.of(turn_of(key))), [self._source.get(key)]):
            if before is not None and (stored is None or stored.create_revision != before.create_revision):
                yield KeptRevision(Revision(max(before.mod_revision, self._compacted) + 1, 0), None)
            if stored is not None:
                yield KeptRevision(Revision(stored.mod_revision, 0), stored)
            before = stored
        if self._failed is not None:
            raise self._failed
