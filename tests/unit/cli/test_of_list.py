"""One line of a fleet's list decides what a scan reads and where its report goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from tests.support.bbolt_writer import database, put
from tests.support.objects import KEY_1, aescbc, configuration_yaml, namespace_object, provider, secret

pytestmark = pytest.mark.usefixtures("no_variables")
HEALTHY = "/registry/namespaces/kube-system", namespace_object("kube-system")
BROKEN = "/registry/secrets/shop/broken", b"k8s:enc:aescbc:v1:key1:short"
SEALED = "/registry/secrets/shop/web", aescbc(secret())


def snapshot(path: Path, *objects: tuple[str, bytes]) -> Path:
    path.write_bytes(database([put(n, key.encode(), value) for n, (key, value) in enumerate(objects, 2)]))
    return path


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    """Line 0 is healthy, without a configuration; line 1 has one, a finding, and no baseline."""
    healthy = snapshot(tmp_path / "a.db", HEALTHY)
    broken = snapshot(tmp_path / "b.db", HEALTHY, BROKEN, SEALED)
    config = tmp_path / "config.yaml"
    config.write_bytes(configuration_yaml(provider("aescbc", key1=KEY_1)))
    path = tmp_path / "clusters.tsv"
    path.write_text(f"one\t{healthy}\t-\t-\ntwo\t{broken}\t{config}\t-\n")
    return path


def scan(clusters: Path, index: int | str, *more: str) -> int:
    return run(
        [
            "scan",
            "--clusters",
            str(clusters),
            "--index",
            str(index),
            "--reports",
            str(clusters.parent / "reports"),
            *more,
        ]
    )


def test_the_line_says_what_is_read_and_the_report_has_its_name(clusters: Path) -> None:
    reports = clusters.parent / "reports"
    assert scan(clusters, 1) == 1
    assert [path.name for path in reports.iterdir()] == ["two.json"]
    report = json.loads((reports / "two.json").read_text())
    assert report["source"]["cluster_name"] == "two"
    assert report["source"]["path"] == str(clusters.parent / "b.db")
    assert report["encryption_config"]["path"] == str(clusters.parent / "config.yaml")
    assert [finding["key"] for finding in report["findings"]] == [BROKEN[0]]
    assert scan(clusters, 0) == 0
    assert json.loads((reports / "one.json").read_text())["encryption_config"] is None


def test_a_baseline_of_the_line_is_heeded(clusters: Path) -> None:
    assert scan(clusters, 1) == 1
    baseline = (clusters.parent / "reports" / "two.json").rename(clusters.parent / "known.json")
    clusters.write_text(clusters.read_text().removesuffix("-\n") + f"{baseline}\n")
    assert scan(clusters, 1) == 0


def test_findings_are_no_failure_where_none_is_to_count(clusters: Path) -> None:
    assert scan(clusters, 1, "--fail-on", "none") == 0


def test_a_later_report_takes_the_place_of_an_earlier_one(clusters: Path) -> None:
    reports = clusters.parent / "reports"
    reports.mkdir()
    (reports / "one.json").write_text('{"cut short')
    assert scan(clusters, 0) == 0
    assert json.loads((reports / "one.json").read_text())["complete"] is True


def test_a_snapshot_that_cannot_be_read_leaves_no_report(clusters: Path) -> None:
    (clusters.parent / "a.db").write_bytes(b"no snapshot")
    assert scan(clusters, 0) == 5
    assert list((clusters.parent / "reports").iterdir()) == []


@pytest.mark.parametrize(
    ("index", "said"), [("2", "has the lines 0 to 1"), ("$(JOB_COMPLETION_INDEX)", "--index"), ("-1", "--index")]
)  # fmt: skip
def test_an_index_without_a_line_is_refused(
    clusters: Path, capfd: pytest.CaptureFixture[str], index: str, said: str
) -> None:
    assert scan(clusters, index) == 2
    assert said in capfd.readouterr().err
    assert not (clusters.parent / "reports").exists()


@pytest.mark.parametrize(
    "more",
    [
        ("--snapshot", "other.db"),
        ("--kine", "state.db"),
        ("--manifest", "kube-apiserver.yaml"),
        ("--encryption-config", "other.yaml"),
        ("--cluster-name", "other"),
        ("--baseline", "other.json"),
        ("--output-file", "other.json"),
        ("-o", "table"),
        ("--endpoints", "192.0.2.10:2379"),
    ],
)
def test_nothing_beside_the_line_says_what_is_read(
    clusters: Path, capfd: pytest.CaptureFixture[str], more: tuple[str, str]
) -> None:
    assert scan(clusters, 0, *more) == 2
    assert capfd.readouterr().err.startswith("etcdfix: --")


def test_nor_does_a_variable(
    clusters: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETCDFIX_ENCRYPTION_CONFIG", "another-clusters.yaml")
    assert scan(clusters, 0) == 2
    assert "ETCDFIX_ variable" in capfd.readouterr().err


def test_json_may_be_named(clusters: Path) -> None:
    assert scan(clusters, 0, "-o", "json") == 0


@pytest.mark.parametrize(
    "words", [["--clusters", "x"], ["--index", "0"], ["--reports", "x"], ["--clusters", "x", "--index", "0"]]
)
def test_the_three_go_together(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["scan", *words]) == 2
    assert "go together" in capfd.readouterr().err


def test_a_directory_whose_parent_is_not_there_is_not_made(
    clusters: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    reports = clusters.parent / "no" / "reports"
    assert run(["scan", "--clusters", str(clusters), "--index", "0", "--reports", str(reports)]) == 2
    assert f"--reports {reports}: No such file" in capfd.readouterr().err


def test_the_list_is_never_written_over(clusters: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It may have been put among the reports, under a name that a report has."""
    reports = clusters.parent / "reports"
    reports.mkdir()
    moved = clusters.rename(reports / "one.json")
    before = moved.read_bytes()
    assert run(["scan", "--clusters", str(moved), "--index", "0", "--reports", str(reports)]) == 2
    assert moved.read_bytes() == before
    assert "a file that this command reads" in capfd.readouterr().err


def test_a_file_in_place_of_the_directory_is_called_that(
    clusters: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (clusters.parent / "reports").write_bytes(b"")
    assert scan(clusters, 0) == 2
    assert capfd.readouterr().err.endswith("reports: Not a directory\n")
