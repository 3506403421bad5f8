"""Pages that go from one process to another, as bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from etcdfix.model.model import StoredValue
from etcdfix.sources.bbolt.page import Image
from etcdfix.sources.mvcc import RecordPage
from etcdfix.sources.pages import Page, ValuesPage
from etcdfix.sources.rangepage import RangePage

_VALUES: Final = b"v"
_RANGE: Final = b"r"
_RECORDS: Final = b"d"

_decode = msgspec.msgpack.Decoder(list[StoredValue]).decode


def pass_on(page: Page) -> tuple[bytes, bytes]:
    """Return the kind of a page and its bytes, of which :func:`passed_on` makes it."""
    kind = _RECORDS if isinstance(page, RecordPage) else _RANGE if isinstance(page, RangePage) else _VALUES
    return kind, page.raw()


def passed_on(
    kind: bytes, raw: bytes | memoryview, image: Image, read_with_care: Callable[[int], StoredValue | None]
) -> Page:
    """Return the page that another process has passed on."""
    if kind == _RECORDS:
        return RecordPage(image, bytes(raw), read_with_care)
    return RangePage(raw) if kind == _RANGE else ValuesPage(_decode(raw))
