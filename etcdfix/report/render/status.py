"""``-o status``: the Status that KEP-3926 gives to a LIST, one per line for each resource with corrupt objects."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

from etcdfix.text.safetext import safe_json


class StatusWriter:
    """Writes the statuses at the end, and nothing at all where no object is corrupt."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def begin(self, _header: msgspec.Struct) -> None:
        """Write nothing."""

    def row(self, row: msgspec.Struct) -> None:
        """Write nothing: the statuses name the findings."""

    def end(self, report: Any) -> None:
        """Write the statuses."""
        self._stream.writelines(safe_json(msgspec.json.encode(status)) + b"\n" for status in report.statuses)
