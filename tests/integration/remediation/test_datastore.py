"""Which keys show the cluster apart, and what one connection sees of them, on a real etcd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.datastore import NEWEST, EtcdNow, Landmark, Landmarks
from etcdfix.sources.errors import SourceDenied
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.paging import FIRST_LIMIT
from etcdfix.testing.servers import EtcdServer
from etcdfix.wire.etcd import RANGE, message
from tests.support.connections import connected
from tests.support.etcd_proxy import EtcdProxy, Refusal

pytestmark = pytest.mark.etcd


@pytest.fixture
def client(etcd: EtcdServer) -> Iterator[EtcdClient]:
    with connected(etcd.endpoint) as opened:
        yield opened


def layout(prefix: bytes) -> StorageLayout:
    return StorageLayout(prefix.decode())


def test_the_three_that_were_made_last(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    names = ("namespaces/kube-system", "minions/a", "namespaces/b", "clusterroles/c", "deployments/n/d")
    made = {name: etcd.put(prefix + name.encode(), b"{}") for name in names}
    etcd.put(prefix + b"minions/a", b"written again")
    for passing in ("pods/n/p", "secrets/n/s", "events/n/e", "leases/n/l", "example.com/widgets/n/w"):
        etcd.put(prefix + passing.encode(), b"{}")
    etcd.put(prefix[:-1] + b"0/namespaces/elsewhere", b"{}")
    found = EtcdNow(client).landmarks(layout(prefix), target=prefix + b"secrets/n/s")
    wanted = ("namespaces/kube-system", "deployments/n/d", "clusterroles/c", "namespaces/b")
    assert found.marks == tuple(Landmark(prefix + name.encode(), made[name]) for name in wanted)
    assert found.revision == etcd.revision()


def test_the_target_is_none_of_them(etcd: EtcdServer, client: EtcdClient, prefix: bytes) -> None:
    etcd.put(prefix + b"secrets/n/s", b"{}")
    found = EtcdNow(client).landmarks(layout(prefix), target=prefix + b"secrets/n/s")
    assert found.marks == (Landmark(prefix + b"namespaces/kube-system", 0),)
    made = {name: etcd.put(prefix + name, b"{}") for name in (b"namespaces/kube-system", b"namespaces/a")}
    for target in made:
        (mark,) = EtcdNow(client).landmarks(layout(prefix), target=prefix + target).marks
        assert mark == next(Landmark(prefix + name, made[name]) for name in made if name != target)


def test_they_may_be_many_and_are_read_without_their_values(etcd: EtcdServer, prefix: bytes) -> None:
    keys = [prefix + b"serviceaccounts/n/%04d" % number for number in range(2 * FIRST_LIMIT)]
    # The newest are neither first nor last by name.
    middle = keys[FIRST_LIMIT - 1 : FIRST_LIMIT + 2]
    etcd.put_all((key, b"x") for key in keys if key not in middle)
    revisions = [etcd.put(key, b"x") for key in middle]
    asked: list[Any] = []

    def note(path: str, request: bytes) -> Refusal | None:
        if path == RANGE.path:
            asked.append(message("RangeRequest").FromString(request))
        return None

    with EtcdProxy(etcd.endpoint, note) as proxy, connected(proxy.endpoint) as client:
        found = EtcdNow(client).landmarks(layout(prefix), target=b"")
    newest = sorted(zip(middle, revisions, strict=True), key=lambda pair: -pair[1])
    assert found.marks[1:] == tuple(Landmark(*pair) for pair in newest)
    assert len(found.marks) == 1 + NEWEST
    assert not any(request.serializable for request in asked)
    assert all(request.keys_only and request.limit == FIRST_LIMIT for request in asked if request.range_end)


def test_they_cannot_be_read(etcd: EtcdServer, prefix: bytes) -> None:
    denied = Refusal("PERMISSION_DENIED", "etcdserver: permission denied")
    with EtcdProxy(etcd.endpoint) as proxy, connected(proxy.endpoint) as client:
        proxy.before = lambda path, _request: denied if path == RANGE.path else None
        with pytest.raises(SourceDenied):
            EtcdNow(client).landmarks(layout(prefix), target=b"")
        with pytest.raises(SourceDenied):
            EtcdNow(client).sight(prefix + b"k", Landmarks())
