"""A real browser: Debian's chromium by its path, as the driver's own downloads are not everywhere to be had.

Where there is none, the tests are skipped and say so; with ``ETCDFIX_REQUIRE_BROWSER=1`` that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.watching import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def _no_browser(reason: str) -> str:
    if os.environ.get("ETCDFIX_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Yield a running chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _no_browser("playwright is not installed")
    path = next(filter(None, map(shutil.which, _NAMES)), None) or _no_browser(
        f"no browser on PATH: {', '.join(_NAMES)}"
    )
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--disable-dev-shm-usage", *root])
        yield running
        running.close()


@pytest.fixture
def show(browser: Browser) -> Iterator[Open]:
    """Return a function that opens a page; in the end it must have loaded nothing else, and said nothing."""
    with ExitStack() as stack:

        def opened(path: Path, **context: Any) -> Page:
            return stack.enter_context(watched(browser, path, **context))

        yield opened
