"""Every kind of page comes out of another process as it went in."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from etcdfix.sources.mvcc import RecordPage
from etcdfix.sources.pages import Page, ValuesPage
from etcdfix.sources.passedpages import pass_on, passed_on
from tests.unit.sources.test_mvcc import HISTORY, Opened
from tests.unit.sources.test_rangepage import VALUES, answer


def irregular(_place: int) -> None:
    raise AssertionError


@pytest.mark.parametrize("held", [bytes, memoryview])
@pytest.mark.parametrize("make", [lambda: ValuesPage(VALUES), answer], ids=["values", "answer"])
def test_pages_that_hold_their_values(make: Callable[[], Page], held: type[bytes | memoryview]) -> None:
    page = make()
    kind, raw = pass_on(page)
    passed = passed_on(kind, held(raw), b"", irregular)
    assert passed.raw() == raw
    assert type(passed) is type(page)
    assert len(passed) == len(page)
    assert list(passed.values()) == VALUES


@pytest.mark.parametrize("held", [bytes, memoryview])
def test_pages_that_name_places_in_a_file(held: type[bytes | memoryview]) -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    kind, raw = pass_on(page)
    passed = passed_on(kind, held(raw), opened.index._image, irregular)
    assert isinstance(passed, RecordPage)
    assert list(passed.values()) == list(page.values())
