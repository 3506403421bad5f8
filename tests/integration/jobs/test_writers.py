"""A scan with four jobs of an etcd that is written to, and compacted, while it is read."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etcdfix.sources.etcd.paging import FIRST_LIMIT
from etcdfix.testing.servers import EtcdServer
from etcdfix.testing.writes import EtcdWriter
from etcdfix.wire.etcd import message
from tests.support.etcd_proxy import RANGE, EtcdProxy
from tests.support.job_runs import (
    JOBS,
    Command,
    adopting,
    configuration_file,
    damaged,
    local_etcd,
    pairs,
    without_times,
)
from tests.support.objects import aesgcm, config_map, secret

pytestmark = pytest.mark.etcd
FINDINGS = 1
WRITERS = 3


@pytest.fixture
def server() -> Iterator[EtcdServer]:
    with adopting(), local_etcd() as start_etcd:
        started = start_etcd()
        started.put_all(pairs())
        yield started


@contextmanager
def writers_at_full_speed(server: EtcdServer) -> Iterator[None]:
    """Change, damage and mend values all over the key space."""
    over = threading.Event()

    def write(number: int) -> None:
        drawn, writer = random.Random(number), EtcdWriter(server.endpoint, None)
        while not over.is_set():
            writer.put_all(dict(some_pair(drawn) for _ in range(20)).items())
        writer.close()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def some_pair(drawn: random.Random) -> tuple[bytes, bytes]:
    number, kind = drawn.randrange(4_000), drawn.randrange(500)
    if drawn.random() < 0.5:
        return b"/registry/configmaps/shop/c-%05d" % number, damaged(kind, config_map(f"c-{number:05}"))
    key = f"/registry/secrets/shop/s-{number:05}"
    return key.encode(), damaged(kind, aesgcm(secret(f"s-{number:05}"), key))


def scanned(endpoint: str, folder: Path, *more: str) -> dict[str, Any]:
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    options = ("--endpoints", endpoint, "--encryption-config", configuration_file(folder))
    ended = Command(temporary, ("scan", "-o", "json", *options, *more)).finish()
    assert (ended.code, ended.err) == (FINDINGS, "") or "compact" in ended.err
    return ended.document


def of_values(document: dict[str, Any]) -> object:
    """Return what a report says of the values: a scan of an earlier revision has other ways out."""
    summary = document["summary"]
    findings = [
        (
            finding["key"],
            finding["outcome"],
            finding["cause"],
            finding["mod_revision"],
            finding["value_sha256"],
        )
        for finding in document["findings"]
    ]
    return findings, [summary[name] for name in ("keys", "by_resource", "by_cause")], document["complete"]


def test_writers_at_full_speed(server: EtcdServer, tmp_path: Path) -> None:
    jobs = ("--jobs", str(JOBS))
    with writers_at_full_speed(server):
        told = scanned(server.endpoint, tmp_path, *jobs)
    revision = told["source"]["revision"]
    assert revision < server.revision(), "they wrote on meanwhile"
    oracle = scanned(server.endpoint, tmp_path, "--jobs", "1", "--revision", str(revision))
    assert of_values(told) == of_values(oracle)
    again = scanned(server.endpoint, tmp_path, *jobs, "--revision", str(revision))
    assert without_times(again) == without_times(oracle)


@contextmanager
def compacted_at_second_page(server: EtcdServer) -> Iterator[EtcdProxy]:
    """Change values all over the key space, and compact, before the first of the larger pages is read."""
    compacted = False

    def before(path: str, first: bytes) -> None:
        nonlocal compacted
        if path != RANGE or compacted or message("RangeRequest").FromString(first).limit <= FIRST_LIMIT:
            return
        compacted = True
        server.put_all([(b"/registry/secrets/shop/s-%05d" % n, b"changed") for n in range(0, 8_000, 1_000)])
        server.compact()

    with EtcdProxy(server.endpoint, before) as proxy:
        yield proxy


def test_a_compaction_in_the_middle(start_local_etcd: Callable[..., EtcdServer], tmp_path: Path) -> None:
    found = []
    for jobs in (1, JOBS):
        server = start_local_etcd()
        server.put_all(pairs())
        with compacted_at_second_page(server) as proxy, adopting():
            told = scanned(proxy.endpoint, tmp_path, "--jobs", str(jobs))
        server.stop()
        segments = told["source"]["segments"]
        assert len(segments) == 2
        found.append(
            (of_values(told), [(s["from_key"], s["revision"]) for s in segments], told["incomplete_reasons"])
        )
    assert found[0] == found[1]
