"""``-o csv``, ``name`` and ``status``: no formula, and nothing that acts upon a terminal."""

from __future__ import annotations

import csv
import io

import pytest

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Evidence, Outcome
from etcdfix.report.render import html
from tests.support.examinations import examination
from tests.support.fixtures import Patch
from tests.support.reports import write_form


def rows(*found: Examination) -> list[dict[str, str]]:
    text = write_form("csv", list(found)).decode()
    assert text.endswith("\r\n")
    return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))


def test_a_row() -> None:
    (row,) = rows(examination(outcome=Outcome.DECODE_FAILURE, message='it says "a, b"', mod_revision=41))
    assert row["key"] == "/registry/secrets/shop/web"
    assert row["message"] == 'it says "a, b"'
    assert (row["mod_revision"], row["stale"], row["lease"], row["key_base64"]) == ("41", "false", "", "")


@pytest.mark.parametrize(
    "first", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠"], ids=lambda one: f"{ord(one):x}"
)
def test_no_cell_is_a_formula(first: str) -> None:
    hostile = first + 'cmd|" -C calc"!A0,x'
    (row,) = rows(
        examination(f"/registry/secrets/{hostile}/{hostile}", message=hostile, upstream_message=hostile)
    )
    for column in ("name", "namespace", "message", "upstream_message"):
        assert row[column].startswith("'")
        assert row[column][1:].startswith((first, "\\"))
    assert not any(value.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) for value in row.values())
    assert row["key"].startswith("/registry/secrets/")


def test_names_are_words_of_a_command_line() -> None:
    keys = [b"/registry/secrets/shop/web", b"/registry/secrets/shop/\xff", b"/registry/secrets/shop/a*"]
    assert write_form("name", map(examination, keys)).decode().split() == [
        "/registry/secrets/shop/web",
        "base64:L3JlZ2lzdHJ5L3NlY3JldHMvc2hvcC//",
        "base64:L3JlZ2lzdHJ5L3NlY3JldHMvc2hvcC9hKg==",
    ]


def test_a_page_has_the_lost_key_that_came_after_all_its_warnings(monkeypatch: Patch) -> None:
    most = 50
    monkeypatch.setattr(html, "MOST_ROWS", most)
    monkeypatch.setattr(html.HTMLWriter, "most", most)
    warnings = (
        examination(
            f"/registry/pods/a/{n}",
            outcome=Outcome.READABLE,
            cause=None,
            evidence=(Evidence("unknown fields", "ignored", "spec.x"),),
        )
        for n in range(most + 1)
    )
    page = write_form("html", [*warnings, examination()]).decode()
    assert page.count("/registry/pods/a/") == most - 1
    assert "/registry/secrets/shop/web" in page
