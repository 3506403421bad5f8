"""``-o csv``: one finding a row, as it is found.

Format: RFC 4180: lines end with CR LF; a cell with a comma, a quote or a line end is quoted. A spreadsheet takes a cell
that begins with certain characters for a formula, and names come from strangers: such a cell gets an apostrophe first.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from etcdfix.report.model import Finding
from etcdfix.report.render.rows import EndWriter
from etcdfix.text.safetext import safe_text

_NO_CELL: Final = frozenset({"breaks_responses", "group_version_kind", "evidence", "remedies", "shared"})
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
