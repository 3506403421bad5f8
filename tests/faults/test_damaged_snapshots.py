"""Damage one thing in a real snapshot, then say exactly what the source makes of it."""

from __future__ import annotations

import gzip
import hashlib
import re
import struct
from pathlib import Path

import pytest

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.sources.base import DAMAGE_NOTE
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.bbolt.tree import Tree
from etcdfix.sources.errors import NotASnapshot, PageCorrupt
from etcdfix.sources.snapshot import SnapshotSource

SNAPSHOTS = Path(__file__).parents[2] / "fixtures/snapshots"
PAGE = 4096


def unpacked(name: str) -> bytes:
    return gzip.decompress((SNAPSHOTS / f"{name}.db.gz").read_bytes())


@pytest.fixture(scope="module")
def alpha() -> bytes:
    return unpacked("alpha/snapshot")


def scan(tmp_path: Path, data: bytes) -> tuple[list[StoredValue], list[str]]:
    path = tmp_path / "damaged.db"
    path.write_bytes(data)
    with SnapshotSource(path) as source:
        return list(source.current(b"")), source.problems


def attempt(tmp_path: Path, data: bytes) -> tuple[list[StoredValue], list[str], SourceError | None]:
    """Scan, or return the error that says why nothing can be scanned."""
    try:
        return *scan(tmp_path, data), None
    except SourceError as error:
        return [], [], error


def patched(data: bytes, offset: int, layout: str, *numbers: int) -> bytes:
    out = bytearray(data)
    struct.pack_into(layout, out, offset, *numbers)
    return bytes(out)


def pages(data: bytes, flags: int) -> list[int]:
    """Ids of the pages that say they are of one kind; stale ones that nothing leads to included."""
    heads = [struct.unpack_from("<QH", data, at) for at in range(0, len(data) - PAGE + 1, PAGE)]
    return [index for index, head in enumerate(heads) if index > 1 and head == (index, flags)]


def root_of(tree: Tree, name: bytes) -> int:
    bucket = tree.bucket(name)
    assert bucket is not None
    return bucket.root


@pytest.fixture(scope="module")
def early_root(alpha: bytes) -> bytes:
    """Alpha with the root of the bucket `key` moved to the first free page.

    As etcd left it, it is page 217 of 220: nearly every cut loses it, and with it everything.
    """
    meta = read_metas(alpha)[0][0]
    tree = Tree(alpha, size=len(alpha) - 32, meta=meta, on_damage=lambda damage: pytest.fail(damage.message))
    used = bytearray(meta.high_water)
    buckets = [entry for leaf in tree.leaves(tree.root) for entry in tree.entries(leaf)]
    names = [alpha[entry.key_start : entry.value_start] for entry in buckets]
    waiting = [meta.root, *(root_of(tree, name) for name in names)]
    for page_id in waiting:
        if page_id:  # not an inline bucket
            page = tree.page(page_id)
            tree.mark(page, used)
            waiting += [] if page.is_leaf else [entry.child_id for entry in tree.branch_entries(page)]
    free = used.index(0, 2)
    root = root_of(tree, b"key")
    assert free < 190 < root
    copy = patched(alpha[root * PAGE : (root + 1) * PAGE], 0, "<Q", free)
    moved = alpha[: free * PAGE] + copy + alpha[(free + 1) * PAGE :]
    place = tree.find(tree.root, b"key")
    assert place is not None
    _, entry = place
    moved = patched(moved, entry.value_start, "<Q", free)[:-32]
    return moved + hashlib.sha256(moved).digest()


def assert_true_to(whole: bytes, found: list[StoredValue], tmp_path: Path) -> None:
    """Assert that each value found was once the key's value, if not its newest one."""
    path = tmp_path / "whole.db"
    path.write_bytes(whole)
    with SnapshotSource(path) as source:
        for stored in found:
            assert stored in [kept.stored for kept in source.history(stored.key)]


# Cuts


@pytest.mark.parametrize("name", ["small/history", "small/all-deleted"])
def test_every_cut_near_a_sector_edge(tmp_path: Path, name: str) -> None:
    whole = unpacked(name)
    values, problems = scan(tmp_path, whole)
    assert problems == []
    for edge in range(0, len(whole) + 1, 512):
        for cut in {edge - 1, edge, edge + 1, edge + 31, edge + 32, edge + 33}:
            if not 0 <= cut < len(whole):
                continue
            found, problems, error = attempt(tmp_path, whole[:cut])
            if error is not None:
                assert isinstance(error, NotASnapshot | PageCorrupt)
                continue
            if cut == len(whole) - 32:
                # Without its trailer, and nothing else missing, it is a copied database.
                assert (found, problems) == (values, [])
                continue
            assert problems, cut
            assert_true_to(whole, found, tmp_path)


@pytest.mark.parametrize("pages_left", [191, 210])
def test_cut_snapshot_is_read_as_far_as_it_goes(
    tmp_path: Path, alpha: bytes, early_root: bytes, pages_left: int
) -> None:
    cut = pages_left * PAGE + 100
    values, problems = scan(tmp_path, early_root[:cut])

    assert 0 < len(values) < 499
    assert_true_to(alpha, values, tmp_path)
    assert f"the file ends at byte {cut}, 100 bytes into page {pages_left};" in problems[0]
    assert any(f"pages end at byte {cut}" in problem for problem in problems)


def test_cut_that_loses_the_root_is_a_named_error(tmp_path: Path, alpha: bytes) -> None:
    with pytest.raises(
        PageCorrupt, match=r"nothing can be read: page 217.* pages end at byte 819200"
    ) as caught:
        scan(tmp_path, alpha[: 200 * PAGE])
    assert "copy the file again" in caught.value.hint


# Single bits


def test_any_flipped_bit_in_a_saved_snapshot_is_told(tmp_path: Path) -> None:
    """Wherever it falls: as a named error, or as a problem; the trailer sees all of them."""
    whole = unpacked("small/history")
    for at in [*range(0, 96, 3), *range(PAGE, PAGE + 96, 3), *range(96, len(whole), 797)]:
        flipped = bytearray(whole)
        flipped[at] ^= 1 << (at % 8)
        _, problems, error = attempt(tmp_path, bytes(flipped))
        if error is not None:
            assert "page" in error.message or "not etcd's" in error.message
            continue
        assert any("SHA-256 trailer is wrong" in problem for problem in problems), at


@pytest.mark.parametrize(
    ("offset", "layout", "number", "message"),
    [
        (0, "<Q", 5, "the header at byte .* says page 5"),
        (8, "<H", 9, "flags 0x0009 at byte"),
        (10, "<H", 0xFFFF, "its table of 65535 elements ends at byte"),
        (12, "<I", 0x7FFF_FFFF, "2147483647 overflow pages reach past the high-water mark 220"),
    ],
)
def test_each_leaf_page_in_turn(
    tmp_path: Path, alpha: bytes, offset: int, layout: str, number: int, message: str
) -> None:
    values, _ = scan(tmp_path, alpha)
    hurt = 0
    for page_id in pages(alpha, 2)[::6]:
        found, problems, error = attempt(tmp_path, patched(alpha, page_id * PAGE + offset, layout, number))
        if error is not None:
            assert isinstance(error, PageCorrupt)
            assert f": page {page_id}: " in error.message
            continue
        assert problems[0].startswith("SHA-256 trailer is wrong")
        if len(problems) > 1:
            hurt += 1
            assert problems[1].startswith(f"page {page_id}: ")
            assert re.search(message, problems[1])
            assert len(values) - len(found) < 40
        else:
            assert found == values  # a stale page, which nothing leads to
    assert hurt > 5


def test_damaged_branch_page_costs_its_subtree_only(tmp_path: Path, alpha: bytes) -> None:
    values, _ = scan(tmp_path, alpha)
    lost = []
    for page_id in pages(alpha, 1):
        found, problems, error = attempt(tmp_path, patched(alpha, page_id * PAGE + 8, "<H", 0))
        if error is not None:
            assert isinstance(error, PageCorrupt)
            assert f"nothing can be read: page {page_id}: flags 0x0000" in error.message
            continue
        if len(problems) > 1:
            lost.append(len(values) - len(found))
            where = f"page {page_id}: flags 0x0000 at byte {page_id * PAGE + 8}"
            assert problems[1] == f"{where}, expected a branch (1) or leaf (2)"
    assert lost
    assert all(0 < count < 499 for count in lost)


def test_what_is_left_was_once_true(tmp_path: Path, alpha: bytes) -> None:
    """A key whose newest record stood on the lost page may show an older one; never anything else."""
    for page_id in pages(alpha, 2)[::11]:
        try:
            found, problems = scan(tmp_path, patched(alpha, page_id * PAGE, "<Q", 1))
        except PageCorrupt:
            continue
        assert_true_to(alpha, found, tmp_path)
        assert (problems[-1] == DAMAGE_NOTE) == (len(problems) > 1)
