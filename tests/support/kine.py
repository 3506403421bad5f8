"""Writes the rows of kine as its releases do, from what is known of them: a store for tests, with a log beside it."""

from __future__ import annotations

import enum
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Release(enum.Enum):
    """Three styles of rows and tables."""

    OLD = "0.4"
    """Two indexes; a deletion keeps the value, and names the row that created it."""
    MIDDLE = "0.14.16"
    """All indexes; rows as before. The API server's own key has a row of its own."""
    NEW = "0.16.3"
    """A deletion keeps its value as the old one alone; names are declared as text in a new table."""


_INDEXES = (
    "CREATE INDEX IF NOT EXISTS kine_name_index ON kine (name)",
    "CREATE UNIQUE INDEX IF NOT EXISTS kine_name_prev_revision_uindex ON kine (name, prev_revision)",
)
_LATER_INDEXES = (
    "CREATE INDEX IF NOT EXISTS kine_name_id_index ON kine (name,id)",
    "CREATE INDEX IF NOT EXISTS kine_id_deleted_index ON kine (id,deleted)",
    "CREATE INDEX IF NOT EXISTS kine_prev_revision_index ON kine (prev_revision)",
    (
        "CREATE INDEX IF NOT EXISTS kine_id_compact_rev_key_with_prev_revision_index ON kine (id,name,prev_revision) "
        "WHERE name != 'compact_rev_key' AND prev_revision != 0"
    ),
)
_INSERT = """
    INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
    VALUES (CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?)
"""
_Newest = tuple[int, int, int, int, int, bytes | None]


class KineWriter:
    """A kine that has the file open, as k3s has: with a write-ahead log, and immediate transactions."""

    def __init__(self, path: Path, release: Release = Release.NEW) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=NORMAL"):
                self.connection.execute(f"PRAGMA {pragma}").fetchone()
            self.upgrade(release)
        except sqlite3.Error:  # what is damaged may not be opened any more
            self.close()
            raise

    def upgrade(self, release: Release) -> None:
        """Go on as another release does: a table that is there stays as it was declared."""
        self.release = release
        declared = "TEXT" if release is Release.NEW else "INTEGER"
        self.connection.execute(
            f"CREATE TABLE IF NOT EXISTS kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name {declared}, "
            "created INTEGER, deleted INTEGER, create_revision INTEGER NOT NULL, prev_revision INTEGER, lease INTEGER, "
            "value BLOB, old_value BLOB)"
        )
        for index in (*_INDEXES, *(() if release is Release.OLD else _LATER_INDEXES)):
            self.connection.execute(index)
        if not self.connection.execute("SELECT 1 FROM kine WHERE name = 'compact_rev_key'").fetchone():
            self._insert(b"compact_rev_key", 1, 0, 0, 0, 0, b"", None)

    def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        """Create or update a key; return its revision."""
        with self._transaction():
            newest = self._newest(key)
            if newest is None:
                return self._insert(key, 1, 0, 0, 0, lease, value, None)
            row_id, created, deleted, begins, _, held = newest
            if deleted:
                # What a row says of the one before it is that row's value: None, or what an old release left there.
                return self._insert(key, 1, 0, 0, row_id, lease, value, held)
            return self._insert(key, 0, 0, row_id if created else begins, row_id, lease, value, held)

    def delete(self, key: bytes) -> int:
        """Delete a key that is there; return the revision of the deletion."""
        with self._transaction():
            newest = self._newest(key)
            assert newest is not None
            row_id, created, deleted, begins, lease, held = newest
            assert not deleted
            if self.release is Release.NEW:
                return self._insert(key, 0, 1, 0, row_id, 0, None, held)
            return self._insert(key, 0, 1, row_id if created else begins, row_id, lease, held, held)

    def fill_gap(self) -> int:
        """Fill a revision that never became visible."""
        with self._transaction():
            (newest,) = self.connection.execute("SELECT MAX(id) FROM kine").fetchone()
            return self._insert(b"gap-%d" % (newest + 1), 0, 1, 0, 0, 0, None, None)

    def compact(self, revision: int) -> None:
        """Remove what was superseded or deleted up to a revision, and note it."""
        with self._transaction():
            self.connection.execute(
                "DELETE FROM kine WHERE id IN (SELECT prev_revision FROM kine WHERE name != 'compact_rev_key' "
                "AND prev_revision != 0 AND id <= ? UNION SELECT id FROM kine WHERE deleted != 0 AND id <= ?)",
                (revision, revision),
            )
            self.connection.execute(
                "UPDATE kine SET prev_revision = max(prev_revision, ?) WHERE name = 'compact_rev_key'",
                (revision,),
            )

    def checkpoint(self, mode: str = "FULL") -> None:
        """Bring the log into the file, as kine does after each compaction, and when it starts (TRUNCATE)."""
        self.connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()

    @property
    def newest(self) -> int:
        """The highest revision."""
        return int(self.connection.execute("SELECT MAX(id) FROM kine").fetchone()[0])

    def close(self) -> None:
        """Stop as k3s stops: the last one that closes brings the log into the file and removes it."""
        self.connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def _newest(self, key: bytes) -> _Newest | None:
        found: _Newest | None = self.connection.execute(
            "SELECT id, created, deleted, create_revision, lease, value FROM kine WHERE name = CAST(? AS TEXT) "
            "ORDER BY id DESC LIMIT 1",
            (key,),
        ).fetchone()
        return found

    def _insert(
        self,
        name: bytes,
        created: int,
        deleted: int,
        create_revision: int,
        prev_revision: int,
        lease: int,
        value: bytes | None,
        old_value: bytes | None,
    ) -> int:
        cursor = self.connection.execute(
            _INSERT, (name, created, deleted, create_revision, prev_revision, lease, value, old_value)
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid
