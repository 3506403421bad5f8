"""Values in pages: what a source has read at one time, to be examined here or in another process."""

from __future__ import annotations

import operator
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final

import msgspec

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.sources.bbolt.page import LEAF_ELEMENT, Image
from etcdfix.sources.keyvalue import parse_key_value, stored_of
from etcdfix.wire.etcd import RANGE, message

PAGE_VALUES: Final = 1024
PAGE_BYTES: Final = 4 << 20
"""What one page holds at most, where the source itself does not decide it: so many values, and about so many bytes."""

REVISION_KEY_SIZE: Final = 17
TOMBSTONE_KEY_SIZE: Final = 18

PLACE_SIZE: Final = REVISION_KEY_SIZE + 8
"""Bytes of one place of a :class:`RecordPage`: a revision key, and where the leaf element stands in the file."""

ReadWithCare = Callable[[int], StoredValue | None]
"""Reads the record at a place of a page that is not as etcd writes nearly all; None where it cannot be read."""

_MAIN_AND_OFFSET: Final = struct.Struct(">Q9xQ")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[StoredValue]).decode


class Page(ABC):
    """Some values side by side, in byte order of their keys. The length is that of its places; not each has a value.

    One walk over :meth:`values` at a time.
    """

    kind: ClassVar[bytes]
    _left: Iterator[Any] = iter(())

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def at(self) -> int:
        """The place of the value that :meth:`values` has yielded last."""
        return len(self) - operator.length_hint(self._left) - 1

    @abstractmethod
    def values(self) -> Iterator[StoredValue]:
        """Yield the values; what cannot be read becomes a problem of the source."""

    @abstractmethod
    def value(self, place: int) -> StoredValue | None:
        """Return the value at a place, None where there is none, or it cannot be read."""

    @abstractmethod
    def raw(self) -> bytes:
        """Return the bytes from which :func:`passed_on` makes the page in another process."""


class ValuesPage(Page):
    """A page of values that are in memory."""

    kind = b"v"

    def __init__(self, values: Sequence[StoredValue]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def values(self) -> Iterator[StoredValue]:
        self._left = iter(self._values)
        return self._left

    def value(self, place: int) -> StoredValue | None:
        return self._values[place]

    def raw(self) -> bytes:
        return _encode(self._values)


class RangePage(Page):
    """The answer of a live etcd to one Range request: its bytes or its messages, hardly ever both."""

    kind = b"r"

    def __init__(self, answer: bytes | memoryview, messages: Sequence[Any] | None = None) -> None:
        self._answer = answer
        self._messages = messages
        self._count = len(self._parsed()) if messages is None else len(messages)

    def __len__(self) -> int:
        return self._count

    def values(self) -> Iterator[StoredValue]:
        messages = self._parsed()
        self._left = iter(range(self._count))
        for place in self._left:
            yield stored_of(messages[place])

    def value(self, place: int) -> StoredValue:
        return stored_of(self._parsed()[place])

    def raw(self) -> bytes:
        self._messages = None  # nearly always nobody asks for a value any more
        return bytes(self._answer)

    def _parsed(self) -> Sequence[Any]:
        if self._messages is None:
            self._messages = message(RANGE.response).FromString(self._answer).kvs
        return self._messages


class RecordPage(Page):
    """Values of a database file, as places in the file; the last bytes of index records (:mod:`.mvcc`)."""

    kind = b"d"

    def __init__(self, image: Image, packed: bytes, read_with_care: ReadWithCare) -> None:
        self.packed = packed
        self._image = image
        self._read_with_care = read_with_care

    def __len__(self) -> int:
        return len(self.packed) // PLACE_SIZE

    def values(self) -> Iterator[StoredValue]:
        """Yield the values, tombstones left out."""
        self._left = _MAIN_AND_OFFSET.iter_unpack(self.packed)
        for found in read_places(self._image, self._left):
            stored = self._read_with_care(self.at) if found is None else found
            if stored is not None:
                yield stored

    def value(self, place: int) -> StoredValue | None:
        one = _MAIN_AND_OFFSET.unpack_from(self.packed, place * PLACE_SIZE)
        stored = next(read_places(self._image, [one]), None)
        return self._read_with_care(place) if stored is None else stored

    def raw(self) -> bytes:
        return self.packed


def passed_on(kind: bytes, raw: bytes | memoryview, image: Image, read_with_care: ReadWithCare) -> Page:
    """Return the page that another process has passed on, from its kind and bytes."""
    if kind == RecordPage.kind:
        return RecordPage(image, bytes(raw), read_with_care)
    return RangePage(raw) if kind == RangePage.kind else ValuesPage(_decode(raw))


def read_places(image: Image, places: Iterable[tuple[int, int]]) -> Iterator[StoredValue | None]:
    """Yield the records of a database file, each told by main revision and leaf element, tombstones left out.

    One after the other: a thousand values may have a gigabyte.

    Yields:
        None for whatever is out of the ordinary: a :class:`RecordPage` reads those with care.
    """
    unpack_element = LEAF_ELEMENT.unpack_from
    for main, at in places:
        _, pos, key_size, value_size = unpack_element(image, at)
        if key_size == TOMBSTONE_KEY_SIZE:
            continue
        start = at + pos + key_size
        try:
            stored = parse_key_value(image[start : start + value_size])
        except ValueError:
            yield None
        else:
            yield stored if stored.mod_revision == main else None


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
