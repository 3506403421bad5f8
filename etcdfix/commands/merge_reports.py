"""The reports of many clusters as one: ``report merge``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from etcdfix.inputs.inputfile import NO_ROOM
from etcdfix.report.diff import LeftOutReport, MergedReport, ReportMerge
from etcdfix.report.model import COUNTED, Counts
from etcdfix.report.origin import TOOL, shown_word, timestamp
from etcdfix.report.saved_report import (
    CUT,
    NoReport,
    ReportedFinding,
    ReportFile,
    contradictions,
    open_report,
)
from etcdfix.report.scan import lost_midway

_NOTHING_WRONG, _FINDINGS, _INCOMPLETE, _NO_REPORT = 0, 1, 3, 5


def merge_reports(paths: Iterable[Path]) -> ReportMerge:
    """Read saved reports of scans, one after the other; a file that is no whole report is left out and named.

    Raises:
        OSError: There is no room for a copy of a report.
    """
    rows: list[MergedReport] = []
    left_out: list[LeftOutReport] = []
    for path in paths:
        name = shown_word(str(path))
        try:
            with open_report(path) as report:
                rows.append(_row(report, name))
        except NoReport as exc:
            if isinstance(exc.__cause__, OSError) and exc.__cause__.errno in NO_ROOM:
                raise exc.__cause__ from exc
            left_out.append(LeftOutReport(name, exc.reason))
    worst = _NO_REPORT if not rows else _INCOMPLETE if left_out else max(row.exit_code for row in rows)
    return ReportMerge(tool=TOOL, generated_at=timestamp(), reports=rows, left_out=left_out, exit_code=worst)


def _row(report: ReportFile, name: str) -> MergedReport:
    decode = msgspec.json.Decoder(ReportedFinding).decode
    found = Counter(decode(raw).outcome for raw in report.findings)
    head, end = report.header, report.ending
    if end is None:
        raise msgspec.DecodeError(CUT)
    source, summary = head.source, end.summary
    reasons = [*end.incomplete_reasons, *contradictions(found, summary)]
    unexplained = not (end.complete or reasons)
    if summary.new is msgspec.UNSET:
        wrong, undetermined = sum(getattr(summary, field) for field in COUNTED.values()), summary.undetermined
    else:
        wrong, undetermined = summary.new.findings, summary.new.undetermined
    incomplete = unexplained or undetermined or lost_midway(summary, reasons)
    return MergedReport(
        cluster=source.kube_system_uid or source.path or ", ".join(source.endpoints or []),
        report=name,
        generated_at=head.generated_at,
        complete=end.complete and not reasons,
        incomplete_reasons=reasons,
        counts=Counts(**{field: getattr(summary, field) for field in Counts.__struct_fields__}),
        severity=summary.severity,
        exit_code=_INCOMPLETE if incomplete else _FINDINGS if wrong else _NOTHING_WRONG,
    )
