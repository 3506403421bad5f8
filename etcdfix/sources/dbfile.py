"""Open a database file: what kind of file it is, unpacking, locking, mapping, and its integrity trailer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final, NamedTuple

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
_MAPPED_BLOCK: Final = 128 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"
_PACKED_PIECE: Final = 16 << 10
"""So much of a gzip file is unpacked at a time: at most a thousand times as much comes of it."""

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
_MADV_POPULATE_READ: Final = 22  # linux/mman.h; the mmap module does not name it


class Integrity(NamedTuple):
    """What the file's trailer says about its bytes.

    Attributes:
        sha256: Hex digest of the database bytes, or None where they could not be read.
        problem: Why the data cannot be trusted to be complete, or "".
        readable: Whether the operating system could read every byte.
    """

    sha256: str | None
    sentence: str
    problem: str
    readable: bool


class DatabaseFile:
    """A database file that was opened, locked against a starting etcd, and mapped.

    Attributes:
        image: All bytes of the file (of the unpacked one).
        size: Number of bytes that belong to the database: all but a trailer.
        modified_at: When the file was last written, in seconds since 1970; of the packed one, where it is packed.
        metas: Valid meta pages, newest first; at least one.
        problems: What opening found that means that the file is not whole.
    """

    def __init__(self, path: Path) -> None:
        """Open ``path``.

        Raises:
            NotASnapshot: No such file, not a regular file, empty, or without a valid meta page.
            SourceLocked: A running etcd holds it.
            SourceError: Not permitted, unreadable, or not to be unpacked.
        """
        self.path = path
        self.problems: list[str] = []
        self._integrity: Integrity | None = None
        self._hasher: threading.Thread | None = None
        self._closing = False
        self._touched = False
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
        except BaseException:
            self.image.close()
            raise

    def _metas(self, image: mmap.mmap | bytes) -> list[Meta]:
        metas, damages = read_metas(image)
        if not metas:
            raise _not_a_database(self.path, bytes(image[:4096]), damages[0].message)
        if damages and damages[0].message not in self.problems:
            self.problems.append(
                f"{damages[0].message}; read from meta page {metas[0].page_id}, transaction {metas[0].txid}:"
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

    @property
    def hashed(self) -> bool:
        """Whether :meth:`integrity` has its answer already."""
        return self._integrity is not None

    def _read_blocks(self) -> Iterator[memoryview]:
        """Yield the database bytes through ``read``: an unreadable sector is an error there, not a signal."""
        buffer = memoryview(bytearray(_BLOCK))
        at = 0
        while at < self.size:
            count = os.preadv(self._file.fileno(), [buffer[: self.size - at]], at)
            if not count:
                return
            yield buffer[:count]
            at += count

    def _mapped_blocks(self) -> Iterator[memoryview]:
        """Yield the database bytes in large pieces of the map.

        hashlib lets go of the interpreter lock for as long as one piece takes, and waits up to 5 ms to have it
        back: with small pieces a hashing thread beside a busy one would hardly move.
        """
        for at in range(0, self.size, _MAPPED_BLOCK):
            yield memoryview(self.image)[at : min(at + _MAPPED_BLOCK, self.size)]

    def start_hashing(self) -> None:
        """Begin the work of :meth:`integrity` in a thread; where the system allows none, that does all of it."""
        if self._hasher is None and self._integrity is None:
            self._hasher = threading.Thread(target=self._keep_hash, name="etcdfix-hash", daemon=True)
            try:
                self._hasher.start()
            except RuntimeError:
                self._hasher = None

    def _keep_hash(self) -> None:
        integrity = self._hash()
        if not self._closing:
            self._integrity = integrity

    def integrity(self) -> Integrity:
        """Hash the database bytes and compare with the trailer; done once, at about 2 GB/s."""
        if self._hasher is not None:
            self._hasher.join()
        if self._integrity is None:
            self._integrity = self._hash()
        return self._integrity

    def touch(self) -> bool:
        """Have the kernel load and map every page now; False if it cannot.

        Each page is going to be read, and a page fault for each costs more than one request for all. The second
        use: where a sector is unreadable this fails, while touching it through the map ends the process with
        SIGBUS. A file larger than half the memory is left alone.
        """
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if self.size > memory // 2:
            return False
        try:
            self.image.madvise(_MADV_POPULATE_READ)
        except OSError:  # unreadable, or a kernel before Linux 5.14
            return False
        self._touched = True
        return True

    def _hash(self) -> Integrity:
        digest = hashlib.sha256()
        at = 0
        try:
            for block in self._mapped_blocks() if self._touched else self._read_blocks():
                digest.update(block)
                at += len(block)
                block.release()
                if self._closing:
                    break
        except OSError as error:
            what = f"byte {at} and following cannot be read: {error.strerror or error}"
            return Integrity(None, what, what, readable=False)
        if at < self.size:
            what = f"the file shrank to {at} bytes while it was open"
            return Integrity(None, what, what, readable=False)
        found = digest.hexdigest()
        if self.has_trailer:
            expected = self.image[self.size : self.size + TRAILER_SIZE].hex()
            if found == expected:
                return Integrity(found, "SHA-256 trailer verified", "", readable=True)
            what = f"SHA-256 trailer is wrong: it says {expected}, the database bytes give {found}"
            return Integrity(
                found, what, "SHA-256 trailer is wrong: changed since it was saved", readable=True
            )
        if self.size % self.metas[0].page_size:
            return Integrity(found, "no SHA-256 trailer, and not whole pages either", "", readable=True)
        sentence = (
            "no SHA-256 trailer: whole pages, so a copied database file (member/snap/db); `etcdutl snapshot restore` "
            "takes it with --skip-hash-check alone"
        )
        return Integrity(found, sentence, "", readable=True)

    def close(self) -> None:
        """Unmap, unlock, close; a temporary file vanishes."""
        self._closing = True
        if self._hasher is not None:
            self._hasher.join()
        self.image.close()
        self._file.close()


def _unpacked(packed: IO[bytes], problems: list[str]) -> Iterator[bytes]:
    """Unpack gzip and yield what comes out before any damage, unlike :mod:`gzip`; add why that is not all."""
    inflater = zlib.decompressobj(wbits=31)
    while True:
        try:
            piece = packed.read(_PACKED_PIECE)
        except OSError as error:
            problems.append(f"the gzip data cannot be read further: {error.strerror or error}")
            return
        if not piece:
            break
        while piece:
            if inflater.eof:
                # gzip files may consist of several members, and be padded with zeros (RFC 1952, gzip(1)).
                piece = piece.lstrip(b"\x00")
                if not _GZIP_MAGIC.startswith(piece[:2]):
                    problems.append("what follows the end of the gzip data is no gzip data and was ignored")
                    return
                if not piece:
                    break
                inflater = zlib.decompressobj(wbits=31)
            before = inflater.copy()
            try:
                yield inflater.decompress(piece)
            except zlib.error as error:
                problems.append(f"the gzip data is damaged: {str(error).rpartition(': ')[2]}")
                # zlib drops what the failing call made before the damage: feed it again byte by byte.
                with contextlib.suppress(zlib.error):
                    for at in range(len(piece)):
                        yield before.decompress(piece[at : at + 1])
                return
            piece = inflater.unused_data
    if not inflater.eof:
        problems.append(f"the gzip data is cut: it ends after {packed.tell()} bytes, mid-stream")


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
