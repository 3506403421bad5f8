"""Pages of values: places, single values, and what an end in the middle leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from etcdfix.errors import SourceError
from etcdfix.model import StoredValue
from etcdfix.sources import pages as module
from etcdfix.sources.mvcc import RecordPage
from etcdfix.sources.pages import Page, ValuesPage, paged, values_of
from etcdfix.sources.passedpages import pass_on, passed_on
from etcdfix.sources.rangepage import RangePage
from etcdfix.wire.etcd import message
from tests.support.memory_source import stored
from tests.unit.sources.test_mvcc import HISTORY, Opened

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
    kind, raw = pass_on(page)
    passed = passed_on(kind, held(raw), b"", irregular)
    assert passed.raw() == raw
    assert type(passed) is type(page)
    assert len(passed) == len(page)
    assert list(passed.values()) == list(page.values()) == VALUES
    assert page.value(3) == passed.value(3) == VALUES[3]


@pytest.mark.parametrize("held", [bytes, memoryview])
def test_so_does_one_that_names_places_in_a_file(held: type[bytes | memoryview]) -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    kind, raw = pass_on(page)
    passed = passed_on(kind, held(raw), opened.index._image, irregular)
    assert isinstance(passed, RecordPage)
    assert list(passed.values()) == list(page.values())


@MAKE
def test_places_lead_to_values(make: Callable[[], Page]) -> None:
    page = make()
    assert isinstance(page, Page)
    assert len(page) == len(VALUES)
    for _ in range(2):  # a page can be walked again
        at = [(page.at, value) for value in page.values()]
        assert at == list(enumerate(VALUES))
    assert [page.value(place) for place in range(5)] == VALUES


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
