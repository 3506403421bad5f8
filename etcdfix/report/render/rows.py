"""The rows of a report: which list holds them, which a person sees, and the forms that have nothing else."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, BinaryIO, Final

import msgspec

from etcdfix.model.model import Outcome
from etcdfix.report.document import Document
from etcdfix.report.model import Finding
from etcdfix.text.commands import RunOptions
from etcdfix.text.safetext import WITHHELD, key_word, safe_json, safe_text


def rows_field(report: object) -> str:
    """Return the name of the list whose items are the report's rows; "" where it has none."""
    rows: str = getattr(type(report), "ROWS", "")
    return rows


ANY_RUN: Final = RunOptions()


class EndWriter:
    """A writer that takes nothing before the end unless its form says more."""

    def __init__(self, stream: BinaryIO, run: RunOptions = ANY_RUN) -> None:
        self._stream, self._run = stream, run

    def begin(self, header: msgspec.Struct) -> None:
        """Take nothing."""

    def row(self, row: Any) -> None:
        """Take nothing."""

    def end(self, report: Any) -> None:
        """Write nothing."""


class ShownRows(EndWriter):
    """Keeps the rows that come one by one, as many as are shown: what is wrong before what reads with a warning."""

    most = 0

    def __init__(self, stream: BinaryIO, run: RunOptions = ANY_RUN) -> None:
        super().__init__(stream, run)
        self._wrong: list[msgspec.Struct] = []
        self._warned: list[msgspec.Struct] = []

    def row(self, row: msgspec.Struct) -> None:
        """Keep a row, as far as there is room."""
        rows = self._warned if isinstance(row, Finding) and row.outcome == Outcome.READABLE else self._wrong
        if len(rows) < self.most:
            rows.append(row)

    def document_of(self, report: Any) -> Document:
        """Return the document of a report, with these rows where any came."""
        rows = [*self._wrong, *self._warned][: self.most]
        if rows:
            report = msgspec.structs.replace(report, **{rows_field(report): rows})
        document: Document = report.document()
        return document


_NO_CELL: Final = frozenset({"breaks_responses", "group_version_kind", "evidence", "remedies"})
COLUMNS: Final = tuple(name for name in Finding.__struct_fields__ if name not in _NO_CELL)
"""The first row."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""Some spreadsheets take the wide forms for the narrow ones."""


class CSVWriter(EndWriter):
    """Writes the names of the columns, and a row for each finding."""

    def begin(self, _header: msgspec.Struct) -> None:
        """Write the names of the columns."""
        self._row(COLUMNS)

    def row(self, row: Any) -> None:
        """Write one finding."""
        self._row(_cell(getattr(row, name)) for name in COLUMNS)

    def _row(self, cells: Iterable[str]) -> None:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\r\n").writerow(cells)
        self._stream.write(text.getvalue().encode())


def _cell(value: object) -> str:
    if value is None or value is msgspec.UNSET:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    shown = safe_text(text)
    return f"'{shown}" if isinstance(value, str) and text.startswith(_FORMULA) else shown


class NameWriter(EndWriter):
    """Writes the key of each finding, a line each, as every command takes it."""

    def row(self, row: Any) -> None:
        """Write one key. Readable objects with a warning are left out: nothing has to be done about them."""
        if row.outcome != Outcome.READABLE:
            self._stream.write(f"{word_of(row)}\n".encode("utf-8", "backslashreplace"))


def word_of(finding: Any) -> str:
    """Return the word of a command line that names the key of a finding, or of another row of a report."""
    if finding.key_base64:
        return f"base64:{finding.key_base64}"
    key: str = finding.key
    return key if key.endswith(WITHHELD) else key_word(key.encode("utf-8", "surrogatepass"))


class StatusWriter(EndWriter):
    """Writes KEP-3926's Status of each resource with corrupt objects, a line each; nothing where none is corrupt."""

    def end(self, report: Any) -> None:
        """Write the statuses."""
        self._stream.writelines(safe_json(msgspec.json.encode(status)) + b"\n" for status in report.statuses)
