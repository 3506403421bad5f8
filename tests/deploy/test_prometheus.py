"""The alerts, the dashboard and the timer of docs/deploy: all they name is there, and says what they take it for."""

from __future__ import annotations

import configparser
import gzip
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.examine.verdicts.severity import Severity
from etcdfix.model.model import Outcome
from tests.support.bbolt_writer import database, put
from tests.support.collecting import ALPHA
from tests.support.documented_commands import check
from tests.support.kubelet import DEPLOY, REPOSITORY
from tests.support.metrics import Samples, names, read_metrics
from tests.support.objects import allocation, namespace_object

OF_NODE_EXPORTER = {"node_textfile_scrape_error"}
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "prometheus" / "dashboard.json"
UNITS = DEPLOY / "systemd"


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


EXPRESSIONS = [pytest.param(expression, id=name) for name, expression in expressions()]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    path = tmp_path_factory.mktemp("textfile") / "etcdfix.prom"
    read = ["--snapshot", ALPHA / "snapshot.db.gz", "--encryption-config", ALPHA / "config-lost.yaml"]
    run([*map(str, ["scan", *read, "--no-kms", "-o", "metrics", "--output-file", path])])
    return read_metrics(path.read_bytes())


def series_in(expression: promql_parser.Expr) -> Iterator[promql_parser.VectorSelector]:
    found: list[promql_parser.VectorSelector] = []

    def take(node: Any) -> None:
        if isinstance(node, promql_parser.VectorSelector):
            found.append(node)

    promql_parser.walk(expression, take)
    yield from found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_what_an_expression_names_is_in_the_file(expression: str, written: Samples) -> None:
    parsed = promql_parser.parse(expression)
    named = {selector.name for selector in series_in(parsed) if selector.name}
    assert named
    assert named >= set(re.findall(r"\betcdfix_\w+", expression))
    named -= OF_NODE_EXPORTER
    assert named <= names(written)
    for selector in series_in(parsed):
        told = [dict(labels) for name, labels in written if name == selector.name]
        for matcher in selector.matchers.matchers:
            assert all(matcher.name in labels for labels in told), f"{selector.name} has no {matcher.name}"


def test_the_timers_command_is_one_of_ours() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNITS / "etcdfix-scan.service")
    for line in ("ExecStart", "ExecStopPost"):
        program, *words = shlex.split(unit["Service"][line])
        assert Path(program).name == "etcdfix"
        check(["etcdfix", *words])
    metrics = Path(words[-1])
    assert metrics.suffix == ".prom"
    assert str(metrics.parent) in unit["Service"]["ReadWritePaths"].split()
    timer = configparser.ConfigParser(interpolation=None)
    timer.read(UNITS / "etcdfix-scan.timer")
    assert timer["Timer"]["OnCalendar"]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_of_labels_are_words_of_ours(expression: str) -> None:
    outcomes = {outcome.value for outcome in Outcome}
    for told in re.findall(r'\boutcome(?:=~|!=|=)"([^"]*)"', expression):
        assert set(told.split("|")) <= outcomes
    for told in re.findall(r'\bseverity="([^"]*)"', expression):
        assert told in {one.value for one in Severity}


PRACTICE = REPOSITORY / "fixtures" / "practice"
SNAPSHOT = PRACTICE / "healthy.db.gz"
HEALTHY = ["--snapshot", SNAPSHOT, "--encryption-config", PRACTICE / "enc.yaml"]
LOST = ["--encryption-config", ALPHA / "config-lost.yaml"]
DAMAGED = ["--snapshot", ALPHA / "snapshot.db.gz", *LOST, "--no-kms"]
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


def test_a_scan_of_a_part(scan: Scan, firing: Firing) -> None:
    assert "EtcdfixScanOfPart" in firing((scan(*HEALTHY, "secrets"), 2), at=2)


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
