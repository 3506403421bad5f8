"""One renderer for every report: a form is one module, and a new report has all forms at once.

``text``, ``wide`` and ``html`` show the report's :class:`~etcdfix.report.document.Document`; ``json``, ``jsonl`` and
``yaml`` write the published struct. A scan may have more findings than memory: it hands them over one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, BinaryIO, Final, Protocol

from etcdfix.report.document import Document
from etcdfix.text.commands import RunOptions


class Report(Protocol):
    """A published struct of which a person sees a document."""

    def document(self) -> Document:
        """Return what a person sees of it."""


class Writer(Protocol):
    """Writes one report. Rows come in key order, before the end; most reports have none but those they hold.

    A writer keeps no more rows in memory than it shows, and never closes its stream.
    """

    def begin(self, header: Any) -> None:
        """Take the fields that stand before the first row."""

    def row(self, row: Any) -> None:
        """Take one row of the report's first list, which the report itself leaves empty."""

    def end(self, report: Any) -> None:
        """Write the report."""


def _writer(form: str, stream: BinaryIO, run: RunOptions, cap: int) -> Writer:
    # ruff: noqa: PLC0415 - each form loads only what it needs
    match form:
        case "json" | "jsonl" | "yaml":
            from etcdfix.report.render.machine import WRITERS

            return WRITERS[form](stream, run)
        case "html":
            from etcdfix.report.render.html import HTMLWriter

            return HTMLWriter(stream, run)
        case "junit":
            from etcdfix.report.render.junit import JUnitWriter

            return JUnitWriter(stream, run)
        case "csv" | "name" | "status":
            from etcdfix.report.render import rows

            makers = {"csv": rows.CSVWriter, "name": rows.NameWriter, "status": rows.StatusWriter}
            return makers[form](stream)
        case "metrics":
            from etcdfix.report.render.metrics import MetricsWriter

            return MetricsWriter(stream)
        case _:
            from etcdfix.report.render.text import TextWriter

            return TextWriter(stream, run, cap, wide=form == "wide")


Forms = Mapping[str, Callable[[BinaryIO, RunOptions, int], Writer]]

FORMS: Final[Forms] = {
    form: partial(_writer, form) for form in ("text", "wide", "json", "jsonl", "yaml", "html")
}
"""The forms of every report, the first where nobody says."""
CASE_FORMS: Final[Forms] = {**FORMS, "junit": partial(_writer, "junit")}
"""The forms of reports that have test cases."""
SCAN_FORMS: Final[Forms] = {
    **CASE_FORMS,
    **{form: partial(_writer, form) for form in ("csv", "name", "status", "metrics")},
}
"""The forms of a scan."""


def write(report: Report, form: str, stream: BinaryIO, run: RunOptions, *, cap: int = 100) -> None:
    """Write a report in one of its forms; ``cap`` is the most rows of a table with ``wide``."""
    SCAN_FORMS[form](stream, run, cap).end(report)
