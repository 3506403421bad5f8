"""Rows of a document that may have very many: read again each time they are asked for, never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TypeVar, overload

V_co = TypeVar("V_co", covariant=True)


class Rows(Sequence[V_co]):
    """A sequence that holds none of its rows.

    Args:
        count: How many there are.
        read: Yields them from the first on; called anew for each look.
    """

    def __init__(self, count: int, read: Callable[[], Iterator[V_co]]) -> None:
        self._count = count
        self._read = read

    def __len__(self) -> int:
        """Return how many there are."""
        return self._count

    def __iter__(self) -> Iterator[V_co]:
        """Yield them in their order."""
        return self._read()

    def __eq__(self, other: object) -> bool:
        """Say whether another sequence has the same rows."""
        if not isinstance(other, Sequence) or len(other) != self._count:
            return NotImplemented
        return all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, index: int) -> V_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[V_co]: ...
    def __getitem__(self, index: int | slice) -> V_co | Sequence[V_co]:
        """Return one row, or those of a slice that goes forward: all before them are read."""
        if isinstance(index, slice):
            return list(islice(self._read(), *index.indices(self._count)))
        return next(islice(self._read(), range(self._count)[index], None))
