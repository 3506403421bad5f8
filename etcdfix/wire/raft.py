"""What etcd's write-ahead log is made of: its records, raft's entries, and the requests in them. Read only.

A request here has no counterpart that is ever sent: the messages keep the numbers of the fields and none of the names
under which etcd's clients know them. Requests of etcd's authentication hold passwords: their messages are not
described, and nothing reads more of them than the number of their field.

Format:
    etcd 3.6: ``server/storage/wal/walpb/record.proto``, ``raft/raftpb/raft.proto`` (go.etcd.io/raft),
    ``api/etcdserverpb/raft_internal.proto`` and ``rpc.proto``. The same since etcd 3.0, but for fields that were added.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from etcdfix.wire.descriptors import MessageClasses, build_pool, parse_table
from etcdfix.wire.varint import VarintCut, VarintTooLong, read_varint

_TABLE: Final = """
Put: 1 key bytes, 2 value bytes, 3 lease int64, 5 keeps_value bool, 6 keeps_lease bool
DeleteRange: 1 key bytes, 2 range_end bytes
Range: 1 key bytes, 2 range_end bytes, 4 revision int64
Operation: 1 range Range, 2 put Put, 3 delete_range DeleteRange, 4 txn Txn
Compare: 1 result int32, 2 target int32, 3 key bytes, 4 version int64, 5 create_revision int64, \
6 mod_revision int64, 7 value bytes, 8 lease int64, 64 range_end bytes
Txn: 1 compare *Compare, 2 success *Operation, 3 failure *Operation
LeaseGrant: 1 TTL int64, 2 ID int64
LeaseRevoke: 1 ID int64
Alarm: 1 action int32, 2 memberID uint64, 3 alarm int32
AlarmMember: 1 memberID uint64, 2 alarm int32
Header: 1 ID uint64, 2 username bytes
Metadata: 1 NodeID uint64, 2 ClusterID uint64
HardState: 1 term uint64, 2 vote uint64, 3 commit uint64
Snapshot: 1 index uint64, 2 term uint64
"""

# walpb.Record.Type
METADATA: Final = 1
ENTRY: Final = 2
STATE: Final = 3
CRC: Final = 4
SNAPSHOT: Final = 5

# raftpb.EntryType
NORMAL: Final = 0

# etcdserverpb.Compare.CompareTarget and CompareResult
VERSION, CREATE, MOD, VALUE, LEASE = range(5)
EQUAL, GREATER, LESS, NOT_EQUAL = range(4)

# etcdserverpb.AlarmRequest.AlarmAction and AlarmType
ALARM_ACTIVATE: Final = 1
ALARM_DEACTIVATE: Final = 2
NOSPACE: Final = 1
CORRUPT: Final = 2

# Fields of etcdserverpb.InternalRaftRequest
REQUEST_ID: Final = 1
REQUEST_V2: Final = 2
REQUEST_RANGE: Final = 3
REQUEST_PUT: Final = 4
REQUEST_DELETE_RANGE: Final = 5
REQUEST_TXN: Final = 6
REQUEST_COMPACTION: Final = 7
REQUEST_LEASE_GRANT: Final = 8
REQUEST_LEASE_REVOKE: Final = 9
REQUEST_ALARM: Final = 10
REQUEST_LEASE_CHECKPOINT: Final = 11
REQUEST_HEADER: Final = 100
REQUEST_AUTH_ENABLE: Final = 1000
AUTH_REQUESTS: Final = range(1000, 1300)
HARMLESS_REQUESTS: Final = frozenset(
    {REQUEST_V2, REQUEST_RANGE, REQUEST_COMPACTION, REQUEST_LEASE_CHECKPOINT, 1300, 1301, 1302, 9900}
)
"""They change no key, no lease and no alarm: reads, compactions, what members tell each other, downgrades."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5


class Malformed(ValueError):
    """Raised when bytes are not the message that they should be; says where, never what they hold."""


class Entry(NamedTuple):
    """A ``raftpb.Entry``.

    Attributes:
        type: :data:`NORMAL`, or a change of membership.
        term: Raft term.
        at: Raft index.
        data_at: Where its data begins in the bytes that were read.
        data_end: Where it ends.
    """

    type: int
    term: int
    at: int
    data_at: int
    data_end: int


class Request(NamedTuple):
    """An ``etcdserverpb.InternalRaftRequest``, as far as it is looked at.

    Attributes:
        kind: Number of the field that holds the request; 0 for none.
        body: Its bytes; b"" where they are not to be read.
        user: etcd user, "" for none.
    """

    kind: int
    body: bytes
    user: bytes

    def __repr__(self) -> str:
        return f"Request({self.kind}, {len(self.body)} bytes)"  # values stay out of tracebacks


@cache
def log_messages() -> MessageClasses:
    """Return the classes of the messages of a log."""
    return build_pool(parse_table(_TABLE), "etcdfix.raft")


def parse(name: str, data: bytes) -> Any:
    """Read a message of the table.

    Raises:
        Malformed: It is none.
    """
    try:
        return log_messages()[name].FromString(data)
    except DecodeError as exc:
        raise Malformed(f"no {name}") from exc


def parse_record(data: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Read a ``walpb.Record``; return its type, its checksum, and where its data begins and ends.

    Raises:
        Malformed: It is none.
    """
    if data[at : at + 1] == b"\x08" and data[at + 2 : at + 3] == b"\x10":  # as etcd writes it
        type_ = data[at + 1]
        try:
            crc, place = read_varint(data, at + 3, end)
            if place == end:
                return type_, crc, end, end
            if data[place] == 0x1A:
                length, place = read_varint(data, place + 1, end)
                if place + length == end:
                    return type_, crc, place, end
        except (VarintCut, VarintTooLong) as exc:
            raise Malformed(str(exc)) from exc
    type_ = crc = 0
    data_at = data_end = end
    for field, wire_type, value, begin, stop in _fields(data, at, end):
        if field == 1 and wire_type == _VARINT:
            type_ = value
        elif field == 2 and wire_type == _VARINT:
            crc = value
        elif field == 3 and wire_type == _BYTES:
            data_at, data_end = begin, stop
        elif field <= 3:
            raise Malformed(f"wire type {wire_type} for field {field} of a record")
    return type_, crc, data_at, data_end


def parse_entry(data: bytes, at: int, end: int) -> Entry:
    """Read a ``raftpb.Entry``.

    Raises:
        Malformed: It is none.
    """
    numbers = [0, 0, 0, 0]
    data_at = data_end = end
    for field, wire_type, value, begin, stop in _fields(data, at, end):
        if field <= 3 and wire_type == _VARINT:
            numbers[field] = value
        elif field == 4 and wire_type == _BYTES:
            data_at, data_end = begin, stop
        elif field <= 4:
            raise Malformed(f"wire type {wire_type} for field {field} of an entry")
    return Entry(numbers[1], numbers[2], numbers[3], data_at, data_end)


def parse_request(data: bytes, at: int, end: int) -> Request:
    """Tell what an entry asks for; the bodies of requests that may hold passwords are not given.

    Raises:
        Malformed: It is no request, or it holds several.
    """
    kind, body, user, many = 0, b"", b"", False
    for field, wire_type, _value, begin, stop in _fields(data, at, end):
        if field == REQUEST_ID:
            continue
        if (
            field == REQUEST_V2
        ):  # one of etcd's first store, under this message or under its own: no key of ours
            return Request(REQUEST_V2, b"", b"")
        if wire_type != _BYTES:
            raise Malformed(f"wire type {wire_type} for field {field} of a request")
        if field == REQUEST_HEADER:
            user = parse("Header", data[begin:stop]).username
            continue
        many = many or kind != 0
        kind = field
        body = b"" if field in AUTH_REQUESTS else data[begin:stop]
    if many:
        raise Malformed("several requests in one entry")
    return Request(kind, body, user)


def _fields(data: bytes, at: int, end: int) -> list[tuple[int, int, int, int, int]]:
    """Return number, wire type, value of a varint, begin and end of bytes, of each field."""
    found = []
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = read_varint(data, at - 1, end)
            field, wire_type = tag >> 3, tag & 7
            if not field:
                raise Malformed(f"field 0 at byte {at}")
            if wire_type == _VARINT:
                value, at = read_varint(data, at, end)
                found.append((field, wire_type, value, at, at))
                continue
            if wire_type == _BYTES:
                length, at = read_varint(data, at, end)
            elif wire_type in {_FIXED64, _FIXED32}:
                length = 8 if wire_type == _FIXED64 else 4
            else:
                raise Malformed(f"wire type {wire_type} at byte {at}")
            if at + length > end:
                raise Malformed(f"field {field} needs {length} bytes, {end - at} are left")
            found.append((field, wire_type, 0, at, at + length))
            at += length
    except (VarintCut, VarintTooLong) as exc:
        raise Malformed(str(exc)) from exc
    return found
