"""How reports are shown. The formats form explicit tables; nothing registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from etcdfix.reports.base import Reporter
from etcdfix.reports.doctor_model import DoctorReport
from etcdfix.reports.formats import doctor, namespace, orphans
from etcdfix.reports.formats.document import write_document
from etcdfix.reports.formats.dot import write_dot
from etcdfix.reports.formats.html import write_html
from etcdfix.reports.formats.impact_table import write_table
from etcdfix.reports.formats.json_report import JSONLinesReporter, JSONReporter, YAMLReporter
from etcdfix.reports.formats.plain import NameReporter, StatusReporter
from etcdfix.reports.formats.table import TableReporter
from etcdfix.reports.impact_model import ImpactReport, NamespaceReport, OrphansReport

SCAN_FORMATS: Mapping[str, Callable[[BinaryIO, int], Reporter]] = {
    "table": lambda stream, cap: TableReporter(stream, wide=False, max_rows=cap),
    "wide": lambda stream, cap: TableReporter(stream, wide=True, max_rows=cap),
    "json": lambda stream, _cap: JSONReporter(stream),
    "jsonl": lambda stream, _cap: JSONLinesReporter(stream),
    "yaml": lambda stream, _cap: YAMLReporter(stream),
    "status": lambda stream, _cap: StatusReporter(stream),
    "name": lambda stream, _cap: NameReporter(stream),
}
IMPACT_FORMATS: Mapping[str, Callable[[ImpactReport, BinaryIO, int], None]] = {
    "table": write_table,
    "json": write_document,
    "dot": write_dot,
    "html": write_html,
}
NAMESPACE_FORMATS: Mapping[str, Callable[[NamespaceReport, BinaryIO, int], None]] = {
    "table": namespace.write_table,
    "json": write_document,
}
ORPHANS_FORMATS: Mapping[str, Callable[[OrphansReport, BinaryIO, int], None]] = {
    "table": orphans.write_table,
    "json": write_document,
}
DOCTOR_FORMATS: Mapping[str, Callable[[DoctorReport, BinaryIO], None]] = {
    "table": doctor.write_table,
    "json": write_document,
    "yaml": doctor.write_yaml,
}

__all__ = ["DOCTOR_FORMATS", "IMPACT_FORMATS", "NAMESPACE_FORMATS", "ORPHANS_FORMATS", "SCAN_FORMATS"]
