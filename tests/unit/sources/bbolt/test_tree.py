from __future__ import annotations

import gzip
import json
import re
import struct
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.sources.base import DAMAGE_NOTE
from etcdfix.sources.bbolt.page import MAX_PAGE_SIZE, parse_meta, read_metas
from etcdfix.sources.bbolt.tree import MAX_DEPTH, Bucket, Tree
from etcdfix.sources.errors import PageCorrupt
from etcdfix.sources.snapshot import SALVAGE_NOTE, SnapshotSource
from tests.support.bbolt_writer import BoltWriter, database, delete, fnv, put
from tests.support.objects import config_map

ITEMS = [(b"%05d" % index, b"value %d" % index * 3) for index in range(2000)]


class Opened:
    """A tree over bytes, with the damages that it reported."""

    def __init__(self, image: bytes, *, size: int | None = None) -> None:
        self.damages: list[str] = []
        self.image = image
        meta = read_metas(image)[0][0]
        self.tree = Tree(
            image,
            size=len(image) if size is None else size,
            meta=meta,
            on_damage=lambda damage: self.damages.append(damage.message),
        )

    def bucket(self, name: bytes = b"key") -> Bucket:
        found = self.tree.bucket(name)
        assert found is not None
        return found

    def items(self, name: bytes = b"key", *, backwards: bool = False) -> list[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        for leaf in self.tree.leaves(self.bucket(name), backwards=backwards):
            page = [
                (
                    self.image[entry.key_start : entry.value_start],
                    self.image[entry.value_start : entry.value_end],
                )
                for entry in self.tree.entries(leaf)
            ]
            found += reversed(page) if backwards else page
        return found


def branch_pages(image: bytes, page_size: int = 4096) -> list[int]:
    return [
        offset // page_size
        for offset in range(2 * page_size, len(image), page_size)
        if struct.unpack_from("<QH", image, offset) == (offset // page_size, 1)
    ]


def patched(image: bytes, offset: int, layout: str, *numbers: int) -> bytes:
    out = bytearray(image)
    struct.pack_into(layout, out, offset, *numbers)
    return bytes(out)


@pytest.mark.parametrize("page_size", [512, 4096])
@pytest.mark.parametrize("fan_out", [2, 100])
def test_walk_yields_every_item_in_order(page_size: int, fan_out: int) -> None:
    opened = Opened(database(ITEMS, page_size=page_size, fan_out=fan_out))
    assert (opened.items(), opened.items(backwards=True)) == (ITEMS, ITEMS[::-1])
    assert opened.damages == []


def test_key_that_is_no_bucket_is_not_taken_for_one(tmp_path: Path) -> None:
    with (tmp_path / "db").open("wb+") as file:
        writer = BoltWriter(file)
        writer.nested(b"outer", b"inner", ITEMS)
        writer.finish()
    opened = Opened((tmp_path / "db").read_bytes())
    outer = opened.tree.bucket(b"outer")
    assert outer is not None
    found = opened.tree.find(outer, b"inner")
    assert found is not None
    inner = opened.tree.load_bucket(*found)
    assert sum(leaf.count for leaf in opened.tree.leaves(inner)) == len(ITEMS)
    opened.tree.root = inner
    assert opened.tree.bucket(b"00000") is None


@pytest.mark.parametrize("has_two_parents", [False, True])
def test_a_page_that_is_reached_twice_is_read_once(has_two_parents: bool) -> None:
    """It is its own child, or two branch elements name it."""
    image = database(ITEMS)
    branch = branch_pages(image)[-1]
    table = branch * 4096 + 16
    page = struct.unpack_from("<Q", image, table + 8)[0] if has_two_parents else branch
    opened = Opened(patched(image, table + (24 if has_two_parents else 8), "<Q", page))
    items = opened.items()
    assert 0 < len(items) < len(ITEMS)
    assert items == sorted(set(items))
    assert any(f"page {page}: reached twice" in damage for damage in opened.damages)


@pytest.mark.parametrize("page_id", [0, 1, 2**63, 2**64 - 1, 10_000])
def test_child_outside_the_database_is_skipped(page_id: int) -> None:
    image = database(ITEMS)
    opened = Opened(patched(image, branch_pages(image)[-1] * 4096 + 16 + 8, "<Q", page_id))
    assert 0 < len(opened.items()) < len(ITEMS)
    assert f"page {page_id}: referenced, but the pages of this database are 2 to" in opened.damages[0]


@pytest.mark.parametrize(
    ("offset", "layout", "number", "message"),
    [
        (8, "<H", 0, "flags 0x0000"),
        (8, "<H", 3, "flags 0x0003"),
        (8, "<H", 16, "flags 0x0010"),
        (10, "<H", 0, "a leaf page without elements, below a branch page"),
        (12, "<I", 0xFFFF_FFFF, "4294967295 overflow pages reach past the high-water mark"),
        (16 + 4, "<I", 0xFFFF_FFF0, "leaf element 0 lies at bytes"),
        (16 + 8, "<I", 0xFFFF_FFFF, "leaf element 0 lies at bytes"),
        (16 + 12, "<I", 0xFFFF_FFFF, "leaf element 0 lies at bytes"),
        (16 + 4, "<I", 0, "leaf element 0 lies at bytes"),
    ],
)
def test_damaged_leaf_costs_only_itself(offset: int, layout: str, number: int, message: str) -> None:
    image = database(ITEMS)
    opened = Opened(patched(image, 3 * 4096 + offset, layout, number))
    items = opened.items()
    assert len(ITEMS) - 120 < len(items) < len(ITEMS)
    assert set(items) < set(ITEMS)
    assert any(re.search(message, damage) for damage in opened.damages)
    assert all("page 3" in damage for damage in opened.damages)


def test_lower_count_of_elements_does_not_hide_them_silently() -> None:
    image = database(ITEMS)
    count = struct.unpack_from("<H", image, 3 * 4096 + 10)[0]
    leaf = Opened(patched(image, 3 * 4096 + 10, "<H", count - 1))
    leaf.items()
    assert "page 3: leaf element 0 starts at byte" in leaf.damages[0]
    branch_id = branch_pages(image)[-1]
    count = struct.unpack_from("<H", image, branch_id * 4096 + 10)[0]
    branch = Opened(patched(image, branch_id * 4096 + 10, "<H", count - 1))
    branch.items()
    assert f"page {branch_id}: the key of branch element 0 lies at bytes" in branch.damages[0]


def test_branch_without_elements_is_damage() -> None:
    image = database(ITEMS)
    branch = branch_pages(image)[-1]
    opened = Opened(patched(image, branch * 4096 + 10, "<H", 0))
    assert opened.items() == []
    assert opened.damages == [f"page {branch}: a branch page without elements"]
    with pytest.raises(PageCorrupt, match="without elements"):
        opened.tree.find(opened.bucket(), b"00000")


def test_misplaced_branch_key_is_reported_and_its_child_read() -> None:
    image = database(ITEMS)
    branch = branch_pages(image)[-1]
    opened = Opened(patched(image, branch * 4096 + 16 + 16, "<I", 0xFFFF_0000))
    assert opened.items() == ITEMS
    assert f"page {branch}: the key of branch element 1 lies at bytes" in opened.damages[0]
    assert opened.tree.find(opened.bucket(), b"01999") is not None


def test_elements_that_overlap_do_not_multiply_bytes() -> None:
    # 64 elements that all claim the same 3 KB: 192 KB out of one page.
    count = 64
    page = struct.pack("<QHHI", 2, 2, count, 0)
    page += b"".join(struct.pack("<IIII", 0, 16 * (count - index), 17, 3000 - 17) for index in range(count))
    image = database([(b"k", b"v")])
    image = image[: 2 * 4096] + page.ljust(4096, b"x") + image[3 * 4096 :]
    opened = Opened(image)
    assert sum(len(key) + len(value) for key, value in opened.items()) <= 4096
    assert "so they overlap; the rest of the page is skipped" in opened.damages[-1]


@pytest.mark.parametrize("depth", [MAX_DEPTH - 1, MAX_DEPTH, MAX_DEPTH + 1])
def test_depth_is_bounded(depth: int) -> None:
    """A chain of branch pages with one child each, which bbolt would never write."""
    image = database([(b"k", b"v")])
    pages = len(image) // 4096
    chain = b""
    for level in range(depth):
        child = pages + level + 1 if level < depth - 1 else 2
        page = struct.pack("<QHHI", pages + level, 1, 1, 0) + struct.pack("<IIQ", 16, 1, child) + b"k"
        chain += page.ljust(4096, b"\0")
    image += chain
    root = read_metas(image)[0][0].root
    place = image.index(b"key", root * 4096) + 3
    image = patched(image, place, "<Q", pages)
    for page_id in (0, 1):
        image = with_high_water(image, page_id, pages + depth)

    opened = Opened(image)

    if depth <= MAX_DEPTH:
        assert opened.items() == [(b"k", b"v")]
        assert opened.tree.find(opened.bucket(), b"k") is not None
        assert opened.damages == []
    else:
        assert opened.items() == []
        assert f"{MAX_DEPTH} levels below the root" in opened.damages[0]
        with pytest.raises(PageCorrupt, match=f"{MAX_DEPTH} levels below the root"):
            opened.tree.find(opened.bucket(), b"k")


def with_high_water(image: bytes, page_id: int, high_water: int) -> bytes:
    at = page_id * 4096 + 16
    out = bytearray(patched(image, at + 40, "<Q", high_water))
    struct.pack_into("<Q", out, at + 56, fnv(bytes(out[at : at + 56])))
    return bytes(out)


def test_cut_leaf_below_a_branch_is_read_as_far_as_it_goes() -> None:
    image = database(ITEMS)
    last = len(image) // 4096
    # Leaf 3 moves to the end of the file, and the file ends inside it.
    moved = patched(image[3 * 4096 : 4 * 4096], 0, "<Q", last)
    image = patched(image, branch_pages(image)[-1] * 4096 + 16 + 16 + 8, "<Q", last) + moved
    for page_id in (0, 1):
        image = with_high_water(image, page_id, last + 1)
    whole = Opened(image)
    assert whole.items() == ITEMS
    cut = Opened(image, size=len(image) - 1500)
    assert 0 < len(ITEMS) - len(cut.items()) < 60
    assert f"page {last}: reaches to byte {len(image)}" in cut.damages[0]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (bytes(15), "its value has 15 bytes, expected at least 16"),
        (bytes(20), "its inline page has fewer than 16 bytes"),
        (bytes(16) + struct.pack("<QHHI", 0, 1, 0, 0), "its inline page has flags 0x0001"),
        (bytes(16) + struct.pack("<QHHI", 0, 2, 9, 0), "its table of 9 elements ends at byte"),
    ],
)
def test_bucket_values_that_are_none(value: bytes, message: str) -> None:
    body = struct.pack("<IIII", 1, 16, 3, len(value)) + b"key" + value
    page = (struct.pack("<QHHI", 2, 2, 1, 0) + body).ljust(4096, b"\0")
    image = database([(b"k", b"v")])
    root = read_metas(image)[0][0].root
    header = struct.pack("<QHHI", root, 2, 1, 0)
    image = image[: root * 4096] + (header + page[16:]) + image[(root + 1) * 4096 :]
    with pytest.raises(PageCorrupt, match=message):
        Opened(image).tree.bucket(b"key")


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


@pytest.mark.parametrize("txid", [10, 11])
def test_newer_meta_comes_first_on_either_page(txid: int) -> None:
    metas, damage = read_metas(database(txid=txid))
    assert [meta.txid for meta in metas] == [txid, txid - 1]
    assert metas[0].page_id == txid % 2
    assert damage == ""


@pytest.mark.parametrize("page_size", [512, 1024, 4096, 16384, 65536])
def test_second_meta_is_found_at_any_page_size_when_the_first_is_damaged(page_size: int) -> None:
    image = b"\0" * 100 + database(page_size=page_size)[100:]
    image = image[:16] + b"\xff" * 64 + image[80:]
    metas, damage = read_metas(image)
    assert [(meta.page_id, meta.page_size) for meta in metas] == [(1, page_size)]
    assert damage.startswith("meta page 0 at byte 0: ")


def test_first_meta_is_enough_when_the_second_is_damaged() -> None:
    image = bytearray(database())
    image[4096 + 40] ^= 0xFF
    metas, damage = read_metas(bytes(image))
    assert [meta.page_id for meta in metas] == [0]
    assert damage.startswith("meta page 1 at byte 4096: ")


def test_metas_that_disagree_on_the_page_size_do_not_count_as_two() -> None:
    image = meta_page(page_id=0).ljust(4096, b"\0") + meta_page(page_id=1, page_size=8192)
    metas, damage = read_metas(image)
    assert [meta.page_id for meta in metas] == [0]
    assert "page size 8192, meta page 0 says 4096" in damage


def test_second_meta_that_stands_elsewhere_than_it_says_is_not_believed() -> None:
    image = bytes(2048) + meta_page(page_id=1, page_size=4096)
    assert read_metas(image)[0] == []


PAGE = 4096
ALPHA = Path(__file__).parents[4] / "fixtures/snapshots/alpha/snapshot.db.gz"


def _items(count: int, size: int = 300) -> list[tuple[bytes, bytes]]:
    return [
        put(number + 1, b"/registry/x/%05d" % number, bytes([number % 256]) * size) for number in range(count)
    ]


def _cut(tmp_path: Path, data: bytes, pages: int) -> Path:
    path = tmp_path / "cut.db"
    path.write_bytes(data[: pages * PAGE])
    return path


def test_what_is_whole_of_a_cut_file(tmp_path: Path) -> None:
    data = database(_items(200))
    path = _cut(tmp_path, data, 8)
    with pytest.raises(PageCorrupt) as caught:
        SnapshotSource(path)
    assert "--salvage" in caught.value.hint
    with SnapshotSource(path, salvage=True) as source:
        found = list(source.current(b""))
        assert 0 < len(found) < 200
        assert [stored.key for stored in found] == sorted(b"/registry/x/%05d" % n for n in range(len(found)))
        assert source.problems[0].startswith("the file ends at byte")
        assert SALVAGE_NOTE in source.problems
        assert source.describe().integrity.endswith("; salvaged")
        assert source.get(b"/registry/x/00000") == found[0]
        assert source.describe().revision == len(found)


def test_the_newest_that_is_there(tmp_path: Path) -> None:
    first = [put(number + 1, b"/registry/a", b"%d" % number * 900) for number in range(4)]
    later = [put(9, b"/registry/a", b"new" * 900), delete(10, b"/registry/b"), put(11, b"/registry/c", b"c")]
    path = tmp_path / "file.db"
    path.write_bytes(database(sorted([*first, put(5, b"/registry/b", b"b" * 3000), *later])))
    with SnapshotSource(path, salvage=True) as source:
        found = {stored.key: stored.mod_revision for stored in source.current(b"")}
        assert found == {b"/registry/a": 9, b"/registry/c": 11}
        kept = [item.revision.main for item in source.history(b"/registry/a")]
        assert kept == [1, 2, 3, 4, 9]
        before = source.before(b"/registry/b", 10)
        assert before is not None
        assert before.value == b"b" * 3000
    with SnapshotSource(path, salvage=True, revision=4) as source:
        assert [stored.mod_revision for stored in source.current(b"")] == [4]


def test_pages_out_of_order_are_no_damage(tmp_path: Path) -> None:
    """The pages of a live database lie where there was room."""
    data = bytearray(database(_items(60)))
    leaves = [at for at in range(2 * PAGE, len(data), PAGE) if struct.unpack_from("<QHH", data, at)[1] == 2]
    one, two = leaves[0], leaves[3]
    data[one : one + PAGE], data[two : two + PAGE] = data[two : two + PAGE], data[one : one + PAGE]
    for at in (one, two):
        struct.pack_into("<Q", data, at, at // PAGE)
    path = tmp_path / "file.db"
    path.write_bytes(data)
    with SnapshotSource(path, salvage=True) as source:
        assert len(list(source.current(b""))) == 60
        assert not [problem for problem in source.problems if "is not above" in problem]


def test_a_page_that_another_lies_in_is_left_out(tmp_path: Path) -> None:
    """It was free, and its overflow pages were used again: its value is half of another."""
    data = bytearray(
        database([put(1, b"/registry/big", b"B" * 3 * PAGE), put(2, b"/registry/s", b"s" * 3000)])
    )
    big = next(at for at in range(2 * PAGE, len(data), PAGE) if struct.unpack_from("<QHHI", data, at)[3])
    small = next(
        at
        for at in range(2 * PAGE, len(data), PAGE)
        if struct.unpack_from("<QHHI", data, at)[1:] == (2, 1, 0) and b"/registry/s" in data[at : at + PAGE]
    )
    inside = big + PAGE
    data[inside : inside + PAGE] = data[small : small + PAGE]
    struct.pack_into("<Q", data, inside, inside // PAGE)
    path = tmp_path / "file.db"
    path.write_bytes(data)
    with SnapshotSource(path, salvage=True) as source:
        assert [stored.key for stored in source.current(b"")] == [b"/registry/s"]
        assert any("lies among its overflow pages" in problem for problem in source.problems)
        assert source.problems[-1] == DAMAGE_NOTE


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key, value: (key[:8] + b"-" + key[9:], value),
        lambda key, value: (key, value[:-1]),
        lambda key, value: (key, b""),
        lambda key, value: (key[:7] + b"\x63" + key[8:], value),  # another revision than the record says
    ],
)
def test_a_page_with_one_broken_record_is_not_whole(tmp_path: Path, spoil: object) -> None:
    items = _items(20)
    assert callable(spoil)
    items[3] = spoil(*items[3])
    path = tmp_path / "file.db"
    path.write_bytes(database(items))
    with SnapshotSource(path, salvage=True) as source:
        found = {stored.key for stored in source.current(b"")}
    assert found
    assert not any(key < b"/registry/x/00004" for key in found)


@pytest.mark.parametrize("pages", [2, 3])
def test_nothing_to_salvage(tmp_path: Path, pages: int) -> None:
    data = bytearray(database(_items(200)))
    data[2 * PAGE : 3 * PAGE] = bytes(PAGE)
    with pytest.raises(PageCorrupt, match="no whole page of revisions"):
        SnapshotSource(_cut(tmp_path, bytes(data), pages), salvage=True)


def test_a_scan_of_the_wreck(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data = gzip.decompress(ALPHA.read_bytes())
    path = _cut(tmp_path, data, len(data) // PAGE // 2)
    report = tmp_path / "report.json"
    assert (
        run(["scan", "--snapshot", str(path), "--salvage", "-o", "json", "--output-file", str(report)]) == 3
    )
    document = json.loads(report.read_text())
    assert document["complete"] is False
    assert SALVAGE_NOTE in document["incomplete_reasons"]
    assert document["summary"]["keys"] > 0
    assert "; salvaged" in document["source"]["integrity"]
    commands = [remedy["command"] for finding in document["findings"] for remedy in finding["remedies"]]
    assert not [command for command in commands if "--salvage" in command and "etcdfix delete" in command]
    capfd.readouterr()


def test_the_first_lines_over_a_damaged_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They say what is wrong with the file, and the command that they print goes through."""
    path = tmp_path / "file.db"
    scan = ["scan", "--snapshot", str(path), "--no-encryption"]
    kept = [
        put(number, b"/registry/configmaps/a/%d" % number, config_map(str(number), "a"))
        for number in range(1, 99)
    ]
    data = bytearray(database(kept))
    data[3 * PAGE] ^= 1
    path.write_bytes(data)
    assert run(scan) == 3
    headline, following, command, *_ = capfd.readouterr().out.splitlines()
    assert headline.startswith("INCOMPLETE: ")
    assert following.startswith("Next: ")
    assert command == f"  etcdfix scan --snapshot {path} --salvage --no-encryption"
    assert run(command.split()[1:]) == 3


def test_never_a_source_for_changes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "whole.db"
    path.write_bytes(database([put(1, b"/registry/configmaps/a/b", config_map("b"))]))
    report = tmp_path / "report.json"
    scan = ["scan", "--snapshot", str(path), "--salvage"]
    assert (
        run([*scan, "-o", "json", "--output-file", str(report)]) == 3
    )  # whole, and called incomplete all the same
    source = ["--snapshot", str(path), "--salvage", "--no-encryption"]
    assert run(["plan", "--from-report", str(report), *source]) == 2
    assert "No such option '--salvage'" in capfd.readouterr().err
    assert run(["scan", "--salvage"]) == 2
    assert "name it with --snapshot" in capfd.readouterr().err
