"""One worker, as the process that started it sees it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import etcdfix
from etcdfix.workers.frames import Frame, Kind, read_answer, write_frame

_BOOTSTRAP: Final = """
import os, sys
work = open(os.dup(0), "rb")
size = int.from_bytes(work.read(8), "little")
paths = work.read(size)
if paths and len(paths) == size:
    sys.path[:] = map(os.fsdecode, paths.split(b"\\0"))
    from etcdfix.workers.worker import main
    main(work)
"""
_PIPE_BYTES: Final = 1 << 20
DEATH_SECONDS: Final = 5.0
"""The kernel may hold a killed process that waits for a disk; nobody waits longer for it."""

_GRACE_SECONDS: Final = 1.0
_OURS: Final = ("ETCDFIX_", "ETCDCTL_")
"""Variables with passwords among them; a worker reads no options, and connects to nothing."""
_HELD: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class NoWorker(Exception):
    """Raised where the system lets no further process, pipe or thread be made."""


def death_awaited_until() -> float:
    """Return until when the death of what is killed now is waited for, by the monotonic clock."""
    return time.monotonic() + DEATH_SECONDS


class WorkerProcess:
    """A worker that runs until :meth:`end`; it ends by itself only where something is wrong, or with this process.

    It must be made in a thread that lives as long as the worker should.

    Args:
        target: Dotted name of the function that makes its function, ``package.module:make``; imported at once.
        pass_fds: Descriptors that it inherits, under the same numbers.

    Raises:
        NoWorker: There is no process to be had.
    """

    def __init__(self, target: str, pass_fds: Sequence[int]) -> None:
        self._frames: SimpleQueue[tuple[int, Kind, bytes] | None] = SimpleQueue()
        try:
            self._process = _start(pass_fds)
        except OSError as exc:
            raise NoWorker from exc
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout
        self.descriptor = self._output.fileno()
        for pipe in (self._input, self._output):
            with contextlib.suppress(OSError):  # there is a limit for each user; a smaller pipe is slower
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._sender = threading.Thread(target=self._send_all, args=(target.encode(),), daemon=True)
        try:
            self._sender.start()
        except (RuntimeError, MemoryError) as exc:
            self.end()
            raise NoWorker from exc

    def set_up(self, setup: bytes) -> None:
        """Have it make its function, once and before any work; does not wait until it has read that."""
        self._frames.put((0, Kind.SETUP, setup))

    def send(self, number: int, frame: bytes) -> None:
        """Give it a piece of work; does not wait until it has read that."""
        self._frames.put((number, Kind.WORK, frame))

    def read(self, *, by: float | None = None) -> Frame | None:
        """Return its next answer, once it is there; None where there will be none any more.

        Raises:
            TimeoutError: It did not come in time; no more can be read.
        """
        return read_answer(self.descriptor, by=by)

    def kill(self) -> None:
        """Have it end, without waiting for that."""
        self._process.kill()

    def end(self, *, by: float | None = None) -> None:
        """Kill it at once, and leave nothing of it; may be called again."""
        by = death_awaited_until() if by is None else by
        self.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0, by - time.monotonic()))
        self._frames.put(None)
        if self._sender.ident is None:
            self._input.close()
        else:
            self._sender.join(max(0, by - time.monotonic()))  # whose pipe has no reader any more
        self._output.close()

    def wait_for_its_end(self) -> int | None:
        """Give it a moment to end by itself.

        Returns:
            As :attr:`subprocess.Popen.returncode`; None where it has not ended.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_GRACE_SECONDS)
        return None

    def _send_all(self, target: bytes) -> None:
        """Send what there is, and then the end; so a worker ends, which shows, where nothing can be sent any more."""
        descriptor = self._input.fileno()
        with self._input, contextlib.suppress(OSError, MemoryError):
            paths = b"\0".join(map(os.fsencode, _import_paths()))
            os.write(descriptor, len(paths).to_bytes(8, "little") + paths)
            write_frame(descriptor, os.getpid(), Kind.TARGET, target)
            for number, kind, frame in iter(self._frames.get, None):
                write_frame(descriptor, number, kind, frame)
                del frame  # it may be large, and the next one may be long in coming


def _start(pass_fds: Sequence[int]) -> subprocess.Popen[bytes]:
    # Until it hears no signals by its own doing; the mask of this thread goes along.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter, and a program that never changes
            [sys.executable, "-I", *(["-B"] if sys.dont_write_bytecode else []), "-c", _BOOTSTRAP],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={name: value for name, value in os.environ.items() if not name.startswith(_OURS)},
            start_new_session=True,
            pass_fds=pass_fds,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _import_paths() -> list[str]:
    """Return where a worker imports from: where this process does, but never whatever directory it was started in."""
    package = str(Path(etcdfix.__file__).parents[1])
    paths = [path for path in sys.path if Path(path).is_absolute()]
    return paths if package in paths else [package, *paths]
