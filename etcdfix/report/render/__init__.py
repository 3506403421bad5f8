"""One renderer for every report: a form is one module, and a new report has all forms at once.

``text``, ``wide`` and ``html`` show the report's :class:`~etcdfix.report.document.Document`; ``json``, ``jsonl`` and
``yaml`` write the published struct. A scan may have more findings than memory: it hands them over one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
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


_WRITERS: Final = {
    "text": "text:TextWriter",
    "wide": "text:WideWriter",
    "json": "machine:JSONWriter",
    "jsonl": "machine:JSONLinesWriter",
    "yaml": "machine:YAMLWriter",
    "html": "html:HTMLWriter",
    "junit": "junit:JUnitWriter",
    "csv": "rows:CSVWriter",
    "name": "rows:NameWriter",
    "status": "rows:StatusWriter",
    "metrics": "metrics:MetricsWriter",
}
"""Module and class of each form: a form loads only what it needs."""


def _make(form: str, stream: BinaryIO, run: RunOptions) -> Writer:
    module, name = _WRITERS[form].split(":")
    writer: Writer = getattr(import_module(f"{__name__}.{module}"), name)(stream, run)
    return writer


Forms = Mapping[str, Callable[[BinaryIO, RunOptions], Writer]]

SCAN_FORMS: Final[Forms] = {form: partial(_make, form) for form in _WRITERS}
"""The forms of a scan."""
CASE_FORMS: Final[Forms] = dict(islice(SCAN_FORMS.items(), 7))
"""The forms of reports that have test cases."""
FORMS: Final[Forms] = dict(islice(SCAN_FORMS.items(), 6))
"""The forms of every report, the first where nobody says."""


def write(report: Report, form: str, stream: BinaryIO, run: RunOptions) -> None:
    """Write a report in one of its forms."""
    SCAN_FORMS[form](stream, run).end(report)
