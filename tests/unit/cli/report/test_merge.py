"""``etcdfix report merge``: a row for each report, exit codes, and files that are no report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from etcdfix.cli.root import run
from etcdfix.model.model import Outcome
from etcdfix.report.model import NewFindings
from etcdfix.report.schema import SCHEMAS
from tests.support.fixtures import Captured
from tests.support.saved_scans import findings, write_report


def merge(*arguments: object) -> int:
    return run(["report", "merge", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _no_variables(no_variables: None) -> None:
    """Nothing is taken from the environment."""


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write_report(tmp_path / "healthy.json", uid="uid-1")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_report(tmp_path / "broken.jsonl", findings(2), uid="uid-2")


@pytest.fixture
def undetermined(tmp_path: Path) -> Path:
    found = findings(1, outcome=Outcome.UNDETERMINED)
    return write_report(tmp_path / "undetermined.json", found, uid=None, reasons=["undetermined: 1 key"])


def merged(capfd: Captured, *files: Path) -> dict[str, Any]:
    merge(*files, "-o", "json")
    document: dict[str, Any] = json.loads(capfd.readouterr().out)
    jsonschema.validate(document, SCHEMAS["report-merge"]())
    return document


def test_the_exit_code_is_the_worst(healthy: Path, broken: Path, undetermined: Path, tmp_path: Path) -> None:
    assert merge(healthy) == 0
    assert merge(broken, healthy) == 1
    assert merge(undetermined, broken, healthy) == 3
    assert merge(healthy, tmp_path / "none.json") == 3


def test_a_row_says_what_its_report_says(
    healthy: Path, broken: Path, undetermined: Path, capfd: Captured
) -> None:
    document = merged(capfd, healthy, broken, undetermined)
    assert (document["exit_code"], document["left_out"]) == (3, [])
    fields = ("cluster", "complete", "severity", "exit_code")
    assert [tuple(row[field] for field in fields) for row in document["reports"]] == [
        ("uid-1", True, None, 0), ("uid-2", True, "breaks-now", 1), ("snapshot.db", False, None, 3),
    ]  # fmt: skip
    assert document["reports"][1]["counts"]["decrypt_failures"] == 2


def test_what_a_baseline_knew_is_no_finding(tmp_path: Path) -> None:
    known = write_report(tmp_path / "a.json", findings(2, known=2), new=NewFindings(0, 0, None))
    assert merge(known) == 0
    assert merge(write_report(tmp_path / "b.json", findings(2, known=1), new=NewFindings(1, 0, "/k"))) == 1


@pytest.mark.parametrize(("new", "more", "code"), [(0, [], 0), (1, [], 3), (0, ["page 7 is damaged"], 3)])
def test_what_a_baseline_knew_to_be_undetermined_is_not_incomplete(
    tmp_path: Path, new: int, more: list[str], code: int
) -> None:
    found = findings(2, outcome=Outcome.UNDETERMINED, known=2 - new)
    reasons = [*more, "undetermined: 2 keys"]
    path = write_report(tmp_path / "a.json", found, reasons=reasons, new=NewFindings(new, new, None))
    assert merge(path) == code


@pytest.mark.parametrize(
    "change", [{"reached_end": False, "incomplete_reasons": ["x"]}, {"complete": False}, {"findings": []}]
)
def test_a_report_that_is_not_whole_is_incomplete(
    change: dict[str, Any], tmp_path: Path, capfd: Captured
) -> None:
    path = write_report(tmp_path / "r.json", findings(2))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | change))
    (row,) = merged(capfd, path)["reports"]
    assert (row["complete"], row["exit_code"]) == (False, 3)


def test_hostile_words_do_not_reach_the_terminal(tmp_path: Path, capfd: Captured) -> None:
    hostile = "\x1b[2J\u202e" * 1000
    path = write_report(tmp_path / "r.json", uid=hostile, reasons=[hostile])
    assert merge(path) == 3
    out, err = capfd.readouterr()
    assert "\x1b" not in out + err
    assert len(out) < 10_000
