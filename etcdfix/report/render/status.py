"""``-o status``: the Status that KEP-3926 gives to a LIST, one per line for each resource with corrupt objects."""

from __future__ import annotations

from typing import Any

import msgspec

from etcdfix.report.render.rows import EndWriter
from etcdfix.text.safetext import safe_json


class StatusWriter(EndWriter):
    """Writes the statuses at the end, and nothing at all where no object is corrupt."""

    def end(self, report: Any) -> None:
        """Write the statuses."""
        self._stream.writelines(safe_json(msgspec.json.encode(status)) + b"\n" for status in report.statuses)
