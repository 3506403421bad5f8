"""Measuring whole commands: wall and processor time, memory of each process, commands in turn, ratios, spread."""

from __future__ import annotations

import contextlib
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from etcdfix.testing.places import clean_environment

LOOK_SECONDS = 0.02
"""Between two looks at the memory of the processes of a command."""

LOOKS_FOR_CHILDREN = 5
"""Children are looked for once in so many looks: that costs more than reading how much memory one has."""

Measured = Callable[[], "Run"]
"""Runs a command once."""

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / (1 << 20)


class Run(msgspec.Struct, frozen=True):
    """One finished command, with all processes that it started and waited for.

    Attributes:
        wall: Seconds from its start to its end.
        cpu: Seconds of processor time, of the user and of the system.
        anonymous_mb: Peak of the anonymous memory of its largest process; mapped files are not in it.
        all_mb: Peak of the anonymous memory of all its processes at one moment.
        processes: How many there were.
    """

    wall: float
    cpu: float
    anonymous_mb: float
    all_mb: float = 0.0
    processes: int = 1


class Spread(msgspec.Struct, frozen=True):
    """The median of several figures, the smallest and the largest."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int = 2) -> str:
        """``median (minimum to maximum)``."""
        return f"{self.median:.{digits}f} ({self.least:.{digits}f} to {self.most:.{digits}f})"


class Line(msgspec.Struct, frozen=True):
    """What a straight line through times says: ``start + per_key * keys`` seconds.

    Attributes:
        start: Seconds for no key at all.
        per_key: Seconds for each key.
        worst: The largest distance of a time from the line, as a part of that time.
    """

    start: float
    per_key: float
    worst: float


def machine() -> str:
    """Name the machine in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Python {platform.python_version()}, {platform.system()}"


def spread(values: Sequence[float]) -> str:
    """``median (minimum to maximum)``."""
    return Spread.of(values).text()


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Divide figure by figure: those at one place were measured in one round."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def straight_line(points: Mapping[int, float]) -> Line:
    """Fit seconds to numbers of keys, at least two; each point counts by its distance as a part of its own time."""
    weights = {keys: 1 / seconds**2 for keys, seconds in points.items()}
    whole = sum(weights.values())
    mean_keys = sum(weights[keys] * keys for keys in points) / whole
    mean_seconds = sum(weights[keys] * seconds for keys, seconds in points.items()) / whole
    per_key = sum(
        weights[keys] * (keys - mean_keys) * (seconds - mean_seconds) for keys, seconds in points.items()
    ) / sum(weights[keys] * (keys - mean_keys) ** 2 for keys in points)
    start = mean_seconds - per_key * mean_keys
    worst = max(abs(start + per_key * keys - seconds) / seconds for keys, seconds in points.items())
    return Line(start, per_key, worst)


def etcdfix(*arguments: str) -> list[str]:
    """The command line of a scan with this interpreter."""
    return [sys.executable, "-m", "etcdfix", "scan", *arguments]


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
        all_mb=round(memory.peak_of_all, 1),
        processes=len(memory.peaks),
    )


def in_turn(commands: Mapping[str, Measured], rounds: int) -> Iterator[dict[str, Run]]:
    """Run all commands once in each round; another one is the first each time.

    Args:
        commands: What runs one command once, by the command's name.
        rounds: How many.

    Yields:
        The runs of a round, in the order of ``commands``.
    """
    names = list(commands)
    for number in range(rounds):
        first = number % len(names)
        runs = {name: commands[name]() for name in names[first:] + names[:first]}
        yield {name: runs[name] for name in names}


class MemoryWatch:
    """Looks at the memory of a process and of all that descend from it, while it is entered.

    Attributes:
        peaks: By process id, the most anonymous memory that was seen, in MB.
        peak_of_all: The most that all had at one look, in MB.
    """

    def __init__(self, pid: int) -> None:
        self.peaks: dict[int, float] = {}
        self.peak_of_all = 0.0
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
            self.peak_of_all = max(self.peak_of_all, sum(seen.values()))
            if self._done.wait(LOOK_SECONDS):
                return


def descendants(pid: int) -> list[int]:
    """Return a process, its children, theirs and so on, as far as they run."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                with contextlib.suppress(OSError):
                    found += [int(child) for child in (task / "children").read_text().split()]
    return found


def anonymous_mb(pid: int) -> float | None:
    """Return the anonymous memory of a process in MB, None where it has ended."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    resident, from_files = int(fields[1]), int(fields[2])
    return (resident - from_files) * _PAGE_MB
