"""Reports that one look at everything leads to, made by any number of processes: the same, but for the time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.commands.copies import CopiesRequest, find_copies
from etcdfix.commands.encryption.try_ import NamedCandidate, TryRequest, try_candidates
from etcdfix.commands.encryption.usage import UsageRequest, encryption_usage
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.plugins import KMSPlugins
from etcdfix.examine import first_pass
from etcdfix.model.scope import ScopeRequest
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.places import RecordPaths
from etcdfix.sources import mvcc, pages
from etcdfix.sources.base import Source
from tests.support.collecting import ALPHA
from tests.support.fixtures import Patch
from tests.support.memory_source import MemorySource
from tests.support.objects import KEY_1, KEY_2, aescbc, config_map, configuration, provider, secret
from tests.support.pool_here import PoolHere
from tests.support.rendering import rendered
from tests.support.thorough import some

JOBS = some([3, 2, 8], of=3)
NAMED = ("/registry/secrets/shop/s-3", "/registry/secrets/shop/s-4", "/registry/secrets/shop/absent")


@pytest.fixture(autouse=True)
def small_pages_without_processes(monkeypatch: Patch) -> None:
    monkeypatch.setattr(first_pass, "WorkerPool", PoolHere)
    monkeypatch.setattr(pages, "PAGE_VALUES", 3)
    monkeypatch.setattr(mvcc, "PAGE_RECORDS", 7)
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: Path("/nonexistent/etcdfix"))


class Asked(NamedTuple):
    """What a report is about, and by how many processes it is made; the usage is always that of everything."""

    source: Source
    config: EncryptionConfiguration | None
    jobs: int
    plugins: KMSPlugins | None = None
    scope: tuple[str, ...] = ()

    def how(self) -> dict[str, Any]:
        return {"plugins": self.plugins, "jobs": self.jobs}


def usage(asked: Asked) -> dict[str, Any]:
    request = UsageRequest(layout=StorageLayout(), configuration=asked.config)
    report, _ = encryption_usage(asked.source, request, open_snapshot=lambda _: MemorySource(), **asked.how())
    return shown(report)


def tried(asked: Asked) -> dict[str, Any]:
    candidates = (NamedCandidate("rotated", load_configuration(ALPHA / "config-rotated.yaml")),)
    request = TryRequest(
        layout=StorageLayout(),
        configuration=asked.config,
        candidates=candidates,
        scope=ScopeRequest(asked.scope),
    )
    return shown(try_candidates(asked.source, request, **asked.how())[0])


def copies(asked: Asked) -> dict[str, Any]:
    request = CopiesRequest(
        layout=StorageLayout(),
        configuration=asked.config,
        scope=ScopeRequest(asked.scope),
        records=RecordPaths(audit_log=Path("/nonexistent/etcdfix/log")),
    )
    return shown(find_copies(asked.source, request, **asked.how()).report)


def shown(report: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(rendered(report, "json"))
    del document["generated_at"]
    return document


Report = Callable[[Asked], dict[str, Any]]
REPORTS: list[Report] = [usage, tried, copies]


ROTATING = configuration(provider("aescbc", key1=KEY_1, key2=KEY_2))


def cluster() -> MemorySource:
    """Return stale values, cut ones, and some of a key that nobody has."""
    keys = (KEY_1, KEY_2, b"3" * 16)
    values = {"/registry/configmaps/shop/plain": config_map("plain")}
    for number in range(40):
        name = f"s-{number}"
        value = aescbc(secret(name), keys[number % 3], name=f"key{number % 3 + 1}")
        values[f"/registry/secrets/shop/{name}"] = value[:-5] if number % 10 == 9 else value
    return MemorySource(values)


@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("scope", [(), ("secrets",), NAMED, ("/registry/secrets/shop/s-3", "configmaps")])
def test_what_is_named_is_told_also_where_it_is_plain(report: Report, scope: tuple[str, ...]) -> None:
    found = [report(Asked(cluster(), ROTATING, jobs, scope=scope)) for jobs in (1, *JOBS)]
    assert found[1:] == found[:1] * len(JOBS)
    if report is copies and NAMED[0] in scope:
        state = {one["key"]: one["state"] for one in found[0]["objects"]}
        assert state[NAMED[0]] == "readable"


@pytest.mark.parametrize("report", REPORTS)
def test_a_worker_that_was_lost_is_named(report: Report, monkeypatch: Patch) -> None:
    class Losing(PoolHere):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            self.lost.append("a worker process was ended by SIGKILL")

    one = report(Asked(cluster(), ROTATING, 1))
    monkeypatch.setattr(first_pass, "WorkerPool", Losing)
    less = report(Asked(cluster(), ROTATING, 2))
    assert not less["complete"]
    assert "a worker process was ended by SIGKILL" in less["incomplete_reasons"]
    assert not any(key["safe_to_remove"] for key in less.get("keys", ()))
    for name in ("keys", "complete", "incomplete_reasons"):
        one.pop(name, None), less.pop(name, None)
    assert one == less
