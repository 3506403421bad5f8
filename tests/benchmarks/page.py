"""The measured part of ``docs/performance.md``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.benchmarks.measure import Spread, straight_line
from tests.benchmarks.results import Bar, Comparison, Series, judge

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


class NoPlaceError(Exception):
    """A page has no place for what was measured."""


def write_page(page: Path, comparisons: Sequence[Comparison], bars: Sequence[Bar]) -> None:
    """Put what was measured between the two marks of a page.

    Raises:
        NoPlaceError: The marks do not stand there, each once and in order.
    """
    text = page.read_text()
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise NoPlaceError(f"{page}: {BEGIN} and {END} must stand there once, in this order")
    page.write_text(f"{before}{BEGIN}\n\n{measured(comparisons, bars)}\n{END}{after}")


def measured(comparisons: Sequence[Comparison], bars: Sequence[Bar]) -> str:
    """Return all tables, as Markdown."""
    parts = [*held(comparisons, bars), *(section(comparison) for comparison in comparisons)]
    return "\n\n".join(parts) + "\n"


def held(comparisons: Sequence[Comparison], bars: Sequence[Bar]) -> list[str]:
    """What must be shown, as far as it was measured."""
    by_name = {comparison.name: comparison for comparison in comparisons}
    rows = []
    for bar in bars:
        verdict = judge(bar, by_name)
        if verdict is not None:
            asked = f"{bar.most:g} times {bar.against}" if bar.against else f"{bar.most:g} MB a process"
            title = by_name[bar.comparison].title
            rows.append([title, bar.series, asked, verdict.figure, "yes" if verdict.holds else "**no**"])
    if not rows:
        return []
    return ["### What must hold", table(["data", "command", "at most", "measured", "holds"], rows)]


def section(comparison: Comparison) -> str:
    """One comparison: where and when, a row for each command, and how its time grows."""
    rounds = len(comparison.series[0].runs)
    parts = [
        f"### {comparison.title}",
        f"{comparison.machine}; {comparison.finished[:10]}; rounds: {rounds}; load before: {comparison.load:.1f}.",
        table(
            ["command", "seconds", f"times {comparison.against}", "processor seconds", "MB, largest process",
             "MB, all", "processes"],
            [_row(comparison, series) for series in comparison.series],
        ),
        *growth_lines(comparison.series),
    ]  # fmt: skip
    return "\n\n".join(parts)


def _row(comparison: Comparison, series: Series) -> list[str]:
    ratio = comparison.ratio(series.name)
    return [
        series.name,
        Spread.of(series.wall).text(),
        "" if ratio is None or series.name == comparison.against else ratio.text(),
        Spread.of(series.cpu).text(),
        f"{series.anonymous_mb:.0f}",
        f"{series.all_mb:.0f}",
        str(series.processes),
    ]


def growth_lines(series: Sequence[Series]) -> list[str]:
    """A sentence for each straight line that was looked for and has at least three points."""
    found = []
    for word in dict.fromkeys(each.line for each in series if each.line):
        points = {each.keys: Spread.of(each.wall).median for each in series if each.line == word}
        if len(points) >= 3:
            line = straight_line(points)
            found.append(
                f"Straight line through the medians ({word}): {line.start:.2f} s and "
                f"{line.per_key * 1e6:.1f} µs a key; no median is further than {100 * line.worst:.0f} % from it."
            )
    return found


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
