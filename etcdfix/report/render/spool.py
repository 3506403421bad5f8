"""Where encoded rows wait until a form knows what stands before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Final

from etcdfix.temporary import temporary_directory, temporary_file

_PIECE_BYTES: Final = 1 << 20


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
