"""Two API servers with different bytes under one key name, as a scan and an explanation tell of it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import parse_configuration
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.text.commands import RunOptions
from tests.support.collecting import CollectingReporter

CASES = Path(__file__).parents[3] / "fixtures" / "cases"
SNAPSHOT = CASES / "05-two-servers-two-keys.db"
FAILING = {"a": 4, "b": 14}


def reading(server: str) -> dict[str, Any]:
    path = CASES / f"05-enc-{server}.json"
    again = RunOptions(source=("--snapshot", str(SNAPSHOT)), reading=("--encryption-config", str(path)))
    return {
        "layout": StorageLayout(),
        "configuration": parse_configuration(path.read_bytes(), path=str(path)),
        "run": again,
    }


@pytest.mark.parametrize("server", FAILING)
def test_what_the_other_server_wrote_is_never_damaged(server: str) -> None:
    reporter = CollectingReporter()
    with SnapshotSource(SNAPSHOT) as source:
        result = run_scan(source, ScanRequest(scope=ScopeRequest(()), **reading(server)), reporter)
    assert len(reporter.findings) == FAILING[server]
    for finding in reporter.findings.values():
        assert (finding.outcome, finding.cause) == ("decrypt-failure", "wrong-key")
        assert not any("etcdfix delete" in remedy.command.line(RunOptions()) for remedy in finding.remedies)
    way = result.report.summary.next
    assert way is not None
    assert shlex.split(way.command.line(reading(server)["run"])) == [
        "etcdfix", "encryption", "check", str(CASES / f"05-enc-{server}.json"), "FILE",
    ]  # fmt: skip
