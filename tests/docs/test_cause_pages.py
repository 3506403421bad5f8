"""Every cause has its page, and what stands there is true: its head, its commands, its fixture and its test.

The heads are made from the catalogue::

    ETCDFIX_UPDATE_SNAPSHOTS=1 pytest -n0 tests/docs/test_cause_pages.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etcdfix.operations.look.explain_cause import cause_summary
from etcdfix.reports.formats.causes import head_lines
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.server_messages import SERVER_MESSAGES

REPOSITORY = Path(__file__).parents[2]
PAGES = REPOSITORY / "docs" / "causes"
UPDATE = os.environ.get("ETCDFIX_UPDATE_SNAPSHOTS") == "1"
SECTIONS = ["What you see", "What it means", "How to be sure", "What to do", "How to undo", "Fixture", "Test"]
WIDTH = 80


def head(cause: Cause) -> str:
    return "\n".join(head_lines(cause_summary(cause))) + "\n"


def page(cause: Cause) -> str:
    return (PAGES / f"{cause}.md").read_text()


def sections(cause: Cause) -> dict[str, str]:
    _head, *rest = page(cause).split("\n## ")
    return dict(part.split("\n", 1) for part in rest)


@pytest.mark.parametrize("cause", Cause)
def test_the_head_says_what_the_catalogue_says(cause: Cause) -> None:
    _, found, rest = page(cause).partition("\n## ") if (PAGES / f"{cause}.md").exists() else ("", "", "")
    if UPDATE:
        (PAGES / f"{cause}.md").write_text(head(cause) + found + rest)
    assert page(cause).partition("\n## ")[0] == head(cause)


def test_there_is_a_page_for_every_cause_and_no_other() -> None:
    assert {path.name for path in PAGES.iterdir()} == {f"{cause}.md" for cause in Cause}
    assert set(SERVER_MESSAGES) == set(Cause)
