"""Rows in an order that is known only once all are there: sorted in a temporary file where they are many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar
from weakref import finalize

import msgspec

from etcdfix.report.rows import Rows
from etcdfix.sources.sortedruns import SortedRecords

V = TypeVar("V")

_MEMORY_BYTES: Final = 4 << 20
_SIZE_BYTES: Final = 4
_LAST: Final = b"\xff"


def turn_of(text: bytes) -> bytes:
    """Return a turn that comes as these bytes do among others, and that no other such turn begins with."""
    return text.replace(b"\0", b"\0\xff") + b"\0\0"


class SortedRows(Generic[V]):
    """Takes rows in any order, and returns them in that of their turns."""

    def __init__(self, kind: type[V]) -> None:
        self._records = SortedRecords(max_bytes=_MEMORY_BYTES)
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
