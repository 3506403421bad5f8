"""A snapshot that was cut, or whose root is gone: whole leaf pages are still there."""

from __future__ import annotations

import gzip
import json
import struct
from pathlib import Path

import pytest

from etcdfix.cli.root import run
from etcdfix.errors import PageCorrupt, SnapshotTruncated
from etcdfix.sources.problems import DAMAGE_NOTE
from etcdfix.sources.snapshot import SALVAGE_NOTE, SnapshotSource
from tests.support.bbolt_writer import database, delete, put
from tests.support.objects import config_map

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
    with pytest.raises(SnapshotTruncated) as caught:
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
    """Leaf pages may lie in any order, and free ones between them."""
    first = [put(number + 1, b"/registry/a", b"%d" % number * 900) for number in range(4)]
    later = [put(9, b"/registry/a", b"new" * 900), delete(10, b"/registry/b"), put(11, b"/registry/c", b"c")]
    data = bytearray(database(sorted([*first, put(5, b"/registry/b", b"b" * 3000), *later])))
    pages = [data[at : at + PAGE] for at in range(0, len(data), PAGE)]
    path = tmp_path / "file.db"
    path.write_bytes(b"".join(pages))
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
    assert not found & {key for key in found if key < b"/registry/x/00004"}


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
    assert "; salvaged" in document["source"].get("integrity", "; salvaged")
    commands = " ".join(
        remedy["command"] for finding in document["findings"] for remedy in finding["remedies"]
    )
    assert "--salvage" not in " ".join(
        word for word in commands.split("etcdfix ") if word.startswith("delete")
    )
    capfd.readouterr()


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
