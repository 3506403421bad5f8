"""A page in a browser, watched: what it loads, what it says, and what axe finds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@contextmanager
def watched(browser: Browser, path: Path, **context: Any) -> Iterator[Page]:
    """Yield a page. What it asks for beside itself, what it writes to the console, and what it throws are failures."""
    address = path.resolve().as_uri()
    heard: list[str] = []
    surroundings = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | context))
    try:
        page = surroundings.new_page()
        page.on("request", lambda request: heard.append(f"asked for {request.url[:200]}"))
        page.on("console", lambda message: heard.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: heard.append(f"threw {error}"))
        page.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        page.on("download", lambda download: heard.append(f"download: {download.url}"))
        page.goto(address)
        yield page
        assert heard == [f"asked for {address}"]
        assert page.url.partition("#")[0] == address
        assert len(surroundings.pages) == 1
    finally:
        surroundings.close()


def violations(page: Page) -> list[str]:
    """Return what axe finds wrong, in all that it checks; the page's context must bypass its policy."""
    from axe_playwright_python.sync_playwright import Axe

    results = Axe().run(page)
    return [
        f"{found['id']}: {node['html'][:200]}"
        for found in results.response["violations"]
        for node in found["nodes"]
    ]
