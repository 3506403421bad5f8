"""Values put aside in the order in which they came, in an unlinked temporary file once they are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import IO, Generic, TypeVar

import msgspec

V = TypeVar("V")

_MEMORY_BYTES = 1 << 20
_SIZE_BYTES = 8


class Spool(Generic[V]):
    """Values in the order in which they came, in an unlinked temporary file once they are many.

    Args:
        kind: Type of the values, a ``msgspec.Struct``.
    """

    def __init__(self, kind: type[V]) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - lives as long as we
        self._encode = msgspec.msgpack.Encoder().encode
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._read_at = 0
        self._end = 0
        self._size = 0
        self.count = 0

    @property
    def on_disk(self) -> bool:
        """Whether there is more than fits into memory."""
        return self._end > _MEMORY_BYTES

    def close(self) -> None:
        """Forget everything."""
        self._file.close()

    def append(self, value: V) -> None:
        """Add a value.

        Raises:
            OSError: There is no room for it.
        """
        record = self._encode(value)
        self._file.seek(self._end)
        self._file.write(len(record).to_bytes(_SIZE_BYTES) + record)
        self._file.flush()  # a full disk shows here, and what was written of this record is written over
        self._end += _SIZE_BYTES + len(record)
        self.count += 1

    def peek(self) -> V:
        """Return the first value that has not been dropped yet; there must be one."""
        self._file.seek(self._read_at)
        self._size = int.from_bytes(self._file.read(_SIZE_BYTES))
        return self._decoder.decode(self._file.read(self._size))

    def drop(self) -> None:
        """Let go of the value that :meth:`peek` returned."""
        self._read_at += _SIZE_BYTES + self._size
        self.count -= 1

    def drain(self) -> Iterator[V]:
        """Yield the values that were not dropped yet, and drop each."""
        while self.count:
            value = self.peek()
            self.drop()
            yield value
