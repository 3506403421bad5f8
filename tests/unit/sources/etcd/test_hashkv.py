"""What members say of all that they store: whose answer it is, and what may be compared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd import client as client_module
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.hashkv import StoreHash, read_hash
from etcdfix.wire.etcd import HASH_KV, message
from tests.support.scripted_etcd import PERMISSION_DENIED, Call, ScriptedEtcd


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_FIRST_PAUSE_SECONDS", 0.001)


@pytest.fixture
def etcd() -> Iterator[ScriptedEtcd]:
    with ScriptedEtcd({b"/registry/a": b"1"}) as played:
        yield played


def asked(etcd: ScriptedEtcd, *, member: int, revision: int = 7) -> StoreHash:
    def script(call: Call) -> object:
        if call.path != HASH_KV.path:
            return None
        header = message("ResponseHeader")(cluster_id=etcd.cluster_id, member_id=member, revision=9)
        return message("HashKVResponse")(header=header, hash=0xDEADBEEF, compact_revision=4, hash_revision=7)

    etcd.script = script
    client = EtcdClient(EtcdConnection(endpoints=(etcd.endpoint,)), on_notice=lambda _: None)
    try:
        return read_hash(client, member_id=1, revision=revision)
    finally:
        client.close()


def test_the_hash_of_one_member_at_one_revision(etcd: ScriptedEtcd) -> None:
    assert asked(etcd, member=1) == StoreHash(0xDEADBEEF, 4, 7)
    assert [request.revision for request in etcd.requests(HASH_KV.path)] == [7]


def test_another_member_behind_the_same_address_does_not_count(etcd: ScriptedEtcd) -> None:
    with pytest.raises(CallFailed, match="member 2 answers, and not 1"):
        asked(etcd, member=2)


def test_a_refusal_is_a_failure(etcd: ScriptedEtcd) -> None:
    etcd.script = lambda call: PERMISSION_DENIED if call.path == HASH_KV.path else None
    client = EtcdClient(EtcdConnection(endpoints=(etcd.endpoint,)), on_notice=lambda _: None)
    with pytest.raises(CallFailed):
        read_hash(client, member_id=1, revision=7)
    client.close()


def test_only_what_covers_the_same_can_be_compared() -> None:
    one = StoreHash(1, 5, 9)
    assert one.is_comparable(StoreHash(2, 5, 9))
    assert not one.is_comparable(StoreHash(1, 6, 9))
    assert not one.is_comparable(StoreHash(1, 5, 10))
