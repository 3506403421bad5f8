"""What the workers of a test do: the first word of each piece of work says it."""

from __future__ import annotations

import ctypes
import gc
import json
import multiprocessing
import multiprocessing.resource_tracker
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from etcdfix.examine.workers import WorkerPool

SECRET = b"c2VjcmV0LXBsYWludGV4dA"
_GET_DUMPABLE = 3


class Unlucky(Exception):
    """Its text must never be seen."""


def make(setup: bytes, descriptor: int | None) -> Callable[[bytes], bytes]:
    if setup.startswith(b"unfit"):
        raise Unlucky(setup)
    return do if descriptor is None else lambda _piece: os.pread(descriptor, 100, 0)


def do(piece: bytes) -> bytes:
    word, _, rest = piece.partition(b" ")
    match word:
        case b"sleep":
            time.sleep(float(rest.split()[0]))
        case b"pid":
            return str(os.getpid()).encode()
        case b"facts":
            return json.dumps(facts()).encode()
        case b"answer":
            return bytes(int(rest))
        case b"raise":
            raise Unlucky(rest)
        case b"exit":
            sys.exit(rest.decode())
        case b"die":
            os.kill(os.getpid(), int(rest))
        case b"stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case b"print":
            for descriptor in (1, 2):
                os.write(descriptor, rest)
            print(rest, file=sys.stderr, flush=True)
            print(rest, flush=True)
    return piece[::-1]


def facts() -> dict[str, object]:
    """What a worker is, as it sees itself."""
    heard = [n for n in (1, 2, 3, 15) if signal.getsignal(n) is not signal.SIG_IGN]
    before = os.umask(0)
    os.umask(before)
    descriptors = {}
    for path in Path("/proc/self/fd").iterdir():
        try:
            descriptors[int(path.name)] = str(path.readlink())
        except FileNotFoundError:
            continue  # the one by which we listed
    return {
        "descriptors": descriptors,
        "environment": dict(os.environ),
        "command": Path("/proc/self/cmdline").read_bytes().decode(),
        "core limit": resource.getrlimit(resource.RLIMIT_CORE),
        "dumpable": ctypes.CDLL(None).prctl(_GET_DUMPABLE, 0, 0, 0, 0),
        "heard": heard,
        "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, ())],
        "umask": before,
        "oom score": int(Path("/proc/self/oom_score_adj").read_text()),
        "paths": sys.path,
    }


def same(piece: bytes) -> bytes:
    return piece


def here(piece: bytes) -> bytes:
    """What the main process does in place of a worker."""
    return b"here " + piece


def run_all(pool: WorkerPool, pieces: Iterable[bytes]) -> list[tuple[bytes, bytes]]:
    """Return all answers; what nobody answered is done as the main process does it."""
    return [(piece, here(piece) if answer is None else answer) for piece, answer in pool.run(pieces, same)]


def process_ids() -> list[int]:
    return [worker.pid for worker in multiprocessing.active_children() if worker.pid is not None]


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that what runs inside leaves no worker, no descriptor and no thread."""
    multiprocessing.resource_tracker.ensure_running()  # it lives as long as this process
    gc.collect()  # what other tests left is not ours
    before = _left()
    yield
    gc.collect()
    after = _left()
    assert after == before, f"{after}, before {before}"


def _left() -> tuple[list[int], list[str], int]:
    descriptors = [path.name for path in Path("/proc/self/fd").iterdir() if path.exists()]
    return process_ids(), sorted(descriptors), threading.active_count()
