from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from etcdfix.model.errors import SourceError
from etcdfix.sources import dbfile
from etcdfix.sources.dbfile import DatabaseFile
from etcdfix.sources.errors import NotASnapshot, SourceLocked
from tests.support.bbolt_writer import database, put
from tests.support.raising import raising
from tests.support.stopping import OPEN

ITEMS = [put(index + 2, b"/key/%04d" % index, b"value %d" % index * 20) for index in range(500)]


@pytest.fixture(scope="module")
def image() -> bytes:
    return database(ITEMS, trailer=True)


def opened(tmp_path: Path, data: bytes) -> DatabaseFile:
    path = tmp_path / "file.db"
    path.write_bytes(data)
    file = DatabaseFile(path)
    OPEN.callback(file.close)
    return file


def test_snapshot_with_its_trailer(tmp_path: Path, image: bytes) -> None:
    file = opened(tmp_path, image)
    assert (file.size, file.has_trailer, file.compressed, file.problems) == (len(image) - 32, True, False, [])
    assert file.sha256 == hashlib.sha256(image[:-32]).hexdigest()
    assert file.integrity == "SHA-256 trailer verified"


def test_wrong_trailer(tmp_path: Path, image: bytes) -> None:
    file = opened(tmp_path, image[:-1] + b"?")
    assert file.integrity.startswith("SHA-256 trailer is wrong: it says ")
    assert file.problems == ["SHA-256 trailer is wrong: changed since it was saved"]
    assert file.sha256 == hashlib.sha256(image[:-32]).hexdigest()


@pytest.mark.parametrize(
    ("at_fault", "message"),
    [
        (
            raising(OSError(errno.EIO, "Input/output error")),
            "byte 8192 and following cannot be read: Input/output error",
        ),
        (lambda *_: 0, "the file shrank to 8192 bytes while it was open"),
    ],
)
def test_file_that_cannot_be_read_to_its_end(
    tmp_path: Path, image: bytes, monkeypatch: pytest.MonkeyPatch, at_fault: Callable[..., int], message: str
) -> None:
    real = os.preadv

    def broken(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return at_fault() if offset >= 8192 else real(descriptor, [buffers[0][:8192]], offset)

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(SourceError, match=message):
        opened(tmp_path, image)


# What is no database at all.


@pytest.mark.parametrize(
    ("data", "message", "hint"),
    [
        (b"", "an empty file", ""),
        (b"hello, world, " * 9, "not an etcd database: meta page 0", "etcdctl snapshot save"),
        (b"\x28\xb5\x2f\xfd....", "zstd-compressed data", "unpack it first"),
        (b"\xfd7zXZ\x00....", "xz-compressed data", "unpack it first"),
        (b"BZh91AY....", "bzip2-compressed data", "unpack it first"),
        (b"PK\x03\x04....", "a ZIP archive", "unpack it first"),
        (zlib.compress(b"db"), "zlib-compressed data", "unpack it first"),
        (b"snap/db".ljust(257, b"\0") + b"ustar\x0000", "a tar archive", "tar -xf"),
        (bytes.fromhex("0400000000000084 08041000 00000000"), "a file of etcd's write-ahead log", "snap/db"),
        (bytes(8192), "magic 0x00000000", "etcdctl snapshot save"),
        (
            b"\x00\x01\x02\x03" * 4096,
            "not an etcd database: meta page 0 at byte 0: magic 0x03020100",
            "etcdctl",
        ),
        (b"\xff\xfe", "not an etcd database: meta page 0 at byte 0: 0 of 64 bytes", "etcdctl"),
        (b"SQLite format 3\x00\x10\x00", "a SQLite database, as k3s has one", "--kine FILE"),
    ],
)
@pytest.mark.parametrize("pack", [False, True])
def test_file_that_is_no_database(tmp_path: Path, data: bytes, message: str, hint: str, pack: bool) -> None:
    with pytest.raises(NotASnapshot, match=r"file\.db") as caught:
        opened(tmp_path, gzip.compress(data) if pack else data)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert bool(hint) == bool(caught.value.hint)


@pytest.mark.parametrize("inside", ["member/snap/db", "snap/db", "db"])
def test_data_directory_of_etcd_names_the_file_inside(tmp_path: Path, inside: str) -> None:
    (tmp_path / inside).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / inside).touch()
    with pytest.raises(NotASnapshot) as caught:
        DatabaseFile(tmp_path)
    assert caught.value.hint == f"the database is {tmp_path / inside}"


def test_permission_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "open", raising(PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(SourceError, match="permission denied"):
        DatabaseFile(tmp_path / "x")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_impossible_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="cannot be opened"):
        DatabaseFile(tmp_path / name)


def test_locked_by_a_running_etcd(tmp_path: Path, image: bytes) -> None:
    path = tmp_path / "db"
    path.write_bytes(image[:-32])
    with path.open("rb") as etcd:
        fcntl.flock(etcd, fcntl.LOCK_EX)
        with pytest.raises(SourceLocked, match="locked by a running etcd") as caught:
            DatabaseFile(path)
        assert "etcdctl snapshot save" in caught.value.hint


def test_two_readers_share_the_file_and_hold_etcd_off(tmp_path: Path, image: bytes) -> None:
    path = tmp_path / "db"
    path.write_bytes(image)
    first, second = DatabaseFile(path), DatabaseFile(path)
    with path.open("rb") as etcd:
        with pytest.raises(BlockingIOError):
            fcntl.flock(etcd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        first.close()
        second.close()
        fcntl.flock(etcd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_file_system_without_locks(tmp_path: Path, image: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", raising(OSError(errno.ENOLCK, "No locks available")))
    opened(tmp_path, image)


# gzip


def test_gzip_of_several_members_and_padding(tmp_path: Path, image: bytes) -> None:
    halves = gzip.compress(image[:70_000]) + gzip.compress(b"") + bytes(100) + gzip.compress(image[70_000:])
    file = opened(tmp_path, halves + bytes(5000))
    assert (file.problems, file.image[:]) == ([], image)


def test_cut_gzip_keeps_what_came_out(tmp_path: Path, image: bytes) -> None:
    packed = gzip.compress(image, 0)
    file = opened(tmp_path, packed[: len(packed) // 2])
    assert "the gzip data is cut" in file.problems[0]
    assert image.startswith(file.image[:])
    assert len(file.image) > len(image) // 3


def test_gzip_with_a_wrong_checksum_keeps_everything(tmp_path: Path, image: bytes) -> None:
    packed = bytearray(gzip.compress(image))
    packed[-6] ^= 0xFF
    file = opened(tmp_path, bytes(packed))
    assert file.problems[0].startswith("file.db: the gzip data is damaged: CRC check failed")
    assert file.image[:] == image


def test_bomb_is_stopped_by_the_meta_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gzip that begins like a database and goes on with zeros for ever."""
    monkeypatch.setattr(dbfile, "UNPACK_SLACK", 1 << 20)
    image = database([put(2, b"/k", b"v")])
    bomb = zlib.compressobj(9, wbits=31)
    packed = bomb.compress(image) + bomb.compress(bytes(8 << 20)) + bomb.flush()
    assert len(packed) < 1 << 20
    with pytest.raises(SourceError, match=f"the {len(image)} bytes that its meta page promises") as caught:
        opened(tmp_path, packed)
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, "TMPDIR"), (errno.EACCES, "")])
def test_temporary_file_that_cannot_be_made(
    tmp_path: Path, image: bytes, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", raising(OSError(number, os.strerror(number))))
    with pytest.raises(SourceError, match=f"cannot be unpacked in .*: {os.strerror(number)}") as caught:
        opened(tmp_path, gzip.compress(image))
    assert hint in caught.value.hint
    assert bool(hint) == bool(caught.value.hint)


def test_half_of_the_free_space_is_the_limit(
    tmp_path: Path, image: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=8, f_frsize=4096))
    with pytest.raises(SourceError, match=r"unpacks to more than 16384 bytes \(half of the free space in "):
        opened(tmp_path, gzip.compress(image))
