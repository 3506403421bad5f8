"""How many workers a command should have.

What a control group may use stands in files of the kernel: ``Documentation/admin-guide/cgroup-v2.rst`` (``cpu.max``,
``memory.max``), ``scheduler/sched-bwc.rst`` and ``admin-guide/cgroup-v1/memory.rst`` for the first version. A limit of
any group above holds too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

MOST_JOBS: Final = 64

_FEWEST_KEYS: Final = 50_000
_SMALLEST_BYTES: Final = 100_000_000
_PROCESS_BYTES: Final = 150_000_000
_MOUNTED_AT: Final = ("sys/fs/cgroup", "sys/fs/cgroup/unified")


def resolve_jobs(
    word: Literal["auto"] | int,
    *,
    keys: int | None,
    size_bytes: int | None,
    etcd_here: bool,
    system: Path = Path("/"),
) -> int:
    """Return how many workers to use; 1 means that none is worth its start.

    Args:
        word: What ``--jobs`` says; a number is taken as it is.
        keys: How many keys there are, about; None where nobody knows.
        size_bytes: How large the data is, likewise.
        etcd_here: A running etcd needs cores of this machine: at most half of them are used.
        system: Where ``proc`` and ``sys`` are.
    """
    if word != "auto":
        return word
    if keys is None and size_bytes is None:
        return 1
    if (keys is not None and keys < _FEWEST_KEYS) or (
        size_bytes is not None and size_bytes < _SMALLEST_BYTES
    ):
        return 1
    groups = list(_groups(system))
    cores = _cores(groups) // (2 if etcd_here else 1)
    processes = _available_bytes(system, groups) // _PROCESS_BYTES
    return max(1, min(cores, processes - 1, MOST_JOBS))  # this process is one of them


def _groups(system: Path) -> Iterator[Path]:
    """Yield the directory of each control group that this process is in, and of those above; some do not exist.

    In a container a group may be named as the host sees it, while its files stand where the host's outermost do.
    """
    for line in _text(system / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        names = [controllers, *controllers.split(",")] if controllers else [""]
        for mount in (system / at / name for at in _MOUNTED_AT for name in names):
            inside = Path(path.lstrip("/"))
            yield from (mount / part for part in (inside, *inside.parents))


def _cores(groups: list[Path]) -> int:
    cores = len(os.sched_getaffinity(0))
    for group in groups:
        quota, _, period = _text(group / "cpu.max").partition(" ")
        quota = quota or _text(group / "cpu.cfs_quota_us")
        period = period or _text(group / "cpu.cfs_period_us")
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max": no limit
            allowed = int(quota) // int(period)
            cores = cores if int(quota) < 0 else min(cores, max(allowed, 1))
    return cores


def _available_bytes(system: Path, groups: list[Path]) -> int:
    free = re.search(r"^MemAvailable: +(\d+) kB$", _text(system / "proc/meminfo"), re.MULTILINE)
    found = [int(free[1]) << 10 if free else MOST_JOBS * 2 * _PROCESS_BYTES]
    for group in groups:
        limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
        used = _text(group / "memory.current") or _text(group / "memory.usage_in_bytes")
        with contextlib.suppress(ValueError):
            found.append(int(limit) - int(used) + _cached_bytes(group))
    return min(found)


def _cached_bytes(group: Path) -> int:
    counts = dict(line.partition(" ")[::2] for line in _text(group / "memory.stat").splitlines())
    return int(counts.get("total_inactive_file") or counts.get("inactive_file") or 0)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
