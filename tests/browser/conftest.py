"""A real browser: Debian's chromium by its path, as the driver's own downloads are not everywhere to be had.

Where there is none, the tests are skipped and say so; with ``ETCDFIX_REQUIRE_BROWSER=1`` that is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.pages import hostile_page, large_page
from tests.browser.watching import watched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
ALPHA = Path("fixtures/snapshots/alpha")


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


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that runs a command and gives the page that it wrote; each is run once."""
    folder = tmp_path_factory.mktemp("written")
    made: dict[tuple[str, ...], Path] = {}

    def run(*words: str) -> Path:
        if words not in made:
            made[words] = path = folder / f"{len(made)}.html"
            command = [sys.executable, "-m", "etcdfix", *words, "-o", "html", "--output-file", str(path)]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            assert ran.returncode in {0, 1, 3}, ran.stderr
        return made[words]

    return run


@pytest.fixture(scope="session")
def alpha(written: Callable[..., Path]) -> Path:
    """Return the page of a scan of the snapshot in which nearly everything goes wrong."""
    return written(
        "scan", "--snapshot", str(ALPHA / "snapshot.db.gz"), "--encryption-config", str(ALPHA / "config-lost.yaml"),
        "--no-kms",
    )  # fmt: skip


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page of 10,000 findings."""
    return large_page(tmp_path_factory.mktemp("large") / "large.html")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page full of names that somebody chose who means harm."""
    return hostile_page(tmp_path_factory.mktemp("hostile") / "hostile.html")
