"""Looks with --jobs and processes: equal reports, workers that are killed, an etcd that is written to and compacted."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import load_configuration
from etcdfix.examine.all import no_progress
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources import mvcc
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import paging
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.testing.servers import EtcdServer
from tests.support.collecting import ALPHA, CollectingReporter
from tests.support.thorough import some

T = TypeVar("T")
Report = tuple[Any, ...]
SNAPSHOT = ALPHA / "snapshot.db.gz"


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


def test_a_worker_that_is_killed_is_named_and_nothing_is_missing() -> None:
    def killing(items: Iterator[T], label: str, _estimate: int | None, **_: Any) -> Iterator[T]:
        for number, item in enumerate(items):
            if label == "keys" and number == 8:
                os.kill(children()[0], signal.SIGKILL)
            yield item

    *one, whole = of_snapshot(1)
    *less, reasons = of_snapshot(2, killing)
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
        found = of_etcd(etcd, 2, before)
    finally:
        over.set()
        writer.join()
    assert etcd.revision() > before
    assert found == expected


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
