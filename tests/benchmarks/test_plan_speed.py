"""How a plan grows with the broken objects, beside a scan of the same data. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_plan_speed.py``; ``ETCDFIX_BENCH_KEYS`` changes the size (100,000).
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_data import Damage, write_database
from tests.benchmarks.measure import Run, machine, run, spread

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "100000"))
RUNS = 3
MOST_TIME = 3.0  # of a scan's
MOST_GROWTH = 1.15  # of ten times the time for a tenth of the objects
MOST_MEMORY = 100  # MB for ten times the objects


def measured(folder: Path, keys: int, damage: Damage) -> tuple[list[Run], list[Run]]:
    folder.mkdir()
    database, config = write_database(folder, keys, damage)
    report = folder / "report.json"
    where = ["--snapshot", str(database), "--encryption-config", str(config), "-o", "json"]
    etcdfix = [sys.executable, "-m", "etcdfix"]
    scan = [*etcdfix, "scan", *where, "--output-file", str(report)]
    plan = [
        *etcdfix, "plan", "--from-report", str(report), *where, "--output-file", str(folder / "plan.json"),
    ]  # fmt: skip
    scans, plans = [], []
    for _ in range(RUNS):
        scans.append(run(scan, expect=(1, 3)))
        plans.append(run(plan, expect=(1, 3)))
        for written in (report, folder / "plan.json"):
            written.unlink()  # there is none after an internal error, which is 1 too
    return scans, plans


@pytest.mark.parametrize("damage", [Damage.LOST, Damage.MIXED])
def test_a_plan_beside_a_scan(tmp_path: Path, damage: Damage) -> None:
    """Processor time of whole commands, run by run; memory as the most of all runs."""
    print(f"\n{machine()}\n{damage}, processor time of whole commands")
    time, memory = {}, {}
    for keys in (KEYS // 10, KEYS):
        scans, plans = measured(tmp_path / str(keys), keys, damage)
        ratios = [planned.cpu / scanned.cpu for scanned, planned in zip(scans, plans, strict=True)]
        time[keys] = statistics.median(planned.cpu for planned in plans)
        memory[keys] = max(planned.anonymous_mb for planned in plans)
        for name, runs in (("scan", scans), ("plan", plans)):
            most = max(one.anonymous_mb for one in runs)
            print(f"  {keys} keys: {name} {spread([one.cpu for one in runs])} s, memory {most:.0f} MB")
        print(f"  {keys} keys: a plan takes {spread(ratios)} times as long as the scan")
        assert statistics.median(ratios) <= MOST_TIME
    growth = time[KEYS] / time[KEYS // 10] / 10
    more = memory[KEYS] / memory[KEYS // 10]
    print(f"  ten times the objects: {10 * growth:.1f} times the time, {more:.1f} times the memory")
    assert growth <= MOST_GROWTH
    assert memory[KEYS] <= memory[KEYS // 10] + MOST_MEMORY
