"""Every kind of page comes out of another process as it went in."""

from __future__ import annotations

import pytest

from etcdfix.sources.mvcc import RecordPage
from etcdfix.sources.pages import Page, ValuesPage
from etcdfix.sources.passedpages import pass_on, passed_on
from tests.unit.sources.test_mvcc import HISTORY, Opened
from tests.unit.sources.test_rangepage import VALUES, answer


def irregular(_place: int) -> None:
    raise AssertionError


@pytest.mark.parametrize("page", [ValuesPage(VALUES), answer()], ids=["values", "answer"])
def test_pages_that_hold_their_values(page: Page) -> None:
    passed = passed_on(*pass_on(page), b"", irregular)
    assert type(passed) is type(page)
    assert len(passed) == len(page)
    assert list(passed.values()) == VALUES


def test_pages_that_name_places_in_a_file() -> None:
    opened = Opened(HISTORY)
    (page,) = opened.index.pages(b"")
    passed = passed_on(*pass_on(page), opened.index._image, irregular)
    assert isinstance(passed, RecordPage)
    assert list(passed.values()) == list(page.values())
