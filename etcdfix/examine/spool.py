"""Values set aside in the order in which they came, in an unlinked temporary file once they are many.

What goes into the file is sealed: some values hold what was decrypted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import UnionType
from typing import IO, Final, Generic, NamedTuple, TypeVar

import msgspec

from etcdfix.inputs.temporary import Seal, temporary_file
from etcdfix.text.commands import pack_command, unpack_command

V = TypeVar("V")

_MEMORY_BYTES = 1 << 20
_SIZE_BYTES: Final = 8
# A record is a few hundred bytes, and a call to the file costs as much as three of them.
_BLOCK_BYTES: Final = 1 << 16


class _InFile(NamedTuple):
    start: int
    size: int


class Spool(Generic[V]):
    """Values in the order in which they came. A signal at any moment costs at most the value that is just added.

    Args:
        kind: Type of the values: a ``msgspec.Struct``, or a union of tagged ones.
    """

    # No call stands between two assignments that belong together: a signal is heard when a call begins or ends.

    def __init__(self, kind: type[V] | UnionType) -> None:
        self._encode_into = msgspec.msgpack.Encoder(enc_hook=pack_command).encode_into
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=unpack_command)
        self._seal = Seal()
        self._file: IO[bytes] | None = None
        self._in_memory = self._in_file = 0
        # In this order: what was read and not dropped yet, blocks of whole values by number, what is no block yet.
        self._head, self._head_at = b"", 0
        self._blocks: dict[int, bytes | _InFile] = {}
        self._next_read = self._next_written = 0
        self._tail = bytearray()
        self._first: V | None = None
        self._first_end = 0
        self.count = 0

    def close(self) -> None:
        """Forget everything."""
        self._blocks.clear()
        if self._file is not None:
            self._file.close()

    def append(self, value: V) -> None:
        """Add a value.

        Raises:
            OSError: There is no room for it; those before it are kept.
        """
        tail = self._tail
        before = len(tail)
        start = before + _SIZE_BYTES
        try:
            self._encode_into(value, tail, start)
            size = (len(tail) - start).to_bytes(_SIZE_BYTES)
        except BaseException:  # a signal too: what comes behind half a value would be read as something else
            del tail[before:]
            raise
        tail[before:start] = size
        self.count += 1
        if len(tail) < _BLOCK_BYTES:
            return
        try:
            block, in_memory, in_file = self._put_away(bytes(tail))
        except OSError:
            del tail[before:]
            self.count -= 1
            raise
        self._blocks[self._next_written] = block
        self._next_written += 1
        self._in_memory, self._in_file = in_memory, in_file
        tail.clear()

    def _put_away(self, data: bytes) -> tuple[bytes | _InFile, int, int]:
        """Return a block, and how many bytes are then in memory and in the file."""
        in_memory = self._in_memory + len(data)
        if in_memory <= _MEMORY_BYTES:
            return data, in_memory, self._in_file
        if self._file is None:
            self._file = temporary_file(buffering=0)
        sealed = self._seal.close(data)
        written = 0
        while written < len(sealed):
            written += os.pwrite(self._file.fileno(), sealed[written:], self._in_file + written)
        return _InFile(self._in_file, written), self._in_memory, self._in_file + written

    def peek(self) -> V:
        """Return the first value that has not been dropped yet; there must be one."""
        if self._first is None:
            if self._head_at == len(self._head):
                self._read_block()
            start = self._head_at + _SIZE_BYTES
            end = start + int.from_bytes(self._head[self._head_at : start])
            self._first_end = end
            self._first = self._decoder.decode(self._head[start:end])
        return self._first

    def _read_block(self) -> None:
        number = self._next_read
        if number == self._next_written:
            data = bytes(self._tail)
            self._head, self._head_at = data, 0
            self._tail.clear()
            return
        block = self._blocks[number]
        if isinstance(block, _InFile):
            assert self._file is not None  # the block is in it
            data = self._seal.open(os.pread(self._file.fileno(), block.size, block.start))
        else:
            data = block
        self._head, self._head_at, self._next_read = data, 0, number + 1
        del self._blocks[number]

    def drop(self) -> None:
        """Let go of the value that :meth:`peek` returned."""
        self._head_at = self._first_end
        self._first = None
        self.count -= 1

    def drain(self) -> Iterator[V]:
        """Yield the values that were not dropped yet, and drop each."""
        while self.count:
            value = self.peek()
            self.drop()
            yield value
