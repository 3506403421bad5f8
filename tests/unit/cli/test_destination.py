"""Where a report goes: a file takes its name only when the report is whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
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


def test_a_prefix_that_is_not_utf8_is_one_line(capsys: Captured) -> None:
    assert run(["scan", "--snapshot", SNAPSHOT, "--etcd-prefix", "\udcff"]) == 2
    assert capsys.readouterr().err.startswith("etcdfix: --etcd-prefix is not UTF-8")


def names_of_pods(*arguments: str) -> int:
    return run(["scan", "--snapshot", SNAPSHOT, "pods", "-o", "name", *arguments])


@pytest.mark.parametrize("leads_to", ["store/report", "nowhere", "/dev/null", "latest"])
def test_a_link_is_not_followed(tmp_path: Path, capsys: Captured, leads_to: str) -> None:
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / "report", tmp_path / "latest"
    target.write_text("last night")
    link.symlink_to(leads_to)
    assert names_of_pods("--output-file", str(link)) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"etcdfix: --output-file {link} is a symbolic link, which is not followed",
        "  next: name the file itself",
    ]
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
@pytest.mark.parametrize(
    "option", ["--snapshot", "--encryption-config", "--manifest", "--cacert", "--cert", "--key"]
)
def test_a_file_that_the_scan_reads_is_never_written(
    tmp_path: Path, capsys: Captured, monkeypatch: Patch, option: str, hidden_behind: str
) -> None:
    manifest = tmp_path / "kube-apiserver.yaml"
    manifest.write_text(
        "spec: {containers: [{name: kube-apiserver, command: [kube-apiserver, --etcd-servers=a:1]}]}"
    )
    originals = {
        "--snapshot": Path(SNAPSHOT),
        "--encryption-config": ALPHA / "config-lost.yaml",
        "--manifest": manifest,
    }
    source = tmp_path / "input"
    shutil.copy(originals.get(option, manifest), source)
    before = source.read_bytes()
    target = source if hidden_behind == "itself" else tmp_path / "report"
    if hidden_behind == "link":
        target.symlink_to(source)
    elif hidden_behind == "hard link":
        target.hardlink_to(source)
    given = {"--snapshot": SNAPSHOT, option: str(source)}
    if option in {"--cacert", "--cert", "--key"}:  # with a snapshot, these come from variables only
        monkeypatch.setenv("ETCDFIX_" + option[2:].upper(), given.pop(option))
    words = [word for pair in given.items() for word in pair]
    assert run(["scan", *words, "--output-file", str(target)]) == 2
    assert f"--output-file {target} is a" in capsys.readouterr().err
    assert source.read_bytes() == before


def etcdfix(*arguments: str, closed: str = "") -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "etcdfix", *arguments]
    if closed:
        words = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    environment = {n: v for n, v in os.environ.items() if not n.startswith(("ETCDFIX_", "ETCDCTL_"))}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["scan", "--snapshot", SNAPSHOT, "pods"],
            ["etcdfix: standard output is closed", "  next: name a file with --output-file"],
        ),
        (["schema"], ["etcdfix: standard output is closed", "  next: send it to a file, or to /dev/null"]),
    ],
)
def test_a_closed_standard_output_is_a_usage_error(arguments: list[str], lines: list[str]) -> None:
    done = etcdfix(*arguments, closed=">&-")
    assert (done.returncode, done.stderr.splitlines()) == (2, lines)
