"""Formats of impact, namespace and orphans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO

from etcdfix.report.formats import namespace, orphans
from etcdfix.report.formats.impact_table import write_table
from etcdfix.report.formats.machine import write_document
from etcdfix.report.impact_model import ImpactReport, NamespaceReport, OrphansReport

IMPACT_FORMATS: Mapping[str, Callable[[ImpactReport, BinaryIO, int], None]] = {
    "table": write_table,
    "json": write_document,
}
NAMESPACE_FORMATS: Mapping[str, Callable[[NamespaceReport, BinaryIO, int], None]] = {
    "table": namespace.write_table,
    "json": write_document,
}
ORPHANS_FORMATS: Mapping[str, Callable[[OrphansReport, BinaryIO, int], None]] = {
    "table": orphans.write_table,
    "json": write_document,
}
