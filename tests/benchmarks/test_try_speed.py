"""How ``encryption try`` grows with the unreadable values and with the candidates. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_try_speed.py``; ``ETCDFIX_BENCH_KEYS`` changes the size (10,000).
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import sys
from pathlib import Path

import pytest

from tests.benchmarks.large_data import CONFIG, Damage, write_database
from tests.benchmarks.measure import machine, run, spread

pytestmark = pytest.mark.benchmark

KEYS = int(os.environ.get("ETCDFIX_BENCH_KEYS", "10000"))
RUNS = 3
CANDIDATES = 10
MOST_GROWTH = 1.2  # of ten times the time for a tenth of the values
MOST_MEMORY = 30  # MB more for ten times the values


def write_candidates(folder: Path, count: int) -> list[str]:
    """Write configurations with other bytes under the names in use, the right one last."""
    words = []
    for number in range(count - 1):
        secrets = [base64.b64encode(bytes([number + 100 + i] * 32)).decode() for i in range(2)]
        path = folder / f"other-{number}.yaml"
        path.write_text(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
            "- resources: [secrets, pods]\n  providers:\n"
            f"  - aesgcm: {{keys: [{{name: gcm, secret: {secrets[0]}}}]}}\n"
            f"  - aescbc: {{keys: [{{name: cbc, secret: {secrets[1]}}}]}}\n"
        )
        words += ["--candidate-config", str(path)]
    right = folder / "right.yaml"
    right.write_text(CONFIG.replace("[secrets]", "[secrets, pods]"))
    return [*words, "--candidate-config", str(right)]


def test_ten_candidates_over_many_unreadable_values(tmp_path: Path) -> None:
    print(f"\n{machine()}\nprocessor time of whole commands")
    time, memory = {}, {}
    for keys, candidates in ((KEYS // 10, CANDIDATES), (KEYS, CANDIDATES), (KEYS, 1)):
        folder = tmp_path / f"{keys}-{candidates}"
        folder.mkdir()
        database, config = write_database(folder, keys, Damage.LOST)
        report = folder / "report.json"
        command = [
            sys.executable, "-m", "etcdfix", "encryption", "try", "--snapshot", str(database),
            "--encryption-config", str(config), *write_candidates(folder, candidates), "-o", "json",
            "--output-file", str(report),
        ]  # fmt: skip
        runs = [run(command, expect=(0, 1, 3)) for _ in range(RUNS)]
        found = json.loads(report.read_bytes())
        assert found["findings"] == found["opened"] == found["candidates"][-1]["opens"] > keys / 2
        assert all(candidate["opens"] == 0 for candidate in found["candidates"][:-1])
        time[keys, candidates] = statistics.median(one.cpu for one in runs)
        memory[keys, candidates] = max(one.anonymous_mb for one in runs)
        print(
            f"  {found['findings']} unreadable values, {candidates} candidates: {spread([r.cpu for r in runs])} s, "
            f"memory {memory[keys, candidates]:.0f} MB"
        )
    growth = time[KEYS, CANDIDATES] / time[KEYS // 10, CANDIDATES] / 10
    print(f"  ten times the values: {10 * growth:.1f} times the time")
    assert growth <= MOST_GROWTH
    assert memory[KEYS, CANDIDATES] <= memory[KEYS // 10, CANDIDATES] + MOST_MEMORY
