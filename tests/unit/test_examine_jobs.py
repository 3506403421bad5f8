"""The same said by any number of processes: everything that can be wrong with a value, a page after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from etcdfix import examine_all, examine_jobs
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import KMSProvider, parse_configuration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.encryption.transformer import Transformers
from etcdfix.examine import Examiner, Reading
from etcdfix.examine_jobs import Helpers
from etcdfix.sources import mvcc, pages
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.verdicts.examination import Examination, PlainCount
from tests.exam import corpus
from tests.exam.ground import Plugin
from tests.exam.judging import NeverWaits
from tests.exam.kinds_of_damage import DAMAGES, CauseCase, make_cause_case
from tests.support.collecting import ALPHA, CollectingReporter, scan
from tests.support.kms_plugin import KMSPlugin, load_keks
from tests.support.memory_source import MemorySource
from tests.support.pool_here import PoolHere


@pytest.fixture(autouse=True)
def small_pages_without_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine_jobs, "WorkerPool", PoolHere)
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
    def plugin_for(_: KMSProvider) -> Plugin | None:
        return case.plugin

    transformers = configuration = None
    if case.configuration is not None:
        configuration = parse_configuration(case.configuration, path="exam")
        transformers = Transformers.from_configuration(configuration, plugin_for)
    decoder = corpus.decoder() if case.minor is None else Decoder(case.minor)
    release = f"1.{case.minor}" if case.minor is not None else ""
    examiner = Examiner(corpus.LAYOUT, transformers, decoder, assumed_release=release)
    examiner.plugins = NeverWaits() if case.plugin is not None else None
    source = MemorySource(case.records)
    examiner.learn_custom_resources(source)
    reading = Reading(layout=corpus.LAYOUT, configuration=configuration, kubernetes_minor=case.minor)
    others: list[Examination] = []
    plain: list[PlainCount] = []
    examine_all.examine_all(
        examiner,
        source.pages(b""),
        lambda found, _view: others.append(found),
        plain=plain.extend,
        helpers=Helpers(examiner, reading, source, jobs) if jobs > 1 else None,
    )
    opened = [] if case.plugin is None else [f"{k}={v}" for k, v in sorted(case.plugin.opened.items())]
    return others, summed(plain), opened


@pytest.mark.parametrize("seed", range(2 * len(DAMAGES)))
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
    with ExitStack() as stack:
        source = stack.enter_context(SnapshotSource(ALPHA / "snapshot.db.gz"))
        plugins = None
        if kms is not None:
            endpoints = {name: plugin.endpoint for name, plugin in kms.items()}
            plugins = stack.enter_context(KMSPlugins(endpoints, max_rate=0, patience_seconds=2))
        path = None if config is None else ALPHA / config
        reporter, _ = scan(source, path, plugins=plugins, kubernetes_minor=36, jobs=jobs)
        return of_report(reporter)


@pytest.mark.parametrize("jobs", [2, 3, 8])
@pytest.mark.parametrize("config", [None, "config-lost.yaml", "config-rotated.yaml"])
def test_a_damaged_cluster(config: str | None, jobs: int) -> None:
    assert scanned(config, jobs) == scanned(config, 1)


@pytest.fixture(scope="module")
def kms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, KMSPlugin]]:
    folder = tmp_path_factory.mktemp("kms")
    with (
        KMSPlugin("v2", folder / "1.sock", load_keks(ALPHA / "kms1.keys")) as new,
        KMSPlugin("v1", folder / "2.sock", load_keks(ALPHA / "kms2.keys")) as old,
    ):
        yield {"kmsnew": new, "kmsold": old}


@pytest.mark.parametrize("jobs", [2, 3])
@pytest.mark.parametrize("config", ["config-lost.yaml", "config-rotated.yaml"])
def test_a_damaged_cluster_with_its_plugins(config: str, jobs: int, kms: dict[str, KMSPlugin]) -> None:
    findings, summary, *rest = scanned(config, jobs, kms)
    others, other_summary, *other_rest = scanned(config, 1, kms)
    assert findings == others
    assert rest == other_rest
    assert summary == other_summary
