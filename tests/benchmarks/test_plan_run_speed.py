"""A run over a plan: wall time for each key, and how that grows with their number. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_plan_run_speed.py``; ``ETCDFIX_BENCH_KEYS`` changes how many are deleted
(1,000), among four times as many healthy ones.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.benchmarks.measure import machine
from tests.support.plan_runs import DECLARED, Planned

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "1000"))
MOST_SECONDS = 120.0  # for a thousand keys
MOST_GROWTH = 1.5  # of the time for a key, where there are ten times as many


def measured(planned: Planned, keys: int) -> tuple[float, float]:
    names = [f"lost-{number}" for number in range(keys)]
    planned.furnish(*names, healthy=4 * KEYS)
    planned.make_plan(all="delete")
    begun, used = time.perf_counter(), time.process_time()
    ran = planned.work(*DECLARED, "-o", "json")
    wall, cpu = time.perf_counter() - begun, time.process_time() - used
    assert ran.code == 0, ran
    document = json.loads(ran.out)
    assert len(document["objects"]) == keys
    assert document["to_delete"] == keys
    return wall, cpu


def test_a_thousand_keys(
    etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each with its checks, backup, two records and a transaction."""
    seconds, lines = {}, [machine()]
    for keys in (KEYS // 10, KEYS):
        folder = tmp_path / str(keys)
        folder.mkdir(mode=0o700)
        planned = Planned(etcd, prefix + b"of-%d/" % keys, folder, capfd)
        wall, cpu = measured(planned, keys)
        seconds[keys] = wall / keys
        lines.append(
            f"  {keys} keys among {4 * KEYS}: {wall:.1f} s, {1000 * wall / keys:.0f} ms for each "
            f"({1000 * cpu / keys:.0f} ms of processor time)"
        )
    with capfd.disabled():
        print("", *lines, sep="\n")
    assert seconds[KEYS] * 1000 <= MOST_SECONDS
    assert seconds[KEYS] <= seconds[KEYS // 10] * MOST_GROWTH
