"""The index and the plan with processes: equal to what one says, and a worker that is killed is named."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from etcdfix.commands.orphans import orphans_report
from etcdfix.commands.plan import PlanRequest, build_plan
from etcdfix.commands.scan import ScanRequest, run_scan
from etcdfix.encryption.config import load_configuration
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_all import Progress, no_progress
from etcdfix.graph.cluster import index_cluster
from etcdfix.report.plan import DeletionPlan
from etcdfix.report.render import SCAN_FORMS, write
from etcdfix.report.saved_report import load_report
from etcdfix.sources import mvcc
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout
from etcdfix.text.commands import RunOptions
from tests.integration.test_scan_jobs import children
from tests.support.collecting import ALPHA
from tests.support.thorough import some

T = TypeVar("T")
SNAPSHOT = ALPHA / "snapshot.db.gz"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 20)


@pytest.fixture(scope="module")
def request_for_plan(tmp_path_factory: pytest.TempPathFactory) -> PlanRequest:
    configuration = load_configuration(ALPHA / "config-rotated.yaml")
    path: Path = tmp_path_factory.mktemp("report") / "report.json"
    with path.open("wb") as stream, SnapshotSource(SNAPSHOT) as source:
        run_scan(
            source,
            ScanRequest(layout=StorageLayout(), configuration=configuration),
            SCAN_FORMS["json"](stream, RunOptions(), 100),
        )
    return PlanRequest(layout=StorageLayout(), report=load_report(path), configuration=configuration)


def planned(request: PlanRequest, jobs: int, progress: Progress = no_progress) -> DeletionPlan:
    with SnapshotSource(SNAPSHOT) as source:
        reading = ScanRequest(layout=StorageLayout(), configuration=request.configuration)
        examiner = Examiner.of_cluster(source, reading)
        plan = build_plan(source, examiner, request, now=lambda: NOON, progress=progress, jobs=jobs)
    assert not children(), "no worker is left"
    return plan


def shown(plan: DeletionPlan) -> bytes:
    stream = io.BytesIO()
    write(plan, "json", stream, RunOptions())
    return stream.getvalue()


def orphaned(jobs: int, progress: Progress = no_progress) -> Any:
    request = Reading(layout=StorageLayout(), configuration=load_configuration(ALPHA / "config-rotated.yaml"))
    with SnapshotSource(SNAPSHOT) as source:
        report = orphans_report(
            index_cluster(source, request, keep=lambda _: 0, progress=progress, jobs=jobs)
        )
    assert not children(), "no worker is left"
    return report


def killing(items: Iterator[T], label: str, _estimate: int | None) -> Iterator[T]:
    for number, item in enumerate(items):
        if label == "keys" and number == 8:
            os.kill(children()[0], signal.SIGKILL)
        yield item


@pytest.mark.parametrize("jobs", some([2, 8], of=2))
def test_any_number_says_the_same(jobs: int, request_for_plan: PlanRequest) -> None:
    assert shown(planned(request_for_plan, jobs)) == shown(planned(request_for_plan, 1))
    one, many = orphaned(1), orphaned(jobs)
    assert many.groups == one.groups
    assert many.incomplete_reasons == one.incomplete_reasons


def test_a_worker_that_is_killed_is_named_and_nothing_is_missing(request_for_plan: PlanRequest) -> None:
    one, less = planned(request_for_plan, 1), planned(request_for_plan, 2, killing)
    assert list(less.entries) == list(one.entries)
    assert not less.complete
    (lost,) = set(less.incomplete_reasons) - set(one.incomplete_reasons)
    assert lost.startswith("a worker process was ended by SIGKILL")

    orphans, fewer = orphaned(1), orphaned(2, killing)
    assert fewer.groups == orphans.groups
    assert not fewer.complete
    (lost,) = set(fewer.incomplete_reasons) - set(orphans.incomplete_reasons)
    assert lost.startswith("a worker process was ended by SIGKILL")
