"""The published shapes of what saved reports come to beside each other: ``report diff`` and ``report merge``."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from etcdfix.report.document import Cell, Column, Document, Facts, Kind, State, Status, Step, Table
from etcdfix.report.model import Counts, PublishedReport, ReportSource, about
from etcdfix.report.render.rows import word_of
from etcdfix.text.commands import Command
from etcdfix.text.words import counted

_MOST_ROWS: Final = 10_000
_MOST_STAKES: Final = 3


class DiffedReport(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two reports.

    Attributes:
        findings: How many are compared; those of readable values, and of what is no object, are not.
        complete: According to the report; false where its end is missing.
    """

    path: str
    sha256: str
    generated_at: str
    source: ReportSource
    findings: int
    complete: bool
    incomplete_reasons: list[str]


class Unlike(msgspec.Struct, frozen=True):
    """What is not the same for both scans, so that findings may differ for that alone; "" where it is not known."""

    what: str
    earlier: str
    later: str


class DiffedFinding(msgspec.Struct, frozen=True):
    """What one report says of a key."""

    outcome: str
    cause: str | None
    severity: str | None
    mod_revision: int
    value_sha256: str
    message: str

    def __str__(self) -> str:
        return f"{self.outcome} {self.cause or ''}".rstrip()


class FindingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A key of which the two reports do not say the same; ``key_base64`` as in a finding.

    Attributes:
        change: ``new``, ``changed`` or ``gone`` (repaired or deleted).
        changed: Which of ``outcome``, ``cause`` and ``value`` differ, where both have it.
    """

    change: str
    changed: list[str]
    key: str
    key_base64: str | None
    earlier: DiffedFinding | None
    later: DiffedFinding | None

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        now, before = self.later or self.earlier, self.earlier if self.later else None
        what = f"{self.change}: {', '.join(self.changed)}" if self.changed else self.change
        return what, str(now), str(before) if before else None, now.message if now else "", word_of(self)


class DiffCounts(msgspec.Struct):
    """How many keys have a finding only in the later report, only in the earlier one, another one, or the same."""

    new: int = 0
    gone: int = 0
    changed: int = 0
    same: int = 0


class ReportDiff(PublishedReport, frozen=True, kw_only=True):
    """What differs between two reports of one cluster.

    Attributes:
        complete: Both are, and they are of the same cluster: what is not new was there before.
        differences: The new ones first, then what changed, then what is gone; each in the order of the etcd keys.
    """

    kind: str = "ReportDiff"
    earlier: DiffedReport
    later: DiffedReport
    unlike: list[Unlike]
    counts: DiffCounts
    complete: bool
    incomplete_reasons: list[str]
    differences: Sequence[FindingDifference]

    def document(self) -> Document:
        """Return how many findings are new, and which keys differ, the new ones first."""
        counts, earlier, later = self.counts, self.earlier, self.later
        rest = f"{counts.changed} changed, {counts.gone} gone, {counts.same} the same"
        if counts.new:
            status = Status(State.FINDINGS, f"{counted(counts.new, 'new finding')}; {rest}")
        elif self.complete:
            status = Status(State.OK, f"Nothing new: {rest}")
        else:
            status = Status(State.INCOMPLETE, f"Nothing new was seen, but a report is incomplete; {rest}")
        stakes = [
            f"The {one.what} differs: {one.earlier or 'unknown'} before, {one.later or 'unknown'} now."
            for one in self.unlike
        ]
        stakes += [f"{reason[:1].upper()}{reason[1:]}." for reason in self.incomplete_reasons]
        shown = [*islice(self.differences, _MOST_ROWS)]
        following = None
        if counts.new:
            explain = Command(("etcdfix", "explain", word_of(shown[0])))
            following = Step("See what is wrong with the first new one", explain)
        return Document(
            status=status,
            about=Facts(
                facts=[
                    ("earlier", f"earlier {earlier.path} ({earlier.generated_at})"),
                    ("later", f"later {later.path} ({later.generated_at})"),
                    ("version", f"{self.tool.name} {self.tool.version}"),
                ]
            ),
            stakes=stakes[:_MOST_STAKES],
            next=following,
            sections=[
                Table(
                    columns=_KEYS,
                    rows=[one.row() for one in shown],
                    total=len(self.differences),
                    noun="key",
                    brief=12,
                )
            ],
        )


_KEYS: Final = (
    Column("CHANGE"),
    Column("FINDING", folds=True),
    Column("BEFORE", folds=True, wide=True),
    Column("MESSAGE", folds=True, wide=True),
    Column("KEY", Kind.KEY),
)
_RESULTS: Final = {0: "nothing wrong", 1: "findings", 3: "incomplete"}
_STATES: Final = {0: State.OK, 1: State.FINDINGS}


class MergedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one report says.

    ``cluster`` is the uid of the namespace kube-system; where the report has none, the file or the endpoints that were
    read. ``exit_code`` is 3 if the scan was lost midway, the report contradicts itself, or something is undetermined
    that its baseline did not know; else 1 if it has findings that its baseline did not know, else 0.
    """

    cluster: str
    report: str
    generated_at: str
    complete: bool
    incomplete_reasons: list[str]
    counts: Counts
    severity: str | None
    exit_code: int

    @property
    def unreadable(self) -> int:
        """How many values cannot be read."""
        return self.counts.decrypt_failures + self.counts.decode_failures

    @property
    def broken(self) -> int:
        """How many values cannot be read, or are wrong inside."""
        return self.unreadable + self.counts.inconsistent

    def row(self) -> tuple[Cell, ...]:
        """Return it as a row of the table."""
        counts, why = self.counts, "; ".join(self.incomplete_reasons) or None
        result = _RESULTS.get(self.exit_code, str(self.exit_code))
        return (
            self.cluster,
            result,
            self.broken,
            counts.undetermined,
            self.severity,
            counts.readable,
            why,
            self.report,
        )


class LeftOutReport(msgspec.Struct, frozen=True):
    """A file that cannot be read, or is no whole report, and why."""

    report: str
    reason: str


class ReportMerge(PublishedReport, frozen=True, kw_only=True):
    """One row for each report. ``exit_code`` is the worst of all rows, and 3 where a report is left out."""

    kind: str = "ReportMerge"
    reports: list[MergedReport]
    left_out: list[LeftOutReport]
    exit_code: int

    def document(self) -> Document:
        """Return how many clusters have findings, and a row for each, the worst first."""
        codes = [row.exit_code for row in self.reports]
        broken = sum(row.broken > 0 for row in self.reports)
        told = (
            f"{broken} with broken objects, {codes.count(3)} incomplete, {codes.count(0)} with nothing wrong"
        )
        headline = f"{counted(len(codes), 'report')}: {told}"
        if self.left_out:
            headline += f"; {counted(len(self.left_out), 'file')} left out"
        worst = sorted(self.reports, key=lambda row: (-row.exit_code, -row.unreadable))
        following = None
        if worst and worst[0].exit_code:
            render = Command(("etcdfix", "report", "render", worst[0].report))
            following = Step("Look at the worst report", render)
        left_out = [(one.report, one.reason) for one in self.left_out]
        return Document(
            status=Status(_STATES.get(self.exit_code, State.INCOMPLETE), headline),
            about=about(self.tool, self.generated_at),
            next=following,
            sections=[
                Table(columns=_COLUMNS, rows=[one.row() for one in worst], noun="report", brief=10),
                Table(title="Left out", columns=_LEFT_OUT, rows=left_out, noun="file", brief=3),
            ],
        )


_COLUMNS: Final = (
    Column("CLUSTER"),
    Column("RESULT"),
    Column("BROKEN", Kind.NUMBER),
    Column("UNDETERMINED", Kind.NUMBER),
    Column("SEVERITY", wide=True),
    Column("READABLE", Kind.NUMBER, wide=True),
    Column("WHY INCOMPLETE", folds=True, wide=True),
    Column("REPORT", folds=True),
)
_LEFT_OUT: Final = (Column("FILE", folds=True), Column("REASON", folds=True))
