"""Formats of report merge."""

from __future__ import annotations

from typing import BinaryIO, Final

from etcdfix.report.base import Output
from etcdfix.report.formats.machine import write_rows_json
from etcdfix.report.formats.text import aligned, shown
from etcdfix.report.merge_model import MergedReport, ReportMerge
from etcdfix.report.model import COUNTED
from etcdfix.text.words import counted

_COLUMNS: Final = ("CLUSTER", "COMPLETE", "EXIT", "SEVERITY", "READABLE", *map(str.upper, COUNTED), "REPORT")


def write_table(report: ReportMerge, stream: BinaryIO) -> None:
    """Write the verdict, a row for each report, and the files that are left out."""
    output = Output(stream)
    output.line(_verdict(report))
    if report.reports:
        output.line()
        output.lines(aligned([_COLUMNS, *map(_row, report.reports)]))
    if report.left_out:
        output.line()
        output.line("Left out:")
        output.lines(aligned([(shown(one.report), shown(one.reason)) for one in report.left_out]))


def _verdict(report: ReportMerge) -> str:
    codes = [row.exit_code for row in report.reports]
    said = f"{codes.count(3)} incomplete, {codes.count(1)} with findings, {codes.count(0)} with nothing wrong"
    return f"{counted(len(codes), 'report')}: {said}; {counted(len(report.left_out), 'file')} left out."


def _row(row: MergedReport) -> tuple[str, ...]:
    numbers = (getattr(row.counts, field) for field in ("readable", *COUNTED.values()))
    complete = "yes" if row.complete else "NO"
    cells = (row.cluster, complete, row.exit_code, row.severity or "-", *numbers, row.report)
    return tuple(map(shown, cells))


MERGE_FORMATS: Final = {"table": write_table, "json": write_rows_json}
