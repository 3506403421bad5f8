"""Several workers, and their answers in the order of the work.

What a worker could not do is yielded without an answer, for this process to do: nothing that is given to
:meth:`WorkerPool.run` is missing, whatever becomes of the workers. At most two pieces are under way for each, and
whoever is ahead of the others waits, so that memory stays flat.
"""

from __future__ import annotations

import contextlib
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from etcdfix.errors import EtcdfixError
from etcdfix.interruptions import interruptions_held
from etcdfix.text.words import counted
from etcdfix.workers.frames import Frame, Kind
from etcdfix.workers.process import NoWorker, WorkerProcess, death_awaited_until
from etcdfix.workers.waiting import WaitingAnswers

W = TypeVar("W")

_UNDER_WAY: Final = 2
"""Pieces that one worker has at a time: while it works on one, the next is on its way."""

_AHEAD: Final = 4
"""Pieces for each worker that may be given out before the first of them was yielded."""

_AHEAD_BYTES: Final = 16 << 20
"""Once the frames of these have so many bytes, only a worker that would stand idle is given more."""


_AFTER_THE_END_SECONDS: Final = 2.0
"""Whoever interrupts the work waits no longer for pieces that are under way: a worker may have been stopped."""


class WorkerPool:
    """Workers that live until the pool is closed, or an iteration of :meth:`run` is left before its end.

    It must be made in a thread that lives as long as it does. One iteration at a time.

    Args:
        jobs: How many workers; there are fewer, or none, where the system gives no more processes.
        target: Dotted name of a function ``make(setup: bytes) -> Callable[[bytes], bytes]``, as
            ``package.module:make``, looked up in the worker.
        setup: What ``make`` is given; goes through a pipe. None where :meth:`set_up` tells it later: the workers start
            and import meanwhile.
        pass_fds: Descriptors above 2 that the workers inherit, under the same numbers.

    Attributes:
        lost: A sentence for each worker that ended too early.
    """

    def __init__(self, jobs: int, target: str, setup: bytes | None, *, pass_fds: Sequence[int] = ()) -> None:
        self.lost: list[str] = []
        self._workers: list[WorkerProcess] = []
        self._gone_by: float | None = None
        try:
            with interruptions_held():
                for _ in range(jobs if sys.executable else 0):
                    self._workers.append(WorkerProcess(target, pass_fds))
        except NoWorker:
            pass
        except BaseException:
            self.close()
            raise
        if setup is not None:
            self.set_up(setup)

    def set_up(self, setup: bytes) -> None:
        """Tell the workers what they need to know before any work, once."""
        for worker in self._workers:
            worker.set_up(setup)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if self._workers:  # a signal came before whoever made us could see to it
            self.close()

    def close(self) -> None:
        """End all workers at once, whatever they do, and leave nothing of them.

        Those that the kernel holds are waited for together, and not after a second signal.
        """
        with interruptions_held(only_first=True):
            for worker in self._workers:
                worker.kill()
            if self._gone_by is None:
                self._gone_by = death_awaited_until()
            while self._workers:
                self._workers[-1].end(by=self._gone_by)
                self._workers.pop()

    def run(
        self,
        work: Iterable[W],
        frame: Callable[[W], bytes],
        here: Callable[[W], bytes] | None = None,
    ) -> Iterator[tuple[W, bytes | None]]:
        """Yield each piece of work with its answer, in the order of the work.

        There is none where a worker ended or failed over it, or no worker is there.

        Args:
            work: Pieces; the next is asked for once somebody can do it. Where it ends by an error of ours, what came
                before is yielded first; where it is interrupted, what of that is done within two seconds.
            frame: Makes the bytes for a worker, when the piece is given to it.
            here: Does a piece as a worker does, while all workers have enough. None where this process takes no part,
                since it waits for ``work``.

        Raises:
            EtcdfixError: As ``work`` does, when it is the turn of that piece.
            KeyboardInterrupt: As ``work`` does, likewise; elsewhere at once.
        """
        run = _Run(self._workers, self.lost, iter(work), frame, here)
        whole = False
        try:
            yield from run.answers()
            whole = True
        finally:
            run.close()
            if not whole:
                self.close()


@dataclass(eq=False)
class _Piece(Generic[W]):
    """A piece of work that was not yielded yet; one without a worker waits for none."""

    number: int
    work: W
    worker: WorkerProcess | None = None
    size: int = 0


class _Run(Generic[W]):
    def __init__(
        self,
        workers: list[WorkerProcess],
        lost: list[str],
        source: Iterator[W],
        frame: Callable[[W], bytes],
        here: Callable[[W], bytes] | None,
    ) -> None:
        self._workers = workers
        self._lost = lost
        self._source = source
        self._frame = frame
        self._here = here
        self._more = True
        self._failure: EtcdfixError | KeyboardInterrupt | None = None
        self._by: float | None = None  # once the work was interrupted
        self._count = 0
        self._pieces: deque[_Piece[W]] = deque()
        self._bytes = 0
        self._jobs = len(workers) + (here is not None)
        self._under_way: dict[WorkerProcess, deque[_Piece[W]]] = {worker: deque() for worker in workers}
        self._waiting = WaitingAnswers()
        self._selector = selectors.DefaultSelector()
        for worker in workers:
            self._selector.register(worker.descriptor, selectors.EVENT_READ, worker)

    def close(self) -> None:
        self._selector.close()
        self._waiting.close()

    def answers(self) -> Iterator[tuple[W, bytes | None]]:
        while True:
            self._receive(0)
            if self._may_give():
                self._give()
            if self._first_is_ready():
                yield self._take_first()
            elif not self._may_give():
                seconds = None if self._by is None else max(0, self._by - time.monotonic())
                if not self._pieces or seconds == 0:
                    break
                if self._here is not None and self._may_take_part():
                    self._do_one(self._here)
                else:
                    self._receive(seconds)
        if self._failure is not None:
            raise self._failure

    def _may_give(self) -> bool:
        if not self._more or self._waiting.full:
            return False
        if not self._workers:
            return not self._pieces
        return min(map(len, self._under_way.values())) < _UNDER_WAY and self._near()

    def _may_take_part(self) -> bool:
        return self._more and not self._waiting.full and self._near()

    def _near(self) -> bool:
        count = len(self._pieces)
        return count < self._jobs or (count < _AHEAD * self._jobs and self._bytes < _AHEAD_BYTES)

    def _give(self) -> None:
        piece = self._next()
        if piece is None or not self._workers:
            return
        frame = self._frame(piece.work)
        piece.size = len(frame)
        piece.worker = min(self._workers, key=lambda worker: len(self._under_way[worker]))
        self._under_way[piece.worker].append(piece)
        piece.worker.send(piece.number, frame)
        self._bytes += piece.size

    def _do_one(self, here: Callable[[W], bytes]) -> None:
        piece = self._next()
        if piece is None:
            return
        # As in a worker: whoever takes the piece in its turn, without an answer, sees what is wrong with it.
        with contextlib.suppress(Exception):
            self._waiting.put(piece.number, here(piece.work))

    def _next(self) -> _Piece[W] | None:
        try:
            work = next(self._source)
        except StopIteration:
            self._more = False
            return None
        except EtcdfixError as exc:
            self._more, self._failure = False, exc
            return None
        except KeyboardInterrupt as exc:
            self._more, self._failure = False, exc
            self._by = time.monotonic() + _AFTER_THE_END_SECONDS
            return None
        self._count += 1
        piece = _Piece(self._count, work)
        self._pieces.append(piece)
        return piece

    def _first_is_ready(self) -> bool:
        if not self._pieces:
            return False
        first = self._pieces[0]
        return first.worker is None or first.number in self._waiting

    def _take_first(self) -> tuple[W, bytes | None]:
        first = self._pieces.popleft()
        self._bytes -= first.size
        return first.work, self._waiting.take(first.number) if first.number in self._waiting else None

    def _receive(self, timeout_seconds: float | None) -> None:
        """Take answers that are there; wait for one first, for so long, or without a limit.

        Where there is no room for answers that came too early, those of others than the first stay in their pipes.
        """
        if self._waiting.full:
            first = self._pieces[0]
            if timeout_seconds != 0 and first.worker is not None:
                self._read(first.worker)
            return
        for key, _ in self._selector.select(timeout_seconds) if self._workers else ():
            self._read(key.data)

    def _read(self, worker: WorkerProcess) -> None:
        try:
            frame = worker.read(by=self._by)
        except TimeoutError:
            self._selector.unregister(worker.descriptor)
            return
        under_way = self._under_way[worker]
        if frame is None or frame.kind is Kind.UNFIT or not under_way or frame.number != under_way[0].number:
            self._give_up(worker, frame)
        elif frame.kind is Kind.FAILED:
            under_way.popleft().worker = None
        else:
            under_way.popleft()
            self._waiting.put(frame.number, frame.contents)

    def _give_up(self, worker: WorkerProcess, last: Frame | None) -> None:
        """Do the pieces of a worker in this process; another worker might end over them as well."""
        self._selector.unregister(worker.descriptor)
        how = _how_ended(worker, last)
        with interruptions_held():
            self._workers.remove(worker)
            worker.end()
        pieces = self._under_way.pop(worker)
        for piece in pieces:
            piece.worker = None
        over = f" over {counted(len(pieces), 'page')}, which the main process examined" if pieces else ""
        self._lost.append(f"a worker process {how}{over}")


def _how_ended(worker: WorkerProcess, last: Frame | None) -> str:
    if last is not None and last.kind is Kind.UNFIT:
        name = last.contents.decode("ascii", "replace")
        return f"could not begin ({name if name.isidentifier() else 'unknown error'})"
    code = worker.wait_for_its_end() if last is None else None
    if code is None:
        return "answered nonsense"
    return f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one of those for real time
        return f"signal {number}"
