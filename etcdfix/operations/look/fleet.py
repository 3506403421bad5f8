"""Many clusters together: their saved reports, one after the other, as one report with a row for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.errors import ConfigurationError, why
from etcdfix.golang.gotime import parse_duration
from etcdfix.inputs.clusterlist import ListedCluster
from etcdfix.inputs.inputfile import NO_ROOM, SPOILED, spoiled
from etcdfix.inputs.jsonparts import DocumentCut
from etcdfix.operations.look.fleet_keys import SharedKeys
from etcdfix.operations.look.fleet_row import ReadRow, ReportHead, read_row
from etcdfix.operations.look.sorted_rows import SortedRows
from etcdfix.reports.base import fit
from etcdfix.reports.fleet_model import (
    FleetCluster,
    FleetCounts,
    FleetReport,
    FleetSummary,
    LeftOut,
    NewFindings,
    SameCluster,
)
from etcdfix.reports.origin import TOOL, shown_word, timestamp
from etcdfix.reports.report_file import ReportFile, open_report
from etcdfix.reports.rows import Rows
from etcdfix.text.words import counted
from etcdfix.verdicts.severity import Severity

_ORDER: Final = [severity.value for severity in Severity]
_INDEX_BYTES: Final = 8
_MEMORY_BYTES: Final = 256 << 10
_MOST_NAMED: Final = 10
_MOST_AHEAD: Final = timedelta(hours=1)
"""So far two clocks may differ."""


class ExpectedReport(msgspec.Struct, frozen=True):
    """A report that there should be.

    Attributes:
        path: Of its file.
        listed: Its cluster in the list; None where there is no list.
    """

    path: Path
    listed: ListedCluster | None = None


class _LeftOutError(Exception):
    """Raised when a report gets no row."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def expected_of_list(clusters: Sequence[ListedCluster], directory: Path) -> list[ExpectedReport]:
    """Return the reports that a list of clusters wants in a directory."""
    return [ExpectedReport(directory / cluster.report_name, cluster) for cluster in clusters]


def oldest_of(max_age: str, now: datetime) -> datetime:
    """Return the time before which a report is too old.

    Args:
        max_age: A duration in Go's syntax.
        now: The time now.

    Raises:
        ConfigurationError: It is none.
    """
    nanoseconds = parse_duration(max_age)
    try:
        if nanoseconds is not None and nanoseconds > 0:
            return now - timedelta(microseconds=nanoseconds / 1000)
    except OverflowError:
        pass
    raise ConfigurationError(f"--max-age {max_age!r} is no duration", hint="for example --max-age 20h")


def merge_fleet(
    expected: Sequence[ExpectedReport], *, oldest: datetime | None = None, now: datetime | None = None
) -> FleetReport:
    """Read the reports of many clusters, one after the other.

    What cannot be read, lacks, or is none of these reports is named, and nothing else is harmed by it.

    Args:
        expected: Which there should be.
        oldest: Reports that were made before this are left out; None for any age.
        now: The time now; None for the clock's.

    Raises:
        SourceError: There is no room for a temporary file.
        OSError: Likewise.
    """
    gathering = _Gathering(oldest, now or datetime.now(UTC))
    for report in expected:
        gathering.take(report)
    return gathering.finish(len(expected))


class _Gathering:
    """What is kept of the reports: rows in a temporary file, and a few words of each in memory."""

    def __init__(self, oldest: datetime | None, now: datetime) -> None:
        self._oldest = oldest
        self._now = now
        self._rows: SortedRows[FleetCluster] = SortedRows(FleetCluster, memory_bytes=_MEMORY_BYTES)
        self._keys = SharedKeys()
        self._left_out: list[LeftOut] = []
        self._by_digest: dict[str, str] = {}
        self._by_uid: dict[str, list[str]] = {}
        self._summary = FleetSummary()

    def take(self, expected: ExpectedReport) -> None:
        """Read one report, or say why it has no row."""
        path = shown_word(str(expected.path))
        try:
            read = self._read(expected, path)
        except _LeftOutError as exc:
            listed = expected.listed
            self._left_out.append(
                LeftOut(
                    report=path,
                    cluster=listed.name if listed is not None else "",
                    line=listed.index + 1 if listed is not None else 0,
                    index=listed.index if listed is not None else None,
                    reason=exc.reason,
                    message=fit(str(exc)),
                )
            )
            return
        self._count(read.row)
        self._keys.add(read)
        place = b"%c%s\0" % (_rank(read.row), read.row.name.encode())
        self._rows.add(place + self._summary.clusters.to_bytes(_INDEX_BYTES), read.row)

    def _read(self, expected: ExpectedReport, path: str) -> ReadRow:
        try:
            with open_report(expected.path) as report:
                head = report.head(ReportHead)
                self._check(report, head, expected)
                name, named_by = _name(expected, head)
                read = read_row(report, head, path=path, name=name, named_by=named_by, now=self._now)
        except OSError as exc:
            if exc.errno in NO_ROOM:
                raise
            reason = "missing" if isinstance(exc, FileNotFoundError) else "unreadable"
            raise _LeftOutError(reason, why(exc)) from exc
        except DocumentCut as exc:
            raise _LeftOutError("cut", str(exc)) from exc
        except SPOILED as exc:
            raise _LeftOutError("not-a-report", spoiled(exc)) from exc
        self._by_digest[read.row.report_sha256] = path
        return read

    def _check(self, report: ReportFile, head: ReportHead, expected: ExpectedReport) -> None:
        """Hold a report against what it should be.

        Raises:
            _LeftOutError: It is another one.
        """
        twin = self._by_digest.get(report.sha256)
        if twin is not None:
            raise _LeftOutError("double", f"it is byte for byte the same as {twin}")
        if self._oldest is not None and head.made_at < self._oldest:
            raise _LeftOutError(
                "too-old", f"it was made at {timestamp(head.made_at)}, before {timestamp(self._oldest)}"
            )
        if self._oldest is not None and head.made_at - self._now > _MOST_AHEAD:
            raise _LeftOutError(
                "too-old",
                f"it was made at {timestamp(head.made_at)}, which is yet to come: its age cannot be told",
            )
        if expected.listed is not None:
            _check_listed(head, expected.listed)

    def _count(self, row: FleetCluster) -> None:
        total, counts = self._summary, row.counts
        total.clusters += 1
        total.complete += row.complete
        total.without_baseline += row.baseline is None
        total.do_not_restart += row.do_not_restart
        total.with_findings += bool(counts.decrypt_failures or counts.decode_failures or counts.inconsistent)
        for field in FleetCounts.__struct_fields__:
            setattr(total.counts, field, getattr(total.counts, field) + getattr(counts, field))
        for field in NewFindings.__struct_fields__:
            setattr(total.new, field, getattr(total.new, field) + getattr(row.new, field))
        if row.severity is not None:
            # A word of a newer version is counted with the worst.
            severity = row.severity if row.severity in _ORDER else _ORDER[0]
            total.by_severity[severity] = total.by_severity.get(severity, 0) + 1
        if row.kube_system_uid is not None:
            self._by_uid.setdefault(row.kube_system_uid, []).append(row.report)

    def finish(self, expected: int) -> FleetReport:
        """Return the whole, once all reports were taken."""
        rows, summary = self._rows.finish(), self._summary
        shared = self._keys.finish()
        summary.expected = expected
        summary.shared_keys = len(shared)
        summary.by_severity = {
            word: summary.by_severity[word] for word in _ORDER if word in summary.by_severity
        }
        summary.severity = next(iter(summary.by_severity), None)
        same = {uid: reports for uid, reports in self._by_uid.items() if len(reports) > 1}

        def with_uids() -> Iterator[FleetCluster]:
            for row in rows:
                others = len(same.get(row.kube_system_uid or "", [row])) - 1
                yield msgspec.structs.replace(row, same_uid=others)

        reasons = self._reasons(rows)
        return FleetReport(
            tool=TOOL,
            generated_at=timestamp(self._now),
            clusters=Rows(len(rows), with_uids),
            shared_keys=shared,
            same_clusters=[SameCluster(uid, same[uid]) for uid in sorted(same)],
            left_out=self._left_out,
            summary=summary,
            complete=not reasons,
            incomplete_reasons=reasons,
        )

    def _reasons(self, rows: Rows[FleetCluster]) -> list[str]:
        lacking = [one.cluster or one.report for one in self._left_out]
        incomplete = [row.name for row in rows if not row.complete]
        reasons = []
        if lacking:
            reasons.append(f"{counted(len(lacking), 'report')} without a row: {_named(lacking)}")
        if incomplete:
            reasons.append(f"{counted(len(incomplete), 'scan')} incomplete: {_named(incomplete)}")
        return reasons


def _named(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _rank(row: FleetCluster) -> int:
    """Return the worst as the smallest number; a severity of a newer version is taken for the worst."""
    if row.severity is not None:
        return _ORDER.index(row.severity) if row.severity in _ORDER else 0
    return len(_ORDER) + row.complete


def _name(expected: ExpectedReport, head: ReportHead) -> tuple[str, str]:
    """Return the name of a cluster, and who says so."""
    if expected.listed is not None:
        return expected.listed.name, "list"
    if head.source.cluster_name:
        return head.source.cluster_name, "report"
    return shown_word(expected.path.name.removesuffix(expected.path.suffix)), "file"


def _check_listed(head: ReportHead, listed: ListedCluster) -> None:
    """Hold a report against the line of its cluster: one of another night, or of another cluster, must not stand in.

    Raises:
        _LeftOutError: They differ.
    """
    named = head.source.cluster_name
    if named and named != listed.name:
        raise _LeftOutError("other-scan", f"it is of the cluster {fit(named)}")
    wanted = (listed.snapshot, listed.configuration, listed.baseline)
    for what, has, path in zip(("snapshot", "configuration", "baseline"), head.paths, wanted, strict=True):
        want = shown_word(str(path)) if path is not None else ""
        if has != want:
            raise _LeftOutError(
                "other-scan",
                f"its {what} is {fit(has) or 'none'}, and line {listed.index + 1} of the list says {want or 'none'}",
            )
