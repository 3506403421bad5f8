"""Measuring whole commands: processor time, wall time and memory, several runs, medians and spread."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """One finished command: seconds of wall and processor time, and the peak of its anonymous memory in MB."""

    wall: float
    cpu: float
    anonymous_mb: float


def machine() -> str:
    """Name the machine in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}"


def run(command: Sequence[str], *, expect: tuple[int, ...] = (0,)) -> Run:
    """Run a command to its end, its output thrown away."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0.0
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            try:
                text = Path(f"/proc/{process.pid}/status").read_text()
            except OSError:
                return
            for line in text.splitlines():
                if line.startswith("RssAnon:"):
                    peak = max(peak, int(line.split()[1]) / 1024)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    done.set()
    watcher.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in expect, (command, process.returncode)
    return Run(wall, usage.ru_utime + usage.ru_stime, peak)


def etcdfix(*arguments: str) -> list[str]:
    """The command line of a scan with this interpreter."""
    return [sys.executable, "-m", "etcdfix", "scan", *arguments]


def spread(values: Sequence[float]) -> str:
    """``median (minimum to maximum)``."""
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
