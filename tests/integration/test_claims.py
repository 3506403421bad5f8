"""Whether a key had a predecessor, asked of a real etcd."""

from __future__ import annotations

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.live import LiveSource
from etcdfix.testing.servers import EtcdServer


@pytest.mark.etcd
def test_a_live_etcd_is_asked(etcd: EtcdServer, prefix: bytes) -> None:
    key = prefix + b"secrets/shop/web"
    etcd.put(key, b"one")
    etcd.put(key, b"two")
    with LiveSource(EtcdConnection(endpoints=(etcd.endpoint,))) as source:
        stored = source.get(key)
        assert stored is not None
        assert stored.version == 2
        assert not source.lacks_predecessor(stored)
        other = type(stored)(
            key + b"x", stored.value, stored.mod_revision, stored.create_revision, 2, stored.lease
        )
        assert source.lacks_predecessor(other)
        first = type(stored)(key + b"x", b"", stored.mod_revision, stored.mod_revision, 1, 0)
        assert not source.lacks_predecessor(first)
    etcd.put(key, b"three")
    etcd.compact()
    with LiveSource(EtcdConnection(endpoints=(etcd.endpoint,))) as source:
        assert not source.lacks_predecessor(other)
