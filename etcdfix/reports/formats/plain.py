"""``-o name`` and ``-o status``: one thing per line, for pipes."""

from __future__ import annotations

from typing import BinaryIO

import msgspec

from etcdfix.reports.base import Output
from etcdfix.reports.model import Conclusion, Finding, Header
from etcdfix.text.safetext import safe_json


class NameReporter:
    """Writes the key of each finding; ``base64:`` and the encoded bytes where a key is not plain text.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._output = Output(stream)

    def begin(self, header: Header) -> None:
        """Nothing stands before the first key."""

    def finding(self, finding: Finding) -> None:
        """Write one key. Readable objects with a remark are left out: nothing has to be done about them."""
        if finding.outcome != "readable":
            self._output.line(f"base64:{finding.key_base64}" if finding.key_base64 else finding.key)

    def end(self, conclusion: Conclusion) -> None:
        """Nothing stands after the last key."""


class StatusReporter:
    """Writes, for each resource with objects that the API server calls corrupt, its Status on one line.

    Args:
        stream: Binary output.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def begin(self, header: Header) -> None:
        """A Status has no header."""

    def finding(self, finding: Finding) -> None:
        """Findings arrive again inside the statuses."""

    def end(self, conclusion: Conclusion) -> None:
        """Write the statuses; nothing at all where nothing is corrupt."""
        encoder = msgspec.json.Encoder()
        for status in conclusion.statuses:
            self._stream.write(safe_json(encoder.encode(status)) + b"\n")
