"""``-o csv``: one finding a row, as it is found, for spreadsheets and what reads them.

Format: RFC 4180: lines end with CR LF, a cell with a comma, a quote or a line end stands in quotes.

A spreadsheet takes a cell that begins with certain characters for a formula, and names come from strangers: such a cell
gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
from typing import BinaryIO, Final

from msgspec import UNSET

from etcdfix.report.base import Reporter
from etcdfix.report.model import Finding, Header
from etcdfix.text.safetext import safe_text

COLUMNS: Final = (
    "key", "key_base64", "group", "resource", "namespace", "name", "outcome", "cause", "confidence", "severity",
    "apiserver", "message", "transformer", "rule", "key_fingerprint", "kms_key_id_sha256", "mod_revision",
    "create_revision", "version", "lease", "value_size", "value_sha256", "readable_until", "stale", "baseline",
    "transient", "upstream_message",
)  # fmt: skip
"""The first row; each is a field of a finding."""

# The wide forms too: some spreadsheets take them for the narrow ones.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


class CSVReporter(Reporter):
    """Writes the names of the columns, and then a row for each finding; what is counted is left out."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._text = io.StringIO(newline="")
        self._writer = csv.writer(self._text, lineterminator="\r\n")

    def begin(self, _header: Header) -> None:
        """Write the names of the columns."""
        self._row(COLUMNS)

    def finding(self, finding: Finding) -> None:
        """Write one row."""
        self._row([_cell(getattr(finding, name)) for name in COLUMNS])

    def _row(self, cells: list[str] | tuple[str, ...]) -> None:
        self._writer.writerow(cells)
        self._stream.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def _cell(value: object) -> str:
    if value is None or value is UNSET:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = str(value)
    shown = safe_text(text)
    return f"'{shown}" if text.startswith(_FORMULA) else shown
