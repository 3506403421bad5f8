"""Sort more records than fit in memory: sorted runs in an unlinked temporary file, merged once.

The records of a small source stay in one list. Beyond a limit each full list is sorted and written to a
temporary file as one run; the runs are then merged, a block of each at a time, into a second file. What stays
in memory is the first record of every block, so any range can be found again without reading the rest.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec

from etcdfix.errors import SourceError

MAX_RECORDS = 150_000
MAX_BYTES = 20 << 20
"""Limits of the list in memory. A ``bytes`` object costs 33 bytes and a pointer on top of its contents, so
both together mean about 35 MB."""

_RUN_BLOCK_BYTES = 32 << 10
_MERGED_BLOCK_BYTES = 128 << 10
_MERGED_BATCH = 1000

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


class _Block(NamedTuple):
    first: bytes
    offset: int
    size: int


class SortedRecords:
    """Byte strings in order, in flat memory; duplicates are kept.

    Fill it with :meth:`extend`, call :meth:`finish` once, then read ranges with :meth:`blocks` any number of times.
    """

    def __init__(self, *, max_records: int = MAX_RECORDS, max_bytes: int = MAX_BYTES) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: list[bytes] = []
        self._bytes = 0
        self._count = 0
        self._file: IO[bytes] | None = None
        self._runs: list[list[_Block]] = []
        self._index: list[_Block] = []

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

    def finish(self) -> None:
        """Sort what was added; after this nothing more can be.

        Raises:
            SourceError: The temporary file cannot be written.
        """
        if not self._runs:
            self._records.sort()
            return
        self._spill()
        runs, self._runs = self._runs, []
        source = self._file
        assert source is not None
        self._file = _temporary_file()
        try:
            pending: list[bytes] = []
            for batch in _merge(source, runs):
                pending += batch
                if len(pending) >= _MERGED_BATCH:
                    self._index += _write_blocks(self._file, pending, _MERGED_BLOCK_BYTES)
                    pending = []
            self._index += _write_blocks(self._file, pending, _MERGED_BLOCK_BYTES)
            self._file.flush()
        except OSError as error:
            raise _no_space(error) from error
        finally:
            source.close()

    def _spill(self) -> None:
        if not self._records:
            return
        self._records.sort()
        if self._file is None:
            self._file = _temporary_file()
        try:
            self._runs.append(_write_blocks(self._file, self._records, _RUN_BLOCK_BYTES))
        except OSError as error:
            raise _no_space(error) from error
        self._records = []
        self._bytes = 0

    def blocks(self, lower: bytes, upper: bytes | None) -> Iterator[list[bytes]]:
        """Yield the records from ``lower`` on and below ``upper`` (None: to the end), in order, in lists."""
        if self._file is None:
            stop = len(self._records) if upper is None else bisect_left(self._records, upper)
            yield self._records[bisect_left(self._records, lower) : stop]
            return
        firsts = self._index
        # The block before the first one that starts at or above the bound may still end inside the range.
        at = max(bisect_left(firsts, lower, key=lambda block: block.first) - 1, 0)
        for block in firsts[at:]:
            if upper is not None and block.first >= upper:
                return
            records = _read_block(self._file, block)
            start = bisect_left(records, lower)
            stop = len(records) if upper is None else bisect_left(records, upper)
            if start < stop:
                yield records[start:stop]

    def close(self) -> None:
        """Let go of memory and of the temporary file, which has no name and vanishes with it."""
        self._records = []
        self._index = []
        self._runs = []
        if self._file is not None:
            self._file.close()
            self._file = None


def _temporary_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile(prefix="etcdfix-")  # noqa: SIM115 - lives as long as its owner
    except OSError as error:
        raise _no_space(error) from error


def _no_space(error: OSError) -> SourceError:
    return SourceError(
        f"temporary file for sorting in {tempfile.gettempdir()}: {error.strerror or error}",
        hint="point TMPDIR at a directory with more room",
    )


def _write_blocks(file: IO[bytes], records: list[bytes], size: int) -> list[_Block]:
    """Write a sorted list in blocks of about ``size`` bytes each."""
    blocks: list[_Block] = []
    step = max(1, len(records) * size // max(1, sum(map(len, records))))
    for start in range(0, len(records), step):
        part = records[start : start + step]
        raw = _encode(part)
        blocks.append(_Block(part[0], file.tell(), len(raw)))
        file.write(raw)
    return blocks


def _read_block(file: IO[bytes], block: _Block) -> list[bytes]:
    file.seek(block.offset)
    return _decode(file.read(block.size))


def _merge(file: IO[bytes], runs: list[list[_Block]]) -> Iterator[list[bytes]]:
    """Merge sorted runs, yielding sorted lists.

    Everything up to the smallest of the runs' last loaded records is complete in memory, so it can be cut off
    each run and sorted together: list.sort finds the runs again and merges them in C, about twice as fast as
    ``heapq.merge`` hands records through one by one.
    """
    active: list[tuple[Iterator[_Block], list[bytes]]] = []
    for run in runs:
        blocks = iter(run)
        active.append((blocks, _read_block(file, next(blocks))))
    while active:
        bound = min(records[-1] for _, records in active)
        batch: list[bytes] = []
        remaining: list[tuple[Iterator[_Block], list[bytes]]] = []
        for blocks, records in active:
            cut = bisect_right(records, bound)
            batch += records[:cut]
            records = records[cut:]
            if not records:
                following = next(blocks, None)
                if following is None:
                    continue
                records = _read_block(file, following)
            remaining.append((blocks, records))
        active = remaining
        batch.sort()
        yield batch
