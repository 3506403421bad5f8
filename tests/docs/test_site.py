"""The documentation as a site: no warning, no page that is not reached, no dead link."""

from __future__ import annotations

import html
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from etcdfix.cli.root import cli
from tests.support.command_blocks import REPOSITORY, blocks_of, pages
from tests.support.site import Page, built_site, read_page

pytestmark = pytest.mark.thorough  # building the site takes a minute; links of the pages are checked always

# Sphinx's own, of no use to who reads: the general index, which is empty.
WITHOUT_LINK = {"genindex.html"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_site(tmp_path_factory)


@pytest.fixture(scope="module")
def built(site: Path) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): read_page(path) for path in site.rglob("*.html")}


def place(page: str, target: str) -> tuple[str, str]:
    parts = urlsplit(target)
    path = posixpath.normpath(f"{posixpath.dirname(page)}/{unquote(parts.path)}") if parts.path else page
    return path.lstrip("/"), unquote(parts.fragment)


def is_outside(target: str) -> bool:
    return bool(urlsplit(target).scheme or urlsplit(target).netloc)


def test_every_page_is_on_the_site(built: dict[str, Page]) -> None:
    expected = {page.relative_to(REPOSITORY).with_suffix(".html").as_posix() for page in pages()}
    assert expected == set(built) - {"index.html", "search.html", *WITHOUT_LINK}


def test_every_page_is_reached_by_the_links_of_the_index(built: dict[str, Page]) -> None:
    """By what stands in the pages; the sidebar does not count."""
    reached = ["docs/README.html"]
    for page in reached:
        found = {place(page, target)[0] for target in built[page].links if not is_outside(target)}
        reached += sorted(other for other in found if other in built and other not in reached)
    expected = {page.relative_to(REPOSITORY).with_suffix(".html").as_posix() for page in pages()}
    assert expected - set(reached) == {"README.html"}  # which leads to the index


def test_no_link_is_dead(site: Path, built: dict[str, Page]) -> None:
    dead = []
    for page, read in built.items():
        for target in {*read.targets, *read.loaded}:
            if is_outside(target) or target == "#":
                continue
            path, name = place(page, target)
            there = (site / path).is_file() and (not name or path not in built or name in built[path].names)
            if not there:
                dead.append(f"{page}: {target}")
    assert dead == []


def test_nothing_is_loaded_from_elsewhere(site: Path, built: dict[str, Page]) -> None:
    assert [target for read in built.values() for target in read.loaded if is_outside(target)] == []
    for style in site.rglob("*.css"):
        loads = re.findall(r"(?:@import\s+|url\()\s*['\"]?(https?:|//)", style.read_text(encoding="utf-8"))
        assert loads == [], style


def test_what_is_copied_from_the_site_is_what_is_run(site: Path) -> None:
    """Word for word: commands are coloured and folded, and nothing comes of that in what is pasted."""
    for page in pages():
        text = (site / page.relative_to(REPOSITORY).with_suffix(".html")).read_text(encoding="utf-8")
        shown = re.findall(r'<div class="highlight-sh notranslate">.*?<pre>(.*?)</pre>', text, re.DOTALL)
        copied = [html.unescape(re.sub(r"<[^>]*>", "", block)).strip("\n") for block in shown]
        assert copied == [block.text.strip("\n") for block in blocks_of(page) if block.info == "sh"], page


def test_the_help_of_every_command_is_on_the_site(built: dict[str, Page]) -> None:
    assert {f"etcdfix-{name}" for name in cli.commands} <= built["docs/reference/commands.html"].names
