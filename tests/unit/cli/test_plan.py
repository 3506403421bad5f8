"""The plan command over a source in memory, and over alpha."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from etcdfix.cli import look as look_module
from etcdfix.cli.root import run
from etcdfix.report.planfile import load_plan
from etcdfix.report.schema import SCHEMAS
from etcdfix.sources.base import Source
from tests.support.collecting import ALPHA
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import Cluster
from tests.support.lost_key import LiveMemory, base, lose, lost_cluster, scan_to
from tests.support.memory_source import MemorySource

pytestmark = pytest.mark.usefixtures("no_variables")

SNAPSHOT = str(ALPHA / "snapshot.db.gz")
LOST_CONFIG = str(ALPHA / "config-lost.yaml")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def plan(monkeypatch: Patch, capfd: Captured, tmp_path: Path, config: str) -> Run:
    """Return a function that plans a cluster in memory from its scan."""

    def run_plan(cluster: Cluster, *arguments: str, after: Source | None = None) -> tuple[int, str, str]:
        report = scan_to(tmp_path / "report.json", cluster)
        source = after if after is not None else LiveMemory(cluster.values)
        monkeypatch.setattr(look_module, "open_source", lambda _inputs, say: source)
        code = run(["plan", "--from-report", str(report), "--encryption-config", config, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run_plan


def test_every_entry_has_its_own_command(plan: Run, tmp_path: Path, config: str) -> None:
    file = tmp_path / "the plan.json"
    code, out, _ = plan(lost_cluster(each=30), "-o", "json", "--output-file", str(file))
    assert (code, out) == (1, "")
    entries = load_plan(file).entries
    assert len(entries) == 150
    for entry in entries:
        words = shlex.split(entry.command)
        assert words[:3] == ["etcdfix", "delete", entry.key]
        assert words[words.index("--plan") + 1] == str(file)
        assert words[words.index("--encryption-config") + 1] == config
        assert words[words.index("--expect-mod-revision") + 1] == str(entry.mod_revision)
        assert "--dry-run" in words


def test_a_plan_from_a_snapshot_is_named_in_no_command(alpha: dict[str, Any]) -> None:
    assert not any("--plan" in entry["command"] for entry in alpha["entries"])
    assert not alpha["newest"]


def test_a_source_that_could_not_show_everything_is_3(plan: Run) -> None:
    cluster = base()
    lose(cluster, cluster.secret("one"))
    code, out, err = plan(cluster, after=MemorySource(cluster.values, problems=["page 7 is damaged"]))
    assert code == 3
    assert out.startswith("INCOMPLETE: ")
    assert "etcdfix: incomplete: page 7 is damaged" in err


def test_another_cluster_is_2_and_leaves_an_earlier_plan_alone(plan: Run, tmp_path: Path) -> None:
    cluster, other = base(), base()
    other.namespace("kube-system", uid="another")
    file = tmp_path / "plan.json"
    file.write_text("earlier")
    code, out, err = plan(cluster, "-o", "json", "--output-file", str(file), after=other.source())
    assert (code, out) == (2, "")
    assert "not another" in err
    assert file.read_text() == "earlier"


def test_the_report_is_not_written_over(plan: Run, tmp_path: Path) -> None:
    cluster = base()
    report = str(tmp_path / "report.json")
    code, _, err = plan(cluster, "-o", "json", "--output-file", report)
    assert code == 2
    assert "--output-file" in err
    assert json.loads(Path(report).read_text())["kind"] == "ScanReport"


@pytest.fixture(scope="module")
def alpha(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The plan of alpha's lost keys, from a report in lines."""
    folder = tmp_path_factory.mktemp("alpha")
    where = ["--snapshot", SNAPSHOT, "--encryption-config", LOST_CONFIG]
    assert run(["scan", *where, "-o", "jsonl", "--output-file", str(folder / "scan.jsonl")]) == 3
    file = folder / "plan.json"
    arguments = ["--from-report", str(folder / "scan.jsonl"), "-o", "json", "--output-file", str(file)]
    assert run(["plan", *where, *arguments]) == 3
    found: dict[str, Any] = json.loads(file.read_bytes())
    lines = map(json.loads, (folder / "scan.jsonl").read_text().splitlines())
    found["findings"] = [line for line in lines if line["kind"] == "Finding"]
    load_plan(file)
    Draft202012Validator(SCHEMAS["plan"]()).validate(json.loads(file.read_bytes()))
    return found


def test_alpha_every_finding_is_an_entry_or_left_out_with_a_reason(alpha: dict[str, Any]) -> None:
    findings = {finding["key"]: finding for finding in alpha["findings"] if finding["outcome"] != "readable"}
    entries = {entry["key"] for entry in alpha["entries"]}
    left_out = {left["key"]: left["why"] for left in alpha["left_out"]}
    assert entries | left_out.keys() == findings.keys()
    assert not entries & left_out.keys()
    reasons = {"key-renamed": "curable-by-configuration", "value-moved": "value-moved"}
    assert left_out == {
        key: reasons.get(finding["cause"], "inconsistent")
        for key, finding in findings.items()
        if finding["cause"] in reasons or finding["outcome"] == "inconsistent"
    }
    assert len(set(left_out.values())) == 3
