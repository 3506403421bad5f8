"""Layouts of a bbolt file: page header, meta page, branch and leaf element, bucket value.

Format:
    bbolt v1.4, ``internal/common/{page,meta,bucket,types}.go``. Numbers are in the writer's byte order, which
    is little-endian on every platform but s390x. Files written by etcd 3.0 up to 3.6 share this layout.
"""

from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from etcdfix.sources.errors import PageCorrupt

Image: TypeAlias = mmap.mmap | bytes
"""The bytes of a database file: mapped, or in memory for small ones."""

PAGE_HEADER = struct.Struct("<QHHI")
"""id, flags, count of elements, number of overflow pages that belong to this one."""

META = struct.Struct("<IIIIQQQQQQ")
"""magic, version, page size, flags, root page, root sequence, freelist page, high water, txid, checksum."""

BRANCH_ELEMENT = struct.Struct("<IIQ")
"""pos, key size, child page. ``pos`` counts from the first byte of the element itself."""

LEAF_ELEMENT = struct.Struct("<IIII")
"""flags, pos, key size, value size. ``pos`` counts from the first byte of the element itself."""

BUCKET_VALUE = struct.Struct("<QQ")
"""root page (0: an inline page follows these 16 bytes) and sequence."""

HEADER_SIZE = PAGE_HEADER.size
ELEMENT_SIZE = LEAF_ELEMENT.size

BRANCH_PAGE = 0x01
LEAF_PAGE = 0x02
BUCKET_ELEMENT = 0x01


MAGIC = 0xED0CDAED
VERSION = 2
MIN_PAGE_SIZE = 512
MAX_PAGE_SIZE = 1 << 20
"""bbolt takes the operating system's page size: 4 KiB as a rule, 64 KiB on some ARM and POWER machines."""

_META_OFFSET = HEADER_SIZE
_CHECKED_BYTES = META.size - 8
_FNV_OFFSET = 0xCBF29CE484222325
_FNV_PRIME = 0x100000001B3
_U64 = 0xFFFF_FFFF_FFFF_FFFF


class PageHeader(NamedTuple):
    """The first 16 bytes of a page."""

    page_id: int
    flags: int
    element_count: int
    overflow: int


class Meta(NamedTuple):
    """What a meta page says, once its checksum was found right.

    Attributes:
        page_id: 0 or 1: where it stands.
        page_size: Bytes per page.
        root: Page of the root bucket, whose entries are etcd's buckets.
        freelist: Page of the list of free pages; 2^64 - 1 where none is kept.
        high_water: Page ids from here on were never used.
        txid: Transaction that wrote it; the higher one is the database.
    """

    page_id: int
    page_size: int
    root: int
    freelist: int
    high_water: int
    txid: int


def page_corrupt(page_id: int, what: str) -> PageCorrupt:
    """Return the error of a page that is not as bbolt writes it."""
    return PageCorrupt(f"page {page_id}: {what}")


def fnv1a_64(data: bytes) -> int:
    """Return the 64-bit FNV-1a hash that bbolt puts behind a meta (Go ``hash/fnv``)."""
    digest = _FNV_OFFSET
    for byte in data:
        digest = ((digest ^ byte) * _FNV_PRIME) & _U64
    return digest


def parse_page_header(image: Image, *, offset: int, page_id: int) -> PageHeader:
    """Read the 16-byte header of a page.

    Raises:
        PageCorrupt: Fewer than 16 bytes left, or another page's id stands here.

    Format:
        bbolt v1.4, ``internal/common/page.go``, ``Page`` and ``FastCheck``.
    """
    raw = image[offset : offset + HEADER_SIZE]
    if len(raw) < HEADER_SIZE:
        raise page_corrupt(page_id, f"{len(raw)} bytes of a 16-byte page header at byte {offset}")
    header = PageHeader(*PAGE_HEADER.unpack(raw))
    if header.page_id != page_id:
        raise page_corrupt(page_id, f"the header at byte {offset} says page {header.page_id}")
    return header


def parse_meta(image: Image, *, offset: int, page_id: int) -> Meta:
    """Read a meta page and prove it by its checksum.

    Raises:
        PageCorrupt: Too short, wrong magic, version or checksum, or numbers that cannot be.

    Format:
        bbolt v1.4, ``internal/common/meta.go``: the checksum is FNV-1a over the 56 bytes before it.
    """
    at = offset + _META_OFFSET
    raw = image[at : at + META.size]

    def corrupt(what: str) -> PageCorrupt:
        return PageCorrupt(f"meta page {page_id} at byte {offset}: {what}")

    if len(raw) < META.size:
        raise corrupt(f"{len(raw)} of {META.size} bytes are there")
    magic, version, page_size, _, root, _, freelist, high_water, txid, checksum = META.unpack(raw)
    if magic != MAGIC:
        if raw[:4] == MAGIC.to_bytes(4, "big"):
            raise corrupt("written on a big-endian machine, which etcdfix does not read")
        raise corrupt(f"magic {magic:#010x}, expected {MAGIC:#010x}")
    computed = fnv1a_64(raw[:_CHECKED_BYTES])
    if computed != checksum:
        raise corrupt(f"checksum {checksum:#018x}, its bytes give {computed:#018x}")
    if version != VERSION:
        raise corrupt(f"format version {version}, expected {VERSION}")
    if not MIN_PAGE_SIZE <= page_size <= MAX_PAGE_SIZE or page_size & (page_size - 1):
        raise corrupt(
            f"page size {page_size}, expected a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}"
        )
    if not root < high_water:
        raise corrupt(f"root page {root} is not below the high-water mark {high_water}")
    return Meta(page_id, page_size, root, freelist, high_water, txid)


def read_metas(image: Image) -> tuple[list[Meta], str]:
    """Read both meta pages.

    The second one stands one page in; where the first is damaged its place is not known, and each possible
    page size is tried, as bbolt does (``db.go``, ``getPageSizeFromSecondMeta``).

    Returns:
        The valid ones, the database's own (higher transaction) first; and what is wrong with the other, or "".
    """
    try:
        first = parse_meta(image, offset=0, page_id=0)
    except PageCorrupt as damage:
        sizes = (MIN_PAGE_SIZE << shift for shift in range((MAX_PAGE_SIZE // MIN_PAGE_SIZE).bit_length()))
        for size in sizes:
            with suppress(PageCorrupt):
                second = parse_meta(image, offset=size, page_id=1)
                if second.page_size == size:
                    return [second], damage.message
        return [], damage.message
    try:
        second = parse_meta(image, offset=first.page_size, page_id=1)
    except PageCorrupt as damage:
        return [first], damage.message
    if second.page_size != first.page_size:
        sizes_differ = f"page size {second.page_size}, meta page 0 says {first.page_size}"
        return [first], f"meta page 1 at byte {first.page_size}: {sizes_differ}"
    return sorted((first, second), key=lambda meta: meta.txid, reverse=True), ""
