"""Which alerts fire, as promtool says, when a scan comes to this or that, and when its file is old or gone."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from etcdfix.cli.root import run
from tests.support.bbolt_writer import database, put
from tests.support.collecting import ALPHA
from tests.support.kubelet import DEPLOY, REPOSITORY
from tests.support.metrics import Samples, read_metrics
from tests.support.objects import allocation, namespace_object

PRACTICE = REPOSITORY / "fixtures" / "practice"
SNAPSHOT = PRACTICE / "healthy.db.gz"
HEALTHY = ["--snapshot", SNAPSHOT, "--encryption-config", PRACTICE / "enc.yaml"]
DAMAGED = [
    "--snapshot",
    ALPHA / "snapshot.db.gz",
    "--encryption-config",
    ALPHA / "config-lost.yaml",
    "--no-kms",
]
STEP_MINUTES = 5
HOURS = 60 // STEP_MINUTES
"""Steps in one of them."""

Scan = Callable[..., Samples]
Firing = Callable[..., set[str]]


@pytest.fixture
def scan(tmp_path: Path, no_variables: None, capfd: pytest.CaptureFixture[str]) -> Scan:
    def scanned(*words: object) -> Samples:
        path = tmp_path / "etcdfix.prom"
        run([*map(str, ["scan", *words, "-o", "metrics", "--output-file", path])])
        capfd.readouterr()
        return read_metrics(path.read_bytes())

    return scanned


@pytest.fixture
def firing(tmp_path: Path) -> Firing:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not on the PATH")

    def fires(*files: tuple[Samples, int], at: int) -> set[str]:
        test = {
            "rule_files": [str(DEPLOY / "prometheus" / "alerts.yaml")],
            "evaluation_interval": f"{STEP_MINUTES}m",
            "tests": [
                {
                    "interval": f"{STEP_MINUTES}m",
                    "input_series": [one for samples, hours in files for one in series(samples, hours)],
                    # Nothing is expected, so that all there is stands in the complaint.
                    "promql_expr_test": [{"expr": 'ALERTS{alertstate="firing"}', "eval_time": f"{at}h"}],
                }
            ],
        }
        path = tmp_path / "test.yaml"
        path.write_text(yaml.safe_dump(test))
        done = subprocess.run([promtool, "test", "rules", path], capture_output=True, text=True, check=False)
        found = set(re.findall(r'alertname="(\w+)"', done.stdout + done.stderr))
        assert (done.returncode != 0) is bool(found), done.stdout + done.stderr
        return found

    return fires


def series(samples: Samples, hours: int) -> list[dict[str, Any]]:
    ended = value_of(samples, "etcdfix_scan_timestamp_seconds")
    return [
        {
            "series": f"{name}{{{','.join(f'{label}={told!r}' for label, told in sorted(labels))}}}",
            "values": f"{max(0, number - ended) if name.endswith('timestamp_seconds') else number}x{hours * HOURS}",
        }
        for (name, labels), number in samples.items()
    ]


def value_of(samples: Samples, name: str) -> float:
    (found,) = [number for (metric, _labels), number in samples.items() if metric == name]
    return found


def test_a_healthy_night_is_quiet(scan: Scan, firing: Firing) -> None:
    assert firing((scan(*HEALTHY), 25), at=25) == set()


def test_a_scan_that_never_came_again(scan: Scan, firing: Firing) -> None:
    assert firing((scan(*HEALTHY), 27), at=27) == {"EtcdfixScanMissing", "EtcdfixSnapshotOld"}


def test_findings_that_are_not_all(scan: Scan, firing: Firing) -> None:
    found = firing((scan(*DAMAGED), 2), at=2)
    assert found == {"EtcdfixBreaksNow", "EtcdfixFindings", "EtcdfixUndetermined"}


def test_what_keeps_an_api_server_from_starting(scan: Scan, firing: Firing, tmp_path: Path) -> None:
    """Which node ports are taken: no LIST reads that, and an API server that starts does."""
    snapshot = tmp_path / "snapshot.db"
    healthy = {
        b"/registry/namespaces/kube-system": namespace_object("kube-system"),
        b"/registry/ranges/servicenodeports": allocation(),
    }
    damaged = healthy | {b"/registry/ranges/servicenodeports": allocation()[:-4] + b"\xff\xff\xff\xff"}
    for values, expected in ((healthy, set()), (damaged, {"EtcdfixBreaksAtRestart", "EtcdfixFindings"})):
        records = [put(number, key, value) for number, (key, value) in enumerate(values.items(), start=2)]
        snapshot.write_bytes(database(records))
        assert firing((scan("--snapshot", snapshot, "--no-encryption"), 2), at=2) == expected


def test_what_a_baseline_knows_is_no_new_finding_and_still_breaks(
    scan: Scan, firing: Firing, tmp_path: Path
) -> None:
    known = tmp_path / "known.json"
    run([*map(str, ["scan", *DAMAGED, "-o", "json", "--output-file", known])])
    found = firing((scan(*DAMAGED, "--baseline", known), 2), at=2)
    assert found == {"EtcdfixBreaksNow", "EtcdfixUndetermined"}


@pytest.mark.parametrize("words", [["secrets"], ["-n", "kube-system"]], ids=" ".join)
def test_a_scan_of_a_part(scan: Scan, firing: Firing, words: list[str]) -> None:
    assert "EtcdfixScanOfPart" in firing((scan(*HEALTHY, *words), 2), at=2)


def test_a_scan_that_failed(scan: Scan, firing: Firing, tmp_path: Path) -> None:
    cut = tmp_path / "cut.db"
    whole = gzip.decompress(SNAPSHOT.read_bytes())
    cut.write_bytes(whole[: len(whole) * 3 // 4])
    assert "EtcdfixScanFailed" in firing((scan("--snapshot", cut, "--salvage", *HEALTHY[2:]), 2), at=2)


def test_a_scan_that_examined_nothing_leaves_last_nights_file(scan: Scan, tmp_path: Path) -> None:
    before = scan(*HEALTHY)
    assert scan("--snapshot", tmp_path / "none.db") == before


def test_nothing_was_ever_written(firing: Firing) -> None:
    assert firing(at=2) == {"EtcdfixMetricsMissing"}


def test_a_file_that_was_removed(scan: Scan, firing: Firing) -> None:
    gone = scan(*HEALTHY)
    assert firing((gone, 1), at=3) == {"EtcdfixMetricsMissing", "EtcdfixMetricsGone"}
    other = {
        (name, frozenset({**dict(labels), "cluster": "b"}.items())): number
        for (name, labels), number in gone.items()
    }
    assert firing((other, 4), at=3) == set()
    assert firing((gone, 1), (other, 4), at=3) == {"EtcdfixMetricsGone"}


def test_a_file_that_node_exporter_cannot_read(scan: Scan, firing: Firing) -> None:
    error: Samples = {("node_textfile_scrape_error", frozenset()): 1}
    error |= {("etcdfix_scan_timestamp_seconds", frozenset({("cluster", "other")})): 0}
    assert firing((error, 4), (scan(*HEALTHY), 1), at=3) == {"EtcdfixTextfileError", "EtcdfixMetricsGone"}


def test_a_rotation_that_was_not_finished(scan: Scan, firing: Firing) -> None:
    samples = scan(*HEALTHY[:3], PRACTICE / "key3-first.yaml")
    assert value_of(samples, "etcdfix_scan_stale_keys") > 0
    assert "EtcdfixStaleValues" not in firing((samples, 24), at=24)
    assert "EtcdfixStaleValues" in firing((samples, 8 * 24), at=8 * 24)


def test_every_alert_is_made_to_fire() -> None:
    """A new one needs a situation above."""
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    named = Path(__file__).read_text()
    assert {alert for alert in alerts if f'"{alert}"' not in named} == set()
