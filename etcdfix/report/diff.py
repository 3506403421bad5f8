"""The published shape of what differs between two reports (``etcdfix/v1``), field by field and in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from etcdfix.report.document import Column, Document, Facts, Kind, State, Status, Step, Table
from etcdfix.report.model import Counts, PublishedReport, about
from etcdfix.report.render.rows import word_of
from etcdfix.text.commands import Command
from etcdfix.text.words import counted

_MOST_ROWS: Final = 10_000
_MOST_STAKES: Final = 3


class DiffedReport(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two reports.

    Attributes:
        generated_at: When its scan began.
        kube_system_uid: Which cluster; null where the scan could not read it.
        findings: How many it has that are compared: those of readable values, and of what is no object, are not.
        complete: As it says; false where its end is missing.
    """

    path: str
    sha256: str
    generated_at: str
    source_type: str
    revision: int
    kube_system_uid: str | None
    findings: int
    complete: bool
    incomplete_reasons: list[str]


class Unlike(msgspec.Struct, frozen=True):
    """What is not the same for both scans, so that findings may differ for that alone; "" for none, or not known."""

    what: str
    earlier: str
    later: str


class DiffedFinding(msgspec.Struct, frozen=True):
    """What one report says of a key. ``severity`` and ``cause`` are null for none."""

    outcome: str
    cause: str | None
    severity: str | None
    mod_revision: int
    value_sha256: str
    message: str


class FindingDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A key of which the two reports do not say the same; ``key_base64`` as in a finding.

    Attributes:
        earlier: Null where it is new.
        later: Null where it is gone: repaired or deleted.
        changed: Which of ``outcome``, ``cause`` and ``value`` differ, where both have it.
    """

    key: str
    key_base64: str | None
    group: str
    resource: str
    namespace: str
    name: str
    earlier: DiffedFinding | None
    later: DiffedFinding | None
    changed: list[str]


class DiffCounts(msgspec.Struct):
    """How many keys: with a finding in the later report alone, in the earlier one alone, another one, the same."""

    new: int = 0
    gone: int = 0
    changed: int = 0
    same: int = 0


class ReportDiff(PublishedReport, frozen=True, kw_only=True):
    """What differs between two reports of one cluster.

    Attributes:
        complete: Both are, and they are of the same cluster: what is not new was there before.
        new: In the order of the etcd keys, as the following.
        changed: Keys with another outcome, cause or value.
    """

    kind: str = "ReportDiff"
    earlier: DiffedReport
    later: DiffedReport
    unlike: list[Unlike]
    counts: DiffCounts
    complete: bool
    incomplete_reasons: list[str]
    new: Sequence[FindingDifference]
    changed: Sequence[FindingDifference]
    gone: Sequence[FindingDifference]

    def document(self) -> Document:
        """Return how many findings are new, and which keys differ, the new ones first."""
        counts = self.counts
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
        first = next(iter(self.new), None)
        explain = Command(("etcdfix", "explain", word_of(first))) if first else None
        earlier, later = self.earlier, self.later
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
            next=Step("See what is wrong with the first new one", explain) if explain else None,
            sections=[
                Table(
                    columns=_KEYS,
                    rows=[*islice(self._rows(), _MOST_ROWS)],
                    total=counts.new + counts.changed + counts.gone,
                    noun="key",
                    brief=12,
                ),
            ],
        )

    def _rows(self) -> Iterator[tuple[str | None, ...]]:
        for change, rows in (("new", self.new), ("changed", self.changed), ("gone", self.gone)):
            for row in rows:
                now = row.later or row.earlier
                before = row.earlier if row.later is not None else None
                what = f"changed: {', '.join(row.changed)}" if row.changed else change
                yield what, _said(now), _said(before), now.message if now else "", word_of(row)


def _said(finding: DiffedFinding | None) -> str | None:
    return " ".join(filter(None, (finding.outcome, finding.cause))) if finding is not None else None


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
