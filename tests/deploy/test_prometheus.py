"""The alerts, the dashboard and the timer of docs/deploy: all they name is there, and says what they take it for."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from etcdfix.cli.root import run
from etcdfix.examine.verdicts.severity import Severity
from etcdfix.model.model import Outcome
from tests.support.collecting import ALPHA
from tests.support.documented_commands import check
from tests.support.kubelet import DEPLOY, REPOSITORY
from tests.support.metrics import Samples, names, read_metrics

OF_NODE_EXPORTER = {"node_textfile_scrape_error"}
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "prometheus" / "dashboard.json"
UNITS = DEPLOY / "systemd"
PAGE = REPOSITORY / "docs" / "metrics.md"


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
    read = [
        "--snapshot",
        str(ALPHA / "snapshot.db.gz"),
        "--encryption-config",
        str(ALPHA / "config-lost.yaml"),
    ]
    run(["scan", *read, "--no-kms", "-o", "metrics", "--output-file", str(path)])
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
