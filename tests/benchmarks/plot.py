"""Plots as SVG: horizontal bars with the spread of the runs. Text stays text; colors follow a light or dark page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.sax.saxutils import escape

import msgspec

from tests.benchmarks.measure import Spread

WIDTH, NAMES, FIGURES = 760, 210, 170
"""Of the picture, of what stands to the left of the bars, and of what stands to their right; in pixels."""

ROW, TITLE, GAP, MARGIN = 22, 26, 14, 12

STYLE = """
text { font: 13px sans-serif; fill: #1f2328; }
.title { font-weight: bold; }
.bar { fill: #8c959f; }
.ours { fill: #0969da; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .bar { fill: #6e7681; }
  .ours { fill: #4493f8; }
  .spread { stroke: #e6edf3; }
}
"""


class Row(msgspec.Struct, frozen=True):
    """One bar: its name, what it is long, and whether it is one of ours."""

    name: str
    seconds: Spread
    ours: bool


class Group(msgspec.Struct, frozen=True):
    """Bars under one title, on one scale."""

    title: str
    rows: Sequence[Row]


def svg(groups: Sequence[Group]) -> str:
    """Draw groups one below the other; each bar is a median, the thin line the smallest and the largest run."""
    body: list[str] = []
    top = MARGIN
    for group in groups:
        body.append(_text(MARGIN, top + 15, group.title, "title"))
        top += TITLE
        longest = max((row.seconds.most for row in group.rows), default=0.0) or 1.0
        scale = (WIDTH - NAMES - FIGURES - 2 * MARGIN) / longest
        for row in group.rows:
            body += _bar(row, top, scale)
            top += ROW
        top += GAP
    height = top + MARGIN - GAP
    label = "; ".join(group.title for group in groups)
    size = f'width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_safe(label)}</title>",
        f"<style>{STYLE}</style>",
    ]
    return "\n".join([*head, *body, "</svg>", ""])


def _bar(row: Row, top: int, scale: float) -> list[str]:
    left, middle = MARGIN + NAMES, top + 9
    ends = [left + scale * value for value in (row.seconds.median, row.seconds.least, row.seconds.most)]
    kind = "bar ours" if row.ours else "bar"
    place = f'x="{left}" y="{top + 2}" width="{ends[0] - left:.1f}" height="14"'
    return [
        _text(MARGIN, top + 14, row.name),
        f'<rect class="{kind}" {place} rx="2"/>',
        f'<line class="spread" x1="{ends[1]:.1f}" y1="{middle}" x2="{ends[2]:.1f}" y2="{middle}"/>',
        _text(round(ends[2]) + 8, top + 14, f"{row.seconds.text()} s"),
    ]


def _text(left: int, base: int, text: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{left}" y="{base}">{_safe(text)}</text>'


def _safe(text: str) -> str:
    """Escape, and leave out what XML 1.0 has no way to write."""
    return escape(re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "", text))
