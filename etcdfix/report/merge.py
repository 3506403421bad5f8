"""The published shape of ``report merge``, field by field and in order."""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.report.counts import Counts
from etcdfix.report.document import Column, Document, Kind, State, Status, Step, Table
from etcdfix.report.model import PublishedReport, about
from etcdfix.text.commands import Command
from etcdfix.text.words import counted

_RESULTS: Final = {0: "nothing wrong", 1: "findings", 3: "incomplete"}
_STATES: Final = {0: State.OK, 1: State.FINDINGS}


class MergedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one report says.

    ``cluster`` is the uid of the namespace kube-system; where the report has none, the file or the endpoints that were
    read. ``severity`` is the worst of all findings, null where nothing is proven wrong. ``exit_code`` is 3 if the
    scan was lost midway, the report contradicts itself, or something is undetermined that its baseline did not know;
    else 1 if it has findings that its baseline did not know, else 0.
    """

    cluster: str
    report: str
    generated_at: str
    complete: bool
    incomplete_reasons: list[str]
    counts: Counts
    severity: str | None
    exit_code: int


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
        told = ", ".join(f"{codes.count(code)} with {word}" for code, word in _RESULTS.items() if code != 3)
        headline = f"{counted(len(codes), 'report')}: {codes.count(3)} incomplete, {told}"
        if self.left_out:
            headline += f"; {counted(len(self.left_out), 'file')} left out"
        worst = sorted(self.reports, key=lambda row: (-row.exit_code, -_unreadable(row.counts)))
        rows = [
            (
                row.cluster,
                _RESULTS.get(row.exit_code, str(row.exit_code)),
                _unreadable(row.counts) + row.counts.inconsistent,
                row.counts.undetermined,
                row.severity,
                row.counts.readable,
                "; ".join(row.incomplete_reasons) or None,
                row.report,
            )
            for row in worst
        ]
        first = worst[0] if worst and worst[0].exit_code else None
        render = Command(("etcdfix", "report", "render", first.report)) if first else None
        left_out = [(one.report, one.reason) for one in self.left_out]
        return Document(
            status=Status(_STATES.get(self.exit_code, State.INCOMPLETE), headline),
            about=about(self.tool, self.generated_at),
            next=Step("Look at the worst report", render) if render else None,
            sections=[
                Table(columns=_COLUMNS, rows=rows, noun="report", brief=10),
                Table(title="Left out", columns=_LEFT_OUT, rows=left_out, noun="file", brief=3),
            ],
        )


def _unreadable(counts: Counts) -> int:
    return counts.decrypt_failures + counts.decode_failures


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
