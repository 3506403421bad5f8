"""What was measured is kept whole, put together by what is newest, and held against what must hold."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.benchmarks.measure import Run
from tests.benchmarks.results import Bar, Comparison, Series, judge, load, merged, save


def runs(*walls: float, memory: float = 10.0) -> tuple[Run, ...]:
    return tuple(Run(wall, wall / 2, memory) for wall in walls)


def comparison(
    name: str = "live-10", finished: str = "2026-01-02T00:00:00+00:00", wall: float = 2.0
) -> Comparison:
    ours = Series("ours", runs(wall, wall * 2, memory=60.0), 10)
    return Comparison(
        name, "Live", "theirs", (ours, Series("theirs", runs(4.0, 4.0), 10)), "a machine", finished
    )


def test_the_ratio_is_that_of_each_round() -> None:
    ratio = comparison().ratio("ours")
    assert ratio is not None
    assert (ratio.median, ratio.least, ratio.most) == (0.75, 0.5, 1.0)
    assert comparison().ratio("auger") is None
    assert comparison().ratio("ours", "auger") is None


@pytest.mark.parametrize(
    ("bar", "figure", "holds"),
    [
        (Bar("live-10", "ours", 0.75, "theirs"), "0.75 (0.50 to 1.00)", True),
        (Bar("live-10", "ours", 0.74, "theirs"), "0.75 (0.50 to 1.00)", False),
        (Bar("live-10", "ours", 60), "60 MB", True),
        (Bar("live-10", "ours", 59), "60 MB", False),
    ],
)
def test_a_bar_holds_or_does_not(bar: Bar, figure: str, holds: bool) -> None:
    verdict = judge(bar, {"live-10": comparison()})
    assert verdict is not None
    assert (verdict.figure, verdict.holds) == (figure, holds)


@pytest.mark.parametrize(
    "bar",
    [
        Bar("live-20", "ours", 1, "theirs"),
        Bar("live-10", "ours, 2 jobs", 1, "theirs"),
        Bar("live-10", "ours", 1, "auger"),
        Bar("live-10", "ours, 2 jobs", 100),
    ],
)
def test_what_was_not_measured_neither_holds_nor_fails(bar: Bar) -> None:
    assert judge(bar, {"live-10": comparison()}) is None


def test_the_newest_of_each_counts_whatever_the_order() -> None:
    old, new = comparison(wall=1.0), comparison(finished="2026-01-03T00:00:00+00:00", wall=3.0)
    other = comparison("offline-10")
    for parts in ([[old, other], [new]], [[new], [old, other]]):
        assert {one.name: one for one in merged(parts)} == {"live-10": new, "offline-10": other}


def test_figures_come_back_as_they_were_saved(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    save(file, [comparison(), comparison("offline-10")])
    assert load(file) == [comparison(), comparison("offline-10")]
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    save(file, [comparison()])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(msgspec.DecodeError):
        load(file)
