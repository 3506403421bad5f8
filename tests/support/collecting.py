"""A reporter that keeps everything, and the shortest way to scan in a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from etcdfix.commands.scan import ScanRequest, ScanResult, run_scan
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine.first_pass import Jobs
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.model import Finding, ScanHeader
from etcdfix.report.scan import ScanReport
from etcdfix.sources.base import Source
from tests.support.kms_plugin import KMSPlugin, load_keks

REPOSITORY = Path(__file__).parents[2]
ALPHA = REPOSITORY / "fixtures" / "snapshots" / "alpha"


class CollectingReporter:
    """The simplest reporter: keeps header, findings and conclusion in memory."""

    def __init__(self) -> None:
        self.header: ScanHeader | None = None
        self.findings: dict[str, Finding] = {}
        self.conclusion: ScanReport | None = None

    def begin(self, header: ScanHeader) -> None:
        self.header = header

    def row(self, finding: Finding) -> None:
        assert finding.key not in self.findings
        self.findings[finding.key] = finding

    def end(self, conclusion: ScanReport) -> None:
        self.conclusion = conclusion


@contextmanager
def alpha_plugins(folder: Path) -> Iterator[dict[str, KMSPlugin]]:
    """Run the two plugins of alpha, their sockets in a folder."""
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        yield {"kmsnew": new, "kmsold": old}


def ask(plugins: dict[str, KMSPlugin], *, patience_seconds: float = 0.5) -> KMSPlugins:
    """Return what asks these plugins, and waits so long at most for one that is silent."""
    endpoints = {name: plugin.endpoint for name, plugin in plugins.items()}
    return KMSPlugins(endpoints, max_rate=0, patience_seconds=patience_seconds)


def scan(
    source: Source,
    config: Path | None = None,
    *,
    plugins: KMSPlugins | None = None,
    jobs: Jobs = 1,
    **request: Any,
) -> tuple[CollectingReporter, ScanResult]:
    """Scan everything with a configuration file; return what was reported and what it came to."""
    reporter = CollectingReporter()
    configuration = load_configuration(config) if config is not None else None
    request.setdefault("layout", StorageLayout())
    wanted = ScanRequest(configuration=configuration, **request)
    result = run_scan(source, wanted, reporter, plugins=plugins, jobs=jobs)
    return reporter, result
