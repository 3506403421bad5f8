"""The table of kine in a SQLite file, row by row; what its rows mean is for :mod:`.kine`.

Format:
    kine v0.16, ``pkg/drivers/sqlite/sqlite.go`` (the table), ``pkg/drivers/generic/generic.go`` (its rows).
"""

# ruff: noqa: S608 - what is put into a statement is a constant of this module, or a number; keys are parameters

from __future__ import annotations

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

# Names are text, under whatever type the column was declared; no key of Kubernetes looks like a number, which a column
# declared INTEGER, as kine did up to 0.16.2, would hold as one.
_NAME: Final = "CAST(name AS BLOB)"
_IS: Final = "name = CAST(? AS TEXT) AND typeof(name) = 'text'"
_ROW: Final = f"""
    SELECT id, {_NAME}, IFNULL(CAST(created AS INTEGER), 0), IFNULL(CAST(deleted AS INTEGER), 0),
        IFNULL(CAST(create_revision AS INTEGER), 0), IFNULL(CAST(prev_revision AS INTEGER), 0),
        IFNULL(CAST(lease AS INTEGER), 0), CAST(value AS BLOB), CAST(old_value AS BLOB)
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
            self.faults = list(self.copy.faults)
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

    def _find_contradictions(self) -> None:
        if not 0 <= self.compacted <= self.newest:
            self.faults.append(
                f"its {COMPACT_ROW.decode()} names revision {self.compacted}, and the newest is {self.newest}"
            )
            self.compacted = min(max(self.compacted, 0), self.newest)
        try:
            lost = self._lost_rows()
            nameless = self._number("SELECT COUNT(*) FROM kine WHERE typeof(name) != 'text'")
        except SourceError as exc:  # what can be read is read all the same
            self.faults.append(str(exc.__cause__))
            return
        if lost > 0:
            self.faults.append(
                f"{counted(lost, 'row')} after revision {self.compacted} {'is' if lost == 1 else 'are'} not in the "
                "table, where kine leaves no gap: SQLite may have been made to recover a damaged file"
            )
        if nameless:
            self.faults.append(f"{counted(nameless, 'row')} left out: the name is not text")

    def _lost_rows(self) -> int:
        """Count the rows after the compaction that nothing is known of; of those that a later row replaces, none.

        The compaction of an old release that broke off has taken such rows away before it said so.
        """
        given = self.newest
        if list(self._rows("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'")):
            given = max(given, self._number("SELECT MAX(seq) FROM sqlite_sequence WHERE name = 'kine'"))
        if self._number("SELECT COUNT(*) FROM kine WHERE id > ?", self.compacted) == given - self.compacted:
            return 0
        known = "SELECT id FROM kine UNION SELECT prev_revision FROM kine"
        counting = f"SELECT COUNT(*) FROM ({known}) WHERE id > ? AND id <= ?"
        return given - self.compacted - self._number(counting, self.compacted, given)

    def close(self) -> None:
        """Let go of the copy."""
        self.copy.close()

    def row(self, row_id: int) -> Row | None:
        """Return one row, None where there is none."""
        found = list(self._rows(f"{_ROW} WHERE id = ?", row_id))
        return Row(*found[0]) if found and found[0][1] is not None else None

    def rows_of(self, key: bytes) -> Iterator[Row]:
        """Yield the rows of one key, oldest first."""
        return self._rows_by_id(f"SELECT id FROM kine WHERE {_IS} ORDER BY id", key)

    def all_rows(self) -> Iterator[Row]:
        """Yield every row, those of one key together and oldest first."""
        # Their numbers come from an index; sorting whole rows would take the room of all values.
        return self._rows_by_id("SELECT id FROM kine WHERE typeof(name) = 'text' ORDER BY name, id")

    def _rows_by_id(self, statement: str, *parameters: object) -> Iterator[Row]:
        for (row_id,) in self._rows(statement, *parameters):
            row = self.row(row_id)
            if row is not None:
                yield row

    def links(self, key: bytes, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Yield ``id``, ``prev_revision`` and ``created`` of the rows of a key between two revisions, oldest first."""
        yield from self._rows(
            f"SELECT id, prev_revision, created FROM kine WHERE {_IS} AND id BETWEEN ? AND ? ORDER BY id",
            key, first, last,
        )  # fmt: skip

    def around(self, key: bytes, revision: int) -> tuple[int, int]:
        """Return the newest row of a key up to a revision, and the oldest behind it; 0 for none."""
        newest, following = _around(revision)
        first, second = next(self._rows(f"SELECT {newest}, {following} FROM kine WHERE {_IS}", key))
        return first, second

    def names(self, prefix: bytes, revision: int) -> Iterator[tuple[bytes, int, int]]:
        """Yield the keys that start with a prefix, in byte order, each with what :meth:`around` says of it."""
        newest, following = _around(revision)
        found = self._rows(
            f"SELECT {_NAME}, {newest}, {following} FROM kine WHERE typeof(name) = 'text' "
            "AND name >= CAST(? AS TEXT) GROUP BY name ORDER BY name",
            prefix,
        )
        # In byte order all that starts with the prefix stands together. A damaged index may yield no name.
        for name, first, second in found:
            if name is not None and name.startswith(prefix):
                yield name, first, second
            elif name is not None and name > prefix:
                return

    def count(self) -> int:
        """Return how many keys there are, deleted ones that still leave a trace included."""
        return self._number("SELECT COUNT(DISTINCT name) FROM kine")

    def _number(self, statement: str, *parameters: object) -> int:
        return int(next(self._rows(statement, *parameters))[0] or 0)

    def _rows(self, statement: str, *parameters: object) -> Iterator[tuple[Any, ...]]:
        try:
            # Not "yield from": that would close the cursor of a walk that was left, after its connection.
            for row in self.copy.connection.execute(statement, parameters):  # noqa: UP028
                yield row
        except (sqlite3.Error, OverflowError) as exc:
            raise SourceError(
                f"{self._path}: {exc}",
                hint="the file is damaged: read another copy, an earlier one, or what SQLite still gets out of a copy: "
                "sqlite3 COPY .recover | sqlite3 NEW",
            ) from exc


def _around(revision: int) -> tuple[str, str]:
    return (
        f"IFNULL(MAX(CASE WHEN id <= {revision:d} THEN id END), 0)",
        f"IFNULL(MIN(CASE WHEN id > {revision:d} THEN id END), 0)",
    )
