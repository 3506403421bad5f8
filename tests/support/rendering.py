"""A report in a form, as text."""

from __future__ import annotations

import io

from etcdfix.report.render import Report, write
from etcdfix.text.commands import RunOptions


def rendered(report: Report, form: str = "text", run: RunOptions | None = None) -> str:
    stream = io.BytesIO()
    write(report, form, stream, run if run is not None else RunOptions())
    return stream.getvalue().decode()
