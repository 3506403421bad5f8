"""How many keys to ask for at once, and from where to where."""

from __future__ import annotations

from typing import Final

FIRST_LIMIT: Final = 500
"""Keys in the first page, before anything is known about their size."""

TARGET_BYTES: Final = 4 << 20
"""Size that later pages aim at: small enough to stay in memory several times, as gRPC, protobuf and frames have it."""

PAGES_AHEAD: Final = 8
"""Pages that the range of one request should hold. etcd counts them all for each request; too few, and a guess that is
too short comes more often, which costs a request."""

GOOD_PAGES: Final = 8
"""Pages in a row that must come through before a ceiling set by a failure is doubled."""

SMALLEST_LIMIT: Final = 100
LARGEST_LIMIT: Final = 10_000

NO_BOUND: Final = b"\0"
"""As start or end of a range."""

_WIDTH: Final = 8
"""Bytes behind those that two keys have in common that tell how far apart they are."""


class PageSize:
    """The number of keys to ask for next, learned from the pages so far."""

    def __init__(self) -> None:
        self.limit = FIRST_LIMIT
        self._ceiling = LARGEST_LIMIT
        self._good_pages = 0

    def learn(self, size_bytes: int, keys: int) -> None:
        """Take note of a page: its size and its number of keys (at least one)."""
        self._good_pages += 1
        if self._good_pages == GOOD_PAGES:
            # One huge value, or one slow moment, must not make the rest of a million keys crawl.
            self._good_pages = 0
            self._ceiling = min(self._ceiling * 2, LARGEST_LIMIT)
        mean = max(1, size_bytes // keys)
        wanted = min(max(TARGET_BYTES // mean, SMALLEST_LIMIT), LARGEST_LIMIT)
        self.limit = max(1, min(wanted, self._ceiling))

    def shrink(self, by: int = 2) -> bool:
        """Ask for a part of the page after it was too large or took too long; False when it is a single key already."""
        self._good_pages = 0
        if self.limit <= 1:
            return False
        self.limit = self._ceiling = max(1, self.limit // by)
        return True


class RangeEnd:
    """Where the range of the next request ends.

    For a request with a limit, etcd counts every key up to the end of its range: half a million for each page of a
    million keys. So a range should not go much further than its page. How far that is, is guessed from how far apart
    the keys of the last page are.

    Attributes:
        guess: Where to end the next request, never behind ``end``.
    """

    def __init__(self, end: bytes) -> None:
        self._end = end
        self.guess = end

    def learn(self, first: bytes, last: bytes, keys: int, count: int, limit: int) -> None:
        """Take note of a page behind which more follows in its range."""
        enough = limit if self.guess != self._end else 0
        if enough <= count - keys <= PAGES_AHEAD * limit:
            return  # so many are known to follow
        self.guess = self._end if keys < 2 else self._before_end(_beyond(first, last, limit / keys))

    def widen(self) -> None:
        """Guess no more until there is a full page: the last guess was too short, or something else came in between."""
        self.guess = self._end

    def _before_end(self, guess: bytes) -> bytes:
        behind = guess == NO_BOUND or (self._end != NO_BOUND and guess >= self._end)
        return self._end if behind else guess


def _beyond(first: bytes, last: bytes, pages: float) -> bytes:
    """Return a bound some pages above the last key of a page; a zero byte where there is none."""
    differ = (place for place, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1])
    common = first[: next(differ, None)]
    low, high = (int.from_bytes(key[len(common) :][:_WIDTH].ljust(_WIDTH, b"\0")) for key in (first, last))
    guess = high + int((high - low) * pages * PAGES_AHEAD) + 1
    return common + guess.to_bytes(_WIDTH) if guess >> 8 * _WIDTH == 0 else bounds_of(common)[1]


def bounds_of(prefix: bytes) -> tuple[bytes, bytes]:
    """Return the exact range ``[start, end)`` of a prefix; a zero byte stands for no bound."""
    if not prefix:
        return NO_BOUND, NO_BOUND
    stripped = prefix.rstrip(b"\xff")
    end = stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else NO_BOUND
    return prefix, end


def after(key: bytes) -> bytes:
    """Return the smallest key above ``key``."""
    return key + b"\x00"
