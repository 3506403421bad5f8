"""How fast a scan and a plan are, beside a digest of the file and beside each other, and in how much memory.

``pytest -m benchmark -s tests/benchmarks``; ``ETCDFIX_BENCH_KEYS`` changes the size (200,000). Prints figures.
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_data import Damage, write_database
from tests.benchmarks.measure import machine, run, spread

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "200000"))
ETCDFIX = [sys.executable, "-m", "etcdfix"]


def large(folder: Path, keys: int, damage: Damage = Damage.NONE) -> list[str]:
    """Write a database; return the options that name it and its configuration."""
    folder.mkdir()
    database, config = write_database(folder, keys, damage)
    return ["--snapshot", str(database), "--encryption-config", str(config)]


@pytest.mark.parametrize(("jobs", "most"), [(1, 2.0), (2, 1.4)])
def test_a_scan_beside_a_digest_of_its_file(tmp_path: Path, jobs: int, most: float) -> None:
    scan = [*ETCDFIX, "scan", *large(tmp_path / "many", KEYS), "-o", "jsonl", "--jobs", str(jobs)]
    ratios = [run(scan).wall / run(["sha256sum", str(tmp_path / "many/large.db")]).wall for _ in range(5)]
    print(f"\n{machine()}\n{KEYS} keys, {jobs} jobs: {spread(ratios)} times sha256sum")
    assert statistics.median(ratios) <= most


def test_memory_does_not_grow_with_the_number_of_keys(tmp_path: Path) -> None:
    """Anonymous memory: the mapped file is not in it. A tenth of the keys, all, and all of them broken."""
    print(f"\n{machine()}")
    used = {}
    for name, keys, damage in (
        ("a tenth", KEYS // 10, Damage.NONE),
        ("all", KEYS, Damage.NONE),
        ("all of them broken", KEYS, Damage.FLIPPED),
    ):
        scan = [*ETCDFIX, "scan", *large(tmp_path / name, keys, damage), "-o", "jsonl"]
        result = run(scan, expect=(int(damage is Damage.FLIPPED),))
        print(f"  {name}: {result.anonymous_mb:.0f} MB, {result.wall:.1f} s")
        used[name] = result.anonymous_mb
    assert max(used.values()) < 250
    assert used["all of them broken"] < used["a tenth"] + 100


@pytest.mark.parametrize("damage", [Damage.LOST, Damage.MIXED])
def test_a_plan_beside_a_scan(tmp_path: Path, damage: Damage) -> None:
    """Processor time of whole commands, run by run; memory as the most of all runs."""
    print(f"\n{machine()}\n{damage}, processor time of whole commands")
    report, written = tmp_path / "report.json", tmp_path / "plan.json"
    time, memory = {}, {}
    for keys in (KEYS // 20, KEYS // 2):
        where = [*large(tmp_path / str(keys), keys, damage), "-o", "json", "--output-file"]
        scans, plans = [], []
        for _ in range(3):
            scans.append(run([*ETCDFIX, "scan", *where, str(report)], expect=(1, 3)))
            plan = [*ETCDFIX, "plan", "--from-report", str(report), *where, str(written)]
            plans.append(run(plan, expect=(1, 3)))
            for one in (report, written):
                one.unlink()  # there is none after an internal error, which is 1 too
        ratios = [planned.cpu / scanned.cpu for scanned, planned in zip(scans, plans, strict=True)]
        time[keys] = statistics.median(one.cpu for one in plans)
        memory[keys] = max(one.anonymous_mb for one in plans)
        for name, runs in (("scan", scans), ("plan", plans)):
            most = max(one.anonymous_mb for one in runs)
            print(f"  {keys} keys: {name} {spread([one.cpu for one in runs])} s, memory {most:.0f} MB")
        print(f"  {keys} keys: a plan takes {spread(ratios)} times as long as the scan")
        assert statistics.median(ratios) <= 3
    (less, more) = time
    print(f"  ten times the objects: {time[more] / time[less]:.1f} times the time")
    assert time[more] <= 11.5 * time[less]
    assert memory[more] <= memory[less] + 100
