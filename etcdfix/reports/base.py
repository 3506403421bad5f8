"""The seam between a scan and the formats it can be written in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

from etcdfix.reports.model import Conclusion, Finding, Header


class Reporter:
    """Receives one header, any number of findings in key order, and one conclusion.

    A reporter writes bytes to the stream that it was made with, keeps no more findings in memory than it
    shows, and never closes the stream. What it has no use for, it need not take.
    """

    def begin(self, header: Header) -> None:
        """Take what is known before the first key."""

    def finding(self, finding: Finding) -> None:
        """Take one finding."""

    def end(self, conclusion: Conclusion) -> None:
        """Take the counts and finish the output."""


def counted(number: int, noun: str) -> str:
    """Return ``1 key``, ``2 keys``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def fit(cell: str, most: int = 500) -> str:
    """Cut a cell that no name of Kubernetes fills: every row of a table is as wide as its widest cell.

    The longest key of an object has about 400 characters; etcd takes keys of a megabyte.
    """
    return cell if len(cell) <= most else f"{cell[: most // 2]}…{cell[-(most // 2) :]}"


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

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write rows in columns below their heads. The caller has made foreign text safe, and short."""
        from tabulate import tabulate  # noqa: PLC0415 - 20 ms that other formats need not pay

        text = tabulate(rows, headers=columns, tablefmt="plain", disable_numparse=True)
        for row in text.splitlines():
            self.line(row.rstrip())
