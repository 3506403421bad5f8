"""The pages of the other commands in a real browser: each sorts, filters, opens, and is free of what axe finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.watching import violations
from tests.support.spoiled import WRITERS, document_of, spoiled, write

if TYPE_CHECKING:
    from playwright.sync_api import Page

Open = Callable[..., "Page"]

_NARROW = {"width": 360, "height": 740}
_ALWAYS = frozenset({"impact", "plan"})
NAMES = [pytest.param(name, marks=[] if name in _ALWAYS else pytest.mark.thorough) for name in WRITERS]
"""With that of a scan, three pages are always tried in a browser."""


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that gives the page of a command, as it is or spoiled by strangers; each is made once."""
    folder = tmp_path_factory.mktemp("pages")
    documents: dict[str, object] = {}

    def page(name: str, *, hostile: bool = False) -> Path:
        path = folder / f"{name}{'-hostile' if hostile else ''}.html"
        if not path.exists():
            if name not in documents:
                documents[name] = document_of(name, folder)
            write(name, spoiled(documents[name]) if hostile else documents[name], path)
        return path

    return page


@pytest.mark.parametrize("name", NAMES)
def test_lists_filter_sort_and_open(show: Open, pages: Callable[..., Path], name: str) -> None:
    page = show(pages(name))
    assert page.get_by_role("heading", level=1).is_visible()
    grid = page.locator(".grid").first
    rows = grid.locator("tr.row")
    every = rows.count()
    head = grid.locator("th button").first
    head.click()
    head.click()
    assert grid.locator("th").first.get_attribute("aria-sort") in {"ascending", "descending"}
    page.keyboard.press("/")
    page.keyboard.type("nothing has such a name")
    assert rows.count() == 0
    page.keyboard.press("Escape")
    grid.locator("tr.row").nth(every - 1).wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert grid.locator("tr.opened").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing(show: Open, pages: Callable[..., Path], name: str, scheme: str) -> None:
    page = show(pages(name), color_scheme=scheme, bypass_csp=True)
    page.locator("button.open").first.click()
    assert violations(page) == []


@pytest.mark.parametrize("name", NAMES)
def test_hostile_names_do_nothing_and_fit(show: Open, pages: Callable[..., Path], name: str) -> None:
    page = show(pages(name, hostile=True), viewport=_NARROW)
    title = page.title()
    for button in page.locator("button.open").all()[:10]:
        button.click()
    assert page.title() == title
    assert title != "x"
    assert page.locator("img").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= _NARROW["width"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wide_screen_has_room_for_every_column(show: Open, pages: Callable[..., Path], name: str) -> None:
    page = show(pages(name))
    lists = page.locator(".rows").all()
    assert all(one.evaluate("list => list.scrollWidth <= list.clientWidth + 1") for one in lists)
