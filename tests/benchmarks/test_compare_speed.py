"""What it costs to compare three members that hold the same 200,000 keys: by hash, and key by key. Prints figures.

``pytest -m benchmark -s tests/benchmarks/test_compare_speed.py``; ``ETCDFIX_BENCH_COMPARE_KEYS`` changes the number.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.testing.places import NoEtcdError
from tests.benchmarks.measure import machine, run
from tests.support import objects
from tests.support.etcd_members import EtcdMembers, etcd_members

pytestmark = [pytest.mark.benchmark, pytest.mark.etcd]

KEYS = int(os.environ.get("ETCDFIX_BENCH_COMPARE_KEYS", "200000"))
RUNS = 5
SIZE = 1000


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdMembers]:
    try:
        with etcd_members(tmp_path_factory.mktemp("compare-speed")) as started:
            value = objects.secret("s") + bytes(SIZE)
            started.server("member-0").put_all(
                (f"/registry/secrets/shop/s-{number:07}".encode(), value) for number in range(KEYS)
            )
            yield started
    except NoEtcdError as exc:
        pytest.skip(str(exc))


def test_equal_members(members: EtcdMembers, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "etcdfix",
        "compare",
        "--no-encryption",
        "--output-file",
        str(tmp_path / "report"),
    ]
    runs = [run([*command, "--endpoints", ",".join(members.endpoints())]) for _ in range(RUNS)]
    wall = sorted(one.wall for one in runs)
    print(
        f"\n{machine()}\n{KEYS} equal keys of {SIZE} bytes on three members, by hash: "
        f"median {statistics.median(wall):.2f} s ({wall[0]:.2f} to {wall[-1]:.2f}), "
        f"processor {statistics.median(one.cpu for one in runs):.2f} s, "
        f"memory {max(one.anonymous_mb for one in runs):.0f} MB"
    )
