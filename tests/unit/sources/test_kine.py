"""The keys of kine, as every release writes them, against what etcd would hold."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.model.errors import SourceError
from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.sources.base import DAMAGE_NOTE
from etcdfix.sources.errors import NotAKineFile, RevisionCompacted
from etcdfix.sources.kine import KineSource
from etcdfix.sources.kinetable import KineTable
from tests.support.kine import KineWriter, Release
from tests.support.stopping import OPEN

A, B = b"/registry/configmaps/shop/a", b"/registry/configmaps/shop/b"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def values(source: KineSource, prefix: bytes = b"") -> dict[bytes, bytes]:
    return {stored.key: stored.value for stored in source.current(prefix)}


def told(kept: KeptRevision) -> tuple[int, bytes | None, bool]:
    return kept.revision.main, kept.stored.value if kept.stored is not None else None, kept.from_old_value


@pytest.mark.parametrize("release", Release)
def test_the_last_value_of_a_deleted_key_stays_as_long_as_its_tombstone(path: Path, release: Release) -> None:
    writer = KineWriter(path, release)
    writer.put(A, b"first")  # 2
    writer.put(A, b"last", lease=60)  # 3
    writer.delete(A)  # 4
    writer.put(B, b"b")  # 5
    writer.connection.execute("DELETE FROM kine WHERE id IN (2, 3)")
    with KineSource(path) as source:
        assert [told(kept) for kept in source.history(A)] == [(3, b"last", True), (4, None, False)]
        [older] = [kept.stored for kept in source.history(A) if kept.stored is not None]
        # A later release does not say when it was created; no deletion says what lease it had.
        assert older == StoredValue(A, b"last", 3, 0 if release is Release.NEW else 2, 0, 0)
        assert values(source) == {B: b"b"}
        assert [one.value for one in source.superseded()] == [b"last"]
    writer.compact(4)
    with KineSource(path) as source:
        assert list(source.history(A)) == []
    writer.close()


def test_the_keys_of_kine_itself_are_no_keys(path: Path) -> None:
    writer = KineWriter(path)
    writer.put(b"compact_rev_key_apiserver", b"3|1234")
    writer.put(b"/registry/health", b'{"health":"true"}')
    with KineSource(path) as source:
        assert values(source) == {b"/registry/health": b'{"health":"true"}'}
        assert source.get(b"compact_rev_key_apiserver") is None
        assert source.get(b"compact_rev_key") is None
        assert list(source.history(b"compact_rev_key")) == []
        assert list(source.superseded()) == []
    writer.close()


def test_a_revision_that_is_not_there(path: Path) -> None:
    writer = KineWriter(path)
    writer.put(A, b"a")
    with pytest.raises(RevisionCompacted, match="does not exist yet: the newest is 2"):
        KineSource(path, revision=3)
    writer.close()


def test_the_row_before_should_be_there(path: Path) -> None:
    writer = KineWriter(path)
    writer.put(A, b"1")  # 2
    writer.put(A, b"2")  # 3
    renamed = A.replace(b"shop", b"shoq")
    writer.connection.execute("UPDATE kine SET name = ? WHERE id = 3", (renamed.decode(),))
    with KineSource(path) as source:
        stored = source.get(renamed)
        assert stored is not None
        assert stored.version == 0
        assert source.lacks_predecessor(stored)
        older = source.get(A)
        assert older is not None
        assert not source.lacks_predecessor(older)
    writer.connection.execute("UPDATE kine SET prev_revision = 3 WHERE name = 'compact_rev_key'")
    with KineSource(path) as source:
        assert not source.lacks_predecessor(stored)  # that may have been compacted
    writer.close()


def test_a_lost_row_without_an_old_value_is_no_other_row(path: Path) -> None:
    writer = KineWriter(path)
    for value in (b"1", b"2", b"3"):
        writer.put(A, value)  # 2 to 4
    writer.put(B, b"b")
    writer.connection.execute("DELETE FROM kine WHERE id = 3")
    writer.connection.execute("UPDATE kine SET old_value = NULL WHERE id = 4")
    with KineSource(path, revision=3) as source, pytest.raises(RevisionCompacted):
        source.get(A)  # not what stood at 2
    writer.close()


def damaged(path: Path, keys: int = 400) -> int:
    writer = KineWriter(path)
    for number in range(keys):
        writer.put(b"/registry/pods/shop/p%04d" % number, b"x" * 900)
    writer.close()
    found = sqlite3.connect(path)
    found.execute("PRAGMA integrity_check")
    found.close()
    content = bytearray(path.read_bytes())
    # A leaf of the table of rows: header byte 13, values of this size.
    pages = [
        p
        for p in range(1, len(content) // 4096)
        if content[p * 4096] == 13 and b"x" * 900 in content[p * 4096 : (p + 1) * 4096]
    ]
    start = pages[len(pages) // 2] * 4096
    content[start : start + 8] = b"\x0d\xff\xff\xff\xff\xff\xff\xff"
    path.write_bytes(content)
    return keys


def test_what_a_damaged_page_hides_is_told_and_the_rest_is_read(path: Path) -> None:
    keys = damaged(path)
    with KineSource(path) as source:
        found = values(source)
        assert keys - 10 < len(found) < keys
        problems = source.problems
        assert source.compacted_revision() is None
    assert any("the database is damaged" in problem for problem in problems)
    assert any("could not be read" in problem for problem in problems)
    assert all("xxxx" not in problem for problem in problems)


def test_an_index_that_breaks_off_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = KineWriter(path)
    writer.put(A, b"1")
    writer.close()
    with KineSource(path) as source:
        whole = source._table.names

        def breaks(prefix: bytes, revision: int) -> Iterator[object]:
            yield from whole(prefix, revision)
            raise SourceError("malformed")

        monkeypatch.setattr(source._table, "names", breaks)
        assert values(source) == {A: b"1"}
        assert source.problems == ["lost after 2 keys: malformed", DAMAGE_NOTE]


class Model:
    """What etcd would hold at each revision."""

    def __init__(self) -> None:
        self.events: dict[bytes, list[tuple[int, StoredValue | None]]] = {}

    def put(self, key: bytes, value: bytes, revision: int) -> None:
        events = self.events.setdefault(key, [])
        last = events[-1][1] if events else None
        create = last.create_revision if last is not None else revision
        version = last.version + 1 if last is not None else 1
        events.append((revision, StoredValue(key, value, revision, create, version, 0)))

    def at(self, key: bytes, revision: int) -> StoredValue | None:
        found = [stored for at, stored in self.events.get(key, []) if at <= revision]
        return found[-1] if found else None


def same(found: StoredValue | None, expected: StoredValue | None) -> bool:
    if found is None or expected is None:
        return found is expected
    return (
        (found.key, found.value, found.mod_revision) == (expected.key, expected.value, expected.mod_revision)
        and found.create_revision in {0, expected.create_revision}
        and found.version in {0, expected.version}
    )


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "gap", "compact", "upgrade"]),
        st.sampled_from([A, B, b"/registry/c"]),
        st.integers(0, 30),
    ),
    max_size=20,
)


@given(STEPS, st.sampled_from(list(Release)))
def test_any_history_is_that_of_etcd(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bytes, int]], release: Release
) -> None:
    path = tmp_path_factory.mktemp("kine") / "state.db"
    writer, model, compacted = KineWriter(path, release), Model(), 0
    for number, (what, key, amount) in enumerate(steps):
        if what == "put":
            value = b"%d" % number
            model.put(key, value, writer.put(key, value))
        elif what == "delete" and model.at(key, writer.newest) is not None:
            model.events[key].append((writer.delete(key), None))
        elif what == "gap":
            writer.fill_gap()
        elif what == "compact":
            compacted = max(compacted, min(amount, writer.newest - 1))  # kine never comes as near as that
            writer.compact(compacted)
        elif what == "upgrade":
            writer.upgrade(list(Release)[amount % 3])
    newest = writer.newest
    for revision in range(1, newest + 1):
        with KineSource(path, revision=revision) as source:
            found = {stored.key: stored for stored in source.current(b"")}
            assert list(found) == sorted(found)
            for key in model.events:
                expected = model.at(key, revision)
                if revision >= compacted:
                    assert same(found.get(key), expected)
                    assert same(source.get(key), expected)
                elif key in found:
                    assert same(found[key], expected)  # less may be known, and nothing else
    with KineSource(path) as source:
        superseded = {(stored.key, stored.mod_revision): stored for stored in source.superseded()}
        for key, events in model.events.items():
            kept = list(source.history(key))
            every = dict(events)
            assert [one.revision.main for one in kept] == sorted({one.revision.main for one in kept})
            for one in kept:
                assert one.revision.main in every
                assert same(one.stored, every[one.revision.main])
            known = {one.revision.main for one in kept}
            assert {at for at, _ in events if at > compacted} <= known
            current = model.at(key, newest)
            others = {
                one.revision.main for one in kept if one.stored is not None and not same(one.stored, current)
            }
            assert {at for name, at in superseded if name == key} == others
    writer.close()
    shutil.rmtree(path.parent)


def test_again_is_at_the_newest_revision_whatever_this_one_is_pinned_at(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = KineWriter(path)
    for _ in range(3):
        writer.put(A, b"1")
    with KineSource(path, revision=2) as source:
        writer.put(A, b"2")
        monkeypatch.setattr("hashlib.file_digest", pytest.fail)  # that takes long
        with source.again() as later:
            assert (later.path, later.revision) == (path, 5)
        assert source.revision == 2  # the one closed, the other is still there
        assert source.get(A) is not None
        writer.close()
        path.unlink()
        with pytest.raises(NotAKineFile, match="No such file"):
            source.again()


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
def written(tmp_path: Path) -> Path:
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
def test_what_is_no_table_of_kine(written: Path, statements: tuple[str, ...], what: str) -> None:
    with pytest.raises(NotAKineFile, match=what):
        table_of(changed(written, *statements))


@pytest.mark.parametrize(("release", "left_out"), [(Release.OLD, 3), (Release.NEW, 0)])
def test_keys_that_look_like_numbers_are_told_where_they_are_stored_as_numbers(
    tmp_path: Path, release: Release, left_out: int
) -> None:
    """No key of Kubernetes does."""
    writer = KineWriter(tmp_path / "state.db", release)
    for key in (b"/", b"0", b"12", b"a", b"-3"):
        writer.put(key, key)
    table = table_of(tmp_path / "state.db")
    found = {names[0] for names in table.names(b"", table.newest)}
    assert len(found) == 6 - left_out
    assert [fault.split()[0] for fault in table.faults] == ([str(left_out)] if left_out else [])
    assert [row.value for row in table.rows_of(b"/")] == [b"/"]
    assert len(list(table.rows_of(b"12"))) == (0 if left_out else 1)
    writer.close()


def test_a_prefix_ends_where_it_ends(written: Path) -> None:
    table = table_of(written)
    assert [names[0] for names in table.names(b"/registry/pods/", table.newest)] == [
        b"/registry/pods/a/x",
        b"/registry/pods/b",
    ]
    assert list(table.names(b"/registry/q", table.newest)) == []
    assert list(table.names(b"/", 2)) == [
        (b"/registry/pods/a/x", 2, 3),
        (b"/registry/pods/b", 0, 4),
        (b"/registryother", 0, 5),
    ]
    assert table.around(b"/registry/pods/a/x", 2) == (2, 3)
    assert table.count() == 4


def test_columns_that_hold_anything(written: Path) -> None:
    table = table_of(
        changed(
            written,
            "INSERT INTO kine VALUES (90, '/odd', 'x', NULL, 'y', x'ff', 1e300, 5, 'text')",
            "INSERT INTO kine VALUES (91, x'2f616263', 1, 0, 0, 0, 0, x'00', NULL)",
            "INSERT INTO kine VALUES (92, NULL, 1, 0, 0, 0, 0, x'00', NULL)",
        )
    )
    [row] = table.rows_of(b"/odd")
    assert row[:6] == (90, b"/odd", 0, 0, 0, 0)
    assert (row.value, row.old_value) == (b"5", b"text")
    assert table.faults[1:] == ["2 rows left out: the name is not text"]
    assert b"/abc" not in [names[0] for names in table.names(b"", table.newest)]


@pytest.mark.parametrize(("said", "kept"), [("500", 5), ("-3", 0), ("'x'", 0)])
def test_a_compaction_that_cannot_be(written: Path, said: str, kept: int) -> None:
    table = table_of(
        changed(written, f"UPDATE kine SET prev_revision = {said} WHERE name = 'compact_rev_key'")
    )
    assert (table.compacted, bool(table.faults)) == (kept, said != "'x'")


def test_a_table_without_its_indexes_is_read_all_the_same(written: Path) -> None:
    with closing(sqlite3.connect(written)) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    before = table_of(written)
    after = table_of(changed(written, *(f"DROP INDEX {name}" for (name,) in found)))
    assert list(before.names(b"", 5)) == list(after.names(b"", 5))
    assert list(before.all_rows()) == list(after.all_rows())
