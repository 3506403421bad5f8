"""The documentation as a site: built once for all workers, without a network where that can be had.

With ``ETCDFIX_REQUIRE_APART=1`` it is built so or not at all.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from tests.support.command_blocks import REPOSITORY
from tests.support.pasted import apart

_BUILD: Final = ("-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-b", "html", "-c", "docs", ".")


def built_site(folders: pytest.TempPathFactory) -> Path:
    """Build the site where workers share it, unless one of them has, and return its directory.

    Raises:
        AssertionError: It does not build; the text has Sphinx's warnings. Or it must have no network, and had one.
    """
    before = apart()
    assert before is not None or os.environ.get("ETCDFIX_REQUIRE_APART") != "1", (
        "the site is to be built without a network, and this machine lets nothing run apart"
    )
    own = folders.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    site, lock = folder / "site", folder / "site.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not (site / "index.html").exists():
            done = subprocess.run(
                [*(before or []), sys.executable, *_BUILD, str(site)],
                cwd=REPOSITORY,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    return site


@dataclass
class Page(HTMLParser):
    """What a page of the site has: names to link to, links of its text, and everything that it points to."""

    names: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    _in_text: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.names.add(found.get("id", ""))
        self._in_text += tag == "article"
        if tag == "a" and "href" in found:
            self.targets.append(found["href"])
            if self._in_text:
                self.links.append(found["href"])
        elif tag == "link" and "href" in found:
            self.loaded.append(found["href"])
        elif "src" in found:
            self.loaded.append(found["src"])

    def handle_endtag(self, tag: str) -> None:
        self._in_text -= tag == "article"


def read_page(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page
