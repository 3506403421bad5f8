"""The SQLite database of kine, in which k3s keeps its keys by default, as a source of stored values.

Each row of the table ``kine`` is one event, and its ``id`` is the revision. A file holds rows of every release that
wrote to it, so no single style is taken for granted: before 0.16.0 a deletion kept the last value of its key and named
the row that created it, since then neither. ``old_value`` is what the key held before the row: after a compaction it is
often the only earlier value that is left.

Everything is read from a private copy (:mod:`.sqlitecopy`): nothing is locked, made or changed beside the file.

Format:
    kine v0.16, ``pkg/logstructured/sqllog/sql.go``, ``pkg/drivers/generic/generic.go``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Final

from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, Revision, StoredValue
from etcdfix.model.storagekey import API_SERVICE_PATH, CRD_PATH, display
from etcdfix.sources.base import DAMAGE_NOTE, ProblemList, Segment, Source, SourceDescription, tell_nobody
from etcdfix.sources.errors import RevisionCompacted
from etcdfix.sources.kinetable import COMPACT_ROW, KineTable, Row
from etcdfix.text.words import counted

OWN_KEYS: Final = frozenset({COMPACT_ROW, b"compact_rev_key_apiserver"})
"""Where kine keeps how far it and the API server have compacted. What etcd holds under the first, kine keeps under the
second, in a form of its own."""


_DEFINITIONS: Final = (f"/{CRD_PATH}/".encode(), f"/{API_SERVICE_PATH}/".encode())
"""Read before one object is shown: what is missing of them is no problem of that object."""


class KineSource(Source):
    """The keys of one SQLite file of kine at one revision.

    Whatever reads raises :class:`SourceError` where a row, or the copy, cannot be read.

    ``version`` is counted where the whole generation of a key is still kept, and 0 for unknown elsewhere: kine stores
    none. ``lease`` is the time to live in seconds, as kine answers it.

    Args:
        path: ``state.db``; its ``-wal`` is looked for beside it.
        revision: To read at; 0 for the newest. Below the compacted one, what is still known is read, and called
            incomplete.
        on_notice: Told, in one sentence each, what a person should know.

    Attributes:
        revision: The revision that is read at.

    Raises:
        NotAKineFile: No such file, or not kine's.
        RevisionCompacted: ``revision`` does not exist yet.
        SourceError: The file cannot be read, or there is no room for the copy.
    """

    def __init__(
        self,
        path: Path,
        *,
        revision: int = 0,
        on_notice: Callable[[str], None] = tell_nobody,
    ) -> None:
        self.path = path
        self._problems = ProblemList()
        self._table = KineTable(path)
        self._newest, self._compacted = self._table.newest, self._table.compacted
        self._damaged = bool(self._table.faults)
        try:
            self._pin(revision)
        except BaseException:
            self._table.close()
            raise
        for fault in self._table.faults:
            self._problems.add(f"the database is damaged: {fault}")
        copy = self._table.copy
        if copy.log_missing:
            on_notice(f"{path}: {_NO_LOG}")
        if copy.damaged_indexes:
            on_notice(f"{path}: index {', '.join(copy.damaged_indexes)} is damaged. {_MEND}")

    def _pin(self, revision: int) -> None:
        if revision > self._newest:
            raise RevisionCompacted(
                f"{self.path}: revision {revision} does not exist yet: the newest is {self._newest}",
                revision=revision,
                compacted=self._compacted,
                current=self._newest,
                hint="leave --revision out to read the newest",
            )
        self.revision = revision or self._newest

    def again(self) -> KineSource:
        """Return a source over the same path as it stands now, at its newest revision; never older than the call.

        This one stays as it is, and each is closed for itself. The file is copied whole: SQLite opens a file by its
        name, and no copy keeps one, so that nothing is left behind when we are killed. It is checked whole, too, which
        takes longer than the copying: damage that came since must be told. Notices were told by this one.

        Raises:
            NotAKineFile: The file is gone, or is not kine's any more.
            SourceError: It cannot be read, or there is no room for the copy.
        """
        return KineSource(self.path)

    # The protocol

    def describe(self) -> SourceDescription:
        """Say where the data comes from; the digest of a file takes about 0.5 s for each GB, once."""
        copy = self._table.copy
        if copy.log_pages:
            integrity = f"read with {counted(copy.log_pages, 'page')} of its -wal, which the digest includes"
        elif copy.log_found:
            integrity = "its -wal holds nothing that was committed"
        else:
            integrity = _NO_LOG if copy.log_missing else "written without a -wal"
        return SourceDescription(
            type="kine",
            path=str(self.path),
            revision=self.revision,
            segments=(Segment(from_key="", revision=self.revision),),
            sha256=f"sha256:{copy.sha256()}",
            integrity=integrity,
        )

    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        """Yield what stood under every key that starts with ``prefix`` at the pinned revision, in byte order of keys.

        Rows that cannot be read become problems, and what comes behind them is read all the same.
        """
        if self.revision < self._compacted and not prefix.endswith(_DEFINITIONS):
            self._problems.add(
                f"revision {self.revision} was compacted, up to {self._compacted}: what has no row and no old_value "
                "from then is missing"
            )
        read = 0
        try:
            for key, newest, following in self._table.names(prefix, self.revision):
                read += 1
                try:
                    found = self._stood(key, self.revision, newest, following)
                except RevisionCompacted:
                    continue  # told once, for all
                except SourceError as exc:
                    self._lose(f"key {display(key)} could not be read: {exc.message}")
                    continue
                if found is not None:
                    yield found
        except SourceError as exc:
            if not read:
                raise
            self._lose(f"lost after {counted(read, 'key')}: {exc.message}")

    def get(self, key: bytes) -> StoredValue | None:
        """Return what stood under one key at the pinned revision, or None.

        Raises:
            RevisionCompacted: The row that stood then is gone, and nothing says what it held.
            SourceError: It cannot be read.
        """
        return self._stood(key, self.revision, *self._table.around(key, self.revision))

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        """Return what a key held just before a main revision; None where it held nothing, or that is not kept."""
        try:
            return self._stood(key, revision - 1, *self._table.around(key, revision - 1))
        except RevisionCompacted:
            return None

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        """Say whether the row that this one names as the one before it should still be there, and is not."""
        row = self._table.row(stored.mod_revision)
        if row is None or row.created or row.id <= self._compacted or self._damaged:
            return False
        before = self._table.row(row.prev_revision)
        return before is None or before.name != row.name

    def compacted_revision(self) -> int | None:
        """Return the oldest revision of which everything is kept; 0 where nothing was compacted."""
        return None if self._damaged else self._compacted

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        """Yield every revision of ``key`` that is still kept, oldest first, newer than the pinned one included.

        Where the row before is gone, what ``old_value`` says of it stands in its place.
        """
        if key in OWN_KEYS:
            return
        yield from self._events(self._table.rows_of(key))

    def has_several(self, key: bytes) -> bool:  # noqa: ARG002 - a row may hold the value of one that is gone
        """Say that any key may have several."""
        return True

    def superseded(self) -> Iterator[StoredValue]:
        """Yield every value that is kept in a row or as an ``old_value``, and is not what :meth:`current` yields."""
        rows = (row for row in self._table.all_rows() if row.name not in OWN_KEYS)
        for _, of_one_key in groupby(rows, key=lambda row: row.name):
            standing: StoredValue | None = None
            for kept in self._events(of_one_key):
                if kept.revision.main <= self.revision:
                    if standing is not None:
                        yield standing
                    standing = kept.stored
                elif kept.stored is not None:
                    yield kept.stored

    def estimate(self) -> int:
        """Return how many keys there are, deleted ones that still leave a trace included."""
        return self._table.count()

    @property
    def problems(self) -> list[str]:
        """Reasons why what was yielded is not everything; empty when complete."""
        return self._problems.sentences() + ([DAMAGE_NOTE] if self._damaged else [])

    def close(self) -> None:
        """Let go of the copy."""
        self._table.close()

    # What stood where

    def _stood(self, key: bytes, revision: int, newest: int, following: int) -> StoredValue | None:
        if key in OWN_KEYS:
            return None
        after = self._table.row(following) if following else None
        if after is not None and newest < after.prev_revision <= revision:
            # The row that stood then is gone; the one behind it says what it held.
            if after.created:
                return None  # it was a deletion
            if after.old_value is not None:
                return _older(after)
            raise self._gone(key, revision)
        row = self._table.row(newest) if newest else None
        if row is None and revision < self._compacted:
            raise self._gone(key, revision)
        return None if row is None or row.deleted else self._stored(row)

    def _gone(self, key: bytes, revision: int) -> RevisionCompacted:
        return RevisionCompacted(
            f"{self.path}: what {display(key)} held at revision {revision} is not kept: it was compacted, up to "
            f"{self._compacted}",
            revision=revision,
            compacted=self._compacted,
            current=self._newest,
            hint="etcdfix explain --history shows what is kept of a key",
        )

    def _events(self, rows: Iterable[Row]) -> Iterator[KeptRevision]:
        """Yield what the rows of one key say, oldest first, with the values of rows that are gone."""
        last = 0
        for row in rows:
            if not row.created and row.old_value is not None and last < row.prev_revision < row.id:
                yield KeptRevision(Revision(row.prev_revision, 0), _older(row), from_old_value=True)
            yield KeptRevision(Revision(row.id, 0), None if row.deleted else self._stored(row))
            last = row.id

    def _stored(self, row: Row) -> StoredValue:
        return StoredValue(row.name, row.value or b"", row.id, row.begins, self._version(row), row.lease)

    def _version(self, row: Row) -> int:
        """Count the changes of a key since it was created; 0 where a row of them is gone."""
        if row.created:
            return 1
        count = last = 0
        for row_id, previous, created in self._table.links(row.name, row.create_revision, row.id):
            if bool(created) != (count == 0) or (count and previous != last):
                return 0
            count, last = count + 1, row_id
        return count

    def _lose(self, problem: str) -> None:
        self._damaged = True
        self._problems.add(problem)


_NO_LOG: Final = (
    "no -wal with anything in it lies beside it: that is right where k3s was stopped; in a copy of a running "
    "one, what was written last is missing"
)
_MEND: Final = (
    "The table was read without it. To mend it, stop k3s, run this on a copy of state.db with its -wal, and put the "
    'copy in its place; k3s makes the indexes again: sqlite3 COPY "PRAGMA writable_schema=ON; DELETE FROM '
    "sqlite_master WHERE type='index'; PRAGMA writable_schema=RESET; VACUUM\""
)


def _older(row: Row) -> StoredValue:
    """Return what a row says of the one before it, in the same generation; its lease and its version are not kept."""
    assert row.old_value is not None  # whoever calls looked
    begins = row.create_revision
    return StoredValue(
        row.name,
        row.old_value,
        row.prev_revision,
        begins,
        1 if begins == row.prev_revision else 0,
        0 if row.deleted else row.lease,
    )
