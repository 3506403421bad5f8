"""The same scan as a whole, and as shards that are merged."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from etcdfix.operations.look.merge_shards import merge_shards, open_shards
from etcdfix.operations.look.scan import ScanRequest, ScanResult, run_scan
from etcdfix.operations.look.shards import ShardRequest
from etcdfix.reports.formats import SCAN_FORMATS
from etcdfix.sources.base import Source

_TIMES = re.compile(rb'"(generated_at|finished_at)":\s*"[^"]*"')

Opened = tuple[Source, Any]
"""A source, and the KMS plugins to ask."""


def without_times(report: bytes) -> bytes:
    """Return a report in which every time is the same."""
    return _TIMES.sub(rb'"\1":"-"', report)


def scan_as(
    opened: Opened, request: ScanRequest, output: str = "json", *, max_causes: int = 100, jobs: int = 1
) -> tuple[bytes, ScanResult]:
    """Return the report of one scan, and what it came to."""
    stream = io.BytesIO()
    source, plugins = opened
    with source:
        result = run_scan(
            source, request, SCAN_FORMATS[output](stream, max_causes), plugins=plugins, jobs=jobs
        )
    return stream.getvalue(), result


def shard_files(
    open_again: Callable[[], Opened], request: ScanRequest, of: int, folder: Path, output: str = "json"
) -> list[Path]:
    """Write the report of each shard, and return their files in the order of the shards."""
    files = []
    for index in range(1, of + 1):
        part = msgspec.structs.replace(request, shard=ShardRequest(index, of))
        files.append(folder / f"shard-{index}-of-{of}.{output}")
        files[-1].write_bytes(scan_as(open_again(), part, output)[0])
    return files


def merge_as(files: list[Path], output: str = "json", *, max_causes: int = 100) -> tuple[bytes, ScanResult]:
    """Return the report of merged files, and what it came to."""
    stream = io.BytesIO()
    reporter = SCAN_FORMATS[output](stream, max_causes)
    result = merge_shards(*open_shards(files), reporter, max_causes=max_causes)
    return stream.getvalue(), result
