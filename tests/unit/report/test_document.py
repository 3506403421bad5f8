"""A document in every form: what is shown, what is counted, and what no form may do."""

from __future__ import annotations

import html
import io
import json
import re

import pytest

from etcdfix.report.document import (
    Column,
    Document,
    Facts,
    Kind,
    Node,
    Prose,
    Status,
    Step,
    Steps,
    Table,
    ToWide,
    Tree,
)
from etcdfix.report.document import State as DocumentState
from etcdfix.report.model import PublishedReport, Tool
from etcdfix.report.render import FORMS, write
from etcdfix.text.commands import Command, Part, RunOptions
from tests.support.fixtures import Patch

RUN = RunOptions(source=("--snapshot", "a file.db"))
SHOW = Command(("etcdfix", "explain", Part.SOURCE, "/registry/secrets/shop/a"))


class Sizes(PublishedReport, frozen=True, kw_only=True):
    """A report as a new command would have it."""

    ROWS = "keys"

    kind: str = "Sizes"
    keys: list[dict[str, object]]
    step: Command

    def document(self) -> Document:
        """Return one of each section."""
        columns = [Column("BYTES", Kind.NUMBER), Column("WHAT", folds=True), Column("KEY", Kind.KEY)]
        rows = [(int(str(row["bytes"])), "words " * 12, str(row["key"])) for row in self.keys]
        return Document(
            status=Status(DocumentState.FINDINGS, "3 objects are large"),
            about=Facts(
                facts=[("revision", "revision 7"), ("empty", ""), ("keys", ToWide("-o wide lists keys"))]
            ),
            stakes=["BREAKS NOW: \x1b[31mnothing", ToWide("2 more: -o wide lists them")],
            next=Step("look at the largest", self.step),
            sections=[
                Table(
                    columns=columns,
                    rows=rows,
                    brief=2,
                    noun="key",
                    counted=0,
                    sum=60,
                    counts="byte",
                    total=len(rows) + 1,
                ),
                Steps(steps=[Step("do it", self.step, "with care")]),
                Prose(paragraphs=[ToWide("6 steps: -o wide lists them", "6 steps in all.")]),
                Prose(title="Why", paragraphs=["<b>because</b>"], wide=True),
                Tree(title="Tree", nodes=[Node("top", [Node("below")])]),
            ],
        )


KEYS: list[dict[str, object]] = [
    {"bytes": size, "key": f"/registry/secrets/shop/{'x' * 60}{size}"} for size in (10, 20, 25)
]
REPORT = Sizes(tool=Tool("etcdfix", "1"), generated_at="2026-01-01T00:00:00Z", keys=KEYS, step=SHOW)


def written(form: str) -> str:
    stream = io.BytesIO()
    write(REPORT, form, stream, RUN)
    return stream.getvalue().decode()


@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_command_with_the_options_of_this_run(form: str) -> None:
    text = re.sub("</?span>", "", html.unescape(written(form)))
    assert "etcdfix explain --snapshot 'a file.db' /registry/secrets/shop/a" in text.replace("''", "'")


@pytest.mark.parametrize("form", ["text", "wide", "html"])
def test_text_of_strangers_moves_no_terminal(form: str) -> None:
    assert "\x1b" not in written(form)


def test_a_page_escapes_text_of_strangers() -> None:
    assert "<b>because</b>" not in written("html")


def test_no_wide_form_points_at_itself() -> None:
    assert written("text").count("-o wide lists") == 4
    for form in ("wide", "html"):
        assert "-o wide" not in written(form)
        assert "6 steps in all." in written(form)


def test_text_shows_the_first_rows_and_counts_the_others() -> None:
    assert "and 2 more keys with 30 bytes: -o wide lists them" in written("text")
    assert "because" not in written("text")
    assert "because" in written("wide")


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_key_stays_whole_and_what_may_fold_folds(width: int, monkeypatch: Patch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = written("text").splitlines()
    assert any(line.endswith(f"{'x' * 60}10") for line in lines)
    if width == 200:
        assert sum("words" in line for line in lines) == 2


def test_json_has_all_rows_and_lines_too() -> None:
    assert json.loads(written("json"))["keys"] == KEYS
    assert [json.loads(line).get("bytes") for line in written("jsonl").splitlines()] == [10, 20, 25, None]
