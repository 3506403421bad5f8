"""Answers that came before it was their turn."""

from __future__ import annotations

import contextlib
import os
from typing import IO, Final

from etcdfix.temporary import Seal, temporary_file

_MEMORY_BYTES: Final = 4 << 20


class WaitingAnswers:
    """Answers by their numbers; those that are too many for memory stand in an unlinked temporary file, sealed.

    Attributes:
        full: There is no room any more: what comes now is kept in memory, and no more should be asked for.
    """

    def __init__(self) -> None:
        self._in_memory: dict[int, bytes] = {}
        self._memory_bytes = 0
        self._on_disk: dict[int, tuple[int, int]] = {}
        self._end = 0
        self._file: IO[bytes] | None = None
        self._seal = Seal()
        self._no_room = False

    @property
    def full(self) -> bool:
        return self._no_room and self._memory_bytes > _MEMORY_BYTES

    def __contains__(self, number: int) -> bool:
        return number in self._in_memory or number in self._on_disk

    def put(self, number: int, answer: bytes) -> None:
        """Keep an answer. Where the disk has no room, it stays in memory, and we are :attr:`full`."""
        if self._memory_bytes + len(answer) > _MEMORY_BYTES and not self._no_room:
            try:
                self._write(number, answer)
            except OSError:
                self._no_room = True
            else:
                return
        self._in_memory[number] = answer
        self._memory_bytes += len(answer)

    def take(self, number: int) -> bytes | None:
        """Return an answer that is here, and forget it; None where it cannot be read back."""
        answer = self._take(number)
        if not self._on_disk:
            self._end = 0  # what comes next is written over what was read
            self._no_room = self.full
        return answer

    def _take(self, number: int) -> bytes | None:
        if number in self._in_memory:
            answer = self._in_memory.pop(number)
            self._memory_bytes -= len(answer)
            return answer
        offset, size = self._on_disk.pop(number)
        assert self._file is not None
        try:
            return self._seal.open(os.pread(self._file.fileno(), size, offset))
        except OSError:
            return None

    def close(self) -> None:
        """Forget everything."""
        self._in_memory.clear()
        self._on_disk.clear()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def _write(self, number: int, answer: bytes) -> None:
        if self._file is None:
            self._file = temporary_file(buffering=0)
        sealed = self._seal.close(answer)
        written, rest = 0, memoryview(sealed)
        while written < len(sealed):
            written += os.pwrite(self._file.fileno(), rest[written:], self._end + written)
        self._on_disk[number] = (self._end, len(sealed))
        self._end += len(sealed)
