"""What the workers of a test do: the first word of each piece of work says it."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from etcdfix.workers.frames import HEADER, Kind
from etcdfix.workers.pool import WorkerPool

TARGET = "tests.support.pieces:make"
SECRET = b"c2VjcmV0LXBsYWludGV4dA"
_GET_DUMPABLE = 3


class Unlucky(Exception):
    """Its text must never be seen."""


def make(setup: bytes) -> Callable[[bytes], bytes]:
    if setup.startswith(b"unfit"):
        raise Unlucky(setup)
    return do


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
        case b"cut":
            _begin_an_answer()
        case b"print":
            for descriptor in (1, 2):
                os.write(descriptor, rest)
            print(rest, file=sys.stderr, flush=True)
            print(rest, flush=True)
    return piece[::-1]


def _begin_an_answer() -> None:
    """Stop in the middle of an answer, some time later."""
    time.sleep(0.5)
    answers = next(
        int(path.name)
        for path in Path("/proc/self/fd").iterdir()
        if int(path.name) > 2 and fcntl.fcntl(int(path.name), fcntl.F_GETFL) & os.O_WRONLY
    )
    os.write(answers, HEADER.pack(3, 100, Kind.ANSWER) + b"a")
    os.kill(os.getpid(), signal.SIGSTOP)


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
        "directory": str(Path.cwd()),
        "leads its session": os.getsid(0) == os.getpid(),
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


def process_ids(pool: WorkerPool) -> list[int]:
    return [worker._process.pid for worker in pool._workers]


@contextmanager
def nothing_left() -> Iterator[None]:
    """See that what runs inside leaves no process, no descriptor and no thread."""
    gc.collect()  # what other tests left is not ours
    before = _left()
    yield
    after = _left()
    assert after == before, f"{after}, before {before}"


def _left() -> tuple[list[str], list[str], int]:
    own = os.getpid()
    children = [line for task in Path(f"/proc/{own}/task").iterdir() for line in _words(task / "children")]
    descriptors = [path.name for path in Path("/proc/self/fd").iterdir() if path.exists()]
    return sorted(children), sorted(descriptors), threading.active_count()


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
