from __future__ import annotations

import struct

import pytest

from etcdfix.errors import SourceError
from etcdfix.sources.bbolt.page import read_metas
from etcdfix.sources.bbolt.tree import Damage, Tree
from etcdfix.sources.mvcc import RevisionIndex
from etcdfix.sources.sortedruns import SortedRecords
from tests.support.bbolt_writer import database, delete, key_value, put, revision_key


class Opened:
    """A revision index over the items of a bucket ``key``, with what it reported."""

    def __init__(self, items: list[tuple[bytes, bytes]], image: bytes | None = None) -> None:
        self.damages: list[str] = []
        image = database(items) if image is None else image

        def on_damage(damage: Damage) -> None:
            self.damages.append(damage.message)

        tree = Tree(image, size=len(image), meta=read_metas(image)[0][0], on_damage=on_damage)
        bucket = tree.bucket(b"key")
        assert bucket is not None
        self.index = RevisionIndex(tree, bucket, on_damage)

    def current(self, prefix: bytes = b"", at_revision: int | None = None) -> list[tuple[bytes, bytes]]:
        return [(stored.key, stored.value) for stored in self.index.current(prefix, at_revision=at_revision)]

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


@pytest.mark.parametrize("length", [1, 126, 127, 128, 129, 16383, 16384, 70_000])
def test_keys_of_any_length(length: int) -> None:
    opened = Opened([put(2, b"k" * length, b"v")])

    assert opened.current() == [(b"k" * length, b"v")]
    assert opened.damages == []


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
        ((revision_key(9), b"\xff\xff"), "the record of revision 9_0 is malformed: cut inside a varint"),
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


def test_mod_revision_that_differs_is_reported_where_only_decoding_sees_it() -> None:
    items = [put(2, b"/k", b"v"), (revision_key(3), key_value(b"/k", b"w", mod=2, create=2, version=2))]
    opened = Opened(items)

    assert opened.current() == [(b"/k", b"w")]
    assert opened.damages[-1].endswith("the record of revision 3_0 of key /k says mod_revision 2")


def test_bucket_flag_inside_the_key_bucket_is_no_revision() -> None:
    image = bytearray(database(HISTORY))
    struct.pack_into("<I", image, 2 * 4096 + 16, 1)
    opened = Opened([], image=bytes(image))

    assert opened.current() == Opened(HISTORY).current()
    assert "a key of 17 bytes is no revision" in opened.damages[0]


def test_build_can_be_tried_again_after_the_disk_was_full(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Opened(HISTORY)
    with monkeypatch.context() as patch:
        patch.setattr(SortedRecords, "finish", lambda _: _raise(SourceError("full")))
        with pytest.raises(SourceError, match="full"):
            opened.current()

    assert opened.current() == Opened(HISTORY).current()
    assert opened.history(b"/c") == [(8, 2, b"7")]


def _raise(error: Exception) -> None:
    raise error


def test_places_of_a_page_lead_to_its_values() -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    walked = dict((page.at, value) for value in page.values())  # noqa: C402 - the place moves
    assert len(walked) < len(page), "a deleted key has a place, and no value"
    assert {place: page.value(place) for place in range(len(page))} == {
        **dict.fromkeys(range(len(page))),
        **walked,
    }
