from __future__ import annotations

import errno
import struct
import tempfile
from collections.abc import Callable, Iterator

import pytest

from etcdfix.model.errors import SourceError
from etcdfix.model.model import StoredValue
from etcdfix.sources import pages as module
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.bbolt.tree import Tree
from etcdfix.sources.errors import PageCorrupt
from etcdfix.sources.keyvalue import key_and_mod_revision, parse_key_value
from etcdfix.sources.mvcc import RevisionIndex
from etcdfix.sources.pages import Page, RangePage, RecordPage, ValuesPage, paged, passed_on, values_of
from etcdfix.sources.sortedruns import SortedRecords
from etcdfix.wire.etcd import message
from tests.support.bbolt_writer import database, delete, key_value, put, revision_key
from tests.support.memory_source import stored
from tests.support.raising import raising


class Opened:
    """A revision index over the items of a bucket ``key``, with what it reported."""

    def __init__(self, items: list[tuple[bytes, bytes]], image: bytes | None = None) -> None:
        self.damages: list[str] = []
        image = database(items) if image is None else image

        def on_damage(damage: PageCorrupt) -> None:
            self.damages.append(damage.message)

        tree = Tree(image, size=len(image), meta=read_metas(image)[0][0], on_damage=on_damage)
        bucket = tree.bucket(b"key")
        assert bucket is not None
        self.index = RevisionIndex(tree, bucket, on_damage)

    def current(self, prefix: bytes = b"", at_revision: int | None = None) -> list[tuple[bytes, bytes]]:
        return [
            (stored.key, stored.value)
            for stored in values_of(self.index.pages(prefix, at_revision=at_revision))
        ]

    def history(self, key: bytes) -> list[tuple[int, int, bytes | None]]:
        kept = self.index.history(key)
        return [(*each.revision, each.stored.value if each.stored is not None else None) for each in kept]


HISTORY = [
    put(2, b"/a/one", b"1"),
    put(3, b"/a/two", b"2"),
    put(4, b"/b/one", b"3", lease=77),
    put(5, b"/a/one", b"4", create=2, version=2),
    delete(6, b"/a/two"),
    put(7, b"/a/two", b"5"),
    put(8, b"/a/one", b"6", create=2, version=3, sub=0),
    delete(8, b"/a/two", sub=1),
    put(8, b"/c", b"7", sub=2),
]


def test_revision_bump_is_no_key() -> None:
    """``etcdutl snapshot restore --bump-revision`` writes an empty record; it must not hide its neighbours."""
    opened = Opened([*HISTORY, (revision_key(1_000_000_008), b"")])
    assert opened.index.newest_main() == 1_000_000_008
    assert opened.current() == Opened(HISTORY).current()
    assert opened.damages == []


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ((b"no revision", b"x"), "a key of 11 bytes is no revision"),
        ((revision_key(9, 0) + b"?", key_value(b"/x")), "a key of 18 bytes is no revision"),
        ((revision_key(2**63), key_value(b"/x", b"v", mod=9)), "a key of 17 bytes is no revision"),
        ((revision_key(9), b"\xff\xff"), "the record of revision 9_0 is malformed: no key-value record"),
        ((revision_key(9), b"\x18\x09"), "the record of revision 9_0 is malformed: it has no key"),
        (
            (revision_key(9), key_value(b"/x", b"v", mod=8, create=8, version=1)),
            "the record of revision 9_0 of key /x says mod_revision 8",
        ),
    ],
)
def test_record_that_cannot_be_used_is_reported_with_its_place(
    item: tuple[bytes, bytes], message: str
) -> None:
    opened = Opened(sorted([*HISTORY, item]))
    assert [pair for pair in opened.current() if pair[0] != b"/x"] == Opened(HISTORY).current()
    assert any(message in damage for damage in opened.damages)
    assert all(damage.startswith("page 2: byte ") for damage in opened.damages)


def test_key_whose_newest_record_is_damaged_does_not_show_an_older_one() -> None:
    broken = key_value(b"/a/one", b"value", mod=9, create=2, version=4)[:-1]
    opened = Opened([*HISTORY, (revision_key(9), broken)])
    assert [key for key, _ in opened.current()] == [b"/b/one", b"/c"]
    assert opened.index.get(b"/a/one") is None
    assert opened.history(b"/a/one") == [(2, 0, b"1"), (5, 0, b"4"), (8, 0, b"6")]
    assert opened.damages == [
        damage for damage in opened.damages if "revision 9_0 of key /a/one is malformed" in damage
    ]
    assert opened.damages


def test_flipped_bit_in_a_revision_key_does_not_make_an_old_value_current() -> None:
    image = database(HISTORY)
    place = image.index(revision_key(2))
    # Revision 2 of /a/one now claims to be 2**40 + 2, later than revision 8; its record still says 2.
    flipped = image[: place + 2] + b"\x01" + image[place + 3 :]
    opened = Opened([], image=flipped)
    assert opened.current() == Opened(HISTORY).current()
    assert "revision 1099511627778_0 of key /a/one says mod_revision 2" in opened.damages[0]
    assert "revision 3_0 is not above the one before it" in opened.damages[1]
    assert opened.history(b"/a/one")[0] == (2, 0, b"1")


def test_bucket_flag_inside_the_key_bucket_is_no_revision() -> None:
    image = bytearray(database(HISTORY))
    struct.pack_into("<I", image, 2 * 4096 + 16, 1)
    opened = Opened([], image=bytes(image))
    assert opened.current() == Opened(HISTORY).current()
    assert "a key of 17 bytes is no revision" in opened.damages[0]


def test_places_of_a_page_lead_to_its_values() -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    walked = dict((page.at, value) for value in page.values())  # noqa: C402 - the place moves
    assert len(walked) < len(page), "a deleted key has a place, and no value"
    assert {place: page.value(place) for place in range(len(page))} == {
        **dict.fromkeys(range(len(page))),
        **walked,
    }


VALUES = [stored(f"/registry/pods/shop/{name}", name.encode() * 10, lease=3) for name in "abcde"]


def answer() -> RangePage:
    kvs = [
        message("KeyValue")(**{name: getattr(value, name) for name in value.__struct_fields__})
        for value in VALUES
    ]
    response = message("RangeResponse")(kvs=kvs)
    return RangePage(response.SerializeToString(), response.kvs)


def irregular(_place: int) -> None:
    raise AssertionError


MAKE = pytest.mark.parametrize("make", [lambda: ValuesPage(VALUES), answer], ids=["values", "answer"])


@pytest.mark.parametrize("held", [bytes, memoryview])
@MAKE
def test_a_page_comes_out_of_another_process_as_it_went_in(
    make: Callable[[], Page], held: type[bytes | memoryview]
) -> None:
    page = make()
    raw = page.raw()
    passed = passed_on(page.kind, held(raw), b"", irregular)
    assert passed.raw() == raw
    assert type(passed) is type(page)
    assert len(passed) == len(page)
    assert list(passed.values()) == list(page.values()) == VALUES
    assert page.value(3) == passed.value(3) == VALUES[3]


@pytest.mark.parametrize("held", [bytes, memoryview])
def test_so_does_one_that_names_places_in_a_file(held: type[bytes | memoryview]) -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    raw = page.raw()
    passed = passed_on(page.kind, held(raw), opened.index._image, irregular)
    assert isinstance(passed, RecordPage)
    assert list(passed.values()) == list(page.values())


def test_pages_are_bounded_by_values_and_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAGE_VALUES", 2)
    assert [len(page) for page in paged(VALUES)] == [2, 2, 1]
    monkeypatch.setattr(module, "PAGE_BYTES", 1)
    assert [len(page) for page in paged(VALUES)] == [1, 1, 1, 1, 1]
    assert list(values_of(paged(VALUES))) == VALUES
    assert list(paged([])) == []


@pytest.mark.parametrize("failure", [SourceError("gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("after", [0, 3])
def test_what_came_before_a_failure_is_not_lost(failure: BaseException, after: int) -> None:
    def failing() -> Iterator[StoredValue]:
        yield from VALUES[:after]
        raise failure

    seen: list[StoredValue] = []

    def read() -> None:
        for page in paged(failing()):
            seen.extend(page.values())

    with pytest.raises(type(failure)):
        read()
    assert seen == VALUES[:after]


def test_full_disk_is_a_source_error_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", raising(OSError(errno.ENOSPC, "No space left on device")))
    held = SortedRecords(max_records=2)
    with pytest.raises(SourceError, match="No space left on device") as caught:
        held.extend([b"a", b"b"])
    assert "TMPDIR" in caught.value.hint


KEY = b"/registry/secrets/shop/db"


def test_any_field_order_and_unknown_fields() -> None:
    data = b"".join(
        [
            b"\x30\x07",  # lease
            b"\x2a\x01v",
            b"\x7a\x02??",  # field 15, bytes
            b"\x20\x02",
            b"\x79" + bytes(8),  # field 15, fixed64
            b"\x7d" + bytes(4),  # field 15, fixed32
            b"\x78\xff\x01",  # field 15, varint
            b"\x18\x05\x10\x03",
            b"\x0a\x03old",
            b"\x0a\x03key",  # the last one counts
        ]
    )
    assert parse_key_value(data) == StoredValue(b"key", b"v", 5, 3, 2, 7)


@pytest.mark.parametrize(
    "data",
    [b"\x0a", b"\x0a\x05abc", b"\x08\x01", b"\x0a\x01k\x12\x01x", b"\x0a\x01k\x2d1234", b"\x00\x00", b"\x7b"],
)
def test_what_etcd_would_refuse_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"no key-value record|of another type"):
        parse_key_value(data)


def test_key_of_a_record_whose_rest_is_damaged() -> None:
    data = key_value(KEY, b"value", mod=300, create=2, version=1)
    assert key_and_mod_revision(data) == (KEY, 300)
    assert key_and_mod_revision(data[:-1]) == (KEY, 0)
    for damaged in (data[:20], b"\xff" + data, b"\x0a"):
        with pytest.raises(ValueError):
            key_and_mod_revision(damaged)
    with pytest.raises(ValueError, match="no key"):
        key_and_mod_revision(b"\x18\x05")
