"""The process that started workers ends, by its own doing or not: nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PARENT = textwrap.dedent(
    """
    import sys
    sys.path.append(sys.argv[1])
    from etcdfix.cli.ending import ending_early
    from etcdfix.model.errors import EndedEarly
    from tests.support.pieces import *
    with ending_early():
        try:
            with WorkerPool(3, make, b"") as pool:
                print(*process_ids(), flush=True)
                pieces = [b"answer 3000000"] * 20 + [b"sleep 60", *[b"answer 3000000"] * 30]
                for number, _ in enumerate(pool.run(pieces, same)):
                    if number == 19:
                        print("busy", flush=True)
        except KeyboardInterrupt as exc:
            print(EndedEarly.of(exc).reason, pool.lost)
    """
)


@contextmanager
def parent(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(Path(__file__).parents[3])],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        process_group=0,
    )
    assert process.stdout is not None
    workers = [int(word) for word in process.stdout.readline().split()]
    try:
        assert len(workers) == 3
        assert process.stdout.readline() == "busy\n"
        yield process, workers
    finally:
        process.kill()
        process.communicate()


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"  # whoever adopts it may be slow to reap


def test_killed(tmp_path: Path) -> None:
    with parent(tmp_path) as (process, workers):
        process.kill()
        wait_until_gone([process.pid, *workers])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "reason"),
    [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "ended by SIGTERM")],
)
def test_told_to_end_with_all_of_its_workers(tmp_path: Path, number: signal.Signals, reason: str) -> None:
    """As a terminal does by Ctrl-C, or a service manager with everything in a control group."""
    with parent(tmp_path) as (process, workers):
        for pid in workers:
            os.kill(pid, number)
        os.killpg(process.pid, number)
        told, _ = process.communicate(timeout=30)
        assert (told, process.returncode) == (f"{reason} []\n", 0)
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)  # reaped
    assert list(tmp_path.iterdir()) == []
