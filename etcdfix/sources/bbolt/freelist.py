"""The list of free pages that a bbolt file may hold: etcd writes none since 3.4, other tools do.

Format:
    bbolt v1.4 ``internal/freelist/shared.go``, ``Read``: page ids; of 65535 and more, the first number is their count.
"""

from __future__ import annotations

import struct
from typing import Final

from etcdfix.sources.bbolt.page import BUCKET_ELEMENT, HEADER_SIZE, PAGE_HEADER
from etcdfix.sources.bbolt.tree import Tree
from etcdfix.sources.errors import PageCorrupt

_FREELIST_PAGE: Final = 0x10
_COUNT_ELSEWHERE: Final = 0xFFFF
_NO_LIST: Final = (1 << 64) - 1


def conflict(tree: Tree) -> str:
    """Return in a clause why whoever writes to the file would fail or write over pages in use; "" where none would."""
    if tree.meta.freelist == _NO_LIST:
        return ""
    offset = tree.meta.freelist * tree.page_size
    if offset + HEADER_SIZE > tree.size:
        return f"page {tree.meta.freelist}, its list of free pages, is not in it"
    found_id, flags, count, _ = PAGE_HEADER.unpack_from(tree.image, offset)
    if found_id != tree.meta.freelist or flags != _FREELIST_PAGE:
        return f"page {tree.meta.freelist} should be its list of free pages, but is not"
    start = offset + HEADER_SIZE
    raw = tree.image[start : start + count * 8]
    if count == _COUNT_ELSEWHERE:
        count = int.from_bytes(raw[:8], "little")
        raw = tree.image[start + 8 : min(start + 8 + count * 8, tree.size)]
    used = _used(tree)
    for (page_id,) in struct.iter_unpack("<Q", raw[: len(raw) // 8 * 8]):
        if not 2 <= page_id < tree.meta.high_water:
            return f"its list of free pages names page {page_id}, which it does not have"
        if page_id < len(used) and used[page_id]:
            return f"its list of free pages names page {page_id}, which is in use or named twice"
        if page_id < len(used):
            used[page_id] = 1
    return ""


def _used(tree: Tree) -> bytearray:
    """Return a byte for each page: whether a bucket reaches it; damage is told by whoever reads the bucket."""
    quiet = Tree(tree.image, size=tree.size, meta=tree.meta, on_damage=lambda _damage: None)
    used = bytearray(quiet.page_limit)
    for leaf in quiet.leaves(quiet.root, seen=used):
        for entry in quiet.entries(leaf):
            try:
                bucket = quiet.load_bucket(leaf, entry) if entry.flags & BUCKET_ELEMENT else None
            except PageCorrupt:
                continue
            if bucket is not None:
                any(False for _ in quiet.leaves(bucket, seen=used))
    return used
