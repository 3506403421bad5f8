"""The pages of the other commands, without a browser: what stands first, and that nothing gets out of its place."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import HOSTILE, Page
from tests.support.spoiled import WRITERS, document_of, spoiled, write

_GRIDS = {
    "impact": {"dependents"},
    "namespace": {"blockers"},
    "plan": {"objects", "left-out"},
    "copies": {"objects"},
    "compare": {"differences"},
}


@pytest.fixture(scope="module", params=list(WRITERS))
def of_command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Return which page, and the report of a real command."""
    return request.param, document_of(request.param, tmp_path_factory.mktemp(request.param))


def test_the_page_has_what_the_report_has(of_command: tuple[str, Any], tmp_path: Path) -> None:
    name, document = of_command
    page = Page(write(name, document, tmp_path / "page.html").read_bytes())
    assert set(page.data) == _GRIDS[name]
    for grid in page.data:
        assert page.rows(grid)
    if name != "compare":  # nothing has to be done about what is new
        assert "Next" in page.texts[:30]
    if document.get("do_not_restart"):
        assert document["do_not_restart"] in page.words
    if not document["complete"]:
        assert "Incomplete: not everything was seen or could be decided" in page.words
        assert document["incomplete_reasons"][0] in page.words


def test_strangers_texts_stay_text(of_command: tuple[str, Any], tmp_path: Path) -> None:
    name, document = of_command
    page = Page(write(name, spoiled(copy.deepcopy(document)), tmp_path / "page.html").read_bytes())
    assert page.tags.isdisjoint({"img", "iframe", "link", "object", "form", "base"})
    assert {"onerror", "src", "style"}.isdisjoint(page.attributes)
    assert len(page.code) == 2
    assert set(page.data) == _GRIDS[name]
    assert all(character.isprintable() or character == "\n" for character in page.source)
    assert HOSTILE in page.everything
