"""Where a report goes: a file takes its name only when the report is whole."""

from __future__ import annotations

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
