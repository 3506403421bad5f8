"""What was measured: comparisons of commands, what they must show, and the file that keeps them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from tests.benchmarks.measure import Run, Spread, ratios


class Series(msgspec.Struct, frozen=True):
    """The runs of one command, in the order of the rounds.

    Attributes:
        name: What it is called in tables.
        runs: At least one.
        keys: How many etcd keys it looks at.
        line: Series with one word here do the same with ever more keys: how their time grows is of interest.
    """

    name: str
    runs: tuple[Run, ...]
    keys: int
    line: str = ""

    @property
    def wall(self) -> list[float]:
        return [run.wall for run in self.runs]

    @property
    def cpu(self) -> list[float]:
        return [run.cpu for run in self.runs]

    @property
    def anonymous_mb(self) -> float:
        """The most that one process ever had."""
        return max(run.anonymous_mb for run in self.runs)

    @property
    def all_mb(self) -> float:
        return max(run.all_mb for run in self.runs)

    @property
    def processes(self) -> int:
        return max(run.processes for run in self.runs)


class Comparison(msgspec.Struct, frozen=True):
    """Commands that ran in turn.

    Attributes:
        name: Unique among all.
        title: One line.
        against: The series that the others are held against.
        series: In the order of the table.
        machine: Where.
        finished: When, RFC 3339 in UTC.
        load: How many processes of all users wanted a processor in the minute before it began.
    """

    name: str
    title: str
    against: str
    series: tuple[Series, ...]
    machine: str
    finished: str
    load: float = 0.0

    def of(self, name: str) -> Series | None:
        return next((series for series in self.series if series.name == name), None)

    def ratio(self, name: str, against: str = "") -> Spread | None:
        """Wall time of one series as a part of another's, round by round; None where one was not measured."""
        ours, theirs = self.of(name), self.of(against or self.against)
        if ours is None or theirs is None:
            return None
        return Spread.of(ratios(ours.wall, theirs.wall))


class Bar(msgspec.Struct, frozen=True):
    """What must be shown: a ratio of wall times, or the memory of one process.

    Attributes:
        comparison: Where it is measured.
        series: Which command.
        most: The largest median ratio, or the most MB of one process in any run.
        against: The series of the ratio; "" where it is about memory.
    """

    comparison: str
    series: str
    most: float
    against: str = ""


class Verdict(msgspec.Struct, frozen=True):
    """A bar, and what was measured."""

    bar: Bar
    figure: str
    holds: bool


def judge(bar: Bar, comparisons: Mapping[str, Comparison]) -> Verdict | None:
    """Hold a bar against what was measured; None where it was not."""
    comparison = comparisons.get(bar.comparison)
    series = comparison.of(bar.series) if comparison is not None else None
    if comparison is None or series is None:
        return None
    if not bar.against:
        return Verdict(bar, f"{series.anonymous_mb:.0f} MB", series.anonymous_mb <= bar.most)
    ratio = comparison.ratio(bar.series, bar.against)
    return Verdict(bar, ratio.text(), ratio.median <= bar.most) if ratio is not None else None


def merged(parts: Iterable[Sequence[Comparison]]) -> list[Comparison]:
    """Put measurements together; of one comparison the last to be finished counts."""
    found: dict[str, Comparison] = {}
    for part in parts:
        for comparison in part:
            held = found.get(comparison.name)
            if held is None or comparison.finished >= held.finished:
                found[comparison.name] = comparison
    return list(found.values())


def load(path: Path) -> list[Comparison]:
    """Read what :func:`save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=list[Comparison])


def save(path: Path, comparisons: Sequence[Comparison]) -> None:
    """Write all of them, or leave the file as it is."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.half")
    beside.write_bytes(msgspec.json.format(msgspec.json.encode(comparisons), indent=1) + b"\n")
    beside.replace(path)
