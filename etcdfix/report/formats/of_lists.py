"""Formats of copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import BinaryIO, Final

from etcdfix.report.copies_model import CopiesReport
from etcdfix.report.formats import copies
from etcdfix.report.formats.machine import write_rows_json, write_rows_yaml

COPIES_FORMATS: Final[Mapping[str, Callable[[CopiesReport, BinaryIO, int], None]]] = {
    "table": copies.write_table,
    "json": write_rows_json,
    "yaml": write_rows_yaml,
}
