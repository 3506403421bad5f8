"""Charts of a page: what their bars and lines measure. The template draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

SHADES: Final = ("decrypt-failure", "decode-failure", "inconsistent", "undetermined", "readable")
"""What the parts of a bar mean, each in a shade of its own."""
_MOST_BUCKETS: Final = 256
_BINS: Final = 60


class Part(msgspec.Struct, frozen=True):
    """A part of a bar; ``start`` and ``width`` are percents of the whole width."""

    shade: str
    count: int
    start: float
    width: float


class Bar(msgspec.Struct, frozen=True):
    """A bar: ``label`` and what it counts, in words too. ``value`` is what the table is filtered by, "" for nothing."""

    label: str
    parts: Sequence[Part]
    words: str
    value: str = ""


class Bars(msgspec.Struct, frozen=True):
    """Bars below one another. ``column`` is the head of the column that a bar filters by; "" for none."""

    title: str
    items: Sequence[Bar]
    column: str = ""
    note: str = ""


class Span(msgspec.Struct, frozen=True):
    """When values under one encryption key were written; ``start`` and ``width`` are percents."""

    label: str
    start: float
    width: float
    words: str
    shade: str


class Timeline(msgspec.Struct, frozen=True):
    """What was written when, by mod_revision: columns for the findings, lines for the encryption keys."""

    title: str
    first: int
    last: int
    columns: Sequence[tuple[float, float, float]]
    """Of each: start and width in percents of the width, height in percents of the tallest."""
    tallest: int
    spans: Sequence[Span]
    note: str


def stacked(label: str, counts: Iterable[tuple[str, int]], most: int, words: str, value: str = "") -> Bar:
    """Return a bar of several parts.

    Args:
        label: Of it.
        counts: Shade and number of each part.
        most: What fills the whole width.
        words: The same in words.
        value: What the table is filtered by.
    """
    parts, start = [], 0.0
    for shade, count in counts:
        if count:
            width = 100 * count / max(most, 1)
            parts.append(Part(shade, count, round(start, 2), round(max(width, 0.6), 2)))
            start += width
    return Bar(label, parts, words, value)


class Revisions:
    """Counts by mod_revision in a bounded number of buckets, which widen as the range does."""

    def __init__(self) -> None:
        self._shift = 0
        self._buckets: dict[int, int] = {}
        self.first = 0
        self.last = 0

    def add(self, revision: int) -> None:
        """Count one."""
        self.first = min(self.first or revision, revision)
        self.last = max(self.last, revision)
        bucket = revision >> self._shift
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1
        while len(self._buckets) > _MOST_BUCKETS:
            self._shift += 1
            wider: dict[int, int] = {}
            for number, count in self._buckets.items():
                wider[number >> 1] = wider.get(number >> 1, 0) + count
            self._buckets = wider

    def columns(self, first: int, last: int) -> tuple[list[tuple[float, float, float]], int]:
        """Return the columns of a chart over a range that holds all of them, and how much the tallest counts."""
        bins = [0] * _BINS
        for bucket, count in self._buckets.items():
            middle = ((bucket << self._shift) + ((bucket + 1) << self._shift) - 1) / 2
            share = (min(max(middle, first), last) - first) / max(last - first, 1)
            bins[min(int(share * _BINS), _BINS - 1)] += count
        tallest = max(bins)
        width = 100 / _BINS
        return [
            (round(number * width, 2), round(width * 0.86, 2), round(max(100 * count / tallest, 4), 1))
            for number, count in enumerate(bins)
            if count
        ], tallest
