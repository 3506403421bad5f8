"""What the charts of a page measure."""

from __future__ import annotations

from etcdfix.reports.formats.charts import Revisions, stacked


def test_parts_of_a_bar_stand_side_by_side() -> None:
    bar = stacked(
        "secrets", [("decrypt-failure", 5), ("inconsistent", 0), ("undetermined", 15)], 40, "20", "secrets"
    )
    assert [(part.shade, part.count, part.start, part.width) for part in bar.parts] == [
        ("decrypt-failure", 5, 0.0, 12.5),
        ("undetermined", 15, 12.5, 37.5),
    ]


def test_one_of_a_million_can_still_be_seen() -> None:
    (part,) = stacked("secrets", [("decrypt-failure", 1)], 1_000_000, "1").parts
    assert part.width > 0.5


def test_revisions_of_any_range_are_counted_each() -> None:
    for step in (1, 7, 1_000_003):
        counts = Revisions()
        for number in range(2_000):
            counts.add(10_000_000 + number * step)
        first, last = counts.first, counts.last
        assert (first, last) == (10_000_000, 10_000_000 + 1_999 * step)
        columns, tallest = counts.columns(first, last)
        assert len(columns) == 60
        assert all(
            0 <= start < 100 and 0 < width < 100 and 0 < height <= 100 for start, width, height in columns
        )
        assert 2_000 / 60 <= tallest < 60


def test_two_times_far_apart_are_two_columns() -> None:
    counts = Revisions()
    for number in range(1_000):
        counts.add(100 + number % 50)
        counts.add(9_000_000 + number % 50)
    columns, tallest = counts.columns(counts.first, counts.last)
    assert [round(start) for start, _, _ in columns] == [0, 98]
    assert tallest == 1_000
