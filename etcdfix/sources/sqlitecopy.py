"""A SQLite file of a running program, copied without touching it: no lock, no file made or changed beside it.

A connection of our own would take locks, write to the ``-shm`` file, leave files behind, and keep a checkpoint of the
program waiting with its write lock taken. So the bytes are copied as they are: first the database, then its
write-ahead log, and the copy is put together where nobody else is. What is left there by a command that was killed
meanwhile, the next one takes away.

Why that is whole: what a checkpoint writes into the database stands in the log before, and the log is only written
over from its start, under a header with other salts. While the header stays the same, every page that changed in the
database meanwhile is in the copied log, and is taken from there. Where the header changed, the copy is made anew.

Format:
    https://www.sqlite.org/fileformat2.html: sections 1.3 (database header) and 4 (the write-ahead log).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final, NamedTuple

from etcdfix.inputs.inputfile import open_regular
from etcdfix.inputs.ownfiles import SQLITE_MAGIC
from etcdfix.inputs.temporary import temporary_directory
from etcdfix.model.closing import Closing
from etcdfix.model.errors import SourceError
from etcdfix.sources.errors import NotAKineFile
from etcdfix.sources.kinepages import RowsAlone, open_unchanging, page_faults, set_damaged_indexes_aside
from etcdfix.text.safetext import quote_command, safe_text

_BBOLT_MAGIC: Final = (0xED0CDAED).to_bytes(4, "little")
_GZIP_MAGIC: Final = b"\x1f\x8b"
_HEADER_SIZE: Final = 100
_LOG_HEADER_SIZE: Final = 32
_FRAME_HEADER_SIZE: Final = 24
_LOG_MAGICS: Final = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_LEAST_PAGE, _MOST_PAGE = 512, 1 << 16
_NO_LOG_AT_ALL: Final = 1 << 62
_WRITTEN_WITH_LOG: Final = 2
_ATTEMPTS: Final = 5
_LOG, _JOURNAL, _INDEX, _ALONE = "-wal", "-journal", "-shm", "-alone"
_PREFIX, _COPY = "etcdfix-kine-", "copy.db"
_JUST_A_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Seen(NamedTuple):
    """What tells whether a database was written to while it was copied; b"" and None for a file that is not there."""

    inode: tuple[int, int]
    log_header: bytes
    journal: tuple[int, int, int] | None
    written: tuple[int, int] | None
    with_log: bool


class SQLiteCopy(Closing):
    """A private copy of a SQLite database, with what its write-ahead log holds, open for reading.

    Attributes:
        log_found: A log that is not empty lies beside it.
        log_pages: Pages in it that were committed.
        log_fault: Why SQLite leaves out part of the log that was committed; "" where it does not.
        log_missing: It is written with a log, and none lies beside it, or an empty one.
        faults: What SQLite finds wrong with what is read; empty for nothing.
        damaged_indexes: Indexes that are not read, since their pages are damaged; the table is whole.

    Raises:
        NotAKineFile: The file is no SQLite database.
        SourceError: It cannot be read, is damaged from the start, changes faster than it can be copied, the log is of
            another file, or there is no room for the copy.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # SQLite looks for the log beside the file itself, not beside a link to it.
        self._real = os.path.realpath(path)
        self._sha256 = ""
        self.log_pages = 0
        self.log_fault = ""
        self.faults: list[str] = []
        self.damaged_indexes: list[str] = []
        with contextlib.ExitStack() as stack:
            # What is open stays readable, and nothing is left behind.
            copy = stack.enter_context(self._directory()) / _COPY
            try:
                seen = self._read_log(copy)
                self.connection = open_unchanging(copy)
                self._file: BufferedReader = copy.open("rb")
                unless_whole = stack.enter_context(contextlib.ExitStack())
                unless_whole.callback(self.close)
                self._check_pages(copy, seen)
                unless_whole.pop_all()
            except sqlite3.Error as exc:
                if getattr(exc, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
                    raise self._no_room(exc) from exc
                if os.path.lexists(f"{self._real}{_LOG}"):
                    self._require_own_log(copy, str(exc))
                raise SourceError(
                    f"{path}: nothing can be read: {exc}",
                    hint="copy state.db and state.db-wal in one go while k3s is stopped, and read that copy",
                ) from exc
            self.log_found = bool(seen.log_header)
            self.log_missing = seen.with_log and not seen.log_header

    def sha256(self) -> str:
        """Return the digest of the file, as hex; with a log, of the database that both make together.

        Raises:
            SourceError: The copy cannot be read.
        """
        if not self._sha256:
            try:
                self._file.seek(0)
                self._sha256 = hashlib.file_digest(self._file, "sha256").hexdigest()
            except OSError as exc:
                raise SourceError(f"{self._path}: its copy cannot be read: {exc.strerror or exc}") from exc
        return self._sha256

    def close(self) -> None:
        """Let go of the copy, which vanishes."""
        self.connection.close()
        self._file.close()

    def _check_pages(self, copy: Path, seen: _Seen) -> None:
        self.faults = page_faults(self.connection)
        if self.faults:
            self.sha256()
            self.connection.close()
            self.damaged_indexes, proven = set_damaged_indexes_aside(copy)
            self.connection = open_unchanging(copy)
            if self.damaged_indexes:
                self.faults = [] if proven else ["each of its indexes: nothing shows that no row is missing"]
        if self.log_fault:
            self.faults.append(self.log_fault)
        elif seen.log_header:
            contradiction = self._alone.contradicted_by(self.connection)
            if self.faults or contradiction:
                self._require_own_log(copy, *self.faults[:1])
            if contradiction:  # and the file alone is not whole: neither is proof against the other
                self.faults.append(f"its -wal may belong to another file: {contradiction}")

    def _require_own_log(self, copy: Path, damage: str = "") -> None:
        """Refuse where the file is whole alone, and is damaged, or another one, with the log beside it."""
        alone = copy.with_name(_COPY + _ALONE)
        self._copy_file(self._real, alone)
        try:
            with contextlib.closing(open_unchanging(alone)) as connection:
                if page_faults(connection):
                    return
        except sqlite3.Error:
            return  # neither is whole
        told = f"it is whole alone, and damaged with the -wal ({damage})"
        if not damage:  # asked again, of a copy that is whole
            told = RowsAlone(alone).contradicted_by(self.connection)
        if told:
            copied = f"{self._path}.alone"
            raise SourceError(
                f"{self._path}: the -wal beside it does not belong to it, but to another file or moment: {told}",
                hint="nothing was read, for either may be the one you want. To read the file alone: "
                f"{quote_command(('cp', str(self._path), copied))}, then name {safe_text(copied)} with --kine. "
                "Before k3s starts with the file alone, move its -wal and -shm aside, and keep them",
            )

    @contextlib.contextmanager
    def _directory(self) -> Iterator[Path]:
        try:
            _take_away_what_was_left()
            directory, lock = _locked_directory()
        except OSError as exc:
            raise self._no_room(exc) from exc
        try:
            yield directory
        finally:
            shutil.rmtree(directory, ignore_errors=True)
            os.close(lock)

    def _copy_whole(self, copy: Path) -> _Seen:
        """Copy the database and what lies beside it, as they were at one moment."""
        for _ in range(_ATTEMPTS):
            before = self._look()
            self._copy_file(self._real, copy)
            for suffix, there in ((_LOG, bool(before.log_header)), (_JOURNAL, before.journal is not None)):
                target = copy.with_name(copy.name + suffix)
                target.unlink(missing_ok=True)
                if there:
                    self._copy_file(self._real + suffix, target)
            if self._look() == before:
                return before
        raise SourceError(
            f"{self._path}: its log began anew during each of {_ATTEMPTS} attempts to copy it",
            hint="try again when less is written, point TMPDIR at a faster disk, or read a copy that sqlite3 .backup "
            "made",
        )

    def _read_log(self, copy: Path) -> _Seen:
        """Copy everything, bring the log into the copy, and see whether all of it was taken.

        The last page may have been half written when it was copied. Damage breaks off at the same page each time.
        """
        broke_off = -1
        for _ in range(_ATTEMPTS):
            seen = self._copy_whole(copy)
            if not seen.log_header and seen.journal is None:
                self.log_pages = 0
                break
            last_commit = self._last_commit(copy)
            self._alone = RowsAlone(copy)
            self.log_pages = _put_together(copy)
            if last_commit <= self.log_pages:
                break
            if self.log_pages == broke_off:
                where = f"behind page {self.log_pages} of {last_commit}"
                if last_commit == _NO_LOG_AT_ALL:
                    where = "from its start"
                self.log_fault = f"its -wal is damaged {where}: what was written from there on is missing"
                break
            broke_off = self.log_pages
        return seen

    @staticmethod
    def _last_commit(copy: Path) -> int:
        """Return the number of the last page in the log of a copy that ends a transaction, from 1; 0 for none.

        SQLite reads a log up to the first page whose checksum does not fit, and says nothing of what stands behind it.

        Format:
            https://www.sqlite.org/fileformat2.html, section 4.1: a header of 32 bytes with page size and salts; then
            pages, each behind 24 bytes: its number, the size of the database after a commit, else 0, and the salts.
        """
        log = copy.with_name(copy.name + _LOG)
        if not log.exists():
            return 0
        with log.open("rb") as stream:
            header, size = stream.read(_LOG_HEADER_SIZE), log.stat().st_size
            page = int.from_bytes(header[8:12], "big")
            if not header.startswith(_LOG_MAGICS) or not _LEAST_PAGE <= page <= _MOST_PAGE:
                return _NO_LOG_AT_ALL
            last = 0
            for number in range(1, (size - _LOG_HEADER_SIZE) // (page + _FRAME_HEADER_SIZE) + 1):
                stream.seek(_LOG_HEADER_SIZE + (number - 1) * (page + _FRAME_HEADER_SIZE))
                frame = stream.read(_FRAME_HEADER_SIZE)
                if frame[8:16] == header[16:24] and any(frame[4:8]):
                    last = number
        return last

    def _look(self) -> _Seen:
        try:
            with open_regular(self._real) as file:
                status, header = os.fstat(file.fileno()), file.read(_HEADER_SIZE)
        except OSError as exc:
            raise NotAKineFile(f"{self._path}: {exc.strerror or exc}") from exc
        _require_sqlite(self._path, header)
        _, log_header = self._look_beside(_LOG)
        journal, content = self._look_beside(_JOURNAL)
        return _Seen(
            inode=(status.st_dev, status.st_ino),
            log_header=log_header,
            journal=journal if content else None,
            written=None if log_header else (status.st_size, status.st_mtime_ns),
            with_log=header[18] == _WRITTEN_WITH_LOG,
        )

    def _look_beside(self, suffix: str) -> tuple[tuple[int, int, int] | None, bytes]:
        """Return number, size and time of a file beside the database, and how it begins."""
        try:
            with open_regular(self._real + suffix, follow=False) as file:
                status = os.fstat(file.fileno())
                return (status.st_ino, status.st_size, status.st_mtime_ns), file.read(_LOG_HEADER_SIZE)
        except FileNotFoundError:
            return None, b""
        except OSError as exc:
            raise SourceError(f"{self._path}{suffix}: {exc.strerror or exc}") from exc

    def _copy_file(self, source: str, target: Path) -> None:
        try:
            with open_regular(source) as file, target.open("wb") as copied:
                shutil.copyfileobj(file, copied, 1 << 20)
        except FileNotFoundError:
            return  # a checkpoint took it away: the next look sees that
        except OSError as exc:
            if exc.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
                raise self._no_room(exc) from exc
            raise SourceError(
                f"{self._path}: cannot be read to its end: {exc.strerror or exc}",
                hint="copy what can be read to a new file (ddrescue), and read that",
            ) from exc

    def _no_room(self, exc: OSError | sqlite3.Error) -> SourceError:
        why = (exc.strerror if isinstance(exc, OSError) else None) or exc
        try:
            where = temporary_directory()
        except OSError:  # every disk is full
            where = "TMPDIR"
        return SourceError(
            f"{self._path}: it is read from a copy in {where}, which cannot be made: {why}",
            hint="point TMPDIR at a directory with room for the file and twice its -wal",
        )


def _locked_directory() -> tuple[Path, int]:
    while True:
        directory = tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_directory())
        try:
            descriptor = os.open(directory, _JUST_A_DIRECTORY)
        except FileNotFoundError:
            continue  # taken away as one that was left, before it was locked
        taken = False
        try:
            _lock(descriptor)
        except BlockingIOError:
            taken = True  # likewise, this very moment
        except OSError:
            return Path(directory), descriptor  # no locks there, so nobody takes anything away either
        if not taken and os.path.lexists(directory):  # who takes one away has its lock
            return Path(directory), descriptor
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _take_away_what_was_left() -> None:
    """Remove what a command left that was killed while it copied: a kill ends its lock."""
    for directory in Path(temporary_directory()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(directory, _JUST_A_DIRECTORY)
            try:
                if os.fstat(descriptor).st_uid != os.geteuid():
                    continue
                _lock(descriptor)
                for suffix in ("", _LOG, _JOURNAL, _INDEX, _ALONE):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(_COPY + suffix, dir_fd=descriptor)
                directory.rmdir()
            finally:
                os.close(descriptor)


def _require_sqlite(path: Path, header: bytes) -> None:
    if header.startswith(SQLITE_MAGIC) and len(header) == _HEADER_SIZE:
        return
    what, hint = "no SQLite database", "on k3s it is /var/lib/rancher/k3s/server/db/state.db"
    if SQLITE_MAGIC.startswith(header[: len(SQLITE_MAGIC)]):
        what = "empty" if not header else "a SQLite database that ends within its header"
    elif header[16:20] == _BBOLT_MAGIC:
        what, hint = "a database file of etcd", "name it with --snapshot FILE"
    elif header.startswith(_GZIP_MAGIC):
        what, hint = "compressed", "unpack it first"
    raise NotAKineFile(f"{path}: it is {what}", hint=hint)


def _put_together(copy: Path) -> int:
    """Bring what the log of a copy holds into its database; return how many pages were in it."""
    connection = sqlite3.connect(copy, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema=OFF")
        # The copy need not outlive us, let alone the machine: nothing waits for the disk.
        connection.execute("PRAGMA synchronous=OFF")
        _, in_log, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        connection.execute("PRAGMA journal_mode=DELETE").fetchone()
    finally:
        connection.close()
    return max(int(in_log), 0)
