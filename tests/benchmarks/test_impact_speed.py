"""How fast the impact index is made beside a scan of the same data, and in how much memory. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_impact_speed.py``; ``ETCDFIX_BENCH_KEYS`` changes the size (200,000).
"""

from __future__ import annotations

import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_data import write_database
from tests.benchmarks.measure import etcdfix, machine, run, spread

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "200000"))
RUNS = 5
LEAST_SPEED = 0.5  # of a scan's

INDEX = """
import sys
from pathlib import Path
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.transformer import Transformers
from etcdfix.graph.builder import IndexBuilder
from etcdfix.examine import Examiner
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.storagekey import StorageLayout

transformers = Transformers.from_configuration(load_configuration(Path(sys.argv[2])))
with SnapshotSource(Path(sys.argv[1])) as source:
    examiner = Examiner(StorageLayout(), transformers, Decoder())
    examiner.learn_custom_resources(source)
    builder = IndexBuilder(examiner, source)
    for stored in source.current(b""):
        builder.add(examiner.examine(stored))
    index = builder.finish(source.problems)
assert sum(1 for _ in index.nodes()) == int(sys.argv[3])
"""


def test_index_beside_a_scan(tmp_path: Path) -> None:
    """Whole commands in turn; the ratio pair by pair. The index may take twice as long, by the median."""
    database, config = write_database(tmp_path, KEYS)
    scan = etcdfix("--snapshot", str(database), "--encryption-config", str(config), "-o", "jsonl")
    index = [sys.executable, "-c", INDEX, str(database), str(config), str(KEYS)]
    run(scan)
    run(index)
    pairs = [(run(scan), run(index)) for _ in range(RUNS)]
    print(f"\n{machine()}\n{KEYS} keys, processor time of whole commands")
    for name, runs in (("scan", [a for a, _ in pairs]), ("index", [b for _, b in pairs])):
        memory = max(one.anonymous_mb for one in runs)
        print(f"  {name} {spread([one.cpu for one in runs])} s, memory {memory:.0f} MB")
    ratios = [scanned.cpu / indexed.cpu for scanned, indexed in pairs]
    print(f"  speed of the index against the scan's {spread(ratios)}")
    assert statistics.median(ratios) >= LEAST_SPEED
