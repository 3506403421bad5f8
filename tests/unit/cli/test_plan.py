"""The plan command over a source in memory, and over alpha."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.cli import look as look_module
from etcdfix.cli.root import run
from etcdfix.report.planfile import load_plan
from etcdfix.sources.base import Source
from tests.support.fixtures import Captured, Patch
from tests.support.impact_objects import Cluster
from tests.support.lost_key import base, lose, lost_cluster, scan_to
from tests.support.memory_source import LiveMemory, MemorySource

pytestmark = pytest.mark.usefixtures("no_variables")

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
