"""``etcdfix report merge``: exit codes, forms, and what may be asked for."""

from __future__ import annotations

import json
import os
from pathlib import Path

import msgspec
import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.model import Outcome
from etcdfix.reports.fleet_model import FleetReport
from etcdfix.reports.model import Scope
from tests.support.fleets import BASELINE, findings, kms_key, write_report

LINE = "{name}\tsnapshot.db\tconfig.yaml\t-\n"


@pytest.fixture(autouse=True)
def _no_variables(no_variables: None) -> None:
    """Nothing is taken from the environment."""


def merge(*arguments: object) -> int:
    return run(["report", "merge", *map(str, arguments)])


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write_report(tmp_path / "healthy.json")


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    return write_report(tmp_path / "broken.json", findings(2))


@pytest.fixture
def undetermined(tmp_path: Path) -> Path:
    found = findings(1, outcome=Outcome.UNDETERMINED)
    return write_report(tmp_path / "undetermined.json", found, reasons=["undetermined: 1 key"])


def test_the_exit_codes(
    healthy: Path, broken: Path, undetermined: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lost = write_report(tmp_path / "lost.json", reasons=["interrupted before the end"])
    assert merge(healthy) == 0
    assert merge(healthy, broken) == 1
    assert merge(healthy, broken, undetermined) == 3
    assert merge(healthy, broken, "--fail-on", "none") == 0
    assert merge(broken, undetermined, "--fail-on", "decode-failure") == 0
    assert merge(broken, undetermined, "--fail-on", "decrypt-failure") == 1
    assert merge(broken, undetermined, "--fail-on", "undetermined") == 3
    for fail_on in ("none", "decrypt-failure"):
        assert merge(healthy, lost, "--fail-on", fail_on) == 3
        assert merge(healthy, tmp_path / "none.json", "--fail-on", fail_on) == 3
    assert "Traceback" not in capfd.readouterr().err


def test_what_a_baseline_knew_does_not_count(tmp_path: Path) -> None:
    head = {"baseline": BASELINE}
    known = write_report(tmp_path / "a.json", findings(2, known=2), head=head)
    assert merge(known) == 0
    found = findings(1, known=1, outcome=Outcome.UNDETERMINED)
    assert merge(write_report(tmp_path / "b.json", found, head=head, reasons=["undetermined: 1 key"])) == 0
    assert merge(known, write_report(tmp_path / "c.json", findings(2, known=1), head=head)) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no report: name FILE"),
        (["--clusters", "list.tsv"], "need each other"),
        (["--reports", "d"], "need each other"),
        (["r.json", "--clusters", "list.tsv", "--reports", "d"], "either reports, or --clusters"),
        (["r.json", "--max-age", "tonight"], "--max-age 'tonight' is no duration"),
        (["r.json", "--fail-on", "anything"], "no outcome that a scan could fail on"),
        (["--clusters", "list.tsv", "--reports", "d"], "--clusters list.tsv: No such file"),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert merge(*arguments) == 2
    assert said in capfd.readouterr().err


def test_every_form_says_the_same(
    broken: Path, undetermined: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    other = write_report(tmp_path / "other.json", kms_keys=[kms_key()])
    another = write_report(tmp_path / "another.json", kms_keys=[kms_key()])
    files = [broken, undetermined, other, another, tmp_path / "none.json"]

    def written(form: str) -> str:
        assert merge(*files, "-o", form) == 3
        return capfd.readouterr().out

    document = json.loads(written("json"))
    report = msgspec.convert(document, FleetReport)
    assert [row.name for row in report.clusters] == ["broken", "undetermined", "another", "other"]
    assert [len(rows) for rows in (report.shared_keys, report.left_out)] == [1, 1]
    in_yaml = yaml.safe_load(written("yaml"))
    lines = [json.loads(line) for line in written("jsonl").splitlines()]
    assert [line.pop("kind") for line in lines] == [
        "FleetHeader", *["FleetCluster"] * 4, "SharedKey", "FleetSummary"
    ]  # fmt: skip
    assert {line.pop("apiVersion") for line in lines} == {document["apiVersion"]}
    for line in lines[1:5]:
        line.pop("data_age_seconds")
    for written_as in (document, in_yaml):
        for row in written_as["clusters"]:
            row.pop("data_age_seconds")
        assert written_as["clusters"] == lines[1:5]
        assert written_as["shared_keys"] == lines[5:6]
        assert {name: written_as[name] for name in lines[6]} == lines[6]
    for form in ("table", "wide"):
        text = written(form)
        for word in ("broken", "undetermined", "other", "none.json", "KMS key id sha256:", "OPENS NOWHERE"):
            assert word in text


def test_nothing_of_a_hostile_report_acts_upon_a_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hostile = "\x1b[2J\u202e\u2028\x9b\n"
    one = msgspec.structs.replace(findings(1)[0], key=f"/registry/{hostile}", message=hostile, cause=hostile)
    path = write_report(
        tmp_path / "r.json",
        [one],
        name=hostile,
        uid=hostile,
        kms_keys=[kms_key(name=hostile)],
        severity=hostile,
        at_stake=hostile,
        do_not_restart=hostile,
        reasons=[hostile],
    )
    bad = tmp_path / f"{hostile.strip()}.json"
    bad.write_text('{"kind": "\x1b"}')
    twin = write_report(tmp_path / "s.json", [one], kms_keys=[kms_key(name=hostile)])
    for form in ("table", "wide", "json", "jsonl", "yaml"):
        assert merge(path, bad, twin, "-o", form) == 3
        told = capfd.readouterr()
        for line in (told.out + told.err).split("\n"):
            assert line.isprintable(), form


def test_a_list_says_which_reports_there_should_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clusters.tsv").write_text("".join(LINE.format(name=name) for name in ("a", "b")))
    directory = tmp_path / "reports"
    directory.mkdir()
    write_report(directory / "a.json", name="a")
    arguments = ("--clusters", tmp_path / "clusters.tsv", "--reports", directory)
    assert merge(*arguments) == 3
    told = capfd.readouterr()
    assert "1 report without a row: b" in told.err
    write_report(directory / "b.json", name="b")
    assert merge(*arguments) == 0
    assert merge(*arguments, "--max-age", "20h") == 3


def test_no_report_is_written_over(healthy: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = healthy.read_bytes()
    assert merge(healthy, "--output-file", healthy) == 2
    assert "is a file that this command reads" in capfd.readouterr().err
    assert healthy.read_bytes() == before


def test_nor_is_the_place_of_one_that_lacks_taken(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    clusters = tmp_path / "clusters.tsv"
    clusters.write_text("east\teast.db\t-\t-\n")
    target = tmp_path / "east.json"
    assert merge("--clusters", clusters, "--reports", tmp_path, "--output-file", target) == 2
    assert "is a file that this command reads" in capfd.readouterr().err
    assert not target.exists()


def test_a_full_disk_is_nobodys_report(
    healthy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(*_arguments: object, **_named: object) -> object:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("etcdfix.inputs.inputfile.temporary_file", full)
    target = tmp_path / "fleet.json"
    assert merge(healthy, "-o", "json", "--output-file", target) == 3
    error = capfd.readouterr().err
    assert "no room for a copy of it in " in error
    assert "(TMPDIR): No space left on device" in error
    assert str(healthy) in error
    assert "  next: nothing was changed" in error
    assert not target.exists()


def test_thirty_clusters(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = [
        write_report(
            tmp_path / f"c{at:02}.{'jsonl' if at % 2 else 'json'}",
            findings(at if at % 3 == 0 else 0, known=at // 2 if at % 5 else 0),
            name=f"cluster-{at:02}",
            head={"baseline": BASELINE} if at % 5 else {},
            kms_keys=[kms_key(keys=at)] if at % 4 == 0 else [],
        )
        for at in range(30)
    ]
    assert merge(*files, "--max-rows", "12") == 1
    text = capfd.readouterr().out
    assert text.startswith("135 keys unreadable or inconsistent in 9 of 30 clusters; ")
    assert "BREAKS-NOW: cluster-03, cluster-06, cluster-09 and 6 more." in text
    assert "... and 18 more clusters" in text
    assert "8 clusters; OPENS NOWHERE: 112 values" in text


def test_a_scan_of_a_part_is_told_from_the_others(
    healthy: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert merge(healthy) == 0
    assert "SCOPE" not in capfd.readouterr().out
    part = Scope("/registry", [], ["secrets"], ["pay"], None)
    assert merge(healthy, write_report(tmp_path / "part.json", head={"scope": part})) == 0
    text = capfd.readouterr().out
    assert text.startswith("NOTHING WRONG FOUND in 2 clusters; of 1 of them only a part was looked at.\n")
    assert "secrets, namespace pay" in text
    assert "everything" in text


@pytest.mark.parametrize("columns", [60, 100])
def test_a_narrow_terminal_leaves_out_no_report(
    broken: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.chdir(broken.parent)
    assert merge(broken.name, "-o", "wide") == 1
    text = capfd.readouterr().out
    assert "broken.json" in text
    assert max(map(len, text.splitlines())) <= columns
