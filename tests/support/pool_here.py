"""Workers without processes: as many makers of answers as there would be, each piece for the next of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from itertools import cycle
from typing import Self, TypeVar

W = TypeVar("W")


class PoolHere:
    """Plays :class:`etcdfix.workers.pool.WorkerPool`; pieces are answered some time before they are yielded."""

    def __init__(self, jobs: int, target: str, setup: None, *, pass_fds: Sequence[int] = ()) -> None:
        module, _, name = target.partition(":")
        self._make: Callable[[bytes], Callable[[bytes], bytes]] = getattr(import_module(module), name)
        self._jobs = jobs
        self._workers: Iterator[Callable[[bytes], bytes]] = iter(())
        self._ahead = 2 * jobs
        self.lost: list[str] = []

    def set_up(self, setup: bytes) -> None:
        self._workers = cycle([self._make(setup) for _ in range(self._jobs)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(
        self,
        work: Iterable[W],
        frame: Callable[[W], bytes],
        here: Callable[[W], bytes] | None = None,
    ) -> Iterator[tuple[W, bytes | None]]:
        """Answer each piece but every seventh, as if its worker had ended over it; this process does some too."""
        pieces: deque[tuple[W, bytes | None]] = deque()
        for number, piece in enumerate(work):
            if here is not None and number % 7 == 3:
                pieces.append((piece, here(piece)))
            else:
                pieces.append((piece, None if number % 7 == 6 else next(self._workers)(frame(piece))))
            if len(pieces) > self._ahead:
                yield pieces.popleft()
        yield from pieces
