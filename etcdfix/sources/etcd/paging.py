"""How many keys to ask for at once, and from where to where."""

from __future__ import annotations

from typing import Final

FIRST_LIMIT: Final = 500
"""Keys in the first page, before anything is known about their size."""

TARGET_BYTES: Final = 16 << 20
"""Size that later pages aim at: large enough that etcd's counting of what remains, which it does for every
limited range, does not matter; small enough to stay in memory twice."""

GOOD_PAGES: Final = 8
"""Pages in a row that must come through before a ceiling set by a failure is doubled."""

SMALLEST_LIMIT: Final = 100
LARGEST_LIMIT: Final = 10_000


class PageSize:
    """The number of keys to ask for next, learned from the pages so far.

    Attributes:
        limit: Keys to ask for.
    """

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


def bounds_of(prefix: bytes) -> tuple[bytes, bytes]:
    """Return the exact range ``[start, end)`` of a prefix; a zero byte stands for no bound."""
    if not prefix:
        return b"\x00", b"\x00"
    stripped = prefix.rstrip(b"\xff")
    end = stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else b"\x00"
    return prefix, end


def after(key: bytes) -> bytes:
    """Return the smallest key above ``key``."""
    return key + b"\x00"
