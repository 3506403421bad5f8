"""The page keeps its own text, and its tables and its plot say what was measured."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.benchmarks.measure import Run, Spread
from tests.benchmarks.page import BEGIN, END, NoPlaceError, growth_lines, measured, plot, write_page
from tests.benchmarks.plot import Group, Row, svg
from tests.benchmarks.results import Bar, Comparison, Series

SVG = "{http://www.w3.org/2000/svg}"


def series(name: str, wall: float, keys: int = 10, line: str = "") -> Series:
    return Series(name, (Run(wall, wall, 5.0, 8.0, 2), Run(wall * 2, wall, 6.0, 9.0, 2)), keys, line=line)


def comparison(name: str = "live-10") -> Comparison:
    commands = (series("etcdfix, 2 jobs", 1.0), series("etcdctl", 2.0))
    return Comparison(name, f"Title of {name}", "etcdctl", commands, "a machine", "2026-01-02T03:04:05+00:00")


def texts(picture: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(picture).iter(f"{SVG}text")]


def test_the_plot_is_xml_and_every_label_is_text_in_it() -> None:
    found = texts(plot([comparison("live-10"), comparison("offline-10")]))
    assert found.count("etcdfix, 2 jobs") == 2
    assert {"Title of live-10", "Title of offline-10", "1.50 (1.00 to 2.00) s"} <= set(found)


def test_comparisons_with_many_rows_are_not_drawn() -> None:
    assert texts(plot([comparison("providers-10")])) == []


def test_hostile_names_stay_text() -> None:
    name = 'a <b> & "c" </text>\x00\x1b\ufffe'
    picture = svg([Group(name, [Row(name, Spread(1.0, 1.0, 1.0), ours=True)])])
    assert texts(picture)[:2] == ['a <b> & "c" </text>'] * 2


def test_everything_stays_inside_of_the_picture() -> None:
    rows = [
        Row(f"row {number}", Spread(number, number / 2, number * 2), ours=False) for number in range(1, 30)
    ]
    picture = ET.fromstring(svg([Group("many", rows)]))
    width, height = float(picture.get("width", "")), float(picture.get("height", ""))
    for bar in picture.iter(f"{SVG}rect"):
        assert 0 <= float(bar.get("x", "")) + float(bar.get("width", "")) <= width
    for line in picture.iter(f"{SVG}line"):
        assert float(line.get("x2", "")) <= width
    for text in picture.iter(f"{SVG}text"):
        assert float(text.get("y", "")) <= height


def test_no_time_at_all_is_drawn_too() -> None:
    assert "0.00" in svg([Group("nothing", [Row("none", Spread(0.0, 0.0, 0.0), ours=True)])])
    assert texts(svg([])) == []


def test_the_tables_say_what_was_measured() -> None:
    text = measured([comparison()], [Bar("live-10", "etcdfix, 2 jobs", 0.75, "etcdctl")], "p.svg")
    assert "| Title of live-10 | etcdfix, 2 jobs | 0.75 times etcdctl | 0.50 (0.50 to 0.50) | yes |" in text
    assert "| etcdfix, 2 jobs | 1.50 (1.00 to 2.00) | 0.50 (0.50 to 0.50) |" in text
    assert "a machine; 2026-01-02; rounds: 2; load before: 0.0." in text
    for line in text.splitlines():
        assert not line.startswith("|") or line.count("|") in {6, 8}


def test_what_does_not_hold_is_said() -> None:
    text = measured([comparison()], [Bar("live-10", "etcdfix, 2 jobs", 5)], "p.svg")
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
    assert re.match(rf"before\n\n{BEGIN}\n\n!\[", first)
    assert first.endswith(f"\n{END}\nafter\n")
    assert "old" not in first
    assert (tmp_path / "performance.svg").read_text() == plot([comparison()])
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
