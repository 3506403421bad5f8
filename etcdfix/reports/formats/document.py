"""``-o json``: one document, indented, in which nothing acts upon a terminal."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from etcdfix.reports.formats.text import Report
from etcdfix.text.safetext import safe_json


def write_document(report: Report, stream: BinaryIO, _max_rows: int = 0) -> None:
    """Write the whole report; lists are never cut."""
    encoded = safe_json(msgspec.json.encode(report))
    stream.write(msgspec.json.format(encoded, indent=2) + b"\n")
