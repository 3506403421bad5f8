"""Whether the members of an etcd hold the same data: each is asked for the hash of everything up to one revision.

API: ``Maintenance/HashKV``; the hash depends on the release of etcd and on how far the member is compacted. etcd has no
hash at the compacted revision itself, except as that of the newest: then ``header`` says which one that was.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from typing import Any, Final

from etcdfix.sources.etcd.channel import open_channel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.wire.etcd import HASH_KV, message

_ROUNDS: Final = 2
"""A compaction that is under way may change the hash of one member before that of another."""
_PAUSE_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 3.0
"""How long a member that lags behind may take to catch up."""
_EXTRA_SECONDS: Final = 15.0
"""Added to the command time-out: a member reads all that it has."""
_MOST_BYTES: Final = 2 << 30
"""A member with more is not asked: writes wait while it reads, about 1.5 seconds for each GB."""


def members_differ(client: EtcdClient, revision: int) -> str:
    """Say which members hold other data than the one that is read; "" where that is not proven.

    Nothing is proven by a member that lags behind, does not answer, may not be asked, or has no vote, nor by one of
    another release, nor by one that is too large to be asked.
    """
    for attempt in range(_ROUNDS):
        time.sleep(attempt * _PAUSE_SECONDS)
        told = _differing(client, revision)
        if not told:
            break
    return told


def _differing(client: EtcdClient, revision: int) -> str:
    read, hashes = client.endpoints()[0].text, dict[int, tuple[str, tuple[object, ...], int]]()
    # One member after the other: each stands still for as long as it reads.
    for status in sorted(client.statuses(), key=lambda status: status.endpoint != read):
        unasked = status.is_learner or status.db_size_bytes > _MOST_BYTES
        found = None if unasked else _hash_of(client, status.endpoint, revision)
        if found is not None:
            like = (status.version, found.compact_revision, found.hash_revision, found.header.revision)
            hashes.setdefault(found.header.member_id, (status.endpoint, like, found.hash))
    answers = list(hashes.values())
    for at, (first, alike, own) in enumerate(answers):
        others = [endpoint for endpoint, same, other in answers[at:] if same == alike and other != own]
        if others:
            what = f"{first} was read" if first == read else f"{read} was read, {first} has one state"
            return (
                f"the members differ at revision {revision}: {what}, and other data is at {', '.join(others)}"
            )
    return ""


def _hash_of(client: EtcdClient, endpoint: str, revision: int) -> Any | None:
    named = parse_endpoint(endpoint, has_tls_material=client.connection.has_tls_material)
    limit = client.connection.command_timeout_seconds + _EXTRA_SECONDS
    give_up_at, request = time.monotonic() + _PATIENCE_SECONDS, message("HashKVRequest")(revision=revision)
    with suppress(CallFailed), closing(open_channel(named, client.material, client.connection)) as channel:
        while True:
            try:
                metadata = client.fresh_login()
                found, _ = channel.start(HASH_KV, request, timeout_seconds=limit, metadata=metadata).result()
            except CallFailed as failed:
                if failed.failure.kind is FailureKind.COMPACTED and request.revision:
                    request = message("HashKVRequest")()
                elif failed.failure.kind is FailureKind.FUTURE_REVISION and time.monotonic() < give_up_at:
                    time.sleep(_PAUSE_SECONDS)
                else:
                    return None
            else:
                found.header.revision = request.revision or found.header.revision
                return found
    return None
