"""The page on speed says what was measured, and how to do it again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.comparisons import GROUPS, bars
from tests.benchmarks.page import BEGIN, END, measured
from tests.benchmarks.performance import arguments_of
from tests.benchmarks.results import load

DOCS = Path(__file__).parents[2] / "docs"
PAGE, FIGURES = DOCS / "performance.md", DOCS / "performance.json"


def test_the_tables_are_those_of_the_kept_figures() -> None:
    """``python -m tests.benchmarks.performance --from-json docs/performance.json --write docs/performance.md``."""
    part = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert part == f"\n\n{measured(load(FIGURES), bars())}\n"


def test_every_option_and_every_table_is_on_the_page() -> None:
    text = PAGE.read_text()
    for option in ("--data", "--json", "--write", "--keys", "--jobs", "--runs", "--minutes", "--only", "--quick",
                   "--bars", "--prepare", "--from-json"):  # fmt: skip
        assert option in text
    for group in GROUPS:
        assert f"`{group}`" in text or f"{group}," in text


def test_the_command_on_the_page_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = [
        line for line in PAGE.read_text().splitlines() if line.startswith("python -m tests.benchmarks.")
    ]
    options = arguments_of(line.split()[3:])
    assert (options.json, options.write) == (Path("docs/performance.json"), Path("docs/performance.md"))


def test_no_path_of_a_machine_is_in_the_figures() -> None:
    assert "/" not in FIGURES.read_text()
