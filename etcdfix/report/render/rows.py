"""The rows of a report: which list of it holds them, and which of them a person sees."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.document import Document
from etcdfix.report.model import Finding


def rows_field(report: object) -> str:
    """Return the name of the list whose items are the report's rows; "" where it has none."""
    rows: str = getattr(type(report), "ROWS", "")
    return rows


class EndWriter:
    """A writer that needs its stream alone, and takes nothing before the end unless its form says more."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def begin(self, header: msgspec.Struct) -> None:
        """Take nothing."""

    def row(self, row: Any) -> None:
        """Take nothing."""

    def end(self, report: Any) -> None:
        """Write nothing."""


class ShownRows(EndWriter):
    """Keeps the rows that come one by one, as many as are shown: what is wrong before what reads with a warning."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        super().__init__(stream)
        self._most = most
        self._wrong: list[msgspec.Struct] = []
        self._warned: list[msgspec.Struct] = []

    def row(self, row: msgspec.Struct) -> None:
        """Keep a row, as far as there is room."""
        rows = self._warned if isinstance(row, Finding) and row.outcome == Outcome.READABLE else self._wrong
        if len(rows) < self._most:
            rows.append(row)

    def document_of(self, report: Any) -> Document:
        """Return the document of a report, with these rows where any came."""
        rows = [*self._wrong, *self._warned][: self._most]
        if rows:
            report = msgspec.structs.replace(report, **{rows_field(report): rows})
        document: Document = report.document()
        return document
