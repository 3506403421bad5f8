"""Workers without processes: as many makers of answers as there would be, each piece for the next of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle
from typing import Self, TypeVar

from etcdfix.examine.workers import Make

W = TypeVar("W")


class PoolHere:
    """Plays :class:`etcdfix.examine.workers.WorkerPool`; pieces are answered some time before they are yielded."""

    def __init__(self, jobs: int, make: Make, setup: bytes, descriptor: int | None = None) -> None:
        self._workers = cycle([make(setup, descriptor) for _ in range(jobs)])
        self._ahead = 2 * jobs
        self.lost: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, work: Iterable[W], frame: Callable[[W], bytes]) -> Iterator[tuple[W, bytes | None]]:
        """Answer each piece but every seventh, as if its worker had ended over it."""
        pieces: deque[tuple[W, bytes | None]] = deque()
        for number, piece in enumerate(work):
            pieces.append((piece, None if number % 7 == 6 else next(self._workers)(frame(piece))))
            if len(pieces) > self._ahead:
                yield pieces.popleft()
        yield from pieces
