"""A bounded walk over bbolt's B+trees that survives what it finds.

Nothing in the file is believed before it is checked: a page is read only inside the file and below the
high-water mark, under its own id, once per walk and not below :data:`MAX_DEPTH`; an element only inside its
page. So a walk ends after at most as many steps as the file has pages, whatever the file says. Damage below
one child is handed to a callback as an exception *value*, that subtree is skipped, and the walk goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from etcdfix.sources.bbolt.page import (
    BRANCH_ELEMENT,
    BRANCH_PAGE,
    BUCKET_ELEMENT,
    BUCKET_VALUE,
    ELEMENT_SIZE,
    HEADER_SIZE,
    LEAF_ELEMENT,
    LEAF_PAGE,
    PAGE_HEADER,
    Image,
    Meta,
    PageHeader,
    page_corrupt,
    parse_page_header,
)
from etcdfix.sources.errors import PageCorrupt

MAX_DEPTH = 64
"""bbolt keeps at least two keys per branch page, so 2**64 leaves would be needed to get this deep."""


class Page(msgspec.Struct, frozen=True, gc=False):
    """A branch or leaf page whose header was checked.

    Attributes:
        page_id: Its id; for an inline page, the id of the leaf page that holds it.
        offset: Byte in the file at which its 16-byte header starts.
        end: Byte just past its last one, overflow pages included, but never past the end of the file.
        overflow: Number of further pages that belong to it.
    """

    page_id: int
    offset: int
    end: int
    count: int
    is_leaf: bool
    overflow: int


class Entry(NamedTuple):
    """One checked element of a leaf page, as places in the file.

    Attributes:
        flags: 1 for a nested bucket.
        offset: Where the 16-byte element stands.
        value_start: First byte of the value, just past the key.
        value_end: Just past the value.
    """

    flags: int
    offset: int
    key_start: int
    value_start: int
    value_end: int


class BranchEntry(NamedTuple):
    """One element of a branch page: the child, and where its first key lies in the file.

    Attributes:
        child_id: Page id, not checked yet.
        key_end: Just past the key.
        inside: Whether the key lies inside the page, so that it can be read.
    """

    child_id: int
    key_start: int
    key_end: int
    inside: bool


class Bucket(NamedTuple):
    """Where a bucket's tree starts: at page ``root``, or at an inline page."""

    name: bytes
    root: int
    inline: Page | None


class Tree:
    """The pages of one database at one transaction.

    Args:
        image: The file, mapped or in memory.
        size: How many of its bytes are database pages (a snapshot's trailer is not).
        meta: The meta page to believe.
        on_damage: Called with each contradiction that was met and walked around.
    """

    def __init__(
        self, image: Image, *, size: int, meta: Meta, on_damage: Callable[[PageCorrupt], None]
    ) -> None:
        self.image = image
        self.size = size
        self.meta = meta
        self.page_size = meta.page_size
        self._on_damage = on_damage
        # A hostile high-water mark must not size anything: the file itself bounds the page ids.
        self.page_limit = min(meta.high_water, -(-size // meta.page_size))
        self.root = Bucket(b"", meta.root, None)

    def page(self, page_id: int) -> Page:
        """Check a page's header and say where the page lies.

        Raises:
            PageCorrupt: Id out of range, another page stands there, wrong type, or impossible overflow or count.
        """
        offset = page_id * self.page_size
        if page_id < 2 or page_id >= self.meta.high_water:
            raise page_corrupt(
                page_id,
                f"referenced, but the pages of this database are 2 to {self.meta.high_water - 1}",
            )
        if offset + HEADER_SIZE > self.size:
            raise page_corrupt(page_id, f"starts at byte {offset}, the file's pages end at byte {self.size}")
        header = parse_page_header(self.image, offset=offset, page_id=page_id)
        if header.flags not in (BRANCH_PAGE, LEAF_PAGE):
            raise page_corrupt(
                page_id,
                f"flags {header.flags:#06x} at byte {offset + 8}, expected a branch (1) or leaf (2)",
            )
        if page_id + header.overflow >= self.meta.high_water:
            raise page_corrupt(
                page_id,
                f"{header.overflow} overflow pages reach past the high-water mark {self.meta.high_water}",
            )
        end = offset + (header.overflow + 1) * self.page_size
        if end > self.size:
            what = f"reaches to byte {end}, the file's pages end at byte {self.size}; what is there is read"
            self._on_damage(page_corrupt(page_id, what))
            end = self.size
        return self._page(header, page_id=page_id, offset=offset, end=end)

    def _page(self, header: PageHeader, *, page_id: int, offset: int, end: int) -> Page:
        is_leaf = header.flags == LEAF_PAGE
        if not is_leaf and not header.element_count:
            raise page_corrupt(page_id, "a branch page without elements")
        table_end = offset + HEADER_SIZE + header.element_count * ELEMENT_SIZE
        if table_end > end:
            raise page_corrupt(
                page_id,
                f"its table of {header.element_count} elements ends at byte {table_end}, past {end}",
            )
        return Page(page_id, offset, end, header.element_count, is_leaf, header.overflow)

    def branch_entries(self, branch: Page) -> Iterator[BranchEntry]:
        """Yield the elements of a branch page; a key that does not lie where bbolt writes it is reported.

        bbolt writes the keys side by side behind the table (``internal/common/inode.go``, ``WriteInodeToPage``).
        So a gap means a changed number, of elements perhaps, which would hide children without a trace.
        """
        table_end = branch.offset + HEADER_SIZE + branch.count * ELEMENT_SIZE
        expected: int | None = table_end
        for index in range(branch.count):
            at = branch.offset + HEADER_SIZE + index * ELEMENT_SIZE
            pos, key_size, child_id = BRANCH_ELEMENT.unpack_from(self.image, at)
            start, end = at + pos, at + pos + key_size
            inside = start >= table_end and end <= branch.end
            if not inside or expected not in (start, None):
                should = f"start at {expected}" if expected is not None else f"lie behind byte {table_end}"
                self._on_damage(
                    page_corrupt(
                        branch.page_id,
                        f"the key of branch element {index} lies at bytes {start} to {end},"
                        f" expected to {should} and to end before {branch.end}",
                    )
                )
            expected = end if inside else None
            yield BranchEntry(child_id, start, end, inside)

    def leaves(
        self, bucket: Bucket, *, backwards: bool = False, seen: bytearray | None = None
    ) -> Iterator[Page]:
        """Yield the leaf pages of a bucket in key order, or in reverse.

        A page that is reached a second time (a cycle, or two parents) is reported and skipped. ``seen`` has a byte for
        each page, which is 1 afterwards where it was reached.
        """
        if bucket.inline is not None:
            yield bucket.inline
            return
        image, page_size = self.image, self.page_size
        whole_pages = min(self.meta.high_water, self.size // page_size)
        # One byte per page of the file: a set of ids would be twenty times larger for a big database.
        seen = bytearray(self.page_limit) if seen is None else seen
        root = self._visit(bucket.root, seen)
        if root is not None and root.is_leaf:
            yield root
        if root is None or root.is_leaf:
            return
        stack = [self._children(root, backwards=backwards)]
        while stack:
            for page_id, first_key in stack[-1]:
                # Most children are ordinary leaf pages. They are checked here, once and without calls: a scan
                # visits one for every two or three keys. Whatever is unusual takes the careful way.
                if 2 <= page_id < whole_pages:
                    offset = page_id * page_size
                    stored_id, flags, count, overflow = PAGE_HEADER.unpack_from(image, offset)
                    stop = page_id + overflow + 1
                    end = stop * page_size
                    if (
                        stored_id == page_id
                        and flags == LEAF_PAGE
                        and count
                        and stop <= whole_pages
                        and offset + HEADER_SIZE + count * ELEMENT_SIZE <= end
                        and seen.find(1, page_id, stop) < 0
                        and self._starts_with(offset, first_key)
                    ):
                        if overflow:
                            seen[page_id:stop] = b"\x01" * (overflow + 1)
                        else:
                            seen[page_id] = 1
                        yield Page(page_id, offset, end, count, True, overflow)
                        continue
                page = self._visit(page_id, seen)
                if page is None:
                    continue
                if page.count and not self._starts_with(page.offset, first_key, leaf=page.is_leaf):
                    what = "begins with another key than the page above it says, as in a copy made while etcd wrote"
                    self._on_damage(page_corrupt(page_id, what))
                if page.is_leaf and page.count:
                    yield page
                elif page.is_leaf:
                    self._on_damage(
                        page_corrupt(page_id, "a leaf page without elements, below a branch page")
                    )
                elif len(stack) < MAX_DEPTH:
                    stack.append(self._children(page, backwards=backwards))
                    break
                else:
                    self._on_damage(
                        page_corrupt(
                            page_id,
                            f"a branch page {MAX_DEPTH} levels below the root of its bucket",
                        )
                    )
            else:
                stack.pop()

    def _children(self, branch: Page, *, backwards: bool) -> Iterator[tuple[int, bytes | None]]:
        """Yield the children of a branch page: page id, and first key where it can be read.

        On the way forwards, keys that are not side by side are reported.
        """
        table = branch.offset + HEADER_SIZE
        table_end = table + branch.count * ELEMENT_SIZE
        if backwards:
            elements = list(BRANCH_ELEMENT.iter_unpack(self.image[table:table_end]))
            return ((child_id, None) for _, _, child_id in reversed(elements))
        return (
            (entry.child_id, self.image[entry.key_start : entry.key_end] if entry.inside else None)
            for entry in self.branch_entries(branch)
        )

    def _starts_with(self, offset: int, first_key: bytes | None, *, leaf: bool = True) -> bool:
        """Say whether the first key of a page is the one that the branch page above it has for it, as bbolt writes."""
        if first_key is None:
            return True
        at = offset + HEADER_SIZE
        element = (LEAF_ELEMENT if leaf else BRANCH_ELEMENT).unpack_from(self.image, at)
        pos, key_size = element[1:3] if leaf else element[:2]
        return key_size == len(first_key) and self.image[at + pos : at + pos + key_size] == first_key

    def _visit(self, page_id: int, seen: bytearray) -> Page | None:
        try:
            page = self.page(page_id)
            self.mark(page, seen)
        except PageCorrupt as damage:
            self._on_damage(damage)
            return None
        return page

    def mark(self, page: Page, seen: bytearray) -> None:
        """Mark a page and its overflow pages in ``seen``, one byte per page.

        Raises:
            PageCorrupt: One of them was marked already.
        """
        first, last = page.page_id, page.page_id + page.overflow
        again = seen.find(1, first, last + 1)
        if again >= 0:
            raise page_corrupt(
                page.page_id,
                "reached twice in one tree" + (f" (its overflow page {again})" if again != first else ""),
            )
        # The slice is cut to the map: a page may be promised by the high-water mark and missing in the file.
        stop = min(last + 1, len(seen))
        seen[first:stop] = b"\x01" * (stop - first)

    def entry(self, leaf: Page, index: int) -> Entry:
        """Check one element of a leaf page.

        Raises:
            PageCorrupt: Key or value lie outside the page, or on top of its element table.
        """
        at = leaf.offset + HEADER_SIZE + index * ELEMENT_SIZE
        flags, pos, key_size, value_size = LEAF_ELEMENT.unpack_from(self.image, at)
        start = at + pos
        end = start + key_size + value_size
        table_end = leaf.offset + HEADER_SIZE + leaf.count * ELEMENT_SIZE
        if start < table_end or end > leaf.end:
            raise page_corrupt(
                leaf.page_id,
                f"leaf element {index} lies at bytes {start} to {end},"
                f" expected inside {table_end} to {leaf.end}",
            )
        return Entry(flags, at, start, start + key_size, end)

    def entries(self, leaf: Page) -> Iterator[Entry]:
        """Yield the elements of a leaf page that lie inside it; whatever is not as bbolt writes it is reported.

        bbolt writes keys and values side by side behind the table. So a gap means a changed number, perhaps that
        of the elements. Elements that together claim more bytes than the page has must overlap; there the page is
        left, so that no page yields more bytes than it holds.
        """
        table_end = leaf.offset + HEADER_SIZE + leaf.count * ELEMENT_SIZE
        expected: int | None = table_end
        left = leaf.end - table_end
        for index in range(leaf.count):
            try:
                entry = self.entry(leaf, index)
            except PageCorrupt as damage:
                self._on_damage(damage)
                expected = None  # where the next one starts cannot be told
                continue
            if expected is not None and entry.key_start != expected:
                self._on_damage(
                    page_corrupt(
                        leaf.page_id,
                        f"leaf element {index} starts at byte {entry.key_start},"
                        f" expected at {expected}, behind the one before it",
                    )
                )
            expected = entry.value_end
            left -= entry.value_end - entry.key_start
            if left < 0:
                self._on_damage(
                    page_corrupt(
                        leaf.page_id,
                        f"up to leaf element {index} keys and values claim {-left} bytes"
                        " more than the page has, so they overlap; the rest of the page is skipped",
                    )
                )
                return
            yield entry

    def find(self, bucket: Bucket, key: bytes) -> tuple[Page, Entry] | None:
        """Look a key up by descending the tree, as bbolt's cursor does (``cursor.go``, ``seek``).

        Raises:
            PageCorrupt: A page on the way cannot be used.
        """
        page = bucket.inline if bucket.inline is not None else self.page(bucket.root)
        for _ in range(MAX_DEPTH + 1):
            if page.is_leaf:
                for entry in self.entries(page):
                    if self.image[entry.key_start : entry.value_start] == key:
                        return page, entry
                return None
            page = self.page(self._child_for(page, key))
        raise page_corrupt(
            page.page_id, f"still a branch page {MAX_DEPTH} levels below the root of its bucket"
        )

    def _child_for(self, branch: Page, key: bytes) -> int:
        """Return the last child whose first key is not greater than ``key``; the first child otherwise."""
        entries = self.branch_entries(branch)
        chosen = next(entries).child_id
        for entry in entries:
            if entry.inside and self.image[entry.key_start : entry.key_end] > key:
                break
            chosen = entry.child_id
        return chosen

    def bucket(self, name: bytes) -> Bucket | None:
        """Return a bucket of the root bucket; None where there is none of that name.

        Raises:
            PageCorrupt: Its place cannot be found, or it has no usable root.
        """
        found = self.find(self.root, name)
        return self.load_bucket(*found) if found and found[1].flags & BUCKET_ELEMENT else None

    def load_bucket(self, leaf: Page, entry: Entry) -> Bucket:
        """Read a bucket's value: its root page, or the page that lies inline behind the value's 16 bytes.

        Raises:
            PageCorrupt: Too short, or the inline page is none.

        Format:
            bbolt v1.4, ``bucket.go``, ``openBucket``, and ``internal/common/bucket.go``.
        """
        name = self.image[entry.key_start : entry.value_start]

        def corrupt(what: str) -> PageCorrupt:
            return page_corrupt(leaf.page_id, f"bucket at byte {entry.offset}: {what}")

        size = entry.value_end - entry.value_start
        if size < BUCKET_VALUE.size:
            raise corrupt(f"its value has {size} bytes, expected at least 16")
        root, _ = BUCKET_VALUE.unpack_from(self.image, entry.value_start)
        if root:
            return Bucket(name, root, None)
        offset = entry.value_start + BUCKET_VALUE.size
        if entry.value_end - offset < HEADER_SIZE:
            raise corrupt("its inline page has fewer than 16 bytes")
        header = PageHeader(*PAGE_HEADER.unpack_from(self.image, offset))
        if header.flags != LEAF_PAGE:
            raise corrupt(f"its inline page has flags {header.flags:#06x}, expected a leaf (2)")
        return Bucket(name, 0, self._page(header, page_id=leaf.page_id, offset=offset, end=entry.value_end))
