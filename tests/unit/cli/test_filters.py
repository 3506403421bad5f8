"""``scan`` with filters: what is hidden is counted and said, codes stay, and nobody goes on from what may lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.reports.formats import SCAN_FORMATS
from tests.support.collecting import ALPHA

SNAPSHOT = str(ALPHA / "snapshot.db.gz")
READ = ["--snapshot", SNAPSHOT, "--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms"]
Scan = Callable[..., tuple[int, str, str]]


@pytest.fixture
def scan(capfd: pytest.CaptureFixture[str], no_variables: None) -> Scan:
    def run_scan(*arguments: str) -> tuple[int, str, str]:
        code = run(["scan", *READ, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_scan


def report(out: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(out)
    return document


def without_times(summary: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in summary.items() if name != "kms"}


@pytest.mark.parametrize(
    "filters",
    [
        ["--outcome", "decode-failure,inconsistent"],
        ["--cause", "key-name-missing"],
        ["--severity", "one-object"],
        ["--newer-than", "300"],
        ["--older-than", "300"],
        ["--limit", "5"],
        ["--sort-by", "revision"],
        ["--stale"],
        ["--cause", "no-configuration"],
    ],
)
def test_counts_and_codes_are_those_of_everything(scan: Scan, filters: list[str]) -> None:
    whole_code, out, _ = scan("-o", "json")
    whole = report(out)
    code, out, err = scan("-o", "json", *filters)
    filtered = report(out)
    assert code == whole_code == 3
    assert without_times(filtered["summary"]) == without_times(whole["summary"])
    assert filtered["statuses"] == whole["statuses"]
    assert filtered["scope"]["filters"]
    stale = [f for f in filtered["findings"] if f.get("stale")] if filters == ["--stale"] else []
    shown = len(filtered["findings"]) - len(stale)
    assert shown + filtered["hidden"]["findings"] == len(whole["findings"])
    if filtered["hidden"]["findings"]:
        assert f"{filtered['hidden']['findings']} findings are not shown" in err


def test_the_table_says_what_it_does_not_show(scan: Scan) -> None:
    _code, out, err = scan("--cause", "value-moved")
    assert "73 findings are not shown" in out
    assert "--cause value-moved. What is counted is everything." in out
    assert "73 findings are not shown" in err
    assert "warning" not in out.splitlines()[0]


def test_stale_values_are_those_that_are_counted(scan: Scan) -> None:
    _code, out, _err = scan("--stale", "-o", "json")
    found = report(out)
    stale = found["findings"]
    assert len(stale) == found["summary"]["stale"] == 30
    assert {f["outcome"] for f in stale} == {"readable"}
    assert [f["key"] for f in stale] == sorted(f["key"] for f in stale)
    for jobs in ("1", "2"):
        _code, out, _err = scan("--stale", "-o", "name", "--jobs", jobs)
        assert out.splitlines() == [f["key"] for f in stale]
    _code, out, _err = scan("--stale")
    assert out.count("readable, and not written with today's write key") == 30


def test_a_time_that_nobody_can_tell_hides_nothing(scan: Scan) -> None:
    _code, out, err = scan("-o", "json", "--newer-than", "1971-01-01", "-n", "shop", "secrets")
    found = report(out)
    assert found["hidden"]["findings"] == 0
    assert "1971-01-01T00:00:00Z" in err


def test_what_is_known_to_be_newer_is_hidden(scan: Scan) -> None:
    """Alpha's first objects state when they were made; the findings came after them."""
    code, out, err = scan("-o", "json", "--older-than", "2001-01-01")
    found = report(out)
    bound = found["scope"]["filters"]["older_than"]
    assert (bound["time"], bound["before"]) == ("2001-01-01T00:00:00Z", None)
    assert 1 < bound["after"] < 50
    assert found["hidden"]["findings"] == 74
    assert code == 3
    assert f"values from {bound['after']} on are newer, by the times that objects state" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cause", "wrong-kye"], "did you mean wrong-key"),
        (["--outcome", "decode-failures"], "did you mean decode-failure"),
        (["--severity", "zzz"], "one of breaks-now, breaks-at-restart, one-object"),
        (["--sort-by", "sise"], "did you mean size"),
        (["--newer-than", "yesterday"], "is no revision, age or time"),
        (["--limit", "0"], "--limit"),
        (["--stale", "--severity", "one-object"], "contradict"),
        (["--stale", "--outcome", "inconsistent"], "contradict"),
        (["--shard", "1/2", "--limit", "1"], "do not go together"),
        (["-o", "status", "--limit", "1"], "do not go together"),
    ],
)
def test_what_is_refused(scan: Scan, arguments: list[str], said: str) -> None:
    code, out, err = scan(*arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_fleet_is_scanned_whole(scan: Scan, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clusters = tmp_path / "clusters"
    clusters.write_text(f"one\t{SNAPSHOT}\t-\t-\n")
    code = run(
        [
            "scan",
            "--clusters",
            str(clusters),
            "--index",
            "0",
            "--reports",
            str(tmp_path / "r"),
            "--limit",
            "1",
        ]
    )
    assert code == 2
    assert "a fleet's reports are whole" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_nobody_goes_on_from_a_filtered_report(
    scan: Scan, tmp_path: Path, capfd: pytest.CaptureFixture[str], form: str
) -> None:
    path = tmp_path / "report.json"
    scan("-o", form, "--output-file", str(path), "--cause", "value-moved")
    for command in (
        ["scan", *READ, "--baseline", str(path)],
        ["plan", *READ, "--from-report", str(path)],
    ):
        assert run(command) == 2
        err = capfd.readouterr().err
        assert "findings may be missing from it: --cause value-moved" in err
        assert "name the report that was written without filters" in err
    assert run(["report", "merge", str(path)]) == 2
    assert "findings may be missing from it" in capfd.readouterr().err
    assert run(["report", "merge", "--fleet", str(path), "-o", "json"]) == 3
    assert json.loads(capfd.readouterr().out)["left_out"][0]["reason"] == "filtered"


def test_a_report_in_another_order_is_whole(
    scan: Scan, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "report.json"
    scan("-o", "json", "--output-file", str(path), "--sort-by", "size")
    code, _out, _err = scan("--baseline", str(path))
    assert code == 0
    run(["report", "merge", "--fleet", str(path), "-o", "json"])
    fleet = json.loads(capfd.readouterr().out)
    assert fleet["left_out"] == []
    assert fleet["clusters"][0]["incomplete_reasons"] == ["undetermined: 11 keys"]


@pytest.mark.parametrize("form", sorted(set(SCAN_FORMATS) - {"status", "junit"}))
def test_every_form_takes_them(scan: Scan, form: str) -> None:
    code, out, _err = scan("-o", form, "--limit", "1", "--sort-by", "size")
    assert code == 3
    assert out


def test_findings_are_sorted_by_one_field(scan: Scan) -> None:
    code, out, err = scan("--sort-by", "key,size")
    assert (code, out) == (2, "")
    assert "--sort-by: 'key,size' is more than one field" in err
