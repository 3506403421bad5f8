"""Which list of a report holds its rows."""

from __future__ import annotations


def rows_field(report: object) -> str:
    """Return the name of the list whose items are the report's rows; "" where it has none."""
    rows: str = getattr(type(report), "ROWS", "")
    return rows
