"""The index and the plan, made by any number of processes: byte for byte the same."""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from etcdfix.commands.plan import PlanRequest, build_plan
from etcdfix.examine import first_pass
from etcdfix.examine.first_pass import decode_answer
from etcdfix.examine.one import Examiner, Reading
from etcdfix.graph.cluster import ClusterIndex, index_cluster
from etcdfix.model.storagekey import StorageLayout
from etcdfix.report.render.machine import JSONWriter
from etcdfix.sources import mvcc, pages
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions
from tests.support.impact_objects import Cluster, owner
from tests.support.lost_key import CONFIGURATION, examiner_of, lost_cluster, request_for, scan_to
from tests.support.memory_source import MemorySource
from tests.support.objects import json_object
from tests.support.pool_here import PoolHere
from tests.support.thorough import some

LAYOUT = StorageLayout("/registry")
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
JOBS = some([3, 2, 8], of=3)
_NOT_COMPARED = frozenset({"kinds", "_kinds", "layout", "_placed", "_places", "_referred"})
"""What is made of the cluster's definitions alone, and a cache."""


@pytest.fixture(autouse=True)
def small_pages_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_pass, "WorkerPool", PoolHere)
    monkeypatch.setattr(pages, "PAGE_VALUES", 3)
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 7)


def contents(value: object) -> object:
    """Return all that an object of the index holds, to be compared."""
    if isinstance(value, array | bytearray):
        return list(value)
    if type(value).__module__.startswith("etcdfix.graph") and hasattr(value, "__dict__"):
        return {name: contents(part) for name, part in vars(value).items() if name not in _NOT_COMPARED}
    if isinstance(value, dict):  # in their order, too
        return [(key, contents(part)) for key, part in value.items()]
    return repr(value)


def of_index(found: ClusterIndex) -> dict[str, object]:
    assert found.index.problems == list(found.source.problems)
    return {
        "index": contents(found.index),
        "kept": found.kept,
        "keys": repr(vars(found.keys)),
        "undetermined": found.undetermined,
    }


def indexed(source: Source, jobs: int, **settings: Any) -> dict[str, object]:
    request = Reading(layout=LAYOUT, **settings)
    return of_index(index_cluster(source, request, keep=lambda found: len(found.name) % 5, jobs=jobs))


# ------------------------------------------------------------------------------------------------------ the index


def everything() -> Cluster:
    """Return a cluster of everything that the index takes a field of."""
    cluster = Cluster()
    for name in ("shop", "pay"):
        cluster.namespace(name, terminating=name == "pay")
        for number in range(20):
            claims = [{"secretRef": {"name": f"s-{number % 3}"}}]
            spec = {
                "nodeName": f"node-{number % 4}",
                "containers": [{"name": "main", "image": "web", "envFrom": claims}],
            }
            own = (owner("ReplicaSet", f"set-{number % 3}", controller=True),)
            phase = "Succeeded" if number % 5 == 0 else "Running"
            cluster.pod(f"web-{name}-{number}", name, spec=spec, owners=own, status={"phase": phase})
        for number in range(5):
            annotations = {"secret.kubernetes.io/skip-secret-protection": "yes"} if number == 2 else None
            cluster.secret(f"s-{number}", name, annotations=annotations, finalizers=("example.com/x",))
    for number in range(4):
        ready = [{"type": "Ready", "status": "True" if number % 2 else "False"}]
        cluster.add("v1", "Node", f"node-{number}", status={"conditions": ready})
    cluster.break_(cluster.key("secrets", "shop", "s-1"))
    cluster.define("example.com", "Widget")
    for number in range(5):
        spec = {"secretName": f"s-{number}"}
        cluster.add("example.com/v1", "Widget", f"w-{number}", "shop", spec=spec)
        cluster.add("gone.example.org/v1", "Thing", f"t-{number}", "shop", spec=spec)
    conditions = [{"type": "Available", "status": "False", "reason": "MissingEndpoints"}]
    cluster.values[cluster.key("apiregistration.k8s.io/apiservices", "", "v1.metrics.example")] = json_object(
        "apiregistration.k8s.io/v1", "APIService", "v1.metrics.example", "",
        spec={"group": "metrics.example", "version": "v1"}, status={"conditions": conditions},
    )  # fmt: skip
    cluster.values["/elsewhere/x"] = b"1"
    return cluster


@pytest.mark.parametrize("jobs", JOBS)
def test_a_cluster_of_everything(jobs: int) -> None:
    cluster = everything()
    one = indexed(cluster.source(), 1)
    assert indexed(cluster.source(), jobs) == one
    assert "MissingEndpoints" in str(one)


def test_text_that_is_not_unicode_is_drawn_out_here() -> None:
    cluster = everything()
    hostile = {"secretName": "\udcff", "uid": "\ud800"}
    for number in range(4):
        cluster.add("example.com/v1", "Widget", f"x-{number}", "shop", spec=hostile, finalizers=("\udcff",))
        cluster.add("gone.example.org/v1", "Thing", f"x-{number}", "shop", uid="\udcff", spec=hostile)
    assert indexed(cluster.source(), 2) == indexed(cluster.source(), 1)


# ------------------------------------------------------------------------------------------------------- the plan


def plan_bytes(source: Source, examiner: Examiner, request: PlanRequest, jobs: int) -> bytes:
    plan = build_plan(source, examiner, request, now=lambda: NOON, jobs=jobs)
    stream = io.BytesIO()
    JSONWriter(stream, RunOptions()).end(plan)
    return stream.getvalue()


def services(cluster: Cluster) -> None:
    """Add Services that claim endpoints and Secrets."""
    for number in range(30):
        annotations = {"service.beta.openshift.io/serving-cert-secret-name": f"password-{number}"}
        spec = {"selector": {"app": "web"}}
        cluster.add("v1", "Service", f"svc-{number}", "shop", annotations=annotations, spec=spec)


@pytest.mark.parametrize("jobs", JOBS)
def test_a_plan_for_a_lost_key(jobs: int, tmp_path: Path) -> None:
    cluster = lost_cluster(12)
    services(cluster)
    cluster.define("route.openshift.io", "Route")
    cluster.secret("readable-now", "shop")
    request = request_for(scan_to(tmp_path / "report.json", cluster))

    def plan(number: int) -> bytes:
        source = cluster.source()
        return plan_bytes(source, examiner_of(cluster, source, CONFIGURATION), request, number)

    one = plan(1)
    assert plan(jobs) == one
    assert b"OpenShift service-ca" in one


# ------------------------------------------------------------------------------------- what goes through the pipe


def test_no_data_of_a_secret_goes_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[bytes] = []

    class Listening(PoolHere):
        def run(self, work: Any, frame: Any) -> Iterator[tuple[Any, bytes | None]]:
            for piece, answer in super().run(work, frame):
                answers.append(answer or b"")
                yield piece, answer

    monkeypatch.setattr(first_pass, "WorkerPool", Listening)
    data = {"password": "aHVudGVyMg=="}
    cluster = Cluster()
    for number in range(9):
        cluster.values[cluster.key("secrets", "shop", f"s-{number}")] = json_object(
            "v1", "Secret", f"s-{number}", "shop", data=data, type="Opaque"
        )
    indexed(MemorySource(cluster.values), 2)
    assert answers
    assert not any(b"aHVudGVyMg" in answer or b"hunter2" in answer for answer in answers)
    assert not any(b"aHVudGVyMg" in repr(decode_answer(a)).encode() for a in answers if a)
