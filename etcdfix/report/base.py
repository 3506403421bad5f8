"""How the formats of reports without a document write lines."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, BinaryIO, Self

from etcdfix.report.tables import folded, prose_lines, table_lines, width_for

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


def fit(cell: str, most: int = 500) -> str:
    """Cut a cell that no name of Kubernetes fills: every row of a table is as wide as its widest cell.

    The longest key of an object has about 400 characters; etcd takes keys of a megabyte.
    """
    return cell if len(cell) <= most else f"{cell[: most // 2]}…{cell[-(most // 2) :]}"


class Aligned(str):
    """A line of cells in columns, which folds below its first cell where it is too long for a terminal."""

    __slots__ = ("cells", "indent")

    def __new__(cls, text: str, cells: Sequence[str], indent: str) -> Self:
        """Return the line as it is where it fits, with what is needed to fold it."""
        line = super().__new__(cls, text)
        line.cells, line.indent = tuple(cells), indent
        return line

    cells: tuple[str, ...]
    indent: str


class FirstLine(io.BytesIO):
    """Takes a text, and keeps no more than its first line, which is folded nowhere."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Keep it up to the end of the first line."""
        taken = bytes(data)
        first, end, _rest = taken.partition(b"\n")
        if not self.getvalue().endswith(b"\n"):
            super().write(first + end)
        return len(taken)

    @property
    def text(self) -> str:
        """The line."""
        return self.getvalue().decode().removesuffix("\n")


class Output:
    """A binary stream with the few words that text formats need.

    Args:
        stream: Where to write; standard output or a file.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.width = 0 if isinstance(stream, FirstLine) else width_for(stream)

    def line(self, text: str = "") -> None:
        """Write one line of UTF-8 text. The caller has made foreign text safe."""
        if isinstance(text, Aligned) and self.width and len(text) > self.width:
            for part in folded(text.cells, text.indent, self.width):
                self._write(part)
        else:
            self._write(text)

    def lines(self, texts: Iterable[str]) -> None:
        """Write several."""
        for text in texts:
            self.line(text)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        key: str = "",
        prose: bool = False,
        spare: Sequence[str] = (),
    ) -> None:
        """Write a table, see :func:`table_lines`."""
        for text in table_lines(columns, rows, self.width, key=key, prose=prose, spare=spare):
            self._write(text)

    def prose(self, text: str, indent: str = "") -> None:
        """Write sentences, folded between their words; what has to be pasted is no prose."""
        for number, part in enumerate(prose_lines(text, self.width - len(indent)) if self.width else [text]):
            self._write(f"{indent}{'  ' if number else ''}{part}")

    def _write(self, text: str) -> None:
        self.stream.write(text.encode("utf-8", "backslashreplace") + b"\n")
