"""``-o junit`` of ``report merge``: a case for each cluster, and one for each report that lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import BinaryIO, Final

from etcdfix.model import Outcome
from etcdfix.reports.fleet_model import FleetCluster, FleetReport
from etcdfix.reports.formats.junit import Case, CaseState, JUnitDocument, whole_case
from etcdfix.reports.formats.junit_scan import FAILURES
from etcdfix.reports.model import COUNTED
from etcdfix.text.words import counted as number_of

NAME: Final = "etcdfix report merge"
WHOLE: Final = "every report is there"
CLUSTERS: Final = "clusters"


def write_junit(report: FleetReport, stream: BinaryIO, *, counted: Collection[str] | None) -> None:
    """Write the document.

    Args:
        report: What is written.
        stream: Where to.
        counted: Outcomes that make the exit code; None for all that are wrong.
    """
    counted = tuple(COUNTED) if counted is None else counted
    document = JUnitDocument()
    for row in report.clusters:
        document.add(CLUSTERS, _case(row, counted))
    for one in report.left_out:
        document.add(
            CLUSTERS,
            Case(
                name=one.cluster or one.report,
                state=CaseState.ERROR,
                type=one.reason,
                message=f"no row: {one.message}",
                lines=[f"report: {one.report}", one.message],
            ),
        )
    summary = report.summary
    rows = f"{number_of(summary.clusters, 'cluster')} of {summary.expected} have a row"
    lacking = [f"{one.report}: {one.message}" for one in report.left_out]
    document.write(
        stream,
        name=NAME,
        at=report.generated_at,
        properties={"version": report.tool.version, "complete": str(report.complete).lower()},
        cases=[whole_case(WHOLE, lacking, complete=not lacking)],
        lines=[f"{rows}, {summary.with_findings} with findings"],
    )


def _case(row: FleetCluster, counted: Collection[str]) -> Case:
    found = {outcome: getattr(row.new, field) for outcome, field in COUNTED.items()}
    wrong = {outcome for outcome, number in found.items() if number and outcome in counted}
    told = [f"{number} {outcome}" for outcome, number in found.items() if number]
    known = any(getattr(row.counts, field) for field in COUNTED.values())
    state, kind = CaseState.PASSED, ""
    if row.lost_midway or Outcome.UNDETERMINED in wrong:
        state, kind = CaseState.ERROR, "incomplete"
    elif wrong & FAILURES:
        state, kind = CaseState.FAILURE, row.severity or "findings"
    elif known or not row.complete:
        state, kind = CaseState.SKIPPED, "known or not counted"
    reasons = [] if row.complete else row.incomplete_reasons
    return Case(
        name=row.name,
        state=state,
        type=kind,
        message="; ".join([*told, *reasons]) or row.at_stake or kind,
        lines=[*_lines(row)],
    )


def _lines(row: FleetCluster) -> Iterator[str]:
    yield f"report: {row.report}"
    yield f"scanned: {row.source_type} at revision {row.revision}, {row.generated_at}"
    yield f"{number_of(row.counts.keys, 'key')}, {row.counts.readable} readable, {row.counts.stale} stale"
    if row.at_stake:
        yield row.at_stake
    for lost in row.key_loss:
        yield f"{lost.transformer}: {lost.failures} of {lost.of} values do not open"
    for one in row.first_findings:
        known = " (known)" if one.baseline else ""
        yield f"{one.key}: {one.outcome}{f' {one.cause}' if one.cause else ''}{known}: {one.message}"
    yield from row.incomplete_reasons
