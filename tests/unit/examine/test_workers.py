"""How many workers are worth their start, on machines and in containers that are made up."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.examine.workers import room_for_jobs

GB = 10**9


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    put(tmp_path, "proc/meminfo", f"MemTotal:  40000000 kB\nMemAvailable: {30 * GB >> 10} kB\n")
    put(tmp_path, "proc/self/cgroup", "0::/\n")
    return tmp_path


def put(system: Path, name: str, text: str) -> None:
    path = system / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def auto(system: Path, *, etcd_here: bool = False) -> int:
    return room_for_jobs(etcd_here=etcd_here, system=system)


def test_a_running_etcd_keeps_half_of_the_cores(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto(system, etcd_here=True) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert auto(system, etcd_here=True) == 1


@pytest.mark.parametrize(
    ("limit", "jobs"), [("max 100000", 16), ("350000 100000", 3), ("50000 100000", 1), ("", 16), ("1 0", 16)]
)
def test_the_quota_of_the_group(system: Path, limit: str, jobs: int) -> None:
    put(system, "sys/fs/cgroup/cpu.max", limit)
    assert auto(system) == jobs


@pytest.mark.parametrize("mounted", ["cpu,cpuacct", "cpu"])
def test_the_first_version_of_control_groups(system: Path, mounted: str) -> None:
    put(
        system,
        "proc/self/cgroup",
        "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n",
    )
    at = f"sys/fs/cgroup/{mounted}"
    put(system, f"{at}/cpu.cfs_quota_us", "-1\n")
    put(system, f"{at}/cpu.cfs_period_us", "100000\n")
    assert auto(system) == 16
    put(system, f"{at}/cpu.cfs_quota_us", "200000\n")
    assert auto(system) == 2


def test_by_available_memory(system: Path) -> None:
    put(system, "proc/meminfo", f"MemAvailable: {int(1.06 * GB) >> 10} kB\n")
    assert auto(system) == 6  # and this process
    put(system, "proc/meminfo", "MemAvailable: 1000 kB\n")
    assert auto(system) == 1


def test_by_the_memory_of_the_group(system: Path) -> None:
    group = "sys/fs/cgroup/"
    put(system, f"{group}memory.max", f"{GB}")
    put(system, f"{group}memory.current", f"{GB // 2}")
    assert auto(system) == 2
    put(system, f"{group}memory.stat", f"anon 1\ninactive_file {GB // 2}\n")
    assert auto(system) == 5
    put(system, f"{group}memory.stat", "nothing")
    assert auto(system) == 2
    put(system, f"{group}memory.current", "?")
    assert auto(system) == 16  # what is not understood limits nothing
    put(system, f"{group}memory.current", "1")
    put(system, f"{group}memory.max", "max")
    assert auto(system) == 16


def test_where_the_system_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert auto(tmp_path) == 3
