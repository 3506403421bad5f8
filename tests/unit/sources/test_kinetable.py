"""The table of kine, whoever wrote it, and whatever stands in it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.errors import NotAKineFile, SourceError
from etcdfix.sources.kinetable import KineTable, Names
from tests.support.kine import KineWriter, Release

OPEN = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    with OPEN:
        yield


def table_of(path: Path) -> KineTable:
    found = KineTable(path)
    OPEN.callback(found.close)
    return found


def changed(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    writer = KineWriter(tmp_path / "state.db", Release.MIDDLE)
    for key in (b"/registry/pods/a/x", b"/registry/pods/a/x", b"/registry/pods/b", b"/registryother"):
        writer.put(key, key)
    writer.close()
    return tmp_path / "state.db"


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (("DROP TABLE kine",), "no table `kine`"),
        (("DROP TABLE kine", "CREATE TABLE key_value (name TEXT)"), "k3s before kine"),
        (("DROP TABLE kine", "CREATE TABLE kine (id INTEGER PRIMARY KEY, name TEXT)"), "no table `kine`"),
        (("ALTER TABLE kine RENAME TO other", "CREATE VIEW kine AS SELECT * FROM other"), "no table `kine`"),
        (
            (
                "DROP TABLE kine",
                "CREATE TABLE kine (id TEXT PRIMARY KEY, name, created, deleted, create_revision, prev_revision, lease, value, old_value)",  # noqa: E501
            ),
            "no row number",
        ),
        (
            (
                "DROP TABLE kine",
                "CREATE TABLE kine (id INTEGER, name, created, deleted, create_revision, prev_revision, lease, value, old_value, PRIMARY KEY (id, name))",  # noqa: E501
                "INSERT INTO kine VALUES ('abc', '/x', 1, 0, 0, 0, 0, 'x', NULL)",
            ),
            "no row number",
        ),
    ],
)
def test_what_is_no_table_of_kine(path: Path, statements: tuple[str, ...], what: str) -> None:
    with pytest.raises(NotAKineFile, match=what):
        table_of(changed(path, *statements))


@pytest.mark.parametrize("release", Release)
def test_keys_that_look_like_numbers_stand_where_etcd_has_them(tmp_path: Path, release: Release) -> None:
    writer = KineWriter(tmp_path / "state.db", release)
    keys = [b"/", b"/registry/a", b"0", b"12", b"5", b"a", b"-3", b"zz"]
    for key in keys:
        writer.put(key, key)
    table = table_of(tmp_path / "state.db")
    found = [names.name for names in table.names(b"", table.newest)]
    assert [name for name in found if name != b"compact_rev_key"] == sorted(keys)
    for key in keys:
        assert [names.name for names in table.names(key, table.newest)] == [
            one for one in sorted(keys) if one.startswith(key)
        ]
        assert [row.value for row in table.rows_of(key)] == [key]
    # Under the old declaration this is the same number.
    assert list(table.rows_of(b"05")) == []
    writer.close()


def test_a_prefix_ends_where_it_ends(path: Path) -> None:
    table = table_of(path)
    assert [n.name for n in table.names(b"/registry/pods/", table.newest)] == [
        b"/registry/pods/a/x",
        b"/registry/pods/b",
    ]
    assert list(table.names(b"/registry/q", table.newest)) == []
    assert list(table.names(b"/", 2)) == [
        Names(b"/registry/pods/a/x", 2, 3),
        Names(b"/registry/pods/b", 0, 4),
        Names(b"/registryother", 0, 5),
    ]
    assert table.around(b"/registry/pods/a/x", 2) == Names(b"/registry/pods/a/x", 2, 3)
    assert table.count() == 4


def test_columns_that_hold_anything(path: Path) -> None:
    table = table_of(
        changed(
            path,
            "INSERT INTO kine VALUES (90, '/odd', 'x', NULL, 'y', x'ff', 1e300, 5, 'text')",
            "INSERT INTO kine VALUES (91, x'2f616263', 1, 0, 0, 0, 0, x'00', NULL)",
            "INSERT INTO kine VALUES (92, NULL, 1, 0, 0, 0, 0, x'00', NULL)",
        )
    )
    [row] = table.rows_of(b"/odd")
    assert row[:6] == (90, b"/odd", 0, 0, 0, 0)
    assert (row.value, row.old_value) == (b"5", b"text")
    assert table.faults == ["2 rows whose name is no text: left out"]
    assert b"/abc" not in [names.name for names in table.names(b"", table.newest)]


@pytest.mark.parametrize(("said", "kept"), [("500", 5), ("-3", 0), ("'x'", 0)])
def test_a_compaction_that_cannot_be(path: Path, said: str, kept: int) -> None:
    table = table_of(changed(path, f"UPDATE kine SET prev_revision = {said} WHERE name = 'compact_rev_key'"))
    assert (table.compacted, bool(table.faults)) == (kept, said != "'x'")


def test_a_damaged_page_is_found(path: Path) -> None:
    writer = KineWriter(path)
    for number in range(200):
        writer.put(b"/registry/pods/p%d" % number, b"x" * 900)
    writer.close()
    content = bytearray(path.read_bytes())
    content[4096 * 20 : 4096 * 20 + 200] = b"\xff" * 200
    path.write_bytes(content)
    table = table_of(path)
    assert table.faults
    with pytest.raises(SourceError, match="malformed"):
        list(table.all_rows())


def behind_the_back_of_its_indexes(path: Path, *statements: str) -> Path:
    connection = sqlite3.connect(path, isolation_level=None)
    indexes = connection.execute("SELECT * FROM sqlite_master WHERE type = 'index'").fetchall()
    connection.close()
    hide = ("PRAGMA writable_schema=ON", "DELETE FROM sqlite_master WHERE type = 'index'")
    changed(changed(path, *hide), *statements)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    connection.executemany("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", indexes)
    connection.close()
    return path


def test_indexes_of_another_moment_are_found_where_every_page_is_whole(path: Path) -> None:
    row = "(9, '/registry/pods/b', 0, 0, 4, 4, 0, 'newer', NULL)"
    file = behind_the_back_of_its_indexes(path, f"INSERT INTO kine VALUES {row}")
    assert sqlite3.connect(file).execute("PRAGMA quick_check").fetchall() == [("ok",)]
    table = table_of(file)
    assert table.faults


def test_what_a_damaged_index_calls_no_name_is_passed_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once with the log of another moment."""
    table = table_of(path)
    monkeypatch.setattr(table, "_rows", lambda *_: iter([(None, 3, None), (b"/registry/pods/b", 4, 0)]))
    assert list(table.names(b"/registry/", table.newest)) == [Names(b"/registry/pods/b", 4, 0)]


def test_a_table_without_its_indexes_is_read_all_the_same(path: Path) -> None:
    found = sqlite3.connect(path).execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    before = table_of(path)
    after = table_of(changed(path, *(f"DROP INDEX {name}" for (name,) in found)))
    assert list(before.names(b"", 5)) == list(after.names(b"", 5))
    assert list(before.all_rows()) == list(after.all_rows())
