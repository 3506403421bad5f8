"""Rows of a document that may have very many: read again each time they are asked for, never all in memory.

Where their order is known only once all are there, they are sorted in a temporary file. It is sealed: some rows hold
what was decrypted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar, overload
from weakref import finalize

import msgspec

from etcdfix.inputs.temporary import Seal
from etcdfix.sources.sortedruns import SortedRecords

V_co = TypeVar("V_co", covariant=True)
V = TypeVar("V")

_MEMORY_BYTES: Final = 4 << 20
_SIZE_BYTES: Final = 4
_LAST: Final = b"\xff"


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


def turn_of(text: bytes) -> bytes:
    """Return a turn that comes as these bytes do among others, and that no other such turn begins with."""
    return text.replace(b"\0", b"\0\xff") + b"\0\0"


class SortedRows(Generic[V]):
    """Takes rows in any order, and returns them in that of their turns."""

    def __init__(self, kind: type[V]) -> None:
        self._records = SortedRecords(max_bytes=_MEMORY_BYTES, seal=Seal())
        finalize(self, self._records.close)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(kind).decode

    def add(self, turn: bytes, row: V) -> None:
        """Take one row. Its turn decides its place; no turn begins with another one.

        Raises:
            SourceError: There is no room for it.
        """
        self._records.extend([turn + self._encode(row) + len(turn).to_bytes(_SIZE_BYTES)])

    def finish(self) -> Rows[V]:
        """Return all that was added; nothing can be added after this.

        Raises:
            SourceError: There is no room for them.
        """
        self._records.finish()
        return Rows(len(self._records), self._rows)

    def of(self, turn: bytes) -> Iterator[V]:
        """Yield the rows whose turn begins with one of :func:`turn_of`; cheap in the order of turns."""
        return self._rows(turn, turn + _LAST)

    def _rows(self, lower: bytes = b"", upper: bytes | None = None) -> Iterator[V]:
        for block in self._records.blocks(lower, upper):
            for record in block:
                size = int.from_bytes(record[-_SIZE_BYTES:])
                yield self._decode(record[size:-_SIZE_BYTES])
