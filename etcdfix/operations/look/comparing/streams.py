"""Several streams of stored values in the order of their keys, walked side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from etcdfix.model import StoredValue


class Differing(NamedTuple):
    """A key that is not the same everywhere.

    Attributes:
        copies: One for each stream; None where it has no such key.
        unknown: Streams of which it cannot be told: they could not be read whole.
    """

    key: bytes
    copies: tuple[StoredValue | None, ...]
    unknown: frozenset[int]


class Walk:
    """One walk over all streams; iterate it once.

    Attributes:
        keys: How many keys were compared so far.
        unknown: How many of them could not be: a stream that is not whole does not have them, and the others agree.

    Args:
        streams: Each in byte order of the keys, each key once.
        is_whole: Says of a stream, by its number, whether a key that it did not yield is really not there.
    """

    def __init__(self, streams: Sequence[Iterator[StoredValue]], is_whole: Callable[[int], bool]) -> None:
        self.keys = 0
        self.unknown = 0
        self._streams = streams
        self._is_whole = is_whole

    def __iter__(self) -> Iterator[Differing]:
        """Yield the keys that differ, in their order."""
        streams, count = self._streams, len(self._streams)
        heads = [next(stream, None) for stream in streams]
        while True:
            first = heads[0]
            if first is not None and heads.count(first) == count:  # nearly always
                self.keys += 1
                heads = [next(stream, None) for stream in streams]
                continue
            key = min((head.key for head in heads if head is not None), default=None)
            if key is None:
                return
            self.keys += 1
            copies = tuple(head if head is not None and head.key == key else None for head in heads)
            heads = [
                next(stream, None) if copy is not None else head
                for stream, head, copy in zip(streams, heads, copies, strict=True)
            ]
            unknown = frozenset(
                at for at, copy in enumerate(copies) if copy is None and not self._is_whole(at)
            )
            if len({copy for at, copy in enumerate(copies) if at not in unknown}) > 1:
                yield Differing(key, copies, unknown)
            else:
                self.unknown += 1
