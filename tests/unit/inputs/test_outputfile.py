"""Writing a file for somebody: what is refused, what is left behind, and for whom it is."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.inputs.outputfile import destination
from etcdfix.model.errors import ConfigurationError

RECORD = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","annotations":{"etcdfix.io/sequence":"1"}}\n'


pytestmark = pytest.mark.usefixtures("umask")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def write(path: Path, data: bytes = b"new", *, private: bool = False) -> None:
    with destination(path, (), private=private) as stream:
        stream.write(data)


@pytest.mark.parametrize(("private", "mode"), [(False, 0o644), (True, 0o600)])
def test_mode_of_a_new_file_also_while_it_is_written(tmp_path: Path, *, private: bool, mode: int) -> None:
    path = tmp_path / "report"
    with destination(path, (), private=private) as stream:
        stream.write(b"new")
        assert stat.S_IMODE(os.fstat(stream.fileno()).st_mode) == mode
        assert [partial.name[:9] for partial in tmp_path.iterdir()] == [".etcdfix-"]
    assert (path.read_bytes(), mode_of(path)) == (b"new", mode)
    assert path.stat().st_nlink == 1
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("before", [0o666, 0o644, 0o640, 0o400])
def test_a_private_file_takes_no_mode_from_the_one_before(tmp_path: Path, before: int) -> None:
    path = tmp_path / "plan"
    path.touch()
    path.chmod(before)
    write(path, private=True)
    assert (path.read_bytes(), mode_of(path)) == (b"new", 0o600)


def test_the_name_while_it_is_written_cannot_be_foreseen(tmp_path: Path) -> None:
    with destination(tmp_path / "a", ()), destination(tmp_path / "b", ()):
        assert len(set(tmp_path.iterdir())) == 2


def test_a_hard_link_elsewhere_keeps_what_it_had(tmp_path: Path) -> None:
    path, other = tmp_path / "report", tmp_path / "other"
    path.write_bytes(b"old")
    other.hardlink_to(path)
    write(path)
    assert (path.read_bytes(), other.read_bytes()) == (b"new", b"old")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, SystemExit, OSError, ValueError])
def test_nothing_is_left_of_what_was_not_finished(tmp_path: Path, failure: type[BaseException]) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"old")

    def work() -> None:
        with destination(path, ()) as stream:
            stream.write(b"half")
            raise failure

    with pytest.raises(failure):
        work()
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("report", b"old")]


SIGNALLED = """
import sys, time
from pathlib import Path
from etcdfix.cli.ending import ending_early
from etcdfix.inputs.outputfile import destination
with ending_early(), destination(Path(sys.argv[1]), ()) as stream:
    stream.write(b"half")
    stream.flush()
    print("begun", flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_after_a_signal(tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(b"old")
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALLED, str(tmp_path / "report")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert len(list(tmp_path.iterdir())) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) != 0
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("report", b"old")]


def test_a_name_that_could_not_be_taken_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError):
        write(tmp_path / "report")
    assert list(tmp_path.iterdir()) == []


def test_an_ignored_signal_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with destination(tmp_path / "report", ()):
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("what", ["log", "link", "pipe"])
def test_what_came_to_stand_there_meanwhile_stays(tmp_path: Path, what: str) -> None:
    path = tmp_path / "report"

    def work() -> None:
        with destination(path, ()):
            make: dict[str, Callable[[], object]] = {
                "log": lambda: path.write_bytes(RECORD),
                "link": lambda: path.symlink_to("elsewhere"),
            }
            make.get(what, lambda: os.mkfifo(path))()

    with pytest.raises(ConfigurationError):
        work()
    assert [p.name for p in tmp_path.iterdir()] == ["report"]
    assert path.is_symlink() or path.is_fifo() or path.read_bytes() == RECORD


def test_a_directory_that_changes_its_name_meanwhile_still_gets_the_file(tmp_path: Path) -> None:
    folder, moved = tmp_path / "folder", tmp_path / "moved"
    folder.mkdir()
    with destination(folder / "report", ()) as stream:
        folder.rename(moved)
        folder.mkdir()
        stream.write(b"new")
    assert (moved / "report").read_bytes() == b"new"
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("name", "redirected"),
    [("/dev/stdout", "to a file"), ("/dev/stdout", "to a pipe"), ("/proc/self/fd/1", "to a file")],
)
def test_standard_output_by_its_other_names(tmp_path: Path, name: str, redirected: str) -> None:
    script = (
        "import sys; from pathlib import Path; from etcdfix.inputs.outputfile import destination\n"
        "with destination(Path(sys.argv[1]), (), private=True) as stream: stream.write(b'new')"
    )
    words = [sys.executable, "-c", script, name]
    if redirected == "to a pipe":
        assert subprocess.run(words, capture_output=True, check=True).stdout == b"new"
        return
    out = tmp_path / "out"
    out.write_bytes(b"kept ")
    with out.open("ab") as stream:
        subprocess.run(words, stdout=stream, check=True)
    assert out.read_bytes() == b"kept new"


def test_a_descriptor_that_is_not_open_is_one_sentence() -> None:
    with (
        pytest.raises(ConfigurationError, match=r"^--output-file /dev/fd/987: Bad file descriptor$"),
        destination(Path("/dev/fd/987"), ()),
    ):
        pass


def test_a_file_that_nobody_may_look_into_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    path.write_bytes(b"who knows")

    def refuse(_directory: int, _name: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("etcdfix.inputs.ownfiles.own_file", refuse)
    with pytest.raises(ConfigurationError, match="Permission denied"):
        write(path)
    assert path.read_bytes() == b"who knows"


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("state.db", True),
        ("state.db", False),
        ("state.db-wal", True),
        ("state.db-shm", False),
        ("state.db-journal", True),
        ("moved", True),
    ],
)
def test_what_a_sqlite_database_is_made_of_is_not_replaced(tmp_path: Path, name: str, *, there: bool) -> None:
    """k3s keeps its whole cluster in one, and what was written last in the log beside it."""
    state = tmp_path / "state.db"
    connection = sqlite3.connect(state, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL").fetchone()
    connection.execute("CREATE TABLE kine (id INTEGER PRIMARY KEY)")
    connection.execute("INSERT INTO kine VALUES (7)")
    if name == "moved":
        shutil.copy(tmp_path / "state.db-wal", tmp_path / "moved")
    elif there:
        (tmp_path / "state.db-journal").write_bytes(b"old")
    else:
        connection.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match="SQLite"):
        write(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    connection.close()
    connection = sqlite3.connect(state)
    assert connection.execute("SELECT id FROM kine").fetchall() == [(7,)]
    connection.close()
