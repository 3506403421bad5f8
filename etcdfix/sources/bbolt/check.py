"""Integrity findings of a whole bbolt database, as values: every page, every bucket, key order, the freelist.

A scan does not need this; it walks one bucket and guards itself. This reads everything and compares it, as
``bbolt check`` does (bbolt v1.4, ``tx_check.go``), and unlike it goes on after what it finds.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from etcdfix.errors import PageCorrupt, SnapshotTruncated
from etcdfix.sources.bbolt.page import (
    BUCKET_ELEMENT,
    FREELIST_PAGE,
    HEADER_SIZE,
    NO_FREELIST,
    Image,
    Meta,
    parse_page_header,
)
from etcdfix.sources.bbolt.tree import MAX_DEPTH, Bucket, Damage, Page, Tree

MAX_NESTING = 16
"""Buckets inside buckets; etcd has none at all."""

_LARGE_FREELIST = 0xFFFF


class FindingKind(StrEnum):
    """What is wrong."""

    PAGE_CORRUPT = "page-corrupt"
    PAGE_MISSING = "page-missing"
    DOUBLE_REFERENCE = "double-reference"
    KEY_ORDER = "key-order"
    KEY_RANGE = "key-range"
    FREELIST_CORRUPT = "freelist-corrupt"
    REACHABLE_FREE = "reachable-free"
    UNREACHABLE = "unreachable"


class Finding(NamedTuple):
    """One contradiction in the file.

    Attributes:
        kind: Which rule is broken.
        page_id: The page that breaks it.
        file_offset: Byte in the file where to look.
        detail: One sentence: found against expected.
    """

    kind: FindingKind
    page_id: int
    file_offset: int
    detail: str


class _Task(NamedTuple):
    """A page to check: its keys must be at least ``low`` and below ``high`` (None: no bound)."""

    page_id: int
    low: bytes | None
    high: bytes | None
    depth: int


def check(image: Image, *, size: int, meta: Meta) -> Iterator[Finding]:
    """Yield everything that is wrong with the database of one meta page; nothing for a whole one.

    Args:
        image: The file.
        size: How many of its bytes are database pages.
        meta: The meta page to believe.

    Format:
        bbolt v1.4, ``tx_check.go`` for the rules, ``internal/freelist/shared.go`` for the freelist.
    """
    return _Check(image, size, meta).run()


class _Check:
    def __init__(self, image: Image, size: int, meta: Meta) -> None:
        self._image = image
        self._meta = meta
        self._met: list[Finding] = []
        self._tree = Tree(image, size=size, meta=meta, on_damage=self._on_damage)
        self._pages = min(meta.high_water, -(-size // meta.page_size))
        self._seen = bytearray(self._pages)

    def _on_damage(self, damage: Damage) -> None:
        if isinstance(damage, SnapshotTruncated):
            page_id = damage.size // self._meta.page_size
            self._met.append(Finding(FindingKind.PAGE_MISSING, page_id, damage.size, damage.message))
        else:
            self._met.append(
                Finding(FindingKind.PAGE_CORRUPT, damage.page_id, damage.file_offset, damage.message)
            )

    def _drain(self) -> Iterator[Finding]:
        met, self._met = self._met, []
        yield from met

    def run(self) -> Iterator[Finding]:
        free = self._freelist()
        yield from self._drain()
        buckets = [(self._tree.root, 0)]
        while buckets:
            bucket, nesting = buckets.pop()
            for child in self._bucket(bucket):
                if isinstance(child, Finding):
                    yield child
                elif nesting < MAX_NESTING:
                    buckets.append((child, nesting + 1))
        if free is not None:
            yield from self._compare(free)

    def _bucket(self, bucket: Bucket) -> Iterator[Finding | Bucket]:
        """Check one bucket's tree; yield findings, and the buckets inside it."""
        if bucket.inline is not None:
            yield from self._leaf(bucket.inline, _Task(bucket.inline.page_id, None, None, 0))
            return
        tasks = [_Task(bucket.root, None, None, 0)]
        while tasks:
            task = tasks.pop()
            page = self._visit(task)
            yield from self._drain()
            if page is None:
                continue
            if page.is_leaf:
                yield from self._leaf(page, task)
            else:
                children = self._branch(page, task)
                yield from self._drain()
                tasks += reversed(children)

    def _visit(self, task: _Task) -> Page | None:
        try:
            page = self._tree.page(task.page_id)
        except (PageCorrupt, SnapshotTruncated) as damage:
            self._on_damage(damage)
            return None
        try:
            self._tree.mark(page, self._seen)
        except PageCorrupt as damage:
            self._met.append(Finding(FindingKind.DOUBLE_REFERENCE, page.page_id, page.offset, damage.message))
            return None
        if not page.is_leaf and task.depth >= MAX_DEPTH:
            what = f"page {page.page_id}: a branch page {MAX_DEPTH} levels below the root of its bucket"
            self._met.append(Finding(FindingKind.PAGE_CORRUPT, page.page_id, page.offset, what))
            return None
        return page

    def _branch(self, page: Page, task: _Task) -> list[_Task]:
        """Check the keys of a branch page; return its children with the bounds that these keys set."""
        keys: list[bytes | None] = []
        ids: list[int] = []
        last: bytes | None = None
        for index, entry in enumerate(self._tree.branch_entries(page)):
            ids.append(entry.child_id)
            if not entry.inside:
                keys.append(None)
                continue
            key = self._image[entry.key_start : entry.key_end]
            self._compare_key(page, index, entry.key_start, key, last, task)
            keys.append(key)
            last = key
        highs = [*keys[1:], task.high]
        return [
            _Task(child_id, low, high, task.depth + 1)
            for child_id, low, high in zip(ids, keys, highs, strict=True)
        ]

    def _leaf(self, page: Page, task: _Task) -> Iterator[Finding | Bucket]:
        if not page.count and task.depth:
            what = f"page {page.page_id}: a leaf page without elements, below a branch page"
            yield Finding(FindingKind.PAGE_CORRUPT, page.page_id, page.offset + 10, what)
        last: bytes | None = None
        for index, entry in enumerate(self._tree.entries(page)):
            key = self._image[entry.key_start : entry.value_start]
            self._compare_key(page, index, entry.key_start, key, last, task)
            last = key
            if entry.flags & BUCKET_ELEMENT:
                try:
                    yield self._tree.load_bucket(page, entry)
                except PageCorrupt as damage:
                    self._on_damage(damage)
            yield from self._drain()
        yield from self._drain()

    def _compare_key(
        self, page: Page, index: int, offset: int, key: bytes, last: bytes | None, task: _Task
    ) -> None:
        where = f"page {page.page_id}: the key of element {index} at byte {offset}"
        if last is not None and key <= last:
            what = f"{where} is not above the key before it"
            self._met.append(Finding(FindingKind.KEY_ORDER, page.page_id, offset, what))
        if task.low is not None and key < task.low:
            what = f"{where} is below the key that its parent page has for this page"
            self._met.append(Finding(FindingKind.KEY_RANGE, page.page_id, offset, what))
        if task.high is not None and key >= task.high:
            what = f"{where} is not below the key that its parent page has for the next page"
            self._met.append(Finding(FindingKind.KEY_RANGE, page.page_id, offset, what))

    def _freelist(self) -> bytearray | None:
        """Read the stored freelist as one byte per page; None where none is stored, as in etcd's own files."""
        page_id = self._meta.freelist
        if page_id == NO_FREELIST:
            return None
        offset = page_id * self._meta.page_size

        def corrupt(what: str) -> None:
            what = f"freelist page {page_id}: {what}"
            where = min(offset, self._tree.size)
            self._met.append(Finding(FindingKind.FREELIST_CORRUPT, page_id, where, what))

        if not 2 <= page_id < self._pages:
            corrupt(f"the pages of this file are 2 to {self._pages - 1}")
            return None
        try:
            header = parse_page_header(self._image, offset=offset, page_id=page_id)
        except PageCorrupt as damage:
            corrupt(damage.message)
            return None
        stop = page_id + header.overflow + 1
        if header.flags != FREELIST_PAGE or stop > self._pages:
            corrupt(
                f"flags {header.flags:#06x} and {header.overflow} overflow pages, expected a freelist (16)"
            )
            return None
        self._seen[page_id:stop] = b"\x01" * (stop - page_id)
        at, count = offset + HEADER_SIZE, header.element_count
        if count == _LARGE_FREELIST:
            count = int.from_bytes(self._image[at : at + 8], "little")
            at += 8
        raw = self._image[at : at + 8 * count] if at + 8 * count <= stop * self._meta.page_size else b""
        if len(raw) != 8 * count:
            corrupt(f"{count} page ids do not fit into it")
            return None
        free = bytearray(self._pages)
        for (free_id,) in struct.iter_unpack("<Q", raw):
            if not 2 <= free_id < self._meta.high_water:
                corrupt(
                    f"lists page {free_id}, the pages of this database are 2 to {self._meta.high_water - 1}"
                )
            elif free_id < self._pages:
                if free[free_id]:
                    corrupt(f"lists page {free_id} twice")
                free[free_id] = 1
        return free

    def _compare(self, free: bytearray) -> Iterator[Finding]:
        """Compare what is free with what was reached: each page must be exactly one of the two."""
        start = 2
        while start < self._pages:
            state = (self._seen[start], free[start])
            stop = start + 1
            while stop < self._pages and (self._seen[stop], free[stop]) == state:
                stop += 1
            pages = f"page {start}" if stop == start + 1 else f"pages {start} to {stop - 1}"
            offset = start * self._meta.page_size
            if state == (1, 1):
                yield Finding(
                    FindingKind.REACHABLE_FREE, start, offset, f"{pages}: in use, and in the freelist"
                )
            elif state == (0, 0):
                what = f"{pages}: neither reached from any bucket nor in the freelist"
                yield Finding(FindingKind.UNREACHABLE, start, offset, what)
            start = stop
