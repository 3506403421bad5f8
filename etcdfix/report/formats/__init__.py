"""How reports are shown. The formats form explicit tables; nothing registers itself. Those of a scan stand here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from etcdfix.report.base import Reporter
from etcdfix.report.formats.html_scan import HTMLReporter
from etcdfix.report.formats.machine import (
    JSONLinesReporter,
    JSONReporter,
    NameReporter,
    StatusReporter,
    YAMLReporter,
)
from etcdfix.report.formats.metrics import MetricsReporter
from etcdfix.report.formats.spreadsheet import CSVReporter
from etcdfix.report.formats.table import TableReporter


def _junit(stream: BinaryIO) -> Reporter:
    from etcdfix.report.formats.junit_scan import JUnitReporter  # noqa: PLC0415 - only this form loads XML

    return JUnitReporter(stream)


SCAN_FORMATS: Mapping[str, Callable[[BinaryIO, int], Reporter]] = {
    "table": lambda stream, cap: TableReporter(stream, wide=False, max_rows=cap),
    "wide": lambda stream, cap: TableReporter(stream, wide=True, max_rows=cap),
    "json": lambda stream, _cap: JSONReporter(stream),
    "jsonl": lambda stream, _cap: JSONLinesReporter(stream),
    "yaml": lambda stream, _cap: YAMLReporter(stream),
    "status": lambda stream, _cap: StatusReporter(stream),
    "name": lambda stream, _cap: NameReporter(stream),
    "csv": lambda stream, _cap: CSVReporter(stream),
    "html": lambda stream, _cap: HTMLReporter(stream),
    "junit": lambda stream, _cap: _junit(stream),
    "metrics": lambda stream, _cap: MetricsReporter(stream),
}
