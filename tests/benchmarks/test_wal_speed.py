"""How fast a write-ahead log is read, and in how much memory. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_wal_speed.py``; ``ETCDFIX_BENCH_WRITES`` changes the number of writes
behind the 200 that are looked for (50,000 of 6 KB, about 300 MB).
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.model.model import Confidence
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.sources.wal.entries import WriteAheadLog
from etcdfix.sources.wal.history import LogHistory
from etcdfix.testing.servers import EtcdServer
from tests.benchmarks.measure import machine
from tests.integration.test_write_ahead_log import OBJECTS, Logged, damage
from tests.support.apiserver import EtcdStore

pytestmark = [pytest.mark.benchmark, pytest.mark.etcd]

WRITES = int(os.environ.get("ETCDFIX_BENCH_WRITES", "50000"))
SIZE = 6_000
KEYS = 5_000


def write(store: EtcdStore) -> None:
    held: dict[bytes, int] = {}
    for turn in range(WRITES):
        key = b"/registry/configmaps/busy/c%05d" % (turn % KEYS)
        held[key] = store.put(key, os.urandom(SIZE), mod_revision=held.get(key, 0)) or 0


def test_a_large_log(start_local_etcd: Callable[..., EtcdServer], tmp_path: Path) -> None:
    server = start_local_etcd(flags=(f"--data-dir={tmp_path / 'data'}", "--max-wals=0"))
    etcd = Logged(server, EtcdStore(server.endpoint), tmp_path / "data" / "member" / "wal")
    try:
        held = damage(etcd)
        write(etcd.store)
        server.etcdctl("compact", "--physical", str(etcd.store.revision()))
        size = sum(file.stat().st_size for file in etcd.wal.glob("*.wal"))
        begin = time.monotonic()
        with (
            LiveSource(EtcdConnection(endpoints=(server.endpoint,))) as live,
            WriteAheadLog(etcd.wal) as log,
        ):
            opened = time.monotonic()
            history = LogHistory(log, live)
            known = time.monotonic()
            found = [next(iter(history.writes(key))) for key in held]
            end = time.monotonic()
            right = sum(
                one.confidence is Confidence.CERTAIN and (one.mod_revision, one.value) == held[one.key]
                for one in found
            )
            entries = log.last
            history.close()
        assert right == OBJECTS
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"\n{machine()}\n{entries} entries, {size / 1e6:.0f} MB: {right} of {OBJECTS} certain at the right"
            f" revision; frames {size / 1e6 / (opened - begin):.0f} MB/s, with replay"
            f" {size / 1e6 / (known - begin):.0f} MB/s ({known - begin:.1f} s), 200 keys"
            f" {end - known:.2f} s; memory {peak:.0f} MB"
        )
    finally:
        etcd.store.close()
