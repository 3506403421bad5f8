"""How fast a scan is, and in how much memory. Prints figures; nothing here fails because a machine is slow.

``pytest -m benchmark -s tests/benchmarks``; ``ETCDFIX_BENCH_KEYS`` changes the size (200,000).
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_data import CONFIG, Damage, objects, write_database
from tests.benchmarks.measure import etcdfix, machine, run, spread
from tests.support.etcd_places import Processes, find_tools
from tests.support.etcd_server import EtcdServers

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "200000"))
RUNS = 5


def offline(folder: Path, keys: int, *, damage: Damage = Damage.NONE) -> list[str]:
    folder.mkdir()
    database, config = write_database(folder, keys, damage)
    return etcdfix("--snapshot", str(database), "--encryption-config", str(config), "-o", "jsonl")


def test_offline_speed_on_one_core(tmp_path: Path) -> None:
    """Processor time of a large scan less that of a small one: what a key costs, start-up left out."""
    small, large = offline(tmp_path / "small", KEYS // 100), offline(tmp_path / "large", KEYS)
    rates, walls = [], []
    for _ in range(RUNS):
        base, full = run(small), run(large)
        rates.append((KEYS - KEYS // 100) / (full.cpu - base.cpu))
        walls.append(KEYS / full.wall)
    print(f"\n{machine()}\noffline, {KEYS} keys: {spread(rates)} keys per second of processor time")
    print(f"  whole command by wall clock: {spread(walls)} keys per second")
    assert statistics.median(rates) > 0


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


def test_live_against_etcdctl(tmp_path: Path) -> None:
    """The same keys from the same etcd, in turn; the ratio pair by pair."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    tools = find_tools()
    servers = EtcdServers(Processes(), tools)
    try:
        server = servers.start(flags=("--quota-backend-bytes=8000000000",))
        server.put_all(objects(KEYS))
        ours = etcdfix("--endpoints", server.endpoint, "--encryption-config", str(config), "-o", "jsonl")
        theirs = [
            str(tools.ctl),
            f"--endpoints={server.endpoint}",
            "--command-timeout=300s",
            "get",
            "--prefix",
            "",
        ]
        run(ours)
        run(theirs)
        pairs = [(run(ours), run(theirs)) for _ in range(RUNS)]
    finally:
        servers.close()
    print(f"\n{machine()}\nlive, {KEYS} keys, etcd on the same machine")
    for name, runs in (("etcdfix", [a for a, _ in pairs]), ("etcdctl", [b for _, b in pairs])):
        memory = max(one.anonymous_mb for one in runs)
        print(f"  {name} {spread([one.wall for one in runs])} s, processor {spread([one.cpu for one in runs])} s, "
              f"memory {memory:.0f} MB")  # fmt: skip
    print(f"  ratio of wall times {spread([a.wall / b.wall for a, b in pairs])}")
    assert len(pairs) == RUNS


def test_help_is_quick() -> None:
    """``etcdfix --help`` against a bare interpreter."""
    helps = [run([sys.executable, "-m", "etcdfix", "--help"]).wall for _ in range(RUNS * 2)]
    bare = [run([sys.executable, "-c", "pass"]).wall for _ in range(RUNS * 2)]
    print(f"\n{machine()}\n--help {spread([1000 * x for x in helps])} ms")
    print(f"  a bare interpreter {spread([1000 * x for x in bare])} ms")
    assert len(helps) == RUNS * 2
