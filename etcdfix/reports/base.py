"""The seam between a scan and the formats it can be written in."""

from __future__ import annotations

from typing import BinaryIO, Protocol

from etcdfix.reports.model import Conclusion, Finding, Header


class Reporter(Protocol):
    """Receives one header, any number of findings in key order, and one conclusion.

    A reporter writes bytes to the stream that it was made with, keeps no more findings in memory than it
    shows, and never closes the stream.
    """

    def begin(self, header: Header) -> None:
        """Take what is known before the first key."""
        ...

    def finding(self, finding: Finding) -> None:
        """Take one finding."""
        ...

    def end(self, conclusion: Conclusion) -> None:
        """Take the counts and finish the output."""
        ...


def counted(number: int, noun: str) -> str:
    """Return ``1 key``, ``2 keys``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Output:
    """A binary stream with the few words that text formats need.

    Args:
        stream: Where to write; standard output or a file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def line(self, text: str = "") -> None:
        """Write one line of UTF-8 text. The caller has made foreign text safe."""
        self.stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
