"""Where a report goes: a file takes its name only when the report is whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.collecting import ALPHA

SNAPSHOT = str(ALPHA / "snapshot.db.gz")


def test_a_refused_scan_leaves_the_old_report(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("last night")
    assert run(["scan", "--snapshot", SNAPSHOT, "sekrets", "-o", "json", "--output-file", str(report)]) == 2
    assert report.read_text() == "last night"
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_whole_report_replaces_the_old_one(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text("last night")
    assert run(["scan", "--snapshot", SNAPSHOT, "pods", "-o", "json", "--output-file", str(report)]) == 1
    assert report.read_text().startswith('{\n  "apiVersion": "etcdfix/v1alpha1"')
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_device_is_written_in_place(tmp_path: Path) -> None:
    assert run(["scan", "--snapshot", SNAPSHOT, "pods", "-o", "json", "--output-file", "/dev/null"]) == 1
    assert Path("/dev/null").is_char_device()


def test_a_directory_that_is_not_there_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "none" / "report.json"
    assert run(["scan", "--snapshot", SNAPSHOT, "--output-file", str(target)]) == 2
    assert capsys.readouterr().err.strip() == f"etcdfix: --output-file {target}: No such file or directory"


def test_a_link_is_followed_and_the_mode_kept(tmp_path: Path) -> None:
    target, link = tmp_path / "report.json", tmp_path / "latest.json"
    target.write_text("last night")
    target.chmod(0o600)
    link.symlink_to(target)
    assert run(["scan", "--snapshot", SNAPSHOT, "pods", "-o", "json", "--output-file", str(link)]) == 1
    assert link.is_symlink()
    assert "ScanReport" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_read_is_never_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot = tmp_path / "same.db.gz"
    snapshot.write_bytes((ALPHA / "snapshot.db.gz").read_bytes())
    assert run(["scan", "--snapshot", str(snapshot), "--output-file", str(snapshot)]) == 2
    assert "is a file that this scan reads" in capsys.readouterr().err
    assert snapshot.read_bytes() == (ALPHA / "snapshot.db.gz").read_bytes()


def test_closed_standard_output_is_one_line() -> None:
    command = f"exec {sys.executable} -m etcdfix scan --snapshot {SNAPSHOT} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, check=False, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "etcdfix: standard output is closed"


def test_a_prefix_that_is_not_utf8_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", "--snapshot", SNAPSHOT, "--etcd-prefix", "\udcff"]) == 2
    assert capsys.readouterr().err.startswith("etcdfix: --etcd-prefix is not UTF-8")
