"""The table of kine in a SQLite file, row by row; what its rows mean is for :mod:`.kine`.

Format:
    kine v0.16, ``pkg/drivers/sqlite/sqlite.go`` (the table), ``pkg/drivers/generic/generic.go`` (its rows).
"""

# ruff: noqa: S608 - what is put into a statement is a constant of this module, or a number; keys are parameters

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from etcdfix.model.errors import SourceError
from etcdfix.sources.errors import NotAKineFile
from etcdfix.sources.sqlitecopy import SQLiteCopy
from etcdfix.text.words import counted

_COLUMNS: Final = frozenset(
    {
        "id", "name", "created", "deleted", "create_revision", "prev_revision", "lease", "value", "old_value",
    }
)  # fmt: skip
COMPACT_ROW: Final = b"compact_rev_key"
"""Under this name kine keeps the revision up to which it has compacted."""
_MOST_FAULTS: Final = 5
_BEGIN_NUMBERS: Final = frozenset({b"", *(b"%d" % digit for digit in range(10)), b"-", b"+", b"."})

# Names are text, under whatever type the column was declared. Under INTEGER, as kine did up to 0.16.2, what looks like
# a number is stored as one, and compared as one: so no name is compared with anything but a name.
_NAME: Final = "CAST(CAST(name AS TEXT) AS BLOB)"
_IS: Final = "name = CAST(? AS TEXT)"
_ROW: Final = f"""
    SELECT id, {_NAME}, IFNULL(CAST(created AS INTEGER), 0), IFNULL(CAST(deleted AS INTEGER), 0),
        IFNULL(CAST(create_revision AS INTEGER), 0), IFNULL(CAST(prev_revision AS INTEGER), 0),
        IFNULL(CAST(lease AS INTEGER), 0), CAST(value AS BLOB), CASE WHEN ? THEN CAST(old_value AS BLOB) END
    FROM kine
"""


class Row(NamedTuple):
    """One event.

    Attributes:
        id: Its revision.
        created: It began a generation of the key.
        deleted: It ended one, or fills a revision that was never used.
        create_revision: 0 in a row that creates, which means its own; 0 in later deletions, too.
        prev_revision: Of the event before under the same key; 0 for none.
        lease: Seconds to live; 0 for ever.
        value: None in later deletions.
        old_value: What the key held before; None for nothing.
    """

    id: int
    name: bytes
    created: int
    deleted: int
    create_revision: int
    prev_revision: int
    lease: int
    value: bytes | None
    old_value: bytes | None

    @property
    def begins(self) -> int:
        """Revision at which the generation of the key began; 0 where the row does not tell."""
        return self.id if self.created else self.create_revision


class Names(NamedTuple):
    """A key, and where its rows lie around a revision.

    Attributes:
        newest: The newest of its rows up to the revision; 0 for none.
        following: The oldest behind it; 0 for none.
    """

    name: bytes
    newest: int
    following: int


class KineTable:
    """The rows of one file, read from a private copy.

    Whatever reads raises :class:`SourceError` where that cannot be done.

    Attributes:
        compacted: The oldest revision of which everything is kept; 0 where nothing was compacted.
        faults: What SQLite finds wrong with the pages; empty for nothing.

    Raises:
        NotAKineFile: No such file, or not kine's.
        SourceError: It cannot be read, or there is no room for the copy.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.copy = SQLiteCopy(path)
        try:
            self._require_table()
            self.faults = self._check_pages()
            if self.copy.log_fault:
                self.faults.append(self.copy.log_fault)
            self.newest = self._number("SELECT MAX(id) FROM kine")
            # An old release left two such rows.
            self.compacted = self._number(
                f"SELECT MAX(CAST(prev_revision AS INTEGER)) FROM kine WHERE {_IS}", COMPACT_ROW
            )
            self._find_contradictions()
        except BaseException:
            self.close()
            raise

    def _require_table(self) -> None:
        tables = {
            row[0]
            for row in self._rows(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
            )
        }
        columns = {row[1]: row for row in self._rows("PRAGMA table_info(kine)")}
        if "kine" not in tables or not columns.keys() >= _COLUMNS:
            older = "key_value" in tables
            raise NotAKineFile(
                f"{self._path}: a SQLite database, but not kine's: it has no table `kine` with the columns of one"
                + ("; its table `key_value` is of a k3s before kine" if older else ""),
                hint="" if older else "on k3s it is /var/lib/rancher/k3s/server/db/state.db",
            )
        # Only a row number needs no index to be the primary key; anything else may hold what is no number.
        indexed = any(row[3] == "pk" for row in self._rows("PRAGMA index_list(kine)"))
        if columns["id"][2].upper() != "INTEGER" or not columns["id"][5] or indexed:
            raise NotAKineFile(f"{self._path}: the column `id` of its table `kine` is no row number")

    def _check_pages(self) -> list[str]:
        # Not quick_check: a log of another moment can leave every page whole, and the indexes with other rows.
        try:
            found = [str(row[0]) for row in self._rows(f"PRAGMA integrity_check({_MOST_FAULTS})")]
        except SourceError as exc:
            return [str(exc.__cause__)]
        return [] if found == ["ok"] else [" ".join(fault.split()) for fault in found]

    def _find_contradictions(self) -> None:
        if not 0 <= self.compacted <= self.newest:
            self.faults.append(
                f"its {COMPACT_ROW.decode()} names revision {self.compacted}, and the newest is {self.newest}"
            )
            self.compacted = min(max(self.compacted, 0), self.newest)
        nameless = self._number("SELECT COUNT(*) FROM kine WHERE typeof(name) IN ('blob', 'null')")
        if nameless:
            self.faults.append(f"{counted(nameless, 'row')} whose name is no text: left out")

    def close(self) -> None:
        """Let go of the copy."""
        self.copy.close()

    def row(self, row_id: int, *, older: bool = True) -> Row | None:
        """Return one row, None where there is none."""
        found = list(self._rows(f"{_ROW} WHERE id = ?", older, row_id))
        return Row(*found[0]) if found else None

    def rows_of(self, key: bytes) -> Iterator[Row]:
        """Yield the rows of one key, oldest first."""
        for (row_id,) in self._rows(f"SELECT id FROM kine WHERE {_IS} ORDER BY id", key):
            row = self.row(row_id)
            if row is not None and row.name == key:
                yield row

    def all_rows(self) -> Iterator[Row]:
        """Yield every row, those of one key together and oldest first."""
        # Their numbers come from an index; sorting whole rows would take the room of all values.
        for (row_id,) in self._rows("SELECT id FROM kine ORDER BY name, id"):
            row = self.row(row_id)
            if row is not None:
                yield row

    def links(self, key: bytes, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``id``, ``prev_revision`` and ``created`` of the rows of a key between two revisions, oldest first."""
        yield from self._rows(
            f"SELECT id, prev_revision, created FROM kine WHERE {_IS} AND id BETWEEN ? AND ? ORDER BY id",
            key, first, last,
        )  # fmt: skip

    def around(self, key: bytes, revision: int) -> Names:
        """Return where the rows of one key lie around a revision."""
        newest = self._number(f"SELECT MAX(id) FROM kine WHERE {_IS} AND id <= ?", key, revision)
        following = 0
        if revision < self.newest:
            following = self._number(f"SELECT MIN(id) FROM kine WHERE {_IS} AND id > ?", key, revision)
        return Names(key, newest, following)

    def names(self, prefix: bytes, revision: int) -> Iterator[Names]:
        """Yield the keys that start with a prefix, in byte order, each with where its rows lie."""
        return heapq.merge(self._text_names(prefix, revision), self._number_names(prefix, revision))

    def count(self) -> int:
        """Return how many keys there are, deleted ones that still leave a trace included."""
        return self._number("SELECT COUNT(DISTINCT name) FROM kine")

    def _text_names(self, prefix: bytes, revision: int) -> Iterator[Names]:
        # In byte order all that starts with the prefix follows it, and stands together.
        condition = "typeof(name) = 'text' AND name >= CAST(? AS TEXT)"
        for found in self._grouped(revision, condition, "name", prefix):
            if found.name.startswith(prefix):
                yield found
            elif found.name > prefix:
                return

    def _number_names(self, prefix: bytes, revision: int) -> Iterator[Names]:
        """Yield the keys that are stored as numbers, which none of Kubernetes is."""
        if prefix[:1] not in _BEGIN_NUMBERS:
            return
        for found in self._grouped(revision, "typeof(name) IN ('integer', 'real')", _NAME):
            if found.name.startswith(prefix):
                yield found

    def _grouped(self, revision: int, condition: str, order: str, *parameters: object) -> Iterator[Names]:
        newest, following = "MAX(id)", "0"
        if revision < self.newest:
            newest = f"MAX(CASE WHEN id <= {revision:d} THEN id END)"
            following = f"MIN(CASE WHEN id > {revision:d} THEN id END)"
        statement = f"SELECT {_NAME}, {newest}, {following} FROM kine WHERE {condition} GROUP BY name ORDER BY {order}"
        for name, first, second in self._rows(statement, *parameters):
            if name is not None:  # as a damaged index has it
                yield Names(name, first or 0, second or 0)

    def _number(self, statement: str, *parameters: object) -> int:
        return int(next(self._rows(statement, *parameters))[0] or 0)

    def _rows(self, statement: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        try:
            # Not "yield from": that would close the cursor of a walk that was left, after its connection.
            for row in self.copy.connection.execute(statement, parameters):  # noqa: UP028
                yield row
        except (sqlite3.Error, OverflowError) as exc:
            raise SourceError(
                f"{self._path}: {exc}", hint="the file is damaged: read another copy, or an earlier one"
            ) from exc
