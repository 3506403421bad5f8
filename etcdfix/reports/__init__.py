"""Reports: how findings are shown. The formats form an explicit table; nothing registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from etcdfix.reports.base import Reporter
from etcdfix.reports.json_report import JSONLinesReporter, JSONReporter, YAMLReporter
from etcdfix.reports.plain import NameReporter, StatusReporter
from etcdfix.reports.table import TableReporter

FORMATS: Mapping[str, Callable[[BinaryIO, int], Reporter]] = {
    "table": lambda stream, cap: TableReporter(stream, wide=False, max_rows=cap),
    "wide": lambda stream, cap: TableReporter(stream, wide=True, max_rows=cap),
    "json": lambda stream, _cap: JSONReporter(stream),
    "jsonl": lambda stream, _cap: JSONLinesReporter(stream),
    "yaml": lambda stream, _cap: YAMLReporter(stream),
    "status": lambda stream, _cap: StatusReporter(stream),
    "name": lambda stream, _cap: NameReporter(stream),
}

__all__ = ["FORMATS", "Reporter"]
