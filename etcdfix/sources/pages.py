"""Values in pages: what a source has read at one time, for whoever examines many of them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, runtime_checkable

import msgspec

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue

PAGE_VALUES: Final = 1024
PAGE_BYTES: Final = 4 << 20
"""What one page holds at most, where the source itself does not decide it: so many values, and about so many bytes."""


_encode = msgspec.msgpack.Encoder().encode


@runtime_checkable
class Page(Protocol):
    """Some values side by side, in byte order of their keys. The length is that of its places; not each has a value.

    One walk over :meth:`values` at a time.
    """

    def __len__(self) -> int: ...

    @property
    def at(self) -> int:
        """The place of the value that :meth:`values` has yielded last."""
        ...

    def values(self) -> Iterator[StoredValue]:
        """Yield the values; what cannot be read becomes a problem of the source."""
        ...

    def value(self, place: int) -> StoredValue | None:
        """Return the value at a place, None where there is none, or it cannot be read."""
        ...

    def raw(self) -> bytes:
        """Return what another process makes the page of (:mod:`etcdfix.sources.passedpages`)."""
        ...


class ValuesPage:
    """A page of values that are in memory."""

    def __init__(self, values: Sequence[StoredValue]) -> None:
        self._values = values
        self._left = iter(values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def at(self) -> int:
        return len(self._values) - operator.length_hint(self._left) - 1

    def values(self) -> Iterator[StoredValue]:
        self._left = iter(self._values)
        return self._left

    def value(self, place: int) -> StoredValue | None:
        return self._values[place]

    def raw(self) -> bytes:
        return _encode(self._values)


def values_of(pages: Iterable[Page]) -> Iterator[StoredValue]:
    """Yield the values of pages, one after the other."""
    for page in pages:
        yield from page.values()


def paged(values: Iterable[StoredValue]) -> Iterator[Page]:
    """Put values together in pages; where their source fails or is interrupted, those before it come all the same."""
    page: list[StoredValue] = []
    size = 0
    try:
        for stored in values:
            page.append(stored)
            size += len(stored.value)
            if len(page) >= PAGE_VALUES or size >= PAGE_BYTES:
                yield ValuesPage(page)
                page, size = [], 0
    except (SourceError, KeyboardInterrupt):
        if page:
            yield ValuesPage(page)
        raise
    if page:
        yield ValuesPage(page)
