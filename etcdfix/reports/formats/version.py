"""Formats of version."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from etcdfix.reports.base import Output
from etcdfix.reports.formats.machine import write_document
from etcdfix.reports.formats.text import aligned
from etcdfix.reports.version_model import VersionReport


def write_table(report: VersionReport, stream: BinaryIO) -> None:
    """Write a line for each."""
    python, known = report.python, report.kubernetes
    rows = [
        (report.tool.name, report.tool.version),
        (python.implementation, f"{python.version} on {python.platform}"),
        ("Kubernetes", f"knows {known.first} to {known.last}"),
        ("reports", f"writes and reads {report.reports}"),
        *((name, version or "not installed") for name, version in report.dependencies.items()),
    ]
    Output(stream).lines(aligned(rows))


VERSION_FORMATS: Final[Mapping[str, Callable[[VersionReport, BinaryIO], None]]] = {
    "table": write_table,
    "json": write_document,
}
