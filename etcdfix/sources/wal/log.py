"""The log of one member, or of several of one cluster, opened for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from etcdfix.sources.base import Source
from etcdfix.sources.wal.model import Agreement, LogDescription, LoggedWrite


def database_beside(directory: Path) -> Path | None:
    """Return ``member/snap/db`` beside a ``member/wal``; None where there is none."""
    found = directory.parent / "snap" / "db"
    return found if found.is_file() else None


class LogHistory:
    """What the log did to each key; made by :meth:`WriteAheadLog.history`.

    Attributes:
        agreement: Whether it is of the same history as what is stored now. Of another one nothing is given.
        replayed: From where it was replayed, one clause; "" where there was no base, so that nothing is certain.
    """

    agreement: Agreement
    replayed: str

    def writes(self, key: bytes) -> Iterator[LoggedWrite]:
        """Yield every write of one key, oldest first, values read from the files as they are asked for.

        Range deletions and lease revocations that reached the key are among them.
        """
        raise NotImplementedError

    def keys(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield every key below a prefix that some entry names, or a replay found in a range, in byte order."""
        raise NotImplementedError

    def deleted(self, prefix: bytes = b"") -> Iterator[bytes]:
        """Yield, in byte order, every key whose last write in the log may be a deletion, whatever is stored now."""
        raise NotImplementedError

    @property
    def problems(self) -> list[str]:
        """Reasons why what is given is not everything: one sentence each."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of temporary files."""


class WriteAheadLog:
    """The write-ahead log of a member, or those of several members of one cluster.

    Opening reads all frames once: checksums, superseded entries, commits. ``history`` reads the entries that count.
    The end of each file is where it was when it was opened, so that a running etcd may write on.
    """

    description: LogDescription

    @classmethod
    def open(cls, *directories: Path, progress: Callable[[int], None] = lambda _bytes: None) -> WriteAheadLog:
        """Open the log of each directory (``member/wal``), and join them.

        Raises:
            NotALog: No such directory, or no segment of a log in it.
            LogsDisagree: Two of them are not of one history.
        """
        raise NotImplementedError

    @property
    def problems(self) -> list[str]:
        """Damage that was walked around, one sentence each."""
        raise NotImplementedError

    def history(self, present: Source | None, *, base: Source | None = None) -> LogHistory:
        """Work out what each entry did.

        Args:
            present: What is stored now: a live etcd, or a later file. The newest writes of the log are compared with
                it; None leaves everything at most ``likely``.
            base: A database file of the same history whose ``consistent_index`` lies in the log, to replay from.
                Without one, a log that begins with the cluster is replayed from the empty store.

        Raises:
            SourceError: A source, or the log, cannot be read.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()
