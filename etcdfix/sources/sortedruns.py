"""Sort more records than fit in memory: sorted runs in an unlinked temporary file, merged once.

Records collect in a list. When it is full it is sorted and written to a temporary file as one run, in blocks; at
the end the runs are merged, a block of each at a time, into a second file. If the list never fills, the one run
stays in memory, in the same blocks. What is always in memory is the first record of every block, so any range
can be found again without reading the rest.
"""

from __future__ import annotations

import io
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import IO, Final, NamedTuple

import msgspec

from etcdfix.inputs.temporary import Seal, temporary_directory, temporary_file
from etcdfix.model.errors import SourceError

MAX_RECORDS: Final = 250_000
MAX_BYTES: Final = 28 << 20
"""Limits of the list in memory. A ``bytes`` object costs 33 bytes and a pointer on top of its contents, so
both together mean about 40 MB."""

_BLOCK_BYTES: Final = 64 << 10

# A list of byte strings, read back as new objects side by side in memory: a scan in key order then touches them
# in the order in which they lie, which is measurably faster than the sorted list itself.
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class _Block(NamedTuple):
    first: bytes
    offset: int
    size: int


class SortedRecords:
    """Byte strings in order, in flat memory; duplicates are kept.

    Fill it with :meth:`extend`, call :meth:`finish` once, then read with :meth:`blocks` any number of times.

    Args:
        max_records: How many are sorted in memory at a time.
        max_bytes: How many bytes of them.
        seal: Encrypts each block of the temporary file; None for records that hold nothing decrypted.
    """

    def __init__(
        self, *, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES, seal: Seal | None = None
    ) -> None:
        self._seal = seal
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: list[bytes] = []
        self._bytes = 0
        self._count = 0
        self._runs: list[list[_Block]] = []
        self._run_file: IO[bytes] | None = None
        self._file: IO[bytes] = io.BytesIO()
        self._blocks: list[_Block] = []
        self._last: tuple[_Block, list[bytes]] | None = None

    def __len__(self) -> int:
        return self._count

    def extend(self, records: list[bytes]) -> None:
        """Add records in any order.

        Raises:
            SourceError: The temporary file cannot be written.
        """
        self._records += records
        self._count += len(records)
        self._bytes += sum(map(len, records))
        if len(self._records) >= self._max_records or self._bytes >= self._max_bytes:
            self._spill()

    def _spill(self) -> None:
        self._records.sort()
        try:
            self._run_file = self._run_file or temporary_file()
            self._runs.append(_write(self._run_file, self._records, self._seal))
        except OSError as error:
            raise _unwritable(error) from error
        self._records = []
        self._bytes = 0

    def finish(self) -> None:
        """Sort what was added; after this nothing more can be.

        Raises:
            SourceError: The temporary file cannot be written.
        """
        if self._run_file is None:
            self._records.sort()
            self._blocks = _write(self._file, self._records, self._seal)
            self._records = []
            return
        self._spill()
        try:
            self._file = temporary_file()
            for batch in _merge(self._run_file, self._runs, self._seal):
                self._blocks += _write(self._file, batch, self._seal)
            self._file.flush()
        except OSError as error:
            raise _unwritable(error) from error
        finally:
            self._run_file.close()
            self._runs = []

    def blocks(self, lower: bytes, upper: bytes | None) -> Iterator[list[bytes]]:
        """Yield the records from ``lower`` on and below ``upper`` (None: to the end), in order, in lists."""
        # The last block that starts below the bound may end inside the range.
        begin = max(bisect_left(self._blocks, (lower,)) - 1, 0)
        end = len(self._blocks) if upper is None else bisect_left(self._blocks, (upper,))
        for block in self._blocks[begin:end]:
            records = self._read(block)
            start = bisect_left(records, lower)
            stop = len(records) if upper is None else bisect_left(records, upper)
            if start < stop:
                yield records[start:stop]

    def _read(self, block: _Block) -> list[bytes]:
        # Who asks for one key after the other stays in a block for a thousand of them.
        if self._last is None or self._last[0] is not block:
            self._last = block, _read(self._file, block, self._seal)
        return self._last[1]

    def close(self) -> None:
        """Let go of memory and of the temporary file, which has no name and vanishes with it."""
        self._records = []
        self._blocks = []
        self._last = None
        self._file.close()
        if self._run_file is not None:
            self._run_file.close()


def _unwritable(error: OSError) -> SourceError:
    return SourceError(
        f"temporary file for sorting keys, in {temporary_directory()}: {error.strerror or error}",
        hint="point TMPDIR at a directory with more room",
    )


def _write(file: IO[bytes], records: list[bytes], seal: Seal | None) -> list[_Block]:
    blocks: list[_Block] = []
    step = max(1, len(records) * _BLOCK_BYTES // max(1, sum(map(len, records))))
    for start in range(0, len(records), step):
        part = records[start : start + step]
        raw = _encode(part) if seal is None else seal.close(_encode(part))
        blocks.append(_Block(part[0], file.tell(), len(raw)))
        file.write(raw)
    return blocks


def _read(file: IO[bytes], block: _Block, seal: Seal | None) -> list[bytes]:
    file.seek(block.offset)
    raw = file.read(block.size)
    return _decode(raw if seal is None else seal.open(raw))


def _merge(file: IO[bytes], runs: Iterable[list[_Block]], seal: Seal | None) -> Iterator[list[bytes]]:
    """Merge sorted runs, yielding sorted lists.

    Everything up to the smallest of the runs' last loaded records is complete in memory, so it can be cut off
    each run and sorted together: list.sort finds the runs again and merges them in C, half as long as
    ``heapq.merge`` takes to hand the records through one by one.
    """
    active = [(iter(run[1:]), _read(file, run[0], seal)) for run in runs if run]
    while active:
        bound = min(records[-1] for _, records in active)
        batch: list[bytes] = []
        remaining: list[tuple[Iterator[_Block], list[bytes]]] = []
        for blocks, records in active:
            cut = bisect_right(records, bound)
            batch += records[:cut]
            rest = records[cut:]
            if not rest:
                following = next(blocks, None)
                if following is None:
                    continue
                rest = _read(file, following, seal)
            remaining.append((blocks, rest))
        active = remaining
        batch.sort()
        yield batch
