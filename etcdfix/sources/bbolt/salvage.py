"""Leaf pages without their tree: what is left where the pages that lead to them are gone.

A bbolt file holds live pages and free ones side by side, and only the tree tells them apart. So what is found here may
be of an earlier transaction: a key may show an older value, or appear although it was deleted. It is a look at the
wreck, and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from etcdfix.sources.bbolt.page import (
    BRANCH_PAGE,
    HEADER_SIZE,
    LEAF_PAGE,
    PAGE_HEADER,
    Image,
    Meta,
    page_corrupt,
)
from etcdfix.sources.bbolt.tree import Bucket, Page, Tree
from etcdfix.sources.errors import PageCorrupt

WHOLE_FILE = Bucket(b"", 0, None)
"""Stands for the bucket: there is none, every leaf page of the file is looked at."""


class SalvagedTree(Tree):
    """The whole leaf pages of a database, in the order in which they lie in the file."""

    def __init__(
        self,
        image: Image,
        *,
        size: int,
        meta: Meta,
        on_damage: Callable[[PageCorrupt], None],
        wanted: Callable[[Tree, Page], bool],
    ) -> None:
        super().__init__(image, size=size, meta=meta, on_damage=on_damage)
        self._wanted = wanted

    def leaves(
        self, bucket: Bucket, *, backwards: bool = False, seen: bytearray | None = None
    ) -> Iterator[Page]:
        """Yield the leaf pages that lie in the file from their first byte to their last."""
        if bucket is not WHOLE_FILE:
            yield from super().leaves(bucket, backwards=backwards, seen=seen)
            return
        pages = range(2, self.page_limit)
        for page_id in reversed(pages) if backwards else pages:
            leaf = self._whole_leaf(page_id)
            if leaf is None or not self._wanted(self, leaf):
                continue
            other = self._page_inside(leaf)
            if other is None:
                yield leaf
                continue
            # Most likely it is free, and its overflow pages were used again: its values would be mixed with others.
            self._on_damage(
                page_corrupt(page_id, f"page {other} lies among its overflow pages; it was left out")
            )

    def _whole_leaf(self, page_id: int) -> Page | None:
        found_id, flags, count, overflow = self._header(page_id)
        end = (page_id + overflow + 1) * self.page_size
        if found_id != page_id or flags != LEAF_PAGE or not count or end > self.size:
            return None
        try:
            return self.page(page_id)
        except PageCorrupt:
            return None

    def _page_inside(self, leaf: Page) -> int | None:
        for page_id in range(leaf.page_id + 1, leaf.page_id + leaf.overflow + 1):
            found_id, flags, count, _ = self._header(page_id)
            if found_id == page_id and flags in {BRANCH_PAGE, LEAF_PAGE} and count:
                return page_id
        return None

    def _header(self, page_id: int) -> tuple[int, int, int, int]:
        offset = page_id * self.page_size
        if offset + HEADER_SIZE > self.size:
            return 0, 0, 0, 0
        found: tuple[int, int, int, int] = PAGE_HEADER.unpack_from(self.image, offset)
        return found
