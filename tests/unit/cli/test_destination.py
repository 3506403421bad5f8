"""Where a report goes: a file takes its name only when the report is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, Patch

SNAPSHOT = str(ALPHA / "snapshot.db.gz")


def test_a_refused_scan_leaves_the_old_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("last night")
    assert run(["scan", "--snapshot", SNAPSHOT, "sekrets", "-o", "json", "--output-file", str(report)]) == 2
    assert report.read_text() == "last night"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def names_of_pods(*arguments: str) -> int:
    return run(["scan", "--snapshot", SNAPSHOT, "pods", "-o", "name", *arguments])


@pytest.mark.parametrize("leads_to", ["store/report", "nowhere", "/dev/null"])
def test_a_link_is_not_followed(tmp_path: Path, capsys: Captured, leads_to: str) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "report", tmp_path / "latest"
    target.write_text("last night")
    link.symlink_to(leads_to)
    assert names_of_pods("--output-file", str(link)) == 2
    assert "is a symbolic link" in capsys.readouterr().err
    assert str(link.readlink()) == leads_to
    assert target.read_text() == "last night"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["latest", "report", "store"]


def test_a_pipe_is_written_in_place(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[str] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()), daemon=True)
    reader.start()
    assert names_of_pods("--output-file", str(pipe)) == 1
    reader.join(timeout=10)
    assert got[0].startswith("/registry/pods/")
    assert pipe.is_fifo()


@pytest.mark.parametrize("hidden_behind", ["itself", "link", "hard link"])
@pytest.mark.parametrize("option", ["--snapshot", "--encryption-config", "--cert"])
def test_a_file_that_the_scan_reads_is_never_written(
    tmp_path: Path, capsys: Captured, monkeypatch: Patch, option: str, hidden_behind: str
) -> None:
    source = tmp_path / "input"
    shutil.copy(SNAPSHOT if option == "--snapshot" else ALPHA / "config-lost.yaml", source)
    before = source.read_bytes()
    target = source if hidden_behind == "itself" else tmp_path / "report"
    if hidden_behind == "link":
        target.symlink_to(source)
    elif hidden_behind == "hard link":
        target.hardlink_to(source)
    given = {"--snapshot": SNAPSHOT, option: str(source)}
    if option == "--cert":  # with a snapshot, from a variable only
        monkeypatch.setenv("ETCDFIX_CERT", given.pop(option))
    words = [word for pair in given.items() for word in pair]
    assert run(["scan", *words, "--output-file", str(target)]) == 2
    assert f"--output-file {target} is a" in capsys.readouterr().err
    assert source.read_bytes() == before


@pytest.mark.parametrize("words", [["scan", "--snapshot", SNAPSHOT, "pods"], ["schema"]])
def test_a_closed_standard_output_is_a_usage_error(words: list[str], no_variables: None) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "etcdfix", *words]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "etcdfix: standard output is closed")


LOST, ROTATED = (str(ALPHA / f"config-{name}.yaml") for name in ("lost", "rotated"))
SOURCE = ("--snapshot", SNAPSHOT, "--encryption-config", LOST, "--no-kms")
KEY = "/registry/configmaps/infra/cm-4"
Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "form"),
    [
        (("scan", *SOURCE, "pods", "-n", "shop"), "json"),
        (("scan", *SOURCE, "services"), "text"),
        (("namespace", "default", *SOURCE), "json"),
        (("explain", KEY, "--history", *SOURCE), "yaml"),
        (("copies", KEY, *SOURCE), "json"),
        (("compare", "--with-snapshot", str(ALPHA / "snapshot.db.gz"), *SOURCE), "json"),
        (("encryption", "what-if", *SOURCE, "--new", ROTATED), "junit"),
        (("encryption", "check", LOST, ROTATED), "yaml"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value[:2]),
)
def test_a_file_is_told_of_with_the_first_line_of_the_table(
    command: Run, tmp_path: Path, words: tuple[str, ...], form: str
) -> None:
    _, table, _ = command(*words)
    target = tmp_path / "report"
    _, out, err = command(*words, "-o", form, "--output-file", target)
    assert out == ""
    told = [line for line in err.splitlines() if line.startswith("etcdfix: wrote ")]
    assert told == [f"etcdfix: wrote {target} ({form}): {table.splitlines()[0]}"]
    assert target.stat().st_size


@pytest.mark.parametrize("where", ["-", "/dev/stdout", "/dev/null"])
def test_what_is_no_file_is_not_told_of(command: Run, where: str) -> None:
    assert command("scan", *SOURCE, "pods", "-o", "name", "--output-file", where)[2] == ""
