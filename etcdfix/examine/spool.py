"""Values put aside in the order in which they came, in an unlinked temporary file once they are many.

They are written in sealed blocks, each behind its size: some hold what was decrypted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import UnionType
from typing import IO, Final, Generic, TypeVar

import msgspec

from etcdfix.inputs.temporary import Seal, temporary_file
from etcdfix.text.commands import pack_command, unpack_command

V = TypeVar("V")

_MEMORY_BYTES = 1 << 20
_SIZE_BYTES: Final = 8
# A record is a few hundred bytes, and a call to the file costs as much as three of them.
_WRITTEN_BYTES: Final = 1 << 16


class Spool(Generic[V]):
    """Values in the order in which they came, sealed in an unlinked temporary file once they are many.

    Args:
        kind: Type of the values: a ``msgspec.Struct``, or a union of tagged ones.
    """

    def __init__(self, kind: type[V] | UnionType) -> None:
        self._memory = bytearray()
        self._seal = Seal()
        self._file: IO[bytes] | None = None  # instead of the memory, once there is too much for that
        self._encode_into = msgspec.msgpack.Encoder(enc_hook=pack_command).encode_into
        self._decoder = msgspec.msgpack.Decoder(kind, dec_hook=unpack_command)
        # In this order: what was read and not dropped yet, what the file holds, what is not written yet.
        self._head = b""
        self._head_at = 0
        self._read_at = 0
        self._end = 0
        self._tail = bytearray()
        self._first: V | None = None
        self._first_end = 0
        self.count = 0

    @property
    def on_disk(self) -> bool:
        """Whether there is more than fits into memory."""
        return self._end + len(self._tail) > _MEMORY_BYTES

    def close(self) -> None:
        """Forget everything."""
        self._memory.clear()
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
        if len(tail) >= _WRITTEN_BYTES:
            try:
                end = self._write()
            except OSError:  # a part that was written is written over
                del tail[before:]
                self.count -= 1
                raise
            self._end = end
            tail.clear()

    def _write(self) -> int:
        """Write what is not written yet, and return where it ends.

        Where there is no room for it, all that is written stays where it is.
        """
        sealed = self._seal.close(self._tail)
        block = len(sealed).to_bytes(_SIZE_BYTES) + sealed
        if self._file is None and self._end + len(block) <= _MEMORY_BYTES:
            self._memory[self._end :] = block  # after a signal it may be there already
            return self._end + len(block)
        if self._file is None:
            # What Python has for this loses what it holds where the file does not take it.
            file = temporary_file(buffering=0)
            try:
                _write_whole(file, self._memory, 0)
            except BaseException:
                file.close()
                raise
            self._file, self._memory = file, bytearray()
        _write_whole(self._file, block, self._end)
        return self._end + len(block)

    def _block(self, start: int) -> tuple[bytes, int]:
        size = int.from_bytes(self._read(start, _SIZE_BYTES))
        start += _SIZE_BYTES
        return self._seal.open(self._read(start, size)), start + size

    def _read(self, start: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[start : start + size])
        return os.pread(self._file.fileno(), size, start)

    def peek(self) -> V:
        """Return the first value that has not been dropped yet; there must be one."""
        if self._first is None:
            head, start = self._head, self._head_at + _SIZE_BYTES
            end = start + int.from_bytes(head[start - _SIZE_BYTES : start])
            if start > len(head) or end > len(head):
                start = self._have(_SIZE_BYTES) + _SIZE_BYTES
                size = int.from_bytes(self._head[start - _SIZE_BYTES : start])
                start = self._have(_SIZE_BYTES + size) + _SIZE_BYTES
                head, end = self._head, start + size
            self._first_end = end
            self._first = self._decoder.decode(head[start:end])
        return self._first

    def _have(self, size: int) -> int:
        """Read until so many bytes of the first value are there; return where it begins among what was read."""
        left = len(self._head) - self._head_at
        if left >= size:
            return self._head_at
        parts, read_at = [self._head[self._head_at :]], self._read_at
        while left < size and read_at < self._end:
            part, read_at = self._block(read_at)
            parts.append(part)
            left += len(part)
        if left < size:
            parts.append(bytes(self._tail))
        # All at once: a signal must not come between what was read and where to go on.
        self._head, self._head_at, self._read_at = b"".join(parts), 0, read_at
        if left < size:
            self._tail.clear()
        return 0

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


def _write_whole(file: IO[bytes], data: bytes | bytearray, offset: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(file.fileno(), data[written:], offset + written)
