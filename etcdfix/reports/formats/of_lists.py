"""Formats of copies, compare and ``report merge``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import BinaryIO, Final

from etcdfix.model import Outcome
from etcdfix.reports.compare_model import ComparisonReport
from etcdfix.reports.copies_model import CopiesReport
from etcdfix.reports.fleet_model import FleetReport
from etcdfix.reports.formats import compare, copies
from etcdfix.reports.formats.fleet import write_fleet, write_fleet_lines
from etcdfix.reports.formats.html_compare import write_comparison
from etcdfix.reports.formats.html_copies import write_copies
from etcdfix.reports.formats.html_fleet import write_fleet_page
from etcdfix.reports.formats.machine import write_rows_json, write_rows_yaml

COPIES_FORMATS: Final[Mapping[str, Callable[[CopiesReport, BinaryIO, int], None]]] = {
    "table": copies.write_table,
    "json": write_rows_json,
    "yaml": write_rows_yaml,
    "html": write_copies,
}
COMPARE_FORMATS: Final[Mapping[str, Callable[[ComparisonReport, BinaryIO, int], None]]] = {
    "table": compare.write_table,
    "json": write_rows_json,
    "yaml": write_rows_yaml,
    "html": write_comparison,
}


def write_fleet_junit(
    report: FleetReport, stream: BinaryIO, _max_rows: int, *, counted: Collection[Outcome] | None = None
) -> None:
    """Write a fleet for a CI system.

    Args:
        report: What is written.
        stream: Where to.
        counted: Outcomes that make the exit code; None for all that are wrong.
    """
    from etcdfix.reports.formats.junit_fleet import write_junit  # noqa: PLC0415 - only this form loads XML

    write_junit(report, stream, counted=counted)


FLEET_FORMATS: Final[Mapping[str, Callable[[FleetReport, BinaryIO, int], None]]] = {
    "table": write_fleet,
    "wide": lambda report, stream, max_rows: write_fleet(report, stream, max_rows, wide=True),
    "json": write_rows_json,
    "jsonl": write_fleet_lines,
    "yaml": write_rows_yaml,
    "html": write_fleet_page,
    "junit": write_fleet_junit,
}
