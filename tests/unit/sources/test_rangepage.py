"""A page that is the answer to a Range request: parsed when it is needed."""

from __future__ import annotations

from etcdfix.sources.pages import Page
from etcdfix.sources.rangepage import RangePage
from etcdfix.wire.etcd import message
from tests.support.memory_source import stored

VALUES = [stored(f"/registry/pods/shop/{name}", name.encode() * 10, lease=3) for name in "abcde"]


def answer() -> RangePage:
    response = message("RangeResponse")(
        kvs=[
            message("KeyValue")(
                key=v.key,
                value=v.value,
                mod_revision=v.mod_revision,
                create_revision=v.create_revision,
                version=v.version,
                lease=v.lease,
            )
            for v in VALUES
        ]
    )
    return RangePage(response.SerializeToString(), response.kvs)


def test_places_lead_to_values() -> None:
    page = answer()
    assert isinstance(page, Page)
    assert len(page) == len(VALUES)
    for _ in range(2):
        assert [(page.at, value) for value in page.values()] == list(enumerate(VALUES))
    assert [page.value(place) for place in range(5)] == VALUES


def test_values_are_there_after_the_bytes_were_given_away() -> None:
    page = answer()
    other = RangePage(page.raw())
    assert len(other) == len(page)
    assert list(other.values()) == list(page.values()) == VALUES
    assert page.value(3) == other.value(3) == VALUES[3]
