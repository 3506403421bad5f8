"""The page keeps its own text, and its tables say what was measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.measure import Run
from tests.benchmarks.page import BEGIN, END, NoPlaceError, growth_lines, measured, write_page
from tests.benchmarks.results import Bar, Comparison, Series


def series(name: str, wall: float, keys: int = 10, line: str = "") -> Series:
    return Series(name, (Run(wall, wall, 5.0, 8.0, 2), Run(wall * 2, wall, 6.0, 9.0, 2)), keys, line=line)


def comparison(name: str = "live-10") -> Comparison:
    commands = (series("etcdfix, 2 jobs", 1.0), series("etcdctl", 2.0))
    return Comparison(name, f"Title of {name}", "etcdctl", commands, "a machine", "2026-01-02T03:04:05+00:00")


def test_the_tables_say_what_was_measured() -> None:
    text = measured([comparison()], [Bar("live-10", "etcdfix, 2 jobs", 0.75, "etcdctl")])
    assert "| Title of live-10 | etcdfix, 2 jobs | 0.75 times etcdctl | 0.50 (0.50 to 0.50) | yes |" in text
    assert "| etcdfix, 2 jobs | 1.50 (1.00 to 2.00) | 0.50 (0.50 to 0.50) |" in text
    assert "a machine; 2026-01-02; rounds: 2; load before: 0.0." in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.count("|") in {6, 8}


def test_what_does_not_hold_is_said() -> None:
    text = measured([comparison()], [Bar("live-10", "etcdfix, 2 jobs", 5)])
    assert "| Title of live-10 | etcdfix, 2 jobs | 5 MB a process | 6 MB | **no** |" in text


def test_growth_is_told_for_each_line_of_three_points() -> None:
    commands = [series(f"{keys}", 1 + keys / 100, keys, "healthy") for keys in (10, 100, 1000)]
    few = [series(f"{keys} lost", 1.0, keys, "under a lost key") for keys in (10, 100)]
    (line,) = growth_lines([*commands, *few, series("other", 1.0)])
    assert line.startswith("Straight line through the medians (healthy): 1.50 s and 15000.0 µs a key;")


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(page, [comparison()], [])
    first = page.read_text()
    assert re.match(rf"before\n\n{BEGIN}\n\n### ", first)
    assert first.endswith(f"\n{END}\nafter\n")
    assert "old" not in first
    write_page(page, [comparison()], [])
    assert page.read_text() == first


@pytest.mark.parametrize("text", ["", f"{BEGIN}\n", f"{END}\n{BEGIN}\n", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_two_marks_is_left_alone(tmp_path: Path, text: str) -> None:
    page = tmp_path / "performance.md"
    page.write_text(text)
    with pytest.raises(NoPlaceError, match=r"performance\.md"):
        write_page(page, [comparison()], [])
    assert page.read_text() == text
    assert list(tmp_path.iterdir()) == [page]
