"""Pages of values: places, single values, and what an end in the middle leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.errors import SourceError
from etcdfix.model import StoredValue
from etcdfix.sources import pages as module
from etcdfix.sources.pages import Page, ValuesPage, paged, values_of
from tests.support.memory_source import stored

VALUES = [stored(f"/registry/pods/shop/{name}", name.encode() * 10) for name in "abcde"]


def test_places_lead_to_values() -> None:
    page = ValuesPage(VALUES)
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
