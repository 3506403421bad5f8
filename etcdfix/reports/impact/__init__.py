"""How reports on consequences are shown. Explicit tables; nothing registers itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from etcdfix.reports.impact import namespace, orphans
from etcdfix.reports.impact.document import write_document
from etcdfix.reports.impact.dot import write_dot
from etcdfix.reports.impact.html import write_html
from etcdfix.reports.impact.model import ImpactReport, NamespaceReport, OrphansReport
from etcdfix.reports.impact.table import write_table

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

__all__ = ["IMPACT_FORMATS", "NAMESPACE_FORMATS", "ORPHANS_FORMATS"]
