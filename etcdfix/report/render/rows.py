"""The rows of a report: which list holds them, which a person sees, and where they wait for what stands before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, BinaryIO, Final

import msgspec

from etcdfix.model import Outcome
from etcdfix.report.document import Document
from etcdfix.report.model import Finding
from etcdfix.temporary import temporary_directory, temporary_file

_PIECE_BYTES: Final = 1 << 20


def rows_field(report: object) -> str:
    """Return the name of the list whose items are the report's rows; "" where it has none."""
    rows: str = getattr(type(report), "ROWS", "")
    return rows


class EndWriter:
    """A writer that needs its stream alone, and takes nothing before the end unless its form says more."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def begin(self, header: msgspec.Struct) -> None:
        """Take nothing."""

    def row(self, row: Any) -> None:
        """Take nothing."""

    def end(self, report: Any) -> None:
        """Write nothing."""


class ShownRows(EndWriter):
    """Keeps the rows that come one by one, as many as are shown: what is wrong before what reads with a warning."""

    def __init__(self, stream: BinaryIO, most: int) -> None:
        super().__init__(stream)
        self._most = most
        self._wrong: list[msgspec.Struct] = []
        self._warned: list[msgspec.Struct] = []

    def row(self, row: msgspec.Struct) -> None:
        """Keep a row, as far as there is room."""
        rows = self._warned if isinstance(row, Finding) and row.outcome == Outcome.READABLE else self._wrong
        if len(rows) < self._most:
            rows.append(row)

    def document_of(self, report: Any) -> Document:
        """Return the document of a report, with these rows where any came."""
        rows = [*self._wrong, *self._warned][: self._most]
        if rows:
            report = msgspec.structs.replace(report, **{rows_field(report): rows})
        document: Document = report.document()
        return document


class WaitingLines:
    """Encoded rows, one per line, in an unlinked temporary file that is made when the first one comes."""

    def __init__(self) -> None:
        self.file: IO[bytes] | None = None

    def append(self, line: bytes) -> None:
        """Keep one row.

        Raises:
            OSError: There is no room; it names the directory of temporary files.
        """
        if self.file is None:
            self.file = temporary_file()
        try:
            self.file.write(line + b"\n")
        except OSError as exc:  # not that of the report itself, which may lie on another disk
            raise OSError(exc.errno, exc.strerror, temporary_directory()) from exc

    def joined(self, between: bytes) -> Iterator[bytes]:
        """Yield all lines in large pieces, with this in the place of what ends a line, and let go of the file."""
        if self.file is None:
            return
        with self.file as file:
            file.seek(0)
            end = b""  # of the last line: nothing stands behind that
            while piece := file.read(_PIECE_BYTES):
                lines = end + piece
                end = b"\n" if lines.endswith(b"\n") else b""
                yield lines.removesuffix(end).replace(b"\n", between)

    def lines(self) -> Iterator[bytes]:
        """Yield every line, and let go of the file."""
        if self.file is None:
            return
        with self.file as file:
            file.seek(0)
            yield from file
