"""Looks with --jobs and processes: equal reports, workers that are killed, an etcd that is written to and compacted."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from etcdfix.commands.orphans import orphans_report
from etcdfix.commands.plan import PlanRequest, build_plan
from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import load_configuration
from etcdfix.examine.all import no_progress
from etcdfix.examine.one import Examiner, Reading
from etcdfix.graph.cluster import index_cluster
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.render import SCAN_FORMS
from etcdfix.report.saved_report import load_report
from etcdfix.sources import mvcc
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import paging
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.testing.servers import EtcdServer
from etcdfix.text.commands import RunOptions
from tests.support.collecting import ALPHA, CollectingReporter
from tests.support.thorough import some

T = TypeVar("T")
Report = tuple[Any, ...]
SNAPSHOT = ALPHA / "snapshot.db.gz"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 20)
    for name in ("FIRST_LIMIT", "SMALLEST_LIMIT", "LARGEST_LIMIT"):
        monkeypatch.setattr(paging, name, 20)


def scanned(source: Source, jobs: int, progress: Any = no_progress) -> Report:
    reporter = CollectingReporter()
    request = ScanRequest(
        layout=StorageLayout(), configuration=load_configuration(ALPHA / "config-rotated.yaml")
    )
    result = run_scan(source, request, reporter, jobs=jobs, progress=progress)
    conclusion = reporter.conclusion
    assert conclusion is not None
    reasons = conclusion.incomplete_reasons
    return (
        list(reporter.findings.values()),
        result.report.summary,
        conclusion.statuses,
        conclusion.source,
        reasons,
    )


def children() -> list[int]:
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread, or a process, has ended meanwhile
            for pid in map(int, (task / "children").read_text().split()):
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if b"spawn_main" in command:
                    found.append(pid)
    return found


def of_snapshot(jobs: int, progress: Any = no_progress) -> Report:
    with SnapshotSource(SNAPSHOT) as source:
        return scanned(source, jobs, progress)


def planned(jobs: int, progress: Any = no_progress) -> Report:
    configuration = load_configuration(ALPHA / "config-rotated.yaml")
    with tempfile.TemporaryDirectory() as folder, SnapshotSource(SNAPSHOT) as source:
        path = Path(folder) / "report.json"
        request = ScanRequest(layout=StorageLayout(), configuration=configuration)
        with path.open("wb") as stream:
            run_scan(source, request, SCAN_FORMS["json"](stream, RunOptions()))
        saved = load_report(path)
        examiner = Examiner.of_cluster(source, request)
        wanted = PlanRequest(layout=StorageLayout(), report=saved, configuration=configuration)
        plan = build_plan(source, examiner, wanted, now=lambda: NOON, progress=progress, jobs=jobs)
        return list(plan.entries), plan.incomplete_reasons


def orphaned(jobs: int, progress: Any = no_progress) -> Report:
    request = Reading(layout=StorageLayout(), configuration=load_configuration(ALPHA / "config-rotated.yaml"))
    with SnapshotSource(SNAPSHOT) as source:
        found = index_cluster(source, request, keep=lambda _: 0, progress=progress, jobs=jobs)
        report = orphans_report(found)
    return report.groups, report.incomplete_reasons


LOOKS = [of_snapshot, planned, orphaned]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("jobs", some([3, 2, 8], of=3))
def test_a_snapshot(look: Callable[..., Report], jobs: int) -> None:
    assert look(jobs) == look(1)
    assert not children(), "no worker is left"


@pytest.mark.parametrize("look", LOOKS)
def test_a_worker_that_is_killed_is_named_and_nothing_is_missing(look: Callable[..., Report]) -> None:
    def killing(items: Iterator[T], label: str, _estimate: int | None, **_: Any) -> Iterator[T]:
        for number, item in enumerate(items):
            if label == "keys" and number == 8:
                os.kill(children()[0], signal.SIGKILL)
            yield item

    *one, whole = look(1)
    *less, reasons = look(2, killing)
    assert less == one
    (lost,) = set(reasons) - set(whole)
    assert lost.startswith("a worker process ended ")
    assert not children(), "no worker is left"


@pytest.mark.parametrize("closed", some(["<&- 2>&-", "<&-", "2>&-"], of=3))
def test_where_the_file_has_the_number_of_a_closed_stream(closed: str, tmp_path: Path) -> None:
    unpacked = tmp_path / "snapshot.db"
    unpacked.write_bytes(gzip.decompress(SNAPSHOT.read_bytes()))
    reports = []
    for jobs in (1, 2):
        report = tmp_path / f"{jobs}.json"
        command = f"exec {sys.executable} -m etcdfix scan --snapshot {unpacked} -o json --jobs {jobs}"
        subprocess.run(
            f"{command} --output-file {report} {closed}", shell=True, check=False, stdout=subprocess.DEVNULL
        )
        said = json.loads(report.read_bytes())
        reports.append((said["findings"], said["summary"], said["incomplete_reasons"]))
    assert reports[0] == reports[1]


@pytest.fixture(scope="module")
def etcd(start_local_etcd: Callable[..., EtcdServer]) -> EtcdServer:
    return start_local_etcd(snapshot=SNAPSHOT)


def of_etcd(etcd: EtcdServer, jobs: int, revision: int = 0, progress: Any = no_progress) -> Report:
    connection = EtcdConnection(endpoints=(etcd.endpoint,))
    with LiveSource(connection, revision=revision) as source:
        return scanned(source, jobs, progress)


@pytest.mark.etcd
def test_a_live_etcd_while_it_is_written_to(etcd: EtcdServer) -> None:
    before = etcd.revision()
    expected = of_etcd(etcd, 1, before)
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            etcd.put(b"/registry/secrets/shop/busy-%d" % (number % 50), b"anything")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [of_etcd(etcd, jobs, before) for jobs in (2, 3)]
    finally:
        over.set()
        writer.join()
    assert etcd.revision() > before
    assert found == [expected, expected]


@pytest.mark.etcd
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_compaction_in_the_middle(etcd: EtcdServer, jobs: int) -> None:
    def compacting(items: Iterator[T], label: str, _estimate: int | None, **_: Any) -> Iterator[T]:
        for number, item in enumerate(items):
            if label == "keys" and number == 3:
                etcd.put(b"/registry/zzz", b"")
                etcd.compact()
            yield item

    findings, summary, _, source, _ = of_etcd(etcd, jobs, progress=compacting)
    assert not source.single_revision
    assert len(source.segments) == 2
    _, summary_now, *_ = of_etcd(etcd, 1)
    assert (summary.keys, summary.readable) == (summary_now.keys, summary_now.readable)
    assert len(findings) > 20
