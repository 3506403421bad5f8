"""The published shape of ``report merge``, field by field and in order."""

from __future__ import annotations

import msgspec

from etcdfix.report.model import Counts, PublishedReport


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
