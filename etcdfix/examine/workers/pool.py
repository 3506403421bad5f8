"""Worker processes, and their answers in the order of the work.

What a worker could not do is yielded without an answer, for this process to do: nothing that is given to
:meth:`WorkerPool.run` is missing, whatever becomes of the workers. A worker has one piece at a time, and whoever is
ahead of the others waits, so that memory stays flat and neither side waits for the other to read.

Pieces and answers are bytes, and go through pipes. An exception of a worker may hold what was decrypted, so only that
there was one is told.
"""

from __future__ import annotations

import ctypes
import fcntl
import multiprocessing
import os
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

_AHEAD: Final = 4
"""Pieces for each worker that were given out, and not yielded yet."""

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
                    self._workers[ours] = worker
        except OSError:
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
        busy: dict[Connection, _Piece[W]] = {}
        idle = deque(self._workers)
        most = max(1, _AHEAD * len(idle))
        rest, more = iter(work), True
        failure: EtcdfixError | KeyboardInterrupt | None = None
        until: float | None = None
        try:
            while more or pieces:
                if more and len(pieces) < most and (idle or not busy):
                    try:
                        pieces.append(_Piece(next(rest)))
                    except StopIteration:
                        more = False
                    except (EtcdfixError, KeyboardInterrupt) as exc:
                        more, failure = False, exc
                        if isinstance(exc, KeyboardInterrupt):
                            until = time.monotonic() + _AFTER_THE_END_SECONDS
                    else:
                        self._give(pieces[-1], frame, idle, busy)
                elif pieces[0].answered:
                    piece = pieces.popleft()
                    yield piece.work, piece.answer
                    continue
                elif not self._wait(busy, idle, until):
                    break
                self._wait(busy, idle, 0)
        except BaseException:  # GeneratorExit too
            self.close()
            raise
        if failure is not None:
            self.close()
            raise failure

    def _give(
        self,
        piece: _Piece[W],
        frame: Callable[[W], bytes],
        idle: deque[Connection],
        busy: dict[Connection, _Piece[W]],
    ) -> None:
        while idle:
            connection = idle.popleft()
            try:
                connection.send_bytes(frame(piece.work))
            except OSError:
                self._lose(connection, "before it was given a page")
            else:
                busy[connection] = piece
                return
        piece.settle(None)

    def _wait(self, busy: dict[Connection, _Piece[W]], idle: deque[Connection], until: float | None) -> bool:
        """Take answers that are there, or the next one; say whether one came by then."""
        seconds = None if until is None else max(0.0, until - time.monotonic())
        came = [one for one in wait([*busy], seconds) if isinstance(one, Connection)] if busy else []
        for connection in came:
            piece = busy.pop(connection)
            try:
                answer = connection.recv_bytes()
            except (OSError, EOFError):
                self._lose(connection, "over a page, which the main process examined")
                piece.settle(None)
            else:
                piece.settle(answer[1:] if answer[:1] == _DONE else None)
                idle.append(connection)
        return bool(came)

    def _lose(self, connection: Connection, over: str) -> None:
        worker = self._workers.pop(connection)
        worker.kill()
        worker.join(_DEATH_SECONDS)
        connection.close()
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
    """Have workers hear no signal until they ignore it, and import nothing but what this process imports.

    A new interpreter looks into the current directory first, and runs the program of its parent once more: neither is
    wanted.
    """
    main = sys.modules["__main__"]
    named = {name: getattr(main, name, None) for name in ("__file__", "__spec__")}
    before = os.environ.get("PYTHONSAFEPATH")
    with interruptions_held():
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            os.environ["PYTHONSAFEPATH"] = "1"
            main.__dict__.update(dict.fromkeys(named))
            yield
        finally:
            main.__dict__.update(named)
            if before is None:
                del os.environ["PYTHONSAFEPATH"]
            else:
                os.environ["PYTHONSAFEPATH"] = before
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
