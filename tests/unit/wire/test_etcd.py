from __future__ import annotations

import pytest

from etcdfix.testing.protobytes import block, number
from etcdfix.wire import raft
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import (
    ALARM,
    AUTHENTICATE,
    HASH_KV,
    LEASE_TIME_TO_LIVE,
    MEMBER_LIST,
    RANGE,
    READ_METHODS,
    ROLE_GET,
    STATUS,
    USER_GET,
    WATCH,
    message,
)
from etcdfix.wire.kms import V1_DECRYPT, V1_VERSION, V2_DECRYPT, V2_STATUS
from etcdfix.wire.kms import message as kms_message
from etcdfix.wire.varint import VarintCut, read_varint
from tests.support.bbolt_writer import varint
from tests.support.wal_writer import as_apiserver, put, request


def test_an_alarm_request_can_only_ask() -> None:
    fields = message("AlarmRequest").DESCRIPTOR.fields_by_name
    assert set(fields) == {"memberID", "alarm"}
    assert 1 not in {field.number for field in fields.values()}


WRITING_MESSAGES = (
    "PutRequest", "DeleteRangeRequest", "TxnRequest", "RequestOp", "CompactionRequest", "LeaseGrantRequest",
    "LeaseRevokeRequest",
)  # fmt: skip


@pytest.mark.parametrize("name", WRITING_MESSAGES)
def test_there_is_no_message_that_writes(name: str) -> None:
    with pytest.raises(KeyError):
        message(name)


def test_the_read_methods() -> None:
    listed = {RANGE, WATCH, STATUS, ALARM, MEMBER_LIST, LEASE_TIME_TO_LIVE, AUTHENTICATE}
    listed |= {HASH_KV, USER_GET, ROLE_GET}
    assert set(READ_METHODS.values()) == listed
    assert set(READ_METHODS) == {
        "/etcdserverpb.KV/Range", "/etcdserverpb.Watch/Watch", "/etcdserverpb.Maintenance/Status",
        "/etcdserverpb.Maintenance/Alarm", "/etcdserverpb.Cluster/MemberList",
        "/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Auth/Authenticate",
        "/etcdserverpb.Auth/UserGet", "/etcdserverpb.Auth/RoleGet", "/etcdserverpb.Maintenance/HashKV",
    }  # fmt: skip


@pytest.mark.parametrize("method", READ_METHODS.values(), ids=lambda method: method.path)
def test_every_read_method_has_its_messages(method: ReadMethod) -> None:
    assert message(method.request)().SerializeToString() == b""
    assert message(method.response)().SerializeToString() == b""


def test_the_list_cannot_be_added_to() -> None:
    with pytest.raises(TypeError):
        READ_METHODS["/etcdserverpb.KV/Put"] = RANGE  # type: ignore[index]


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
        b"\x00\x01",
        b"\x0b",
        b"\x08" + b"\xff" * 11,
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
    assert (found.kind, found.body) == (1100, b"")
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


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**28 - 1, 2**28, 2**63 - 1, 2**64 - 1])
def test_varint_round_trip(number: int) -> None:
    assert read_varint(varint(number) + b"x", 0) == (number, len(varint(number)))


def test_varint_drops_bits_beyond_64_like_go() -> None:
    assert read_varint(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 5])
def test_cut_varint(data: bytes) -> None:
    with pytest.raises(VarintCut, match="cut inside a varint"):
        read_varint(data, 0)


@pytest.mark.parametrize("method", [V1_VERSION, V1_DECRYPT, V2_STATUS, V2_DECRYPT], ids=lambda m: m.path)
def test_a_method_belongs_to_the_package_of_its_messages(method: ReadMethod) -> None:
    package, name = method.request.removesuffix("Request").split(".")
    assert method.path == f"/{package}.KeyManagementService/{name}"
    assert method.response == f"{package}.{name}Response"
    assert kms_message(method.request)().SerializeToString() == b""
    assert kms_message(method.response)().SerializeToString() == b""


@pytest.mark.parametrize("name", ["v1beta1.EncryptRequest", "v2.EncryptRequest"])
def test_nothing_can_be_encrypted(name: str) -> None:
    with pytest.raises(KeyError):
        kms_message(name)
