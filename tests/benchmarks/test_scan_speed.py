"""How fast a scan is beside a digest of its file, and how much memory it needs. Prints figures.

``pytest -m benchmark -s tests/benchmarks``; ``ETCDFIX_BENCH_KEYS`` changes the size (200,000).
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path

import pytest

from tests.benchmarks.large_data import Damage, write_database
from tests.benchmarks.measure import etcdfix, machine, run, spread

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "200000"))
RUNS = 5


def offline(folder: Path, keys: int, *, damage: Damage = Damage.NONE) -> list[str]:
    folder.mkdir()
    database, config = write_database(folder, keys, damage)
    return etcdfix("--snapshot", str(database), "--encryption-config", str(config), "-o", "jsonl")


@pytest.mark.parametrize(("jobs", "most"), [(1, 2.0), (2, 1.4)])
def test_a_scan_beside_a_digest_of_its_file(tmp_path: Path, jobs: int, most: float) -> None:
    scan = [*offline(tmp_path / "many", KEYS), "--jobs", str(jobs)]
    ratios = [run(scan).wall / run(["sha256sum", str(tmp_path / "many/large.db")]).wall for _ in range(RUNS)]
    print(f"\n{machine()}\n{KEYS} keys, {jobs} jobs: {spread(ratios)} times sha256sum")
    assert statistics.median(ratios) <= most


def test_memory_does_not_grow_with_the_number_of_keys(tmp_path: Path) -> None:
    """Anonymous memory: the mapped file is not in it. A tenth of the keys, all, and all of them broken."""
    print(f"\n{machine()}")
    few = run(offline(tmp_path / "few", KEYS // 10))
    many = run(offline(tmp_path / "many", KEYS))
    broken = run(offline(tmp_path / "broken", KEYS, damage=Damage.FLIPPED), expect=(1,))
    for name, result in (("a tenth", few), ("all", many), ("all of them broken", broken)):
        print(f"  {name}: {result.anonymous_mb:.0f} MB, {result.wall:.1f} s")
    assert many.anonymous_mb < 250
    assert broken.anonymous_mb < 250
    assert broken.anonymous_mb < few.anonymous_mb + 100
