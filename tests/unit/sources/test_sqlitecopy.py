"""A SQLite file beside the program that writes it: whole, and untouched."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from etcdfix.inputs.ownfiles import SQLITE_MAGIC
from etcdfix.model.errors import SourceError
from etcdfix.sources.errors import NotAKineFile
from etcdfix.sources.sqlitecopy import SQLiteCopy
from tests.support.kine import KineWriter
from tests.support.raising import raising

REPOSITORY = Path(__file__).parents[3]


def left_behind(folder: Path) -> dict[str, tuple[str, int, int, int]]:
    found = {}
    for path in sorted(folder.iterdir()):
        status = path.stat()
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        found[path.name] = (digest, status.st_mtime_ns, status.st_ino, status.st_mode)
    return found


def newest(copy: SQLiteCopy) -> int:
    return int(copy.connection.execute("SELECT MAX(id) FROM kine").fetchone()[0])


def filled(path: Path, rows: int = 50) -> KineWriter:
    writer = KineWriter(path)
    for number in range(rows):
        writer.put(b"/registry/configmaps/shop/c%d" % number, b"x" * 3000)
    return writer


def killed(folder: Path) -> Path:
    running = folder / "running"
    running.mkdir()
    writer = filled(running / "state.db")
    shutil.copytree(running, folder / "killed")
    writer.close()
    return folder / "killed" / "state.db"


def test_a_running_one_is_read_with_its_log_and_not_touched(tmp_path: Path, temporary: Path) -> None:
    state = tmp_path / "db"
    state.mkdir()
    writer = filled(state / "state.db")
    before = left_behind(state)
    assert set(before) == {"state.db", "state.db-wal", "state.db-shm"}
    with SQLiteCopy(state / "state.db") as copy:
        assert newest(copy) == 51
        assert copy.log_pages > 0
        assert not copy.log_missing
        assert list(temporary.iterdir()) == []  # also while it is read
    assert left_behind(state) == before
    assert list(temporary.iterdir()) == []
    writer.close()


def what_a_kill_leaves(temporary: Path, name: str = "etcdfix-kine-killed") -> Path:
    directory = temporary / name
    directory.mkdir(mode=0o700)
    for file in ("copy.db", "copy.db-wal", "copy.db-shm", "copy.db-journal"):
        (directory / file).write_bytes(b"x")
    return directory


def test_what_a_killed_command_left_is_taken_away(tmp_path: Path, temporary: Path) -> None:
    filled(tmp_path / "state.db").close()
    command = (
        "import sys; from pathlib import Path; from etcdfix.sources import sqlitecopy\n"
        "def die(copy):\n    print(copy, flush=True); sys.stdin.read()\n"
        "sqlitecopy.open_unchanging = die\n"
        "sqlitecopy.SQLiteCopy(Path(sys.argv[1]))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, str(tmp_path / "state.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stdout is not None
        copy = Path(process.stdout.readline().strip())
        with SQLiteCopy(tmp_path / "state.db"):
            assert copy.exists()  # whoever copies now is left in peace
        process.kill()
        process.wait()
    assert copy.exists()
    with SQLiteCopy(tmp_path / "state.db") as read:
        assert newest(read) == 51
    assert list(temporary.iterdir()) == []


def test_what_is_not_a_copy_of_ours_stays(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "state.db").close()
    elsewhere = what_a_kill_leaves(tmp_path, "elsewhere")
    (temporary / "etcdfix-kine-link").symlink_to(elsewhere)
    (temporary / "etcdfix-kine-file").write_bytes(b"x")
    with_more = what_a_kill_leaves(temporary, "etcdfix-kine-more")
    (with_more / "mine").write_bytes(b"x")
    what_a_kill_leaves(temporary, "other")
    with SQLiteCopy(tmp_path / "state.db"):
        pass
    names = {path.name for path in temporary.iterdir()}
    assert names == {"etcdfix-kine-link", "etcdfix-kine-file", "etcdfix-kine-more", "other"}
    assert [path.name for path in with_more.iterdir()] == ["mine"]
    assert len(list(elsewhere.iterdir())) == 4
    strange = what_a_kill_leaves(temporary)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with SQLiteCopy(tmp_path / "state.db"):
        pass
    assert strange.exists()  # somebody else's


def test_a_disk_without_locks_is_good_enough(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "state.db").close()
    left = what_a_kill_leaves(temporary)
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, "No locks available")))
    with SQLiteCopy(tmp_path / "state.db") as copy:
        assert newest(copy) == 51
    assert list(temporary.iterdir()) == [left]  # it may be in use


@pytest.mark.parametrize("mode", [0o500, 0o700])
def test_a_stopped_one_is_read_and_nothing_is_left_beside_it(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "db"
    state.mkdir()
    filled(state / "state.db").close()
    state.chmod(mode)
    before = left_behind(state)
    with SQLiteCopy(state / "state.db") as copy:
        assert newest(copy) == 51
        assert copy.log_missing
        assert not copy.log_found
        assert copy.sha256() == before["state.db"][0]
    assert left_behind(state) == before


@pytest.mark.parametrize("cut", [33, 5000, 20_000])
def test_a_log_that_ends_within_a_write_is_read_to_what_was_committed(tmp_path: Path, cut: int) -> None:
    path = killed(tmp_path)
    log = Path(f"{path}-wal")
    log.write_bytes(log.read_bytes()[:-cut])
    with SQLiteCopy(path) as copy:
        assert 40 < newest(copy) < 51
        assert copy.log_fault == ""
        assert copy.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9])
def test_a_log_that_is_damaged_in_its_middle_is_told(tmp_path: Path, where: float) -> None:
    """SQLite reads it up to there, and says nothing: later writes, and deletions, would be missing."""
    path = killed(tmp_path)
    log = Path(f"{path}-wal")
    content = bytearray(log.read_bytes())
    content[int(len(content) * where)] ^= 0x10
    log.write_bytes(content)
    with SQLiteCopy(path) as copy:
        assert copy.log_fault.startswith(f"its -wal is damaged behind page {copy.log_pages} of ")


def test_what_an_earlier_round_left_in_the_log_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    writer = filled(path)
    writer.checkpoint("RESTART")
    writer.put(b"/later", b"1")  # written over the beginning; the rest is of the round before
    assert Path(f"{path}-wal").stat().st_size > 100_000
    with SQLiteCopy(path) as copy:
        assert newest(copy) == 52
        assert copy.log_fault == ""
    writer.close()


def test_a_rollback_journal_is_applied_in_the_copy_alone(tmp_path: Path) -> None:
    state = tmp_path / "db"
    state.mkdir()
    connection = sqlite3.connect(state / "state.db", isolation_level=None)
    connection.execute("PRAGMA cache_size=1")
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE kine (id INTEGER PRIMARY KEY, value BLOB)")
    connection.executemany("INSERT INTO kine (value) VALUES (?)", [(b"a" * 3000,)] * 100)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE kine SET value = ?", (b"b" * 3000,))
    crashed = tmp_path / "crashed"
    shutil.copytree(state, crashed)
    connection.execute("ROLLBACK")
    connection.close()
    assert (crashed / "state.db-journal").stat().st_size
    before = left_behind(crashed)
    with SQLiteCopy(crashed / "state.db") as copy:
        assert not copy.log_missing
        assert copy.connection.execute("SELECT DISTINCT value FROM kine").fetchall() == [(b"a" * 3000,)]
    assert left_behind(crashed) == before


STORM = """
import sys
import tempfile
from pathlib import Path
from tests.support.kine import KineWriter

writer = KineWriter(Path(sys.argv[1]))
for number in range(40):
    writer.put(b"/a%d" % number, b"0")
connection, count = writer.connection, 0
print("ready", flush=True)
while True:
    count += 1
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE kine SET value = ?, lease = ?", (b"%d" % count * 900, count))
    connection.execute("COMMIT")
    if count % 3 == 0:
        writer.checkpoint(("FULL", "PASSIVE", "RESTART", "TRUNCATE")[count // 3 % 4])
"""


@contextmanager
def storming(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True)
    command = [sys.executable, "-c", STORM, str(path)]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        process.kill()


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Path]:
    with storming(tmp_path / "db" / "state.db"):
        yield tmp_path / "db" / "state.db"


def test_every_copy_beside_a_writer_is_of_one_moment(storm: Path) -> None:
    rounds: list[int] = []
    refusals: list[str] = []
    for _ in range(40):
        try:
            copy = SQLiteCopy(storm)
        except SourceError as exc:
            refusals.append(exc.message)
            continue
        with copy:
            assert copy.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert copy.log_fault == ""
            found = copy.connection.execute("SELECT DISTINCT lease, value FROM kine").fetchall()
        if (0, b"0") in found:
            continue  # before the first round
        [(count, value)] = found  # all rows of one transaction
        assert value == b"%d" % count * 900
        rounds.append(count)
    assert all("began anew" in refusal for refusal in refusals)
    assert rounds == sorted(rounds)  # never an older state than the one before
    assert len(set(rounds)) > 10
    assert {path.name for path in storm.parent.iterdir()} == {"state.db", "state.db-shm", "state.db-wal"}


def lines_of(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("SELECT DISTINCT lease, value FROM kine WHERE name LIKE '/a%'").fetchall()


def test_what_a_killed_writer_left_is_what_sqlite_finds(tmp_path: Path) -> None:
    """Killed within a write, or a checkpoint: with its log every state is that of one transaction, and the last one.

    The file alone is what a checkpoint has come to: an older state, or pages of two of them. It is told each time that
    the log is missing, and nothing is hidden: that the pages do not belong together SQLite cannot see.
    """
    missing = 0
    for number in range(6):
        state = tmp_path / str(number) / "db"
        with storming(state / "state.db"):
            time.sleep(number / 25)
        before = left_behind(state)
        shutil.copytree(state, state.parent / "opened")
        with closing(sqlite3.connect(state.parent / "opened" / "state.db")) as opened:
            expected = lines_of(opened)
        with SQLiteCopy(state / "state.db") as copy:
            assert copy.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert lines_of(copy.connection) == expected
            assert copy.log_fault == ""
        assert len(expected) == 1
        assert left_behind(state) == before
        alone = Path(shutil.copy(state / "state.db", state.parent / "alone.db"))
        try:
            with SQLiteCopy(alone) as copy:
                assert copy.log_missing
                missing += expected != lines_of(copy.connection)
        except (SourceError, sqlite3.Error):
            missing += 1
    assert missing, "the log held nothing that the file had not"


def test_a_log_that_begins_anew_all_the_time_is_refused(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = filled(tmp_path / "state.db")
    copy_file = SQLiteCopy._copy_file

    def and_begin_anew(self: SQLiteCopy, source: str, target: Path) -> None:
        copy_file(self, source, target)
        if source.endswith("-wal"):
            writer.checkpoint("TRUNCATE")
            writer.put(b"/another", b"1")

    monkeypatch.setattr(SQLiteCopy, "_copy_file", and_begin_anew)
    with pytest.raises(SourceError, match="began anew during each of 5 attempts") as caught:
        SQLiteCopy(tmp_path / "state.db")
    assert "sqlite3 .backup" in caught.value.hint
    assert "stop k3s" not in caught.value.hint, "that would end what its API server remembers"
    assert list(temporary.iterdir()) == []
    writer.close()


def test_a_log_that_is_taken_away_while_it_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.db"
    writer = filled(path)
    copy_file = SQLiteCopy._copy_file
    times: list[int] = []

    def and_stop(self: SQLiteCopy, source: str, target: Path) -> None:
        if not times:
            times.append(1)
            copy_file(self, source, target)
            writer.close()
            return
        copy_file(self, source, target)

    monkeypatch.setattr(SQLiteCopy, "_copy_file", and_stop)
    with SQLiteCopy(path) as copy:
        assert newest(copy) == 51
        assert copy.log_missing


@pytest.mark.parametrize(
    ("content", "what", "hint"),
    [
        (b"", "it is empty", "state.db"),
        (b"apiVersion: v1\n", "no SQLite database", "state.db"),
        (SQLITE_MAGIC + b"\x10\0", "ends within its header", "state.db"),
        (b"\0" * 16 + b"\xed\xda\x0c\xed" + b"\0" * 4000, "a database file of etcd", "--snapshot"),
        (b"\x1f\x8b" + b"\0" * 200, "compressed", "unpack"),
    ],
)
def test_what_is_no_database_of_sqlite(tmp_path: Path, content: bytes, what: str, hint: str) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    with pytest.raises(NotAKineFile, match=what) as caught:
        SQLiteCopy(path)
    assert hint in caught.value.hint


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, why in (("pipe", "not a regular file"), ("missing", "No such file"), (".", "directory")):
        with pytest.raises(NotAKineFile, match=why):
            SQLiteCopy(tmp_path / name)


def test_a_log_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    filled(tmp_path / "state.db").close()
    (tmp_path / "state.db-wal").symlink_to("/etc/passwd")
    with pytest.raises(SourceError, match=r"state\.db-wal"):
        SQLiteCopy(tmp_path / "state.db")


def test_a_file_that_is_damaged_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    filled(path).close()
    content = bytearray(path.read_bytes())
    content[20:60] = b"\xff" * 40
    path.write_bytes(content)
    with pytest.raises(SourceError, match="nothing can be read") as caught, SQLiteCopy(path) as copy:
        newest(copy)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("module", "name", "error", "said", "hint"),
    [
        (shutil, "copyfileobj", OSError(28, "No space left on device"), "No space left", "TMPDIR"),
        (tempfile, "mkdtemp", OSError(28, "No space left on device"), "No space left", ""),
        (shutil, "copyfileobj", OSError(5, "Input/output error"), "cannot be read to its end", "ddrescue"),
    ],
)
def test_a_copy_that_cannot_be_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: object,
    name: str,
    error: OSError,
    said: str,
    hint: str,
) -> None:
    filled(tmp_path / "state.db", 3).close()
    monkeypatch.setattr(module, name, raising(error))
    with pytest.raises(SourceError, match=said) as caught:
        SQLiteCopy(tmp_path / "state.db")
    assert hint in caught.value.hint


def test_the_copy_cannot_be_written_through(tmp_path: Path) -> None:
    filled(tmp_path / "state.db").close()
    with SQLiteCopy(tmp_path / "state.db") as copy, pytest.raises(sqlite3.OperationalError, match="readonly"):
        copy.connection.execute("DELETE FROM kine")


def test_a_log_that_is_torn_each_time_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = killed(tmp_path)
    copy_file, times = SQLiteCopy._copy_file, iter(range(1, 100))

    def torn(self: SQLiteCopy, source: str, target: Path) -> None:
        copy_file(self, source, target)
        if source.endswith("-wal"):
            content = bytearray(target.read_bytes())
            content[-30_000 * next(times)] ^= 0xFF
            target.write_bytes(content)

    monkeypatch.setattr(SQLiteCopy, "_copy_file", torn)
    with SQLiteCopy(path) as copy:
        assert newest(copy) < 51
        assert copy.log_fault == ""
        assert copy.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
