"""The page of a report in a real browser, as somebody uses it at night."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etcdfix.cli.root import run
from etcdfix.report.render.html import page as page_of
from tests.browser.pages import LARGE, RUN, hostile, large
from tests.browser.watching import violations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]

ALPHA = Path(__file__).parents[2] / "fixtures" / "snapshots" / "alpha"
_NARROW = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, document in (("large", large()), ("hostile", hostile())):
        (folder / name).with_suffix(".html").write_text(page_of(document, RUN), "utf-8")
    return {path.stem: path for path in folder.iterdir()}


def keys(page: Page) -> list[str]:
    return page.locator("tbody tr td:first-child code").all_inner_texts()


def test_words_filter_and_heads_sort(show: Open, pages: dict[str, Path]) -> None:
    page = show(pages["large"])
    status, field = page.get_by_role("status"), page.get_by_label("Filter")
    assert status.inner_text() == "2,000 rows"
    assert len(keys(page)) < LARGE
    field.fill("PROTOBUF web-0199")
    assert status.inner_text() == "4 of 2,000 rows"
    assert keys(page) == [f"/registry/secrets/shop/web-{at:05}" for at in (1990, 1993, 1996, 1999)]
    field.fill("")
    head = page.get_by_role("columnheader", name="OBJECTS")
    for order, first in (("ascending", "web-00000"), ("descending", "web-01999")):
        head.get_by_role("button").click()
        assert head.get_attribute("aria-sort") == order
        assert keys(page)[0].endswith(first)
    page.get_by_role("button", name="Show 100 more").click()
    assert len(keys(page)) == 200


def test_the_head_says_what_where_and_when_and_red_is_what_breaks_now(
    show: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """On the page of a scan; an old file's date would pass for that of the scan."""
    snapshot, shown = tmp_path / "old.db.gz", tmp_path / "scan.html"
    snapshot.write_bytes((ALPHA / "snapshot.db.gz").read_bytes())
    os.utime(snapshot, (1_000_000_000, 1_000_000_000))
    reading = ["--encryption-config", str(ALPHA / "config-lost.yaml"), "--no-kms"]
    words = ["scan", "--snapshot", str(snapshot), *reading]
    assert run([*words, "-o", "html", "--output-file", str(shown)]) == 3
    capfd.readouterr()
    assert run(words) == 3
    text = capfd.readouterr().out
    page = show(shown)
    head = page.locator("header").inner_text()
    for told in ("revision 589 of", "old.db.gz", "kube-system uid be3430c1", f"{datetime.now(UTC):%Y-}"):
        assert told in head
    assert "2001-09-09" not in page.content()
    titles = page.locator("summary").all_inner_texts()
    assert [title.startswith("What to do about") for title in titles[:3]] == [True, True, False]
    assert titles[2] == "What was found"
    red = page.locator(".bad").all_inner_texts()
    assert len(red) > 1
    assert all(text.lower().startswith(("breaks now", "breaks-now")) for text in red)
    wrong = page.locator("table").first.locator("tbody tr td:nth-child(2)").all_inner_texts()
    lines = text.split("WHAT TO DO\n")[1].splitlines()[:8]
    assert all(what in line for what, line in zip(wrong, lines, strict=False))


def test_commands_are_copied_as_they_are(show: Open, pages: dict[str, Path]) -> None:
    page = show(pages["large"], permissions=["clipboard-read", "clipboard-write"])
    for place in (".next", "tbody tr", "ol"):
        page.locator(f"{place} .copy").first.click()
        page.locator(f"{place} .copy", has_text="Copied").first.wait_for()
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("etcdfix ")
        assert "--endpoints https://10.0.0.1:2379" in copied
        assert copied == copied.strip()


def test_everything_folds_and_paper_has_all(show: Open, pages: dict[str, Path]) -> None:
    page = show(pages["large"])
    folds = page.locator("details")
    assert [fold.get_attribute("open") is not None for fold in folds.all()] == [True] * 2 + [False] * 3
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.locator("details:not([open])").count() == 0
    assert len(keys(page)) == LARGE
    for name in (".copy", ".tools"):
        assert page.locator(name).locator("visible=true").count() == 0


@pytest.mark.parametrize("name", ["large", "hostile"])
def test_a_narrow_screen_needs_no_sideways_scrolling(show: Open, pages: dict[str, Path], name: str) -> None:
    page = show(pages[name], viewport=_NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= _NARROW["width"]
    assert page.locator(".next .copy").is_visible()


def test_without_script_everything_is_there(show: Open, pages: dict[str, Path]) -> None:
    page = show(pages["large"], java_script_enabled=False)
    assert page.locator("tbody tr").count() == LARGE
    assert "BREAKS NOW" in page.locator("body").inner_text()


def test_hostile_text_does_nothing(show: Open, pages: dict[str, Path]) -> None:
    page = show(pages["hostile"])
    assert page.title().startswith("<img src=x")
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    words = page.locator("body").inner_text()
    assert "{{7*7}}" in words
    assert r"\u202egnp.exe" in words
    assert all(character.isprintable() or character in "\n\t" for character in words)


def test_what_gets_in_all_the_same_can_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["large"].as_uri())
    heard = page.evaluate(
        """() => new Promise((done) => {
          const refused = [];
          document.addEventListener("securitypolicyviolation", (event) => {
            refused.push(event.effectiveDirective);
            if (refused.length === 3) done(refused.sort());
          });
          const script = document.createElement("script"), style = document.createElement("style");
          script.textContent = "document.title = 'x'";
          style.textContent = "body { color: red }";
          const image = document.createElement("img");
          image.src = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
          document.body.append(script, style, image);
        })"""
    )
    assert heard == ["img-src", "script-src-elem", "style-src-elem"]
    assert page.title() != "x"
    page.close()


@pytest.mark.parametrize(
    ("name", "context"),
    [
        ("large", {"color_scheme": "light"}),
        ("hostile", {"color_scheme": "dark"}),
        ("large", {"viewport": _NARROW}),
    ],
)
def test_axe_finds_nothing(show: Open, pages: dict[str, Path], name: str, context: dict[str, object]) -> None:
    page = show(pages[name], bypass_csp=True, **context)
    page.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert violations(page) == []
