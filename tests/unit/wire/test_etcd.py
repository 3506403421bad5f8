from __future__ import annotations

import pytest

from etcdfix.testing.protobytes import block, number
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import (
    ALARM,
    AUTHENTICATE,
    EVENT_DELETE,
    EVENT_PUT,
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

HEADER = number(1, 2**64 - 1) + number(2, 5) + number(3, 42) + number(4, 6)


def test_a_range_request_as_it_travels() -> None:
    request = message("RangeRequest")(key=b"a", range_end=b"b", limit=500, revision=7, count_only=True)
    assert request.SerializeToString() == (
        block(1, b"a") + block(2, b"b") + number(3, 500) + number(4, 7) + number(9, 1)
    )
    more = message("RangeRequest")(serializable=True, keys_only=True)
    assert more.SerializeToString() == number(7, 1) + number(8, 1)


def test_a_range_response_as_it_travels() -> None:
    record = (
        block(1, b"k") + number(2, 3) + number(3, 9) + number(4, 2) + block(5, b"\xff\x00") + number(6, 77)
    )
    found = message("RangeResponse").FromString(
        block(1, HEADER) + block(2, record) + block(2, record) + number(3, 1) + number(4, 12)
    )
    assert (found.header.cluster_id, found.header.member_id) == (2**64 - 1, 5)
    assert (found.header.revision, found.header.raft_term) == (42, 6)
    assert (len(found.kvs), found.more, found.count) == (2, True, 12)
    value = found.kvs[1]
    assert (value.key, value.value, value.lease) == (b"k", b"\xff\x00", 77)
    assert (value.create_revision, value.mod_revision, value.version) == (3, 9, 2)


def test_watch_messages_as_they_travel() -> None:
    create = message("WatchCreateRequest")(key=b"k", start_revision=4)
    assert message("WatchRequest")(create_request=create).SerializeToString() == block(
        1, block(1, b"k") + number(3, 4)
    )
    progress = message("WatchRequest")(progress_request=message("WatchProgressRequest")())
    assert progress.SerializeToString() == block(3, b"")
    tombstone = number(1, 1) + block(2, block(1, b"k") + number(3, 8))
    found = message("WatchResponse").FromString(
        block(1, HEADER)
        + number(3, 1)
        + number(4, 1)
        + number(5, 6)
        + block(6, b"why")
        + block(11, tombstone)
    )
    assert (found.created, found.canceled, found.compact_revision, found.cancel_reason) == (
        True,
        True,
        6,
        "why",
    )
    assert (found.events[0].type, found.events[0].kv.mod_revision) == (EVENT_DELETE, 8)
    assert message("Event").FromString(block(2, b"")).type == EVENT_PUT


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
    listed |= {USER_GET, ROLE_GET}
    assert set(READ_METHODS.values()) == listed
    assert set(READ_METHODS) == {
        "/etcdserverpb.KV/Range",
        "/etcdserverpb.Watch/Watch",
        "/etcdserverpb.Maintenance/Status",
        "/etcdserverpb.Maintenance/Alarm",
        "/etcdserverpb.Cluster/MemberList",
        "/etcdserverpb.Lease/LeaseTimeToLive",
        "/etcdserverpb.Auth/Authenticate",
        "/etcdserverpb.Auth/UserGet",
        "/etcdserverpb.Auth/RoleGet",
    }


@pytest.mark.parametrize("method", READ_METHODS.values(), ids=lambda method: method.path)
def test_every_read_method_has_its_messages(method: ReadMethod) -> None:
    assert message(method.request)().SerializeToString() == b""
    assert message(method.response)().SerializeToString() == b""


def test_the_list_cannot_be_added_to() -> None:
    with pytest.raises(TypeError):
        READ_METHODS["/etcdserverpb.KV/Put"] = RANGE  # type: ignore[index]
