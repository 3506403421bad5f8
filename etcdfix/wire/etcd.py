"""The etcd v3 messages that reading needs, and the paths of the methods that carry them.

Format: etcd 3.6, ``api/mvccpb/kv.proto``, ``api/authpb/auth.proto`` and ``api/etcdserverpb/rpc.proto``. Enums travel as
varints, so they stand here as ``int32``. What we must not send is left out: without its ``action`` field an
``AlarmRequest`` can only mean GET, and nothing that writes a key has a message here at all. Fields that a server of
another version adds are skipped by protobuf, fields that it lacks read as zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from etcdfix.wire.descriptors import MessageClasses, ReadMethod, WireField, build_pool, parse_table

# One message a line: name, then number, name and type of each field; "*" marks a repeated one.
_TABLE = """
KeyValue: 1 key bytes, 2 create_revision int64, 3 mod_revision int64, 4 version int64, 5 value bytes, 6 lease int64
Event: 1 type int32, 2 kv KeyValue, 3 prev_kv KeyValue
ResponseHeader: 1 cluster_id uint64, 2 member_id uint64, 3 revision int64, 4 raft_term uint64
RangeRequest: 1 key bytes, 2 range_end bytes, 3 limit int64, 4 revision int64, 7 serializable bool, 8 keys_only bool, \
9 count_only bool
RangeResponse: 1 header ResponseHeader, 2 kvs *KeyValue, 3 more bool, 4 count int64
WatchCreateRequest: 1 key bytes, 2 range_end bytes, 3 start_revision int64, 5 filters *int32, \
6 prev_kv bool, 8 fragment bool
WatchProgressRequest:
WatchRequest: 1 create_request WatchCreateRequest, 3 progress_request WatchProgressRequest
WatchResponse: 1 header ResponseHeader, 2 watch_id int64, 3 created bool, 4 canceled bool, 5 compact_revision int64, \
6 cancel_reason string, 7 fragment bool, 11 events *Event
StatusRequest:
StatusResponse: 1 header ResponseHeader, 2 version string, 3 dbSize int64, 4 leader uint64, 8 errors *string, \
9 dbSizeInUse int64, 10 isLearner bool, 11 storageVersion string, 12 dbSizeQuota int64
HashKVRequest: 1 revision int64
HashKVResponse: 1 header ResponseHeader, 2 hash uint32, 3 compact_revision int64, 4 hash_revision int64
Member: 1 ID uint64, 2 name string, 3 peerURLs *string, 4 clientURLs *string, 5 isLearner bool
MemberListRequest: 1 linearizable bool
MemberListResponse: 1 header ResponseHeader, 2 members *Member
AlarmRequest: 2 memberID uint64, 3 alarm int32
AlarmMember: 1 memberID uint64, 2 alarm int32
AlarmResponse: 1 header ResponseHeader, 2 alarms *AlarmMember
LeaseTimeToLiveRequest: 1 ID int64, 2 keys bool
LeaseTimeToLiveResponse: 1 header ResponseHeader, 2 ID int64, 3 TTL int64, 4 grantedTTL int64, 5 keys *bytes
AuthenticateRequest: 1 name string, 2 password string
AuthenticateResponse: 1 header ResponseHeader, 2 token string
AuthUserGetRequest: 1 name string
AuthUserGetResponse: 1 header ResponseHeader, 2 roles *string
AuthRoleGetRequest: 1 role string
AuthRoleGetResponse: 1 header ResponseHeader, 2 perm *Permission
Permission: 1 permType int32, 2 key bytes, 3 range_end bytes
"""

# mvccpb.Event.EventType
EVENT_PUT = 0
EVENT_DELETE = 1

# authpb.Permission.Type
PERMISSION_READ = 0
PERMISSION_WRITE = 1
PERMISSION_READWRITE = 2


RANGE = ReadMethod("/etcdserverpb.KV/Range", "RangeRequest", "RangeResponse")
WATCH = ReadMethod("/etcdserverpb.Watch/Watch", "WatchRequest", "WatchResponse")
STATUS = ReadMethod("/etcdserverpb.Maintenance/Status", "StatusRequest", "StatusResponse")
ALARM = ReadMethod("/etcdserverpb.Maintenance/Alarm", "AlarmRequest", "AlarmResponse")
HASH_KV = ReadMethod("/etcdserverpb.Maintenance/HashKV", "HashKVRequest", "HashKVResponse")
MEMBER_LIST = ReadMethod("/etcdserverpb.Cluster/MemberList", "MemberListRequest", "MemberListResponse")
LEASE_TIME_TO_LIVE = ReadMethod(
    "/etcdserverpb.Lease/LeaseTimeToLive", "LeaseTimeToLiveRequest", "LeaseTimeToLiveResponse"
)
AUTHENTICATE = ReadMethod("/etcdserverpb.Auth/Authenticate", "AuthenticateRequest", "AuthenticateResponse")
USER_GET = ReadMethod("/etcdserverpb.Auth/UserGet", "AuthUserGetRequest", "AuthUserGetResponse")
ROLE_GET = ReadMethod("/etcdserverpb.Auth/RoleGet", "AuthRoleGetRequest", "AuthRoleGetResponse")

READ_METHODS = MappingProxyType(
    {
        method.path: method
        for method in (
            RANGE,
            WATCH,
            STATUS,
            ALARM,
            HASH_KV,
            MEMBER_LIST,
            LEASE_TIME_TO_LIVE,
            AUTHENTICATE,
            USER_GET,
            ROLE_GET,
        )
    }
)


def message(name: str) -> Any:
    """Return the protobuf class of a message.

    Raises:
        KeyError: The message is not in our table.
    """
    return _classes()[name]


def alarm_query() -> Any:
    """Return the one AlarmRequest that goes out: empty, which asks (GET) for every alarm of every member."""
    return message("AlarmRequest")()


@cache
def read_messages() -> Mapping[str, Sequence[WireField]]:
    """Return the fields of every message here, for a table of one's own that shares some of them."""
    return MappingProxyType(parse_table(_TABLE))


@cache
def _classes() -> MessageClasses:
    return build_pool(read_messages(), "etcdfix.etcd")
