"""Whether what a copy of kine's database holds is whole: its table, its indexes, and the log that was brought in.

Format:
    https://www.sqlite.org/pragma.html#pragma_integrity_check: faults of pages first, in one row with line breaks, then
    pages that nothing uses, then a row for each entry in which an index and its table disagree.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_MOST_FAULTS: Final = 5
_MOST_ASKED: Final = 1 << 30
_COMPARED: Final = 500
_DISAGREES: Final = re.compile(
    r"row \d+ missing from index|wrong # of entries in index|non-unique entry in index"
)
_WRITE: Final = "SELECT id, CAST(name AS BLOB), created, prev_revision"
_OWN_INDEX: Final = "CREATE INDEX etcdfix_names ON kine (name, id)"


def open_unchanging(copy: Path) -> sqlite3.Connection:
    """Open a file that nobody writes, without its log."""
    connection = sqlite3.connect(
        f"file:{quote(str(copy))}?mode=ro&immutable=1",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        # The file may come from anywhere: nothing in its schema is to be run.
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA cell_size_check=ON")
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except UnicodeDecodeError as exc:  # what SQLite says of it quotes bytes that are no text
        connection.close()
        raise sqlite3.DatabaseError("malformed database schema") from exc
    except BaseException:
        connection.close()
        raise
    return connection


def page_faults(connection: sqlite3.Connection, *, unused_pages: bool = True) -> list[str]:
    """Return the first faults that SQLite finds; without ``unused_pages``, a page that nothing uses is none."""
    # Not quick_check: a log of another moment can leave every page whole, and the indexes with other rows.
    faults: list[str] = []
    try:
        for (told,) in connection.execute(f"PRAGMA integrity_check({_MOST_ASKED})"):
            faults += [
                line
                for line in str(told).splitlines()
                if line != "ok" and not line.startswith("***") and (unused_pages or "never used" not in line)
            ]
            if len(faults) >= _MOST_FAULTS:
                break
    except sqlite3.Error as exc:
        faults.append(str(exc))
    return faults[:_MOST_FAULTS]


def set_damaged_indexes_aside(copy: Path) -> tuple[list[str], bool]:
    """Take the indexes whose pages are damaged out of a private copy whose table is whole.

    Returns:
        Their names, none where the copy stays as it is; and whether a whole index shows that the table lacks no row.
        One that has other rows than the table may be of a later moment: then rows are missing, and the copy stays.
    """
    with closing(sqlite3.connect(copy)) as connection:
        found = connection.execute("SELECT * FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        indexes = found.fetchall()
        partial = {row[1] for row in connection.execute("PRAGMA index_list(kine)") if row[4]}
    whole: list[tuple[Any, ...]] = []
    damaged: list[tuple[Any, ...]] = []
    disagreeing = bool(_faults_with(copy, []))
    for index in indexes if not disagreeing else []:
        faults = _faults_with(copy, [index])
        disagreeing |= bool(faults) and all(map(_DISAGREES.match, faults))
        (damaged if faults else whole).append(index)
    if disagreeing or not damaged:
        _keep(copy, indexes)
        return [], False
    _keep(copy, whole)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(_OWN_INDEX)  # a damaged one may have been the only one by name
    return [index[1] for index in damaged], any(index[1] not in partial for index in whole)


def _faults_with(copy: Path, indexes: Sequence[Any]) -> list[str]:
    _keep(copy, indexes)
    with closing(open_unchanging(copy)) as connection:
        return page_faults(connection, unused_pages=False)


def _keep(copy: Path, indexes: Sequence[Any]) -> None:
    """Let the schema of a copy have these indexes, and no others."""
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        connection.execute("PRAGMA writable_schema=ON")
        connection.execute("DELETE FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL")
        connection.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", indexes)


class RowsAlone:
    """The oldest and the newest rows of a database as it is without its log.

    kine never changes the name, the beginning or the predecessor of a row, and never gives the number of a row again:
    whatever it writes later, a log that belongs to the file leaves these as they are, or removes them.
    """

    def __init__(self, copy: Path) -> None:
        self._rows: list[tuple[int, bytes, int, int]] = []
        try:
            with closing(open_unchanging(copy)) as connection:
                for order in ("ASC", "DESC"):
                    self._rows += connection.execute(
                        f"{_WRITE} FROM kine NOT INDEXED WHERE typeof(name) = 'text' AND name != 'compact_rev_key' "
                        f"ORDER BY id {order} LIMIT {_COMPARED}"
                    )
        except sqlite3.Error:
            self._rows = []  # no table of kine, or one that a checkpoint has not finished: it shows nothing

    def contradicted_by(self, connection: sqlite3.Connection) -> str:
        """Say in what the database with its log cannot be a later state of the one alone; "" where it can."""
        try:
            [(newest,)] = connection.execute("SELECT MAX(seq) FROM sqlite_sequence WHERE name = 'kine'")
            for row in self._rows:
                if newest is not None and row[0] > newest:
                    return f"it ends at revision {row[0]} alone, and at {newest} with the -wal"
                same = connection.execute(f"{_WRITE} FROM kine WHERE id = ?", row[:1]).fetchone()
                if same not in {None, row}:
                    return f"revision {row[0]} is another write alone than with the -wal"
        except sqlite3.Error:
            return ""  # told as damage
        return ""
