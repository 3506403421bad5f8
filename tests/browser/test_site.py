"""The documentation as a site, opened as files: nothing is asked of a server, and the search finds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.site import built_site

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_site(tmp_path_factory)


@pytest.mark.parametrize("name", ["index.html", "docs/runbooks/stuck-namespace.html"])
def test_a_page_loads_files_alone_and_says_nothing(browser: Browser, site: Path, name: str) -> None:
    heard: list[str] = []
    page = browser.new_page()
    page.on(
        "request", lambda request: heard.append(request.url) if not request.url.startswith("file:") else None
    )
    page.on("requestfailed", lambda request: heard.append(request.url))
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto((site / name).as_uri())
    assert page.locator("article h1").count() == 1
    assert page.locator(".sidebar-drawer .caption").all_inner_texts()[0].lower() == "tonight"
    page.close()
    assert heard == []


def test_the_search_works_without_a_server(browser: Browser, site: Path) -> None:
    page = browser.new_page()
    page.goto((site / "index.html").as_uri())
    page.locator("input[name=q]").fill("Terminating")
    page.locator("input[name=q]").press("Enter")
    found = page.locator("#search-results a", has_text="A namespace does not go")
    found.first.wait_for()
    found.first.click()
    page.wait_for_url("**/stuck-namespace.html*")
    page.close()
