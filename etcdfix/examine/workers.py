"""Worker processes, and their answers in the order of the work.

What a worker could not do is yielded without an answer, for this process to do: nothing that is given to
:meth:`WorkerPool.run` is missing, whatever becomes of the workers. A worker has one piece at a time, or two small ones,
and whoever is ahead of the others waits, so that memory stays flat and neither side waits for the other to read.

Pieces and answers are bytes, and go through pipes. An exception of a worker may hold what was decrypted, so only that
there was one is told.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from etcdfix.model.errors import EtcdfixError
from etcdfix.model.interruptions import interruptions_held
from etcdfix.model.secrecy import forbid_core_dumps

W = TypeVar("W")

Make: TypeAlias = Callable[[bytes, int | None], Callable[[bytes], bytes]]
"""Makes what does the work of one worker: of its setup, and of the descriptor that it inherits."""

MOST_JOBS: Final = 64

_PROCESS_BYTES: Final = 150_000_000
_MOUNTED_AT: Final = ("sys/fs/cgroup", "sys/fs/cgroup/unified")

_AHEAD: Final = 4
"""Pieces for each worker that were given out, and not yielded yet."""
_SMALL_BYTES: Final = 32 << 10
"""A second piece for a worker is at most so large: it fits into the pipe, however long the worker does not read."""

_AFTER_THE_END_SECONDS: Final = 2.0
"""Whoever interrupts the work waits no longer for pieces that are under way: a worker may have been stopped."""
_DEATH_SECONDS: Final = 5.0
"""So long the kernel is waited for to end a worker."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""A terminal or a service manager sends them to workers too; this process ends them."""

_PR_SET_PDEATHSIG: Final = 1  # <linux/prctl.h>
_OOM_SCORE: Final = Path("/proc/self/oom_score_adj")  # proc_pid_oom_score_adj(5)
_FIRST_TO_GO: Final = "1000"
_LAST_STREAM: Final = 2
_PASSWORDS: Final = ("ETCDFIX_", "ETCDCTL_")
"""Variables with these prefixes may hold passwords."""
_DONE, _FAILED = b"\1", b"\0"
"""What an answer begins with."""


class _Piece(Generic[W]):
    """A piece of work that was not yielded yet, and its answer: None where this process has to do it."""

    def __init__(self, work: W) -> None:
        self.work = work
        self.answered = False
        self.answer: bytes | None = None

    def settle(self, answer: bytes | None) -> None:
        self.answered, self.answer = True, answer


class WorkerPool:
    """Workers that live until the pool is closed, or an iteration of :meth:`run` is left before its end.

    It must be made in the main thread. One iteration at a time.

    Args:
        jobs: How many workers; there are fewer, or none, where the system gives no more processes.
        make: A function of a module, called once in each worker.
        setup: What it is given; goes through a pipe.
        descriptor: What else it is given: a descriptor that workers inherit under another number; None for none.

    Attributes:
        lost: A sentence for each worker that ended too early.
    """

    def __init__(self, jobs: int, make: Make, setup: bytes, descriptor: int | None = None) -> None:
        self.lost: list[str] = []
        self._workers: dict[Connection, BaseProcess] = {}
        self._given: dict[Connection, deque[_Piece[Any]]] = {}
        self._at_once = 1
        context = multiprocessing.get_context("spawn")
        try:
            with _starting(), _above_streams(descriptor) as inherited:
                for _ in range(jobs):
                    ours, theirs = context.Pipe()
                    with theirs:
                        worker = context.Process(
                            target=_work, args=(os.getpid(), theirs, make, setup, inherited), daemon=True
                        )
                        worker.start()
                    self._workers[ours], self._given[ours] = worker, deque()
        except OSError:  # no process, or no semaphore in /dev/shm
            pass
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers at once, whatever they do, and leave nothing of them; may be called again."""
        with interruptions_held(only_first=True):
            for worker in self._workers.values():
                worker.kill()
            self._given.clear()
            while self._workers:
                connection, worker = self._workers.popitem()
                worker.join(_DEATH_SECONDS)
                connection.close()

    def run(self, work: Iterable[W], frame: Callable[[W], bytes]) -> Iterator[tuple[W, bytes | None]]:
        """Yield each piece of work with its answer, in the order of the work; None where no worker has one.

        Args:
            work: Pieces. Where it ends by an error of ours, what came before is yielded first; where it is
                interrupted, what of that is done within two seconds.
            frame: Makes the bytes for a worker, when the piece is given to it.

        Raises:
            EtcdfixError: As ``work`` does, when it is the turn of that piece.
            KeyboardInterrupt: As ``work`` does, likewise; elsewhere at once.
        """
        pieces: deque[_Piece[W]] = deque()
        most = max(1, _AHEAD * len(self._workers))
        rest, more = iter(work), True
        failure: EtcdfixError | KeyboardInterrupt | None = None
        until: float | None = None
        try:
            while more or pieces:
                if more and len(pieces) < most and self._takes_more():
                    try:
                        pieces.append(_Piece(next(rest)))
                    except StopIteration:
                        more = False
                    except (EtcdfixError, KeyboardInterrupt) as exc:
                        more, failure = False, exc
                        if isinstance(exc, KeyboardInterrupt):
                            until = time.monotonic() + _AFTER_THE_END_SECONDS
                    else:
                        self._give(pieces[-1], frame)
                elif pieces[0].answered:
                    piece = pieces.popleft()
                    yield piece.work, piece.answer
                    continue
                elif not self._take_answers(until):
                    break
                self._take_answers(0)
        except BaseException:  # GeneratorExit too
            self.close()
            raise
        if failure is not None:
            self.close()
            raise failure

    def _takes_more(self) -> bool:
        return not self._given or min(map(len, self._given.values())) < self._at_once

    def _give(self, piece: _Piece[W], frame: Callable[[W], bytes]) -> None:
        """Give a piece to the worker that has least to do."""
        data = frame(piece.work)
        self._at_once = 2 if len(data) <= _SMALL_BYTES else 1
        while self._given:
            connection, given = min(self._given.items(), key=lambda item: len(item[1]))
            if len(given) >= self._at_once:
                self._take_answers(None)
                continue
            try:
                connection.send_bytes(data)
            except OSError:
                self._lose(connection, "before it was given a page")
            else:
                given.append(piece)
                return
        piece.settle(None)

    def _take_answers(self, until: float | None) -> bool:
        """Take answers that are there, or the next one; say whether one came by then."""
        seconds = None if until is None else max(0.0, until - time.monotonic())
        busy = [connection for connection, given in self._given.items() if given]
        came = [one for one in wait(busy, seconds) if isinstance(one, Connection)] if busy else []
        for connection in came:
            try:
                answer = connection.recv_bytes()
            except (OSError, EOFError):
                self._lose(connection, "over a page, which the main process examined")
            else:
                piece = self._given[connection].popleft()
                piece.settle(answer[1:] if answer[:1] == _DONE else None)
        return bool(came)

    def _lose(self, connection: Connection, over: str) -> None:
        worker = self._workers.pop(connection)
        worker.kill()
        worker.join(_DEATH_SECONDS)
        connection.close()
        for piece in self._given.pop(connection):
            piece.settle(None)
        self.lost.append(f"a worker process ended {over}")


class _Inherited:
    """A descriptor on its way to a process that is being started."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _detach, (DupFd(self._descriptor),)


def _detach(passed: Any) -> int:
    found: int = passed.detach()
    return found


@contextmanager
def _above_streams(descriptor: int | None) -> Iterator[_Inherited | None]:
    """Give a descriptor, and all that is opened from now on, numbers that no stream has: streams may be closed."""
    while (opened := os.open(os.devnull, os.O_RDWR)) <= _LAST_STREAM:
        pass
    os.close(opened)
    if descriptor is None:
        yield None
        return
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_STREAM + 1)
    try:
        yield _Inherited(other)
    finally:
        os.close(other)


@contextmanager
def _starting() -> Iterator[None]:
    """Have workers hear no signal until they ignore it, know no password, and import only what this process imports.

    A new interpreter looks into the current directory first, and runs the program of its parent once more: neither is
    wanted.
    """
    main = sys.modules["__main__"]
    named = {name: getattr(main, name, None) for name in ("__file__", "__spec__")}
    changed = {name: value for name, value in os.environ.items() if name.startswith(_PASSWORDS)}
    safe_path = os.environ.get("PYTHONSAFEPATH")
    with interruptions_held():
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            for name in changed:
                del os.environ[name]
            os.environ["PYTHONSAFEPATH"] = "1"
            main.__dict__.update(dict.fromkeys(named))
            yield
        finally:
            main.__dict__.update(named)
            del os.environ["PYTHONSAFEPATH"]
            os.environ.update(changed if safe_path is None else {**changed, "PYTHONSAFEPATH": safe_path})
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _work(parent: int, pieces: Connection, make: Make, setup: bytes, descriptor: int | None) -> None:
    """Do, in a worker, what is asked for until nobody asks any more. No exception is told in words."""
    with suppress(BaseException):
        _seclude(parent)
        do = make(setup, descriptor)
        while True:
            piece = pieces.recv_bytes()
            try:
                answer = _DONE + do(piece)
            except Exception:  # noqa: BLE001 - whatever it was, the parent does the piece, and sees it
                answer = _FAILED
            del piece  # the next one may be as large
            pieces.send_bytes(answer)
    os._exit(0)


def _seclude(parent: int) -> None:
    """Hear no signal but SIGKILL, leave no core file, let nothing but answers out, and end with the parent."""
    with suppress(OSError):
        _OOM_SCORE.write_text(_FIRST_TO_GO)  # where memory is short, rather we than an etcd beside us
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    forbid_core_dumps()
    with suppress(OSError, AttributeError):  # no prctl outside Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def room_for_jobs(*, etcd_here: bool, system: Path = Path("/")) -> int:
    """Return how many workers this machine, or the container that this process is in, has room for; at least 1.

    Args:
        etcd_here: A running etcd needs cores of this machine: at most half of them are used.
        system: Where ``proc`` and ``sys`` are.

    Format:
        Linux, ``Documentation/admin-guide/cgroup-v2.rst`` (``cpu.max``, ``memory.max``), ``scheduler/sched-bwc.rst``
        and ``admin-guide/cgroup-v1/memory.rst``. A limit of any group above holds too.
    """
    groups = list(_control_groups(system))
    processes = _available_bytes(system, groups) // _PROCESS_BYTES
    cores = _cores(groups) // (2 if etcd_here else 1)
    return max(1, min(cores, processes - 1, MOST_JOBS))  # this process is one of them


def _control_groups(system: Path) -> Iterator[Path]:
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
        with suppress(ValueError, ZeroDivisionError):  # "max": no limit
            allowed = int(quota) // int(period)
            cores = cores if int(quota) < 0 else min(cores, max(allowed, 1))
    return cores


def _available_bytes(system: Path, groups: list[Path]) -> int:
    free = re.search(r"^MemAvailable: +(\d+) kB$", _text(system / "proc/meminfo"), re.MULTILINE)
    found = [int(free[1]) << 10 if free else MOST_JOBS * 2 * _PROCESS_BYTES]
    for group in groups:
        limit = _text(group / "memory.max") or _text(group / "memory.limit_in_bytes")
        used = _text(group / "memory.current") or _text(group / "memory.usage_in_bytes")
        counts = dict(line.partition(" ")[::2] for line in _text(group / "memory.stat").splitlines())
        cached = counts.get("total_inactive_file") or counts.get("inactive_file") or 0
        with suppress(ValueError):
            found.append(int(limit) - int(used) + int(cached))
    return min(found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
