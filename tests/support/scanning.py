"""A scan of something that is open, and its report."""

from __future__ import annotations

import io
import re
from typing import Any

from etcdfix.operations.look.scan import ScanRequest, ScanResult, run_scan
from etcdfix.report.render import SCAN_FORMS
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions

_TIMES = re.compile(rb'"(generated_at|finished_at)":\s*"[^"]*"')


def without_times(report: bytes) -> bytes:
    return _TIMES.sub(rb'"\1":"-"', report)


def scan_as(opened: tuple[Source, Any], request: ScanRequest, *, jobs: int = 1) -> tuple[bytes, ScanResult]:
    """Return the JSON report of one scan, and what it came to; ``opened`` is a source and the KMS plugins to ask."""
    stream = io.BytesIO()
    source, plugins = opened
    with source:
        result = run_scan(
            source, request, SCAN_FORMS["json"](stream, RunOptions(), 100), plugins=plugins, jobs=jobs
        )
    return stream.getvalue(), result
