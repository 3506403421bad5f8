from __future__ import annotations

import struct

import pytest

from etcdfix.errors import PageCorrupt
from etcdfix.sources.bbolt.page import MAX_PAGE_SIZE, parse_meta, parse_page_header, read_metas
from tests.support.bbolt_writer import database, fnv


def meta_page(
    *,
    page_id: int,
    page_size: int = 4096,
    root: int = 3,
    high_water: int = 4,
    txid: int = 7,
    version: int = 2,
) -> bytes:
    checked = struct.pack(
        "<IIIIQQQQQ", 0xED0CDAED, version, page_size, 0, root, 0, 2**64 - 1, high_water, txid
    )
    return struct.pack("<QHHI", page_id, 4, 0, 0) + checked + struct.pack("<Q", fnv(checked))


def test_cut_header_is_refused() -> None:
    with pytest.raises(PageCorrupt, match="15 bytes of a 16-byte page header at byte 4"):
        parse_page_header(bytes(19), offset=4, page_id=0)


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (meta_page(page_id=0)[:79], "63 of 64 bytes are there"),
        (bytes(80), "magic 0x00000000, expected 0xed0cdaed"),
        (bytes(16) + b"\xed\x0c\xda\xed" + bytes(60), "big-endian"),
        (meta_page(page_id=0, version=3), "format version 3, expected 2"),
        (meta_page(page_id=0, page_size=256), "page size 256"),
        (meta_page(page_id=0, page_size=5000), "page size 5000"),
        (meta_page(page_id=0, page_size=MAX_PAGE_SIZE * 2), "page size 2097152"),
        (meta_page(page_id=0, root=4), "root page 4 is not below the high-water mark 4"),
    ],
)
def test_impossible_meta_is_refused(page: bytes, message: str) -> None:
    with pytest.raises(PageCorrupt, match=message):
        parse_meta(page, offset=0, page_id=0)


@pytest.mark.parametrize("at", range(16, 72))
def test_every_checked_byte_of_a_meta_counts(at: int) -> None:
    page = bytearray(meta_page(page_id=0))
    page[at] ^= 1
    with pytest.raises(PageCorrupt):
        parse_meta(bytes(page), offset=0, page_id=0)


@pytest.mark.parametrize("txid", [10, 11])
def test_newer_meta_comes_first_on_either_page(txid: int) -> None:
    metas, damages = read_metas(database(txid=txid))

    assert [meta.txid for meta in metas] == [txid, txid - 1]
    assert metas[0].page_id == txid % 2
    assert damages == []


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 16384, 65536])
def test_second_meta_is_found_at_any_page_size_when_the_first_is_damaged(page_size: int) -> None:
    image = b"\0" * 100 + database(page_size=page_size)[100:]
    image = image[:16] + b"\xff" * 64 + image[80:]

    metas, damages = read_metas(image)

    assert [(meta.page_id, meta.page_size) for meta in metas] == [(1, page_size)]
    assert [damage.page_id for damage in damages] == [0]


def test_first_meta_is_enough_when_the_second_is_damaged() -> None:
    image = bytearray(database())
    image[4096 + 40] ^= 0xFF

    metas, damages = read_metas(bytes(image))

    assert [meta.page_id for meta in metas] == [0]
    assert [(damage.page_id, damage.file_offset) for damage in damages] == [(1, 4096)]


def test_metas_that_disagree_on_the_page_size_do_not_count_as_two() -> None:
    image = meta_page(page_id=0).ljust(4096, b"\0") + meta_page(page_id=1, page_size=8192)

    metas, damages = read_metas(image)

    assert [meta.page_id for meta in metas] == [0]
    assert "page size 8192, meta page 0 says 4096" in damages[0].message


def test_second_meta_that_stands_elsewhere_than_it_says_is_not_believed() -> None:
    image = bytes(2048) + meta_page(page_id=1, page_size=4096)

    assert read_metas(image)[0] == []
