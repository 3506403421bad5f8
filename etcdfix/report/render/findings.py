"""``-o csv``, ``name`` and ``status``: the findings of a scan, as they are found, for other programs.

Format of CSV: RFC 4180: lines end with CR LF; a cell with a comma, a quote or a line end is quoted. A spreadsheet takes
a cell that begins with certain characters for a formula, and names come from strangers: such a cell gets an apostrophe
first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.model import Finding
from etcdfix.report.render.rows import EndWriter
from etcdfix.text.safetext import WITHHELD, key_word, safe_json, safe_text

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
