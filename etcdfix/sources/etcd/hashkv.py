"""What a member says of all that it stores, in one number: so that members that agree need not be read.

Format:
    ``Maintenance/HashKV``: a CRC-32 over every key and every revision of it that a compaction left, up to a revision
    (etcd ``server/storage/mvcc/hash.go``). It covers what was compacted up to another revision otherwise, so two of
    them say something only at an equal compacted revision. That equal ones are equal data by chance is one in 2^32.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed, Failure, FailureKind
from etcdfix.wire.etcd import HASH_KV, message

HASHING_SECONDS: Final = 600.0
"""Hashing reads the whole database; the member must show that it is alive meanwhile."""


class StoreHash(msgspec.Struct, frozen=True):
    """The hash of one member's store.

    Attributes:
        hash: CRC-32.
        compact_revision: Revision of the last compaction; -1 or 0 for none.
        hash_revision: Up to which it was made; 0 where the member does not say, before etcd 3.6.
    """

    hash: int
    compact_revision: int
    hash_revision: int

    def is_comparable(self, other: StoreHash) -> bool:
        """Say whether both cover the same, so that a difference between them means something."""
        return (self.compact_revision, self.hash_revision) == (other.compact_revision, other.hash_revision)


def read_hash(client: EtcdClient, *, member_id: int, revision: int) -> StoreHash:
    """Ask one member for its hash.

    Args:
        client: Of that member's address alone.
        member_id: Whose answer counts.
        revision: Up to which.

    Raises:
        CallFailed: It does not answer, does not know the request, or another member does.
        ClusterMismatch: The answer comes from another cluster.
    """
    request = message("HashKVRequest")(revision=revision)
    found = client.call(HASH_KV, request, timeout_seconds=HASHING_SECONDS)
    if found.header.member_id != member_id:
        raise CallFailed(
            Failure(
                FailureKind.UNREACHABLE, f"member {found.header.member_id:x} answers, and not {member_id:x}"
            )
        )
    return StoreHash(found.hash, found.compact_revision, found.hash_revision)
