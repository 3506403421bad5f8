"""The same said by any number of processes: everything that can be wrong with a value, a page after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.examine import all as examine_all
from etcdfix.examine import first_pass
from etcdfix.examine.first_pass import FirstPass, jobs_for
from etcdfix.examine.one import Reading
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.workers import room_for_jobs
from etcdfix.sources import mvcc, pages
from etcdfix.sources.base import SourceDescription
from etcdfix.sources.snapshot import SnapshotSource
from tests.exam import corpus
from tests.exam.judging import examiner_of
from tests.exam.kinds_of_damage import DAMAGES, CauseCase, make_cause_case
from tests.support.collecting import ALPHA, CollectingReporter, alpha_plugins, ask, scan
from tests.support.kms_plugin import KMSPlugin
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import secret
from tests.support.pool_here import PoolHere
from tests.support.thorough import some


@pytest.fixture(autouse=True)
def small_pages_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_pass, "WorkerPool", PoolHere)
    monkeypatch.setattr(pages, "PAGE_VALUES", 2)
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 7)


Seen = tuple[list[Examination], dict[Any, tuple[int, int, int]], list[str]]


def summed(counts: list[PlainCount]) -> dict[Any, tuple[int, int, int]]:
    total: dict[Any, tuple[int, int, int]] = {}
    for one in counts:
        place = one.directory, one.rule, one.transformer, one.key_fingerprints, one.kms_key_id, one.stale
        count, first, last = total.get(place, (0, 1 << 63, 0))
        total[place] = count + one.count, min(first, one.first), max(last, one.last)
    return total


def looked_at(case: CauseCase, jobs: int) -> Seen:
    examiner, source = examiner_of(case), MemorySource(case.records)
    configuration = None
    if case.configuration is not None:
        configuration = parse_configuration(case.configuration, path="exam")
    reading = Reading(layout=corpus.LAYOUT, configuration=configuration, kubernetes_minor=case.minor)
    others: list[Examination] = []
    plain: list[PlainCount] = []
    examine_all.examine_all(
        examiner,
        source.pages(b""),
        others.append,
        plain=plain.extend,
        first_pass=FirstPass(examiner, reading, source, jobs) if jobs > 1 else None,
    )
    opened = [] if case.plugin is None else [f"{k}={v}" for k, v in sorted(case.plugin.opened.items())]
    return others, summed(plain), opened


@pytest.mark.parametrize("seed", some(range(2 * len(DAMAGES)), of=6))
def test_any_kind_of_damage(seed: int) -> None:
    assert looked_at(make_cause_case(seed), 1) == looked_at(make_cause_case(seed), 2)


def of_report(reporter: CollectingReporter) -> tuple[Any, ...]:
    assert reporter.conclusion is not None
    conclusion = reporter.conclusion
    return (
        list(reporter.findings.values()),
        conclusion.summary,
        conclusion.statuses,
        conclusion.complete,
        conclusion.incomplete_reasons,
    )


def scanned(config: str | None, jobs: int, kms: dict[str, KMSPlugin] | None = None) -> tuple[Any, ...]:
    path = None if config is None else ALPHA / config
    asking = ask(kms, patience_seconds=10) if kms else nullcontext()
    with SnapshotSource(ALPHA / "snapshot.db.gz") as source, asking as plugins:
        reporter, _ = scan(source, path, plugins=plugins, kubernetes_minor=36, jobs=jobs)
        return of_report(reporter)


@pytest.mark.thorough
@pytest.mark.parametrize("jobs", [3, 8])
@pytest.mark.parametrize("config", [None, "config-lost.yaml", "config-rotated.yaml"])
def test_a_damaged_cluster(config: str | None, jobs: int) -> None:
    assert scanned(config, jobs) == scanned(config, 1)


def test_a_damaged_cluster_with_its_plugins(tmp_path: Path) -> None:
    with alpha_plugins(tmp_path) as kms:
        assert scanned("config-rotated.yaml", 2, kms) == scanned("config-rotated.yaml", 1, kms)


# How many there are, and when they begin


class AtEndpoints(MemorySource):
    """Says that it is a live etcd, at some addresses."""

    endpoints: tuple[str, ...] = ()

    def describe(self) -> SourceDescription:
        return msgspec.structs.replace(super().describe(), endpoints=self.endpoints)


@pytest.mark.parametrize(
    ("endpoints", "here"),
    [
        (("https://192.0.2.1:2379", "unixhost.example:2379"), False),
        (("192.0.2.1:2379", "https://127.0.0.1:2379"), True),
        (("localhost:2379",), True),
        (("unix:///run/etcd",), True),
    ],
)
def test_auto_leaves_cores_to_an_etcd_on_this_machine(
    endpoints: tuple[str, ...], here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_pass, "room_for_jobs", lambda *, etcd_here: 3 if etcd_here else 6)
    monkeypatch.setattr(first_pass, "_FEWEST_KEYS", 1)
    source = AtEndpoints([stored("/registry/pods/shop/a")])
    source.endpoints = endpoints
    assert jobs_for(5, source) == 5
    assert jobs_for("auto", source) == (3 if here else 6)


@pytest.mark.parametrize(
    ("keys", "size_bytes", "jobs"),
    [
        (49_999, None, 1),
        (50_000, None, 9),
        (None, None, 1),
        (None, 99_999_999, 1),
        (None, 100_000_000, 9),
    ],
)
def test_what_is_small_needs_one(
    keys: int | None, size_bytes: int | None, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_pass, "room_for_jobs", lambda *, etcd_here: 9)
    source = MemorySource([])
    monkeypatch.setattr(source, "estimate", lambda: keys)
    with (tmp_path / "pages").open("w") as file:
        if size_bytes is not None:
            os.truncate(file.fileno(), size_bytes)
            monkeypatch.setattr(type(source), "page_file", file.fileno(), raising=False)
        assert jobs_for("auto", source) == jobs


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    started: list[int] = []

    class Counting(PoolHere):
        def __init__(self, jobs: int, *arguments: Any, **more: Any) -> None:
            started.append(jobs)
            super().__init__(jobs, *arguments, **more)

    monkeypatch.setattr(first_pass, "WorkerPool", Counting)
    return started


def test_auto_starts_no_worker_for_a_small_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    started = counted(monkeypatch)
    monkeypatch.setattr(first_pass, "jobs_for", lambda *_: 2)
    values = [stored(f"/registry/secrets/shop/s{n}", secret(f"s{n}")) for n in range(9)]
    counts = []
    for before in (100, 3, 0):
        monkeypatch.setattr(first_pass, "_BEFORE_AUTO", before)
        _, result = scan(MemorySource(values), jobs="auto")
        counts.append((result.report.summary.readable, len(started)))
    assert counts == [(9, 0), (9, 1), (9, 2)]


# What nobody may see, and what cannot be sent


def test_what_cannot_be_sent_is_examined_here(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [
        stored("/registry/secrets/shop/a", b"unreadable"),
        stored("/registry/secrets/shop/b", secret("b")),
    ]

    expected = of_report(scan(MemorySource(values))[0])
    encode = first_pass._encode

    def not_unicode(value: object) -> bytes:
        if isinstance(value, Examination):
            raise UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")
        return encode(value)

    monkeypatch.setattr(first_pass, "_encode", not_unicode)
    assert of_report(scan(MemorySource(values), jobs=2)[0]) == expected


@pytest.mark.parametrize(
    "damaged",
    [
        lambda _: b"",
        lambda answer: answer[:-1],
        lambda answer: answer + b"\xc0",
        lambda _: b"\xc0",
        lambda _: b"\x93\x90\x90\x91\x92\x02\xc0",
        lambda _: b"\x93\x90\x90\x91\x92\xff\xc0",
    ],
    ids=["empty", "cut", "longer", "nothing", "a place beyond the page", "a place before it"],
)
def test_an_answer_that_is_none_is_examined_here(
    damaged: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaging(PoolHere):
        def run(
            self, work: Iterable[Any], frame: Callable[[Any], bytes]
        ) -> Iterator[tuple[Any, bytes | None]]:
            for piece, answer in super().run(work, frame):
                yield piece, None if answer is None else damaged(answer)

    values = [
        stored("/registry/secrets/shop/a", b"unreadable"),
        stored("/registry/secrets/shop/b", secret("b")),
    ]
    expected = of_report(scan(MemorySource(values))[0])
    monkeypatch.setattr(first_pass, "WorkerPool", Damaging)
    assert of_report(scan(MemorySource(values), jobs=2)[0]) == expected


GB = 10**9


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    put(tmp_path, "proc/meminfo", f"MemTotal:  40000000 kB\nMemAvailable: {30 * GB >> 10} kB\n")
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    return tmp_path


def put(system: Path, name: str, text: str) -> None:
    path = system / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def auto(system: Path, *, etcd_here: bool = False) -> int:
    return room_for_jobs(etcd_here=etcd_here, system=system)


def test_a_running_etcd_keeps_half_of_the_cores(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto(system, etcd_here=True) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert auto(system, etcd_here=True) == 1


@pytest.mark.parametrize(
    ("limit", "jobs"), [("max 100000", 16), ("350000 100000", 3), ("50000 100000", 1), ("", 16), ("1 0", 16)]
)
def test_the_quota_of_the_group(system: Path, limit: str, jobs: int) -> None:
    put(system, "sys/fs/cgroup/cpu.max", limit)
    assert auto(system) == jobs


@pytest.mark.parametrize("mounted", ["cpu,cpuacct", "cpu"])
def test_the_first_version_of_control_groups(system: Path, mounted: str) -> None:
    put(
        system,
        "proc/self/cgroup",
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n",
    )
    at = f"sys/fs/cgroup/{mounted}"
    put(system, f"{at}/cpu.cfs_quota_us", "-1\n")
    put(system, f"{at}/cpu.cfs_period_us", "100000\n")
    assert auto(system) == 16
    put(system, f"{at}/cpu.cfs_quota_us", "200000\n")
    assert auto(system) == 2


def test_by_available_memory(system: Path) -> None:
    put(system, "proc/meminfo", f"MemAvailable: {int(1.06 * GB) >> 10} kB\n")
    assert auto(system) == 6  # and this process
    put(system, "proc/meminfo", "MemAvailable: 1000 kB\n")
    assert auto(system) == 1


def test_by_the_memory_of_the_group(system: Path) -> None:
    group = "sys/fs/cgroup/"
    put(system, f"{group}memory.max", f"{GB}")
    put(system, f"{group}memory.current", f"{GB // 2}")
    assert auto(system) == 2
    put(system, f"{group}memory.stat", f"anon 1\ninactive_file {GB // 2}\n")
    assert auto(system) == 5
    put(system, f"{group}memory.stat", "nothing")
    assert auto(system) == 2
    put(system, f"{group}memory.current", "?")
    assert auto(system) == 16  # what is not understood limits nothing
    put(system, f"{group}memory.current", "1")
    put(system, f"{group}memory.max", "max")
    assert auto(system) == 16


def test_where_the_system_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert auto(tmp_path) == 3
