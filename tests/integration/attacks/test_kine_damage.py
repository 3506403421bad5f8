"""A database of kine that is damaged, or lies beside a log: no row is missing silently, and no old value is current."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.model.errors import SourceError
from etcdfix.sources.kine import KineSource
from tests.support.kine import KineWriter, Release
from tests.support.objects import namespace_object

pytestmark = pytest.mark.usefixtures("no_variables")

INDEXES = ["kine_name_index", "kine_name_id_index", "kine_id_deleted_index", "kine_prev_revision_index"]
UNIQUE = "kine_name_prev_revision_uindex"


def written(path: Path, keys: int = 40, *, cluster: str = "a") -> KineWriter:
    writer = KineWriter(path, Release.OLD if keys < 40 else Release.MIDDLE)
    for number in range(keys):
        put(writer, f"{cluster}{number:03}")
    return writer


def put(writer: KineWriter, name: str) -> None:
    writer.put(b"/registry/namespaces/" + name.encode(), namespace_object(name))


def root_page(path: Path, name: str) -> int:
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,))
    return int(page)


def blank(path: Path, *names: str) -> None:
    """Damage the first page of some trees, as a disk does."""
    content = bytearray(path.read_bytes())
    for name in names:
        start = (root_page(path, name) - 1) * 4096
        content[start : start + 4096] = bytes(4096)
    path.write_bytes(content)


def told_of(path: Path) -> tuple[set[bytes], list[str], list[str]]:
    notices: list[str] = []
    with KineSource(path, on_notice=notices.append) as source:
        keys = {stored.key for stored in source.current(b"")}
        return keys, source.problems, [notice for notice in notices if "index" in notice]


def test_a_damaged_list_of_numbers_ends_no_look(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    written(path).close()
    whole = told_of(path)[0]
    blank(path, "sqlite_sequence")
    keys, problems, _ = told_of(path)
    assert keys == whole
    assert any("damaged" in problem for problem in problems)


def test_a_schema_that_is_no_text_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    written(path).close()
    path.write_bytes(path.read_bytes().replace(b"INDEX kine_name_index ON", b"INDEX \xd3ine_name_index ON"))
    with pytest.raises(SourceError, match="nothing can be read: malformed database schema"):
        KineSource(path)


@pytest.mark.parametrize("damaged", [INDEXES[1:2], [*INDEXES[:2], UNIQUE], INDEXES])
def test_a_table_is_read_whole_without_its_damaged_indexes(
    tmp_path: Path, damaged: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.db"
    written(path).close()
    with KineSource(path) as source:
        whole = list(source.current(b"")), list(source.superseded()), source.describe().revision
    blank(path, *damaged)
    with KineSource(path) as source:
        assert (list(source.current(b"")), list(source.superseded()), source.describe().revision) == whole
    assert run(["scan", "--kine", str(path), "--no-encryption", "-o", "json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["complete"]
    [warning] = [line for line in said.err.splitlines() if "index" in line]
    # What is said to mend it does: kine makes its indexes again when it starts.
    command = warning.partition('COPY "')[2].rstrip('"')
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in command.split(";"):
            connection.execute(statement)
    KineWriter(path, Release.MIDDLE).close()
    assert told_of(path)[1:] == ([], [])


def test_rows_that_only_an_index_knows_are_missing(tmp_path: Path) -> None:
    """The table, of an earlier moment, is whole; one index is damaged, and another one has the later rows."""
    path, later = tmp_path / "state.db", tmp_path / "later.db"
    writer = written(path)
    writer.checkpoint("TRUNCATE")
    shutil.copy(path, later)
    after = KineWriter(later, Release.MIDDLE)
    after.put(b"/registry/namespaces/later", b"1")
    after.close()
    writer.close()
    content, newer = bytearray(path.read_bytes()), later.read_bytes()
    start = (root_page(path, INDEXES[2]) - 1) * 4096
    content[start : start + 4096] = newer[start : start + 4096]
    path.write_bytes(content)
    blank(path, INDEXES[1])
    assert told_of(path)[1]


def test_without_an_index_that_is_whole_nothing_proves_the_table(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    written(path).close()
    blank(path, *INDEXES, UNIQUE)
    keys, problems, _ = told_of(path)
    assert len(keys) == 40
    assert "nothing shows that no row is missing" in problems[0]


def test_a_damaged_table_is_not_called_whole_since_an_index_is_damaged_too(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    written(path, 400).close()
    blank(path, INDEXES[0])
    content = bytearray(path.read_bytes())
    leaf = next(p for p in range(12, len(content) // 4096) if content[p * 4096] == 13)
    content[leaf * 4096 : leaf * 4096 + 4096] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(SourceError, match="malformed"):
        told_of(path)


def log_of(folder: Path, keys: int, cluster: str = "a", *, checkpoint: bool = False) -> tuple[Path, Path]:
    """Return a database, and its log, as a kine that was killed leaves them."""
    folder.mkdir()
    writer = written(folder / "running.db", keys // 2, cluster=cluster)
    if checkpoint:
        writer.checkpoint("TRUNCATE")
    for number in range(keys // 2, keys):
        put(writer, f"{cluster}{number:03}")
    state = Path(shutil.copy(folder / "running.db", folder / "state.db"))
    log = Path(shutil.copy(folder / "running.db-wal", folder / "state.db-wal"))
    writer.close()
    return state, log


@pytest.mark.parametrize(("own", "other", "cluster"), [(20, 60, "b"), (60, 20, "a"), (400, 30, "a")])
def test_a_log_of_another_file_is_not_read_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], own: int, other: int, cluster: str
) -> None:
    state = tmp_path / "state.db"
    written(state, own).close()
    shutil.copy(log_of(tmp_path / "other", other, cluster)[1], tmp_path / "state.db-wal")
    assert run(["scan", "--kine", str(state), "--no-encryption"]) == 5
    said = capsys.readouterr()
    # Both are left as they are; a copy of the file alone is read.
    alone = tmp_path / "state.db.alone"
    assert f"cp {state} {alone}," in said.err
    shutil.copy(state, alone)
    keys, problems, _ = told_of(alone)
    assert (len(keys), problems) == (own, [])


@pytest.mark.parametrize("after", ["", "FULL", "VACUUM", "edited", "compacted", "deleted"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_log_that_belongs_is_never_left_out(tmp_path: Path, after: str, *, checkpoint: bool) -> None:
    state, log = log_of(tmp_path / "k3s", 60, checkpoint=checkpoint)
    running = tmp_path / "running.db"
    shutil.copy(state, running)
    shutil.copy(log, f"{running}-wal")
    writer = KineWriter(running)
    expected = {b"/registry/namespaces/a%03d" % number for number in range(60)}
    if after == "FULL":
        writer.checkpoint()
    elif after == "VACUUM":
        writer.connection.execute("VACUUM")
    elif after == "edited":  # by hand
        writer.connection.execute("UPDATE kine SET value = 'by hand' WHERE id > 3")
    elif after:
        expected -= {b"/registry/namespaces/a059"}
        newest = writer.delete(b"/registry/namespaces/a059")
        if after == "compacted":
            writer.put(b"/registry/namespaces/a000", b"1")
            writer.compact(newest)
    copied = tmp_path / "copied.db"
    shutil.copy(running, copied)
    shutil.copy(f"{running}-wal", f"{copied}-wal")
    writer.close()
    keys, problems, _ = told_of(copied)
    assert (keys, problems) == (expected, [])


def test_where_the_file_is_not_whole_alone_nothing_is_called_whole(tmp_path: Path) -> None:
    state, _ = log_of(tmp_path / "k3s", 400, checkpoint=True)
    blank(state, INDEXES[2])
    shutil.copy(log_of(tmp_path / "other", 60, "b")[1], f"{state}-wal")
    problems = told_of(state)[1]
    assert "its -wal may belong to another file" in problems[0]


@pytest.mark.parametrize(
    ("lost", "told"),
    [
        ("id IN (30, 31)", "2 rows after revision 0"),
        ("id > 40", "5 rows"),
        ("name = '/registry/namespaces/a003'", "1 row"),
        ("id = 42", ""),  # a later row replaces it, as after a compaction that broke off
        ("id <= 4 AND id > 1", ""),
    ],
)
def test_rows_that_a_recovery_of_sqlite_lost_are_missed(tmp_path: Path, lost: str, told: str) -> None:
    """A malformed file was recovered, from 450 MB to 13 MB: every page is whole, and objects are gone."""
    path = tmp_path / "state.db"
    writer = written(path)
    for _ in range(4):
        put(writer, "a001")
    if not told:
        writer.compact(4 if "AND" in lost else 0)
    writer.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"DELETE FROM kine WHERE name != 'compact_rev_key' AND {lost}")
    _, problems, _ = told_of(path)
    assert [told in problem for problem in problems[:1]] == [True] * bool(told)
