"""Measuring whole commands: wall and processor time, memory of each process, spread."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from etcdfix.testing.places import clean_environment

LOOK_SECONDS = 0.02
"""Between two looks at the memory of the processes of a command."""

LOOKS_FOR_CHILDREN = 5
"""Children are looked for once in so many looks: that costs more than reading how much memory one has."""

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Run(msgspec.Struct, frozen=True):
    """One finished command, with all processes that it started and waited for.

    Attributes:
        wall: Seconds from its start to its end.
        cpu: Seconds of processor time, of the user and of the system.
        anonymous_mb: Peak of the anonymous memory of its largest process; mapped files are not in it.
    """

    wall: float
    cpu: float
    anonymous_mb: float


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Python {platform.python_version()}, {platform.system()}"


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def run(command: Sequence[str], *, expect: tuple[int, ...] = (0,)) -> Run:
    """Run a command to its end, its output thrown away.

    Raises:
        AssertionError: It ended with another exit code than those that are expected.
    """
    started = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=clean_environment()
    )
    with MemoryWatch(process.pid) as memory:
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in expect, (list(command), process.returncode)
    return Run(
        wall=round(wall, 4),
        cpu=round(usage.ru_utime + usage.ru_stime, 4),
        anonymous_mb=round(max(memory.peaks.values(), default=0.0), 1),
    )


class MemoryWatch:
    """Looks at the memory of a process and of all that descend from it, while it is entered.

    Attributes:
        peaks: By process id, the most anonymous memory that was seen, in MB.
    """

    def __init__(self, pid: int) -> None:
        self.peaks: dict[int, float] = {}
        self._pid = pid
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        known = [self._pid]
        looks = 0
        while True:
            if looks % LOOKS_FOR_CHILDREN == 0:
                known = descendants(self._pid)
            looks += 1
            seen = {pid: size for pid in known if (size := anonymous_mb(pid)) is not None}
            for pid, size in seen.items():
                self.peaks[pid] = max(self.peaks.get(pid, 0.0), size)
            if self._done.wait(LOOK_SECONDS):
                return


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def anonymous_mb(pid: int) -> float | None:
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    resident, from_files = int(fields[1]), int(fields[2])
    return (resident - from_files) * _PAGE_MB
