"""The messages of a log: in the shape in which etcd writes them, and in others."""

from __future__ import annotations

import pytest

from etcdfix.testing.protobytes import block, number
from etcdfix.wire import raft
from tests.support.wal_writer import as_apiserver, put, request


def test_a_record_as_etcd_writes_it_and_with_its_fields_in_another_order() -> None:
    usual = number(1, 2) + number(2, 0xCAFEBABE) + block(3, b"data")
    assert raft.parse_record(b"??" + usual, 2, 2 + len(usual)) == (
        2,
        0xCAFEBABE,
        2 + len(usual) - 4,
        2 + len(usual),
    )
    other = block(3, b"data") + number(2, 7) + number(1, 2)
    type_, crc, begin, end = raft.parse_record(other, 0, len(other))
    assert (type_, crc, other[begin:end]) == (2, 7, b"data")
    bare = number(1, 4) + number(2, 0)
    assert raft.parse_record(bare, 0, len(bare)) == (4, 0, len(bare), len(bare))


@pytest.mark.parametrize(
    "raw",
    [
        b"\x08\x02\x10\xff",
        number(1, 2) + number(2, 1) + b"\x1a\x7f..",
        block(1, b"x"),
        block(2, b"x"),
        number(3, 1),
        b"\x00\x01",
        b"\x0b",
        b"\x08" + b"\xff" * 11,
        b"\x09\x01",
    ],
)
def test_what_is_no_record(raw: bytes) -> None:
    with pytest.raises(raft.Malformed):
        raft.parse_record(raw, 0, len(raw))


def test_an_entry() -> None:
    raw = number(1, 0) + number(2, 3) + number(3, 300) + block(4, b"request")
    entry = raft.parse_entry(raw, 0, len(raw))
    assert (entry.type, entry.term, entry.at, raw[entry.data_at : entry.data_end]) == (0, 3, 300, b"request")
    empty = raft.parse_entry(raw[:-9], 0, len(raw) - 9)
    assert empty.data_at == empty.data_end
    for wrong in (block(3, b"x"), number(4, 1)):
        with pytest.raises(raft.Malformed):
            raft.parse_entry(wrong, 0, len(wrong))


def test_a_request_and_who_asked() -> None:
    raw = request(raft.REQUEST_PUT, put(b"k", b"v"), user=b"root")
    found = raft.parse_request(raw, 0, len(raw))
    assert (found.kind, found.user) == (raft.REQUEST_PUT, b"root")
    assert raft.parse("Put", found.body).value == b"v"


def test_of_a_request_that_may_hold_a_password_nothing_is_read() -> None:
    raw = request(1100, block(1, b"alice") + block(2, b"hunter2"))
    found = raft.parse_request(raw, 0, len(raw))
    assert found.kind == 1100
    assert found.body == b""
    names = {
        field.name
        for name in ("Put", "Txn", "Alarm", "Header", "LeaseGrant")
        for field in raft.log_messages()[name].DESCRIPTOR.fields
    }
    assert "password" not in names


def test_a_request_of_etcds_first_store_changes_no_key() -> None:
    raw = number(1, 9) + block(2, b"PUT") + block(3, b"/0/members") + block(4, b'{"name":"default"}')
    assert raft.parse_request(raw, 0, len(raw)).kind == raft.REQUEST_V2


@pytest.mark.parametrize(
    "raw",
    [
        block(4, b"") + block(5, b""),
        number(4, 1),
        block(100, b"\xff"),
        b"\x22\x05..",
        as_apiserver(b"k", 1, b"")[:-3],
    ],
)
def test_what_is_no_request(raw: bytes) -> None:
    with pytest.raises(raft.Malformed):
        raft.parse_request(raw, 0, len(raw))
