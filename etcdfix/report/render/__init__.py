"""One renderer for every report: a form is one module, and a new report has all forms at once.

``text``, ``wide`` and ``html`` show the report's :class:`~etcdfix.report.document.Document`; ``json``, ``jsonl`` and
``yaml`` write the published struct. A scan may have more findings than memory: it hands them over one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        """Take what is known before the first row."""

    def row(self, row: Any) -> None:
        """Take one row of the report's first list, which the report itself leaves empty."""

    def end(self, report: Any) -> None:
        """Write the report."""


def _text(stream: BinaryIO, run: RunOptions, cap: int) -> Writer:
    from etcdfix.report.render.text import TextWriter  # noqa: PLC0415 - each form loads only what it needs

    return TextWriter(stream, run, cap)


def _wide(stream: BinaryIO, run: RunOptions, cap: int) -> Writer:
    from etcdfix.report.render.text import TextWriter  # noqa: PLC0415

    return TextWriter(stream, run, cap, wide=True)


def _html(stream: BinaryIO, run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.html import HTMLWriter  # noqa: PLC0415

    return HTMLWriter(stream, run)


def _json(stream: BinaryIO, run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.machine import JSONWriter  # noqa: PLC0415

    return JSONWriter(stream, run)


def _yaml(stream: BinaryIO, run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.machine import YAMLWriter  # noqa: PLC0415

    return YAMLWriter(stream, run)


def _jsonl(stream: BinaryIO, run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.machine import JSONLinesWriter  # noqa: PLC0415

    return JSONLinesWriter(stream, run)


FORMS: Final[Mapping[str, Callable[[BinaryIO, RunOptions, int], Writer]]] = {
    "text": _text,
    "wide": _wide,
    "json": _json,
    "jsonl": _jsonl,
    "yaml": _yaml,
    "html": _html,
}
"""The forms of every report, the first where nobody says."""


def _junit(stream: BinaryIO, run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.junit import JUnitWriter  # noqa: PLC0415

    return JUnitWriter(stream, run)


def _csv(stream: BinaryIO, _run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.csv import CSVWriter  # noqa: PLC0415

    return CSVWriter(stream)


def _name(stream: BinaryIO, _run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.name import NameWriter  # noqa: PLC0415

    return NameWriter(stream)


def _status(stream: BinaryIO, _run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.status import StatusWriter  # noqa: PLC0415

    return StatusWriter(stream)


def _metrics(stream: BinaryIO, _run: RunOptions, _cap: int) -> Writer:
    from etcdfix.report.render.metrics import MetricsWriter  # noqa: PLC0415

    return MetricsWriter(stream)


CASE_FORMS: Final = {**FORMS, "junit": _junit}
"""The forms of reports that have test cases."""
SCAN_FORMS: Final = {
    **CASE_FORMS,
    "csv": _csv,
    "name": _name,
    "status": _status,
    "metrics": _metrics,
}
"""The forms of a scan."""


def write(report: Report, form: str, stream: BinaryIO, run: RunOptions, *, cap: int = 100) -> None:
    """Write a report.

    Args:
        report: A published struct.
        form: A name in :data:`FORMS`, or another form that the report has.
        stream: Where to.
        run: Options that commands in it repeat.
        cap: Most rows of a table with ``wide``.
    """
    SCAN_FORMS[form](stream, run, cap).end(report)
