"""Open a database file: what kind of file it is, unpacking, locking, mapping, and its integrity trailer."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import mmap
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from etcdfix.inputs.inputfile import NOT_REGULAR, open_regular
from etcdfix.inputs.ownfiles import SQLITE_MAGIC
from etcdfix.inputs.temporary import temporary_directory, temporary_file
from etcdfix.model.errors import SourceError
from etcdfix.sources.bbolt.page import MAX_PAGE_SIZE, Meta, read_metas
from etcdfix.sources.errors import NotASnapshot, SourceLocked

TRAILER_SIZE: Final = 32
"""``etcdctl snapshot save`` appends the SHA-256 of the database (etcd ``client/v3/snapshot/v3_snapshot.go``)."""

SECTOR_SIZE: Final = 512
"""Pages are whole sectors, so ``size % 512 == 32`` tells a trailer (etcd ``hasChecksum``)."""

FREE_SPACE_SHARE: Final = 2
"""At most 1/2 of the temporary directory's free space is used to unpack a file."""

UNPACK_SLACK: Final = 64 << 20
"""How much longer than its own page count a database file may be: bbolt grows files ahead of need, by 16 MiB
(``common.DefaultAllocSize``), so anything far beyond that is no database but a bomb."""

_BLOCK: Final = 1 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_UNPACKED_PIECE: Final = 16 << 10
"""So much is lost at most where gzip data is damaged."""

_UNPACK_FIRST: Final = "unpack it first; gzip is read as it is"
_OTHER_MAGICS: Final = (
    (0, SQLITE_MAGIC, "a SQLite database, as k3s has one", "name it with --kine FILE"),
    (0, b"\x28\xb5\x2f\xfd", "zstd-compressed data", _UNPACK_FIRST),
    (0, b"\xfd7zXZ\x00", "xz-compressed data", _UNPACK_FIRST),
    (0, b"BZh", "bzip2-compressed data", _UNPACK_FIRST),
    (0, b"\x04\x22\x4d\x18", "lz4-compressed data", _UNPACK_FIRST),
    *((0, bytes((0x78, level)), "zlib-compressed data", _UNPACK_FIRST) for level in b"\x01\x5e\x9c\xda"),
    (0, b"PK\x03\x04", "a ZIP archive", _UNPACK_FIRST),
    (257, b"ustar", "a tar archive", "unpack it with tar -xf, and name the file that was in it"),
    (
        8,
        b"\x08\x04\x10",
        "a file of etcd's write-ahead log",
        "the database is snap/db beside the directory of the log; etcdfix explain KEY --in log:DIR reads the log",
    ),
)
"""Offset, bytes that stand there, what such a file is, and what to do with it."""


class DatabaseFile:
    """A database file that was opened, locked against a starting etcd, and mapped.

    Attributes:
        image: All bytes of the file (of the unpacked one).
        size: Number of bytes that belong to the database: all but a trailer.
        sha256: Hex digest of them.
        integrity: What the trailer says of them, one sentence.
        modified_at: When the file was last written, in seconds since 1970; of the packed one, where it is packed.
        metas: Valid meta pages, newest first; at least one.
        problems: What opening found that means that the file is not whole.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            NotASnapshot: No such file, not a regular file, empty, or without a valid meta page.
            SourceLocked: A running etcd holds it.
            SourceError: Not permitted, unreadable to its end, or not to be unpacked.
        """
        self.path = path
        self.problems: list[str] = []
        self._file: IO[bytes] = _open_regular(path)
        self.modified_at = os.fstat(self._file.fileno()).st_mtime
        try:
            self._lock()
            start = self._file.read(len(_GZIP_MAGIC))
            self.compressed = start == _GZIP_MAGIC
            if self.compressed:
                self._unpack()
            self._map()
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        # bbolt holds flock(LOCK_EX) while it writes (bolt_unix.go). Our shared lock stays until close: an etcd that
        # starts meanwhile waits, instead of changing pages under the map.
        try:
            fcntl.flock(self._file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise SourceLocked(
                f"{self.path}: locked by a running etcd",
                hint="take a copy with `etcdctl snapshot save FILE`, or scan the etcd itself with --endpoints",
            ) from error
        except OSError:
            # File systems without locks (some network ones) cannot tell; no etcd runs on them either.
            return

    def _unpack(self) -> None:
        """Put the unpacked bytes in an unlinked temporary file in place of the gzip file."""
        packed = self._file
        packed.seek(0)
        directory = temporary_directory()
        try:
            status = os.statvfs(directory)
            unpacked: IO[bytes] = temporary_file()
        except OSError as error:
            raise _no_temporary_file(self.path, directory, error) from error
        limit = status.f_bavail * status.f_frsize // FREE_SPACE_SHARE
        reason = f"half of the free space in {directory}"
        total, damage = 0, list[str]()
        start: bytearray | None = bytearray()
        try:
            for block in _unpacked(packed, damage):
                total += len(block)
                if start is not None:
                    start += block
                    if len(start) >= 2 * MAX_PAGE_SIZE:
                        size = max(meta.page_size * meta.high_water for meta in self._metas(bytes(start)))
                        start = None
                        if size + UNPACK_SLACK < limit:
                            limit = size + UNPACK_SLACK
                            reason = f"the {size} bytes that its meta page promises, and {UNPACK_SLACK} more"
                if total > limit:
                    break
                unpacked.write(block)
            unpacked.flush()
        except OSError as error:
            unpacked.close()
            raise _no_temporary_file(self.path, directory, error) from error
        except BaseException:
            unpacked.close()
            raise
        if total > limit:
            unpacked.close()
            raise SourceError(
                f"{self.path}: unpacks to more than {limit} bytes ({reason}): no snapshot, or no room for it",
                hint="unpack it yourself with gunzip, or point TMPDIR at a directory with more room",
            )
        self.problems += [f"{self.path.name}: {problem}" for problem in damage]
        packed.close()
        self._file = unpacked

    def _map(self) -> None:
        total = os.fstat(self._file.fileno()).st_size
        if not total:
            raise NotASnapshot(f"{self.path}: an empty file" + (" inside gzip" if self.compressed else ""))
        try:
            self.image = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError as error:
            raise SourceError(f"{self.path}: cannot be mapped: {error.strerror or error}") from error
        try:
            self.has_trailer = total % SECTOR_SIZE == TRAILER_SIZE
            self.size = total - TRAILER_SIZE if self.has_trailer else total
            self.metas = self._metas(self.image)
            self._check_size()
            self.sha256 = self._hash()
            self.integrity = self._compare_trailer()
        except BaseException:
            self.image.close()
            raise

    def _metas(self, image: mmap.mmap | bytes) -> list[Meta]:
        metas, damage = read_metas(image)
        if not metas:
            raise _not_a_database(self.path, bytes(image[:4096]), damage)
        if damage:  # of a packed file this is told twice, and kept once
            self.problems.append(
                f"{damage}; read from meta page {metas[0].page_id}, transaction {metas[0].txid}:"
                " in a copied database the last commit may be missing"
            )
        return metas

    def _check_size(self) -> None:
        meta = self.metas[0]
        promised = self.promised_size
        if self.size < promised:
            page_id, inside = divmod(self.size, meta.page_size)
            self.problems.append(
                f"the file ends at byte {self.size}, {inside} bytes into page {page_id};"
                f" its meta page promises {meta.high_water} pages, {promised} bytes"
            )
        elif self.size % meta.page_size:
            self.problems.append(
                f"{self.size % meta.page_size} bytes follow the last whole page, at byte"
                f" {self.size - self.size % meta.page_size}: neither a page nor a SHA-256 trailer"
            )

    @property
    def promised_size(self) -> int:
        """How many bytes of pages the meta page says there are; the file may be longer."""
        return self.metas[0].high_water * self.metas[0].page_size

    def how_to_replace(self) -> str:
        """Return what to do about a file that is damaged, from how it came to be."""
        if self.size < self.promised_size:
            return "the file was cut: copy the file again, or save a new one"
        if not self.has_trailer:
            return "a copy made while etcd writes is of several moments: save one with `etcdctl snapshot save FILE`"
        return "copy the file again, or save a new one"

    @property
    def descriptor(self) -> int:
        """Of the open file; of the unpacked one where it was compressed."""
        return self._file.fileno()

    def _hash(self) -> str:
        """Read every byte, at about 1 GB/s: an unreadable sector is an error here, and a signal through the map."""
        digest = hashlib.sha256()
        buffer = memoryview(bytearray(_BLOCK))
        at = 0
        while at < self.size:
            try:
                count = os.preadv(self._file.fileno(), [buffer[: self.size - at]], at)
            except OSError as error:
                raise SourceError(
                    f"{self.path}: byte {at} and following cannot be read: {error.strerror or error}",
                    hint="copy what can be read to a new file (ddrescue), and scan that",
                ) from error
            if not count:
                raise SourceError(f"{self.path}: the file shrank to {at} bytes while it was open")
            digest.update(buffer[:count])
            at += count
        return digest.hexdigest()

    def _compare_trailer(self) -> str:
        if self.has_trailer:
            expected = self.image[self.size : self.size + TRAILER_SIZE].hex()
            if self.sha256 == expected:
                return "SHA-256 trailer verified"
            self.problems.insert(0, "SHA-256 trailer is wrong: changed since it was saved")
            return f"SHA-256 trailer is wrong: it says {expected}, the database bytes give {self.sha256}"
        if self.size % self.metas[0].page_size:
            return "no SHA-256 trailer, and not whole pages either"
        return (
            "no SHA-256 trailer: whole pages, so a copied database file (member/snap/db); `etcdutl snapshot restore` "
            "takes it with --skip-hash-check alone"
        )

    def close(self) -> None:
        """Unmap, unlock, close; a temporary file vanishes."""
        self.image.close()
        self._file.close()


def _unpacked(packed: IO[bytes], problems: list[str]) -> Iterator[bytes]:
    """Unpack gzip and yield what comes out before any damage; add why that is not all."""
    with gzip.GzipFile(fileobj=packed, mode="rb") as file:
        while True:
            try:
                block = file.read1(_UNPACKED_PIECE)
            except EOFError:
                problems.append(f"the gzip data is cut: it ends after {packed.tell()} bytes, mid-stream")
                return
            except (zlib.error, OSError) as error:
                damaged = isinstance(error, (zlib.error, gzip.BadGzipFile))
                what = "is damaged" if damaged else "cannot be read further"
                problems.append(f"the gzip data {what}: {getattr(error, 'strerror', None) or error}")
                return
            if not block:
                return
            yield block


def _open_regular(path: Path) -> IO[bytes]:
    try:
        return open_regular(path)
    except FileNotFoundError as error:
        raise NotASnapshot(f"{path}: no such file") from error
    except PermissionError as error:
        raise SourceError(
            f"{path}: permission denied", hint="etcd's files belong to root as a rule"
        ) from error
    except OSError as error:
        if error.errno not in (errno.EISDIR, NOT_REGULAR):
            raise SourceError(f"{path}: cannot be opened: {error.strerror}") from error
        problem = error
    if problem.errno == errno.EISDIR:
        inside = next((name for name in ("member/snap/db", "snap/db", "db") if (path / name).is_file()), "")
        raise NotASnapshot(
            f"{path}: a directory, expected a snapshot or database file",
            hint=f"the database is {path / inside}" if inside else "",
        )
    raise NotASnapshot(f"{path}: not a regular file", hint="save a pipe's contents to a file first")


def _not_a_database(path: Path, start: bytes, reason: str) -> NotASnapshot:
    for offset, magic, what, hint in _OTHER_MAGICS:
        if start.startswith(magic, offset):
            return NotASnapshot(f"{path}: {what}, not an etcd database", hint=hint)
    return NotASnapshot(
        f"{path}: not an etcd database: {reason}",
        hint="a snapshot is the file that `etcdctl snapshot save FILE` writes",
    )


def _no_temporary_file(path: Path, directory: str, error: OSError) -> SourceError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return SourceError(
        f"{path}: cannot be unpacked in {directory}: {error.strerror or error}",
        hint="point TMPDIR at a directory with more room" if full else "",
    )
