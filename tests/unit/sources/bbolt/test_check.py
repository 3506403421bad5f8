from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from etcdfix.sources.bbolt.check import FindingKind, check
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.bbolt.tree import MAX_DEPTH
from tests.support.bbolt_writer import BoltWriter, database, fnv

SNAPSHOTS = Path(__file__).parents[4] / "fixtures/snapshots"
ITEMS = [(b"%05d" % index, b"value" * 20) for index in range(2000)]
FREELIST = 65
BRANCH = 63  # the root of the bucket `key`, behind its leaves (asserted below)


def findings(image: bytes, *, size: int | None = None) -> list[tuple[str, int]]:
    meta = read_metas(image)[0][0]
    found = list(check(image, size=len(image) if size is None else size, meta=meta))
    assert all(finding.detail and 0 <= finding.file_offset <= len(image) for finding in found)
    return [(finding.kind.value, finding.page_id) for finding in found]


def patched(image: bytes, page_id: int, offset: int, layout: str, *numbers: int) -> bytes:
    out = bytearray(image)
    struct.pack_into(layout, out, page_id * 4096 + offset, *numbers)
    return bytes(out)


@pytest.fixture(scope="module")
def image() -> bytes:
    made = database(ITEMS, freelist=True)
    assert struct.unpack_from("<QHH", made, BRANCH * 4096)[:2] == (BRANCH, 1), "the layout moved"
    return made


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.glob("*/*.db.gz")), ids=lambda path: path.name)
def test_real_databases_are_whole(path):
    image = gzip.decompress(path.read_bytes())
    assert findings(image, size=len(image) // 512 * 512) == []


@pytest.mark.parametrize("freelist", [True, False])
def test_written_databases_are_whole(freelist):
    assert findings(database(ITEMS, freelist=freelist)) == []
    assert findings(database(freelist=freelist)) == []


def test_page_copied_over_another(image):
    copied = image[: 4 * 4096] + image[3 * 4096 : 4 * 4096] + image[5 * 4096 :]

    # Page 4 says it is page 3; nothing leads to it any more.
    assert findings(copied) == [("page-corrupt", 4), ("unreachable", 4)]


def test_child_with_two_parents(image):
    second_child = struct.unpack_from("<Q", image, BRANCH * 4096 + 16 + 16 + 8)
    found = findings(patched(image, BRANCH, 16 + 8, "<Q", *second_child))

    assert ("double-reference", 3) in found
    assert ("unreachable", 2) in found
    # Page 3 stands where its keys do not belong, too.
    assert {kind for kind, _ in found} == {"double-reference", "unreachable", "key-range"}


def test_cycle(image):
    found = findings(patched(image, BRANCH, 16 + 8, "<Q", BRANCH))

    assert found == [("double-reference", BRANCH), ("unreachable", 2)]


def test_keys_out_of_order(image):
    start = image.index(b"00003value", 2 * 4096)
    swapped = image[:start] + b"00001" + image[start + 5 :]

    assert findings(swapped) == [("key-order", 2)]


def test_keys_outside_their_parents_range(image):
    first = image.index(b"00000value", 2 * 4096)
    assert findings(image[:first] + b".0000" + image[first + 5 :]) == [("key-range", 2)]

    count = struct.unpack_from("<H", image, 2 * 4096 + 10)[0]
    last = image.index(b"%05dvalue" % (count - 1), 2 * 4096)
    assert findings(image[:last] + b"99999" + image[last + 5 :]) == [("key-range", 2)]


def test_branch_keys_are_checked_like_leaf_keys(image):
    second_key = (
        image.index(b"0", BRANCH * 4096 + 16 + struct.unpack_from("<H", image, BRANCH * 4096 + 10)[0] * 16)
        + 5
    )
    found = findings(image[:second_key] + b"00000" + image[second_key + 5 :])

    assert ("key-order", BRANCH) in found


def test_misplaced_branch_key(image):
    assert ("page-corrupt", BRANCH) in findings(patched(image, BRANCH, 16, "<I", 0xFFFF_0000))


def test_leaf_without_elements(image):
    assert findings(patched(image, 2, 10, "<H", 0)) == [("page-corrupt", 2)]


def test_missing_pages(image):
    found = findings(image, size=30 * 4096)
    assert {kind for kind, _ in found} == {"page-missing"} or ("freelist-corrupt", FREELIST) in found
    assert ("page-missing", 30) in found


def test_nested_buckets(tmp_path):
    with (tmp_path / "db").open("wb+") as file:
        writer = BoltWriter(file, freelist=True)
        writer.nested(b"outer", b"inner", ITEMS)
        writer.finish()
    image = (tmp_path / "db").read_bytes()

    assert findings(image) == []
    assert findings(patched(image, 2, 0, "<Q", 99)) == [("page-corrupt", 2), ("unreachable", 2)]


def test_chain_of_branches_is_bounded(image):
    pages = len(image) // 4096
    out = image
    for level in range(MAX_DEPTH + 2):
        page = (
            struct.pack("<QHHI", pages + level, 1, 1, 0)
            + struct.pack("<IIQ", 16, 5, pages + level + 1)
            + b"00000"
        )
        out += page.ljust(4096, b"\0")
    out = patched(out, BRANCH, 16 + 8, "<Q", pages)
    for page_id in (0, 1):
        at = page_id * 4096 + 16
        out = patched(out, page_id, 16 + 40, "<Q", pages + MAX_DEPTH + 2)
        out = patched(out, page_id, 16 + 56, "<Q", fnv(out[at : at + 56]))

    assert findings(out) == [
        ("page-corrupt", pages + MAX_DEPTH - 1),
        ("unreachable", 2),
        ("unreachable", pages + MAX_DEPTH),
    ]


def test_unusable_bucket(image):
    root = read_metas(image)[0][0].root
    value_size_of_first = 16 + 12
    found = findings(patched(image, root, value_size_of_first, "<I", 3))

    assert ("page-corrupt", root) in found
    assert found[-1][0] == "unreachable"


def freelist_image(ids: list[int], *, count: int | None = None, leading: int | None = None) -> bytes:
    """A database whose freelist page lists ``ids``."""
    image = database(ITEMS, freelist=True)
    page_id = read_metas(image)[0][0].freelist
    body = struct.pack("<Q", leading) if leading is not None else b""
    body += b"".join(struct.pack("<Q", number) for number in ids)
    page = struct.pack("<QHHI", page_id, 16, len(ids) if count is None else count, 0) + body
    return image[: page_id * 4096] + page.ljust(4096, b"\0") + image[(page_id + 1) * 4096 :]


def test_page_that_is_free_and_in_use():
    assert findings(freelist_image([7])) == [("reachable-free", 7)]


def test_pages_in_a_row_are_one_finding():
    assert findings(freelist_image([7, 8, 9, 20])) == [("reachable-free", 7), ("reachable-free", 20)]


def test_large_freelist_keeps_its_length_in_front():
    assert findings(freelist_image([7], count=0xFFFF, leading=1)) == [("reachable-free", 7)]


@pytest.mark.parametrize(
    "image",
    [
        freelist_image([0]),
        freelist_image([10_000]),
        freelist_image([], count=600),
        freelist_image([], count=0xFFFF, leading=2**62),
    ],
)
def test_impossible_freelist(image):
    assert [kind for kind, _ in findings(image)] == ["freelist-corrupt"]


def test_page_freed_twice():
    assert findings(freelist_image([7, 7])) == [("freelist-corrupt", FREELIST), ("reachable-free", 7)]


@pytest.mark.parametrize(("offset", "layout", "number"), [(0, "<Q", 3), (8, "<H", 2), (12, "<I", 100)])
def test_freelist_page_that_is_none(image, offset, layout, number):
    page_id = read_metas(image)[0][0].freelist

    assert findings(patched(image, page_id, offset, layout, number)) == [("freelist-corrupt", page_id)]


def test_freelist_outside_the_file(image):
    out = image
    for page_id in (0, 1):
        out = patched(out, page_id, 16 + 32, "<Q", 5000)
        at = page_id * 4096 + 16
        out = patched(out, page_id, 16 + 56, "<Q", fnv(out[at : at + 56]))

    assert findings(out) == [("freelist-corrupt", 5000)]


def test_kinds_are_kebab_case():
    assert all(kind.value == kind.name.lower().replace("_", "-") for kind in FindingKind)
