"""A write-ahead log written byte by byte as etcd writes one, and a small etcd of Python that says what became of it.

Nothing here is shared with what reads a log in the package; the protobuf bytes are of ``etcdfix.testing.protobytes``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from etcdfix.model.model import StoredValue
from etcdfix.testing.protobytes import block, number
from tests.support import bbolt_writer
from tests.support.memory_source import LiveMemory

PREALLOCATED = 4096

_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C by its definition, going on from another one."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def put(
    key: bytes, value: bytes, *, lease: int = 0, keep_value: bool = False, keep_lease: bool = False
) -> bytes:
    """An ``etcdserverpb.PutRequest``."""
    out = block(1, key) + (block(2, value) if value else b"") + (number(3, lease) if lease else b"")
    return out + (number(5, 1) if keep_value else b"") + (number(6, 1) if keep_lease else b"")


def delete_range(key: bytes, end: bytes = b"") -> bytes:
    """An ``etcdserverpb.DeleteRangeRequest``."""
    return block(1, key) + (block(2, end) if end else b"")


def compare(key: bytes, target: int, value: int, result: int = 0) -> bytes:
    """An ``etcdserverpb.Compare`` of a number: 0 version, 1 create, 2 mod, 4 lease."""
    union = {0: 4, 1: 5, 2: 6, 4: 8}[target]
    return number(1, result) + number(2, target) + block(3, key) + number(union, value)


def compare_value(key: bytes, value: bytes, result: int = 0) -> bytes:
    return number(1, result) + number(2, 3) + block(3, key) + block(7, value)


def txn(
    compares: Iterable[bytes] = (), success: Iterable[bytes] = (), failure: Iterable[bytes] = ()
) -> bytes:
    """An ``etcdserverpb.TxnRequest`` of operations made by ``op_put`` and the like."""
    return (
        b"".join(block(1, one) for one in compares)
        + b"".join(block(2, one) for one in success)
        + b"".join(block(3, one) for one in failure)
    )


def op_range(key: bytes, revision: int = 0) -> bytes:
    return block(1, block(1, key) + (number(4, revision) if revision else b""))


def op_put(message: bytes) -> bytes:
    return block(2, message)


def op_delete(message: bytes) -> bytes:
    return block(3, message)


def op_txn(message: bytes) -> bytes:
    return block(4, message)


def request(kind: int, body: bytes, *, user: bytes = b"") -> bytes:
    """An ``etcdserverpb.InternalRaftRequest``; ``kind`` is the number of its field."""
    header = number(1, 77) + (block(2, user) if user else b"")
    return number(1, 5) + block(kind, body) + block(100, header)


PUT, DELETE, TXN, COMPACT, GRANT, REVOKE, ALARM = 4, 5, 6, 7, 8, 9, 10


def as_apiserver(key: bytes, expected: int, value: bytes | None, *, lease: int = 0) -> bytes:
    """The transaction by which an API server creates, updates or deletes (``value`` None) an object."""
    write = op_delete(delete_range(key)) if value is None else op_put(put(key, value, lease=lease))
    failure = [op_range(key)] if expected else []
    return request(TXN, txn([compare(key, 2, expected)], [write], failure))


class LogWriter:
    """Frames in memory, cut into segments as told."""

    def __init__(self, *, cluster: int = 0xC1, node: int = 0xA1) -> None:
        self.segments: list[tuple[str, bytearray]] = []
        self._metadata = number(1, node) + number(2, cluster)
        self._crc = 0
        self.index = 0
        self.term = 2
        self.cut()
        self.snapshot(0, 0)

    def record(self, type_: int, data: bytes | None) -> None:
        """Append a frame."""
        if type_ == 4:
            crc = self._crc
        else:
            crc = self._crc = crc32c(data or b"", self._crc)
        raw = number(1, type_) + number(2, crc) + (block(3, data) if data is not None else b"")
        padding = -len(raw) % 8
        length = len(raw) | ((0x80 | padding) << 56 if padding else 0)
        self.segments[-1][1].extend(struct.pack("<Q", length) + raw + bytes(padding))

    def cut(self) -> None:
        """Begin a segment."""
        self.segments.append(
            (f"{len(self.segments):016x}-{self.index + 1 if self.index else 0:016x}.wal", bytearray())
        )
        self.record(4, None)
        self.record(1, self._metadata)

    def entry(self, data: bytes, *, index: int | None = None, term: int | None = None, type_: int = 0) -> int:
        """Append an entry, the next one where nothing else is said; return its index."""
        self.index = self.index + 1 if index is None else index
        self.term = self.term if term is None else term
        raw = number(1, type_) + number(2, self.term) + number(3, self.index)
        self.record(2, raw + (block(4, data) if data else b""))
        return self.index

    def commit(self, index: int | None = None) -> None:
        """Append a state that says that entries up to one, or all, were agreed on."""
        self.record(
            3, number(1, self.term) + number(2, 1) + number(3, self.index if index is None else index)
        )

    def snapshot(self, index: int, term: int) -> None:
        self.record(5, number(1, index) + number(2, term))

    def write(self, directory: Path, *, keep: int = 0) -> Path:
        """Write the segments (from number ``keep`` on) into ``directory``, preallocated; return it."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.segments[keep:]:
            (directory / name).write_bytes(bytes(data) + bytes(PREALLOCATED))
        return directory


@dataclass
class Held:
    """What a key holds in the model."""

    value: bytes
    mod: int
    create: int
    version: int
    lease: int

    def stored(self, key: bytes) -> StoredValue:
        return StoredValue(key, self.value, self.mod, self.create, self.version, self.lease)


@dataclass
class ModelEtcd:
    """An etcd of a few lines, that writes a log, and knows what took effect.

    Attributes:
        truth: For each effective change: (entry, key) to the revision and the value (None for a deletion).
    """

    log: LogWriter = field(default_factory=LogWriter)
    keys: dict[bytes, Held] = field(default_factory=dict)
    revision: int = 1
    leases: set[int] = field(default_factory=set)
    nospace: bool = False
    truth: dict[tuple[int, bytes], tuple[int, bytes | None]] = field(default_factory=dict)

    def _set(self, entry: int, key: bytes, value: bytes | None, lease: int = 0) -> None:
        main = self.revision + 1
        if value is None:
            del self.keys[key]
        else:
            old = self.keys.get(key)
            create, version = (old.create, old.version + 1) if old else (main, 1)
            self.keys[key] = Held(value, main, create, version, lease)
        self.truth[entry, key] = (main, value)

    def update(
        self,
        key: bytes,
        value: bytes | None,
        *,
        expected: int | None = None,
        lease: int = 0,
        refused: bool = False,
    ) -> int:
        """Write as an API server does; ``refused`` is for a reason that no log shows. Return the entry."""
        held = self.keys.get(key)
        known = (held.mod if held else 0) if expected is None else expected
        entry = self.log.entry(as_apiserver(key, known, value, lease=lease))
        ok = not refused and known == (held.mod if held else 0)
        if ok and value is not None and (self.nospace or (lease and lease not in self.leases)):
            ok = False
        if ok and not (value is None and held is None):
            self._set(entry, key, value, lease)
            self.revision += 1
        return entry

    def put(self, key: bytes, value: bytes, *, lease: int = 0) -> int:
        entry = self.log.entry(request(PUT, put(key, value, lease=lease)))
        if not self.nospace and (not lease or lease in self.leases):
            self._set(entry, key, value, lease)
            self.revision += 1
        return entry

    def delete(self, begin: bytes, end: bytes = b"") -> int:
        """A plain deletion, of a range with ``end``."""
        entry = self.log.entry(request(DELETE, delete_range(begin, end)))
        found = [key for key in self.keys if (begin <= key < end if end else key == begin)]
        for key in sorted(found):
            self._set(entry, key, None)
        self.revision += bool(found)
        return entry

    def grant(self, lease: int) -> int:
        entry = self.log.entry(request(GRANT, number(1, 60) + number(2, lease)))
        if not self.nospace:
            self.leases.add(lease)
        return entry

    def revoke(self, lease: int) -> int:
        entry = self.log.entry(request(REVOKE, number(1, lease)))
        found = sorted(key for key, held in self.keys.items() if held.lease == lease)
        if lease in self.leases:
            self.leases.discard(lease)
            for key in found:
                self._set(entry, key, None)
            self.revision += bool(found)
        return entry

    def alarm(self, *, on: bool) -> int:
        entry = self.log.entry(request(ALARM, number(1, 1 if on else 2) + number(2, 0xA1) + number(3, 1)))
        self.nospace = on
        return entry

    def store(self) -> LiveMemory:
        """What a live etcd would show now."""
        return LiveMemory([held.stored(key) for key, held in self.keys.items()], self.revision)

    def database(self, path: Path, *, term: bool = True) -> Path:
        """Write what ``member/snap/db`` would hold now."""
        items = [
            bbolt_writer.put(
                held.mod, key, held.value, sub=0, create=held.create, version=held.version, lease=held.lease
            )
            for key, held in sorted(self.keys.items(), key=lambda item: (item[1].mod, item[0]))
        ]
        items = _distinct(items)
        if not items or int.from_bytes(items[-1][0][:8], "big") < self.revision:
            items.append(bbolt_writer.delete(self.revision, b"\x00gone"))
        meta = [(b"consistent_index", struct.pack(">Q", self.log.index))]
        if term:
            meta.append((b"term", struct.pack(">Q", self.log.term)))
        file = path.open("wb")
        with file:
            writer = bbolt_writer.BoltWriter(file)
            alarms = [(number(1, 0xA1) + number(2, 1), b"")] if self.nospace else []
            writer.bucket(b"alarm", alarms, inline=True)
            writer.bucket(b"key", items)
            writer.bucket(
                b"lease",
                [(struct.pack(">Q", lease), b"\x08\x01") for lease in sorted(self.leases)],
                inline=True,
            )
            writer.bucket(b"meta", meta, inline=True)
            writer.finish()
        return path


def _distinct(items: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Give the records of one main revision different sub revisions."""
    seen: dict[bytes, int] = {}
    out = []
    for key, value in items:
        main = key[:8]
        sub = seen.get(main, 0)
        seen[main] = sub + 1
        out.append((main + b"_" + struct.pack(">Q", sub), value))
    return out
