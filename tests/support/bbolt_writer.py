"""Write bbolt files of our own: small ones byte by byte for tests, large ones as a stream for measurements.

An independent second implementation: it shares no constant and no structure with the reader.

Format: bbolt v1.4 ``internal/common/{page,meta,inode}.go``; etcd v3.6 ``api/mvccpb/kv.proto``.
"""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Iterable, Iterator
from typing import IO

Items = Iterable[tuple[bytes, bytes]]

NO_FREELIST = 2**64 - 1


def fnv(data: bytes) -> int:
    value = 14695981039346656037
    for byte in data:
        value = (value ^ byte) * 1099511628211 % 2**64
    return value


def varint(number: int) -> bytes:
    out = bytearray()
    number %= 2**64
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def revision_key(main: int, sub: int = 0, *, tombstone: bool = False) -> bytes:
    return struct.pack(">QcQ", main, b"_", sub) + (b"t" if tombstone else b"")


def key_value(
    key: bytes, value: bytes = b"", *, mod: int = 0, create: int = 0, version: int = 0, lease: int = 0
) -> bytes:
    """An ``mvccpb.KeyValue`` as gogo/protobuf writes it: in field order, empty fields left out."""
    out = b"\x0a" + varint(len(key)) + key if key else b""
    for tag, number in ((0x10, create), (0x18, mod), (0x20, version)):
        if number:
            out += bytes([tag]) + varint(number)
    if value:
        out += b"\x2a" + varint(len(value)) + value
    if lease:
        out += b"\x30" + varint(lease)
    return out


def put(
    main: int, key: bytes, value: bytes, *, sub: int = 0, create: int = 0, version: int = 1, lease: int = 0
) -> tuple[bytes, bytes]:
    """An item of the bucket ``key``: a change of one key."""
    return revision_key(main, sub), key_value(
        key, value, mod=main, create=create or main, version=version, lease=lease
    )


def delete(main: int, key: bytes, *, sub: int = 0) -> tuple[bytes, bytes]:
    """An item of the bucket ``key``: a tombstone."""
    return revision_key(main, sub, tombstone=True), key_value(key)


class BoltWriter:
    """Pages of one database, written as they come; metas last.

    Args:
        freelist: Store an (empty) freelist page, or none as etcd does.
    """

    def __init__(self, file: IO[bytes], *, page_size: int = 4096, freelist: bool = False) -> None:
        self._file = file
        self._page_size = page_size
        self._next = 2
        self._freelist = freelist
        self._buckets: dict[bytes, tuple[int, bytes]] = {}
        file.write(bytes(2 * page_size))

    def _write_page(self, flags: int, count: int, body: bytes) -> int:
        page_id = self._next
        pages = -(-(16 + len(body)) // self._page_size)
        self._next += pages
        self._file.write(
            (struct.pack("<QHHI", page_id, flags, count, pages - 1) + body).ljust(
                pages * self._page_size, b"\0"
            )
        )
        return page_id

    def _leaf_body(self, items: list[tuple[bytes, bytes]], flags: int = 0) -> bytes:
        table = bytearray()
        data = bytearray()
        for index, (key, value) in enumerate(items):
            pos = (len(items) - index) * 16 + len(data)
            table += struct.pack("<IIII", flags, pos, len(key), len(value))
            data += key + value
        return bytes(table + data)

    def _leaves(self, items: Items) -> Iterator[tuple[bytes, int]]:
        held: list[tuple[bytes, bytes]] = []
        size = 16
        for key, value in items:
            more = 16 + len(key) + len(value)
            if held and size + more > self._page_size:
                yield held[0][0], self._write_page(2, len(held), self._leaf_body(held))
                held, size = [], 16
            held.append((key, value))
            size += more
        if held:
            yield held[0][0], self._write_page(2, len(held), self._leaf_body(held))

    def _branches(self, children: list[tuple[bytes, int]], fan_out: int) -> int:
        while len(children) > 1:
            parents: list[tuple[bytes, int]] = []
            for start in range(0, len(children), fan_out):
                group = children[start : start + fan_out]
                table = bytearray()
                data = bytearray()
                for index, (key, page_id) in enumerate(group):
                    table += struct.pack("<IIQ", (len(group) - index) * 16 + len(data), len(key), page_id)
                    data += key
                parents.append((group[0][0], self._write_page(1, len(group), bytes(table + data))))
            children = parents
        return children[0][1]

    def bucket(self, name: bytes, items: Items, *, inline: bool = False, fan_out: int = 100) -> None:
        """Write a bucket; ``items`` sorted by key. Two metas of one file need at least one bucket."""
        if inline:
            held = list(items)
            self._buckets[name] = (0, struct.pack("<QHHI", 0, 2, len(held), 0) + self._leaf_body(held))
            return
        children = list(self._leaves(items))
        root = self._branches(children, fan_out) if children else self._write_page(2, 0, b"")
        self._buckets[name] = (root, b"")

    def nested(self, name: bytes, inner: bytes, items: Items) -> None:
        """Write a bucket that holds nothing but another bucket."""
        root = self._branches(list(self._leaves(items)), 100)
        body = self._leaf_body([(inner, struct.pack("<QQ", root, 0))], flags=1)
        self._buckets[name] = (self._write_page(2, 1, body), b"")

    def finish(self, *, txid: int = 10, trailer: bool = False) -> None:
        """Write the root bucket and both metas, the newer one where its transaction id says."""
        items = [
            (name, struct.pack("<QQ", root, 0) + inline)
            for name, (root, inline) in sorted(self._buckets.items())
        ]
        root = self._write_page(2, len(items), self._leaf_body(items, flags=1))
        freelist = self._write_page(16, 0, b"") if self._freelist else NO_FREELIST
        for transaction in (txid - 1, txid):
            page_id = transaction % 2
            checked = struct.pack(
                "<IIIIQQQQQ", 0xED0CDAED, 2, self._page_size, 0, root, 0, freelist, self._next, transaction
            )
            page = struct.pack("<QHHI", page_id, 4, 0, 0) + checked + struct.pack("<Q", fnv(checked))
            self._file.seek(page_id * self._page_size)
            self._file.write(page.ljust(self._page_size, b"\0"))
        self._file.seek(0, io.SEEK_END)
        if trailer:
            digest = hashlib.sha256()
            self._file.seek(0)
            while block := self._file.read(1 << 20):
                digest.update(block)
            self._file.write(digest.digest())


def database(
    key: Items = (),
    *,
    meta: Items = (),
    page_size: int = 4096,
    fan_out: int = 100,
    freelist: bool = False,
    trailer: bool = False,
    inline: bool = False,
    txid: int = 10,
) -> bytes:
    """A whole database with etcd's buckets ``key`` and ``meta``, in memory."""
    file = io.BytesIO()
    writer = BoltWriter(file, page_size=page_size, freelist=freelist)
    writer.bucket(b"key", key, inline=inline, fan_out=fan_out)
    writer.bucket(b"meta", meta, inline=True)
    writer.finish(txid=txid, trailer=trailer)
    return file.getvalue()
