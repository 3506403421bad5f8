"""An earlier revision is of the object that is there now, or was there last; or nobody knows; or it is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.model import StoredValue
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.members import read_key
from etcdfix.remediation.preflight.same_object import check_same_object
from etcdfix.sources.live import LiveSource
from tests.support.change_runs import BROKEN, Registry
from tests.support.objects import UID, aescbc, secret
from tests.support.protobytes import block, object_meta, unknown

pytestmark = pytest.mark.etcd

WHOLE = aescbc(secret("web"))
OF_ANOTHER = aescbc(secret("web").replace(UID, b"99999999-2222-3333-4444-555555555555"))
WITHOUT_UID = aescbc(unknown(b"v1", b"Secret", block(1, object_meta(b"web", b"shop", b""))))


@pytest.fixture
def cluster(registry: Registry) -> Iterator[Cluster]:
    with registry.cluster() as found:
        yield found


def checked(registry: Registry, cluster: Cluster, then: int) -> bool:
    """Check the value that stood at a revision."""
    key = registry.key("shop/web")
    with LiveSource(cluster.source.client.connection, revision=then) as source:
        stored = source.get(key)
    assert stored is not None
    return examined(cluster, key, stored)


def examined(cluster: Cluster, key: bytes, stored: StoredValue) -> bool:
    reading = read_key(cluster.source.client, key)
    return check_same_object(cluster, reading, cluster.examiner.apart().examine(stored))


def test_of_the_present_object(registry: Registry, cluster: Cluster) -> None:
    key = registry.key("shop/web")
    first = registry.etcd.put(key, WHOLE)
    registry.etcd.put(key, WHOLE)
    registry.etcd.put(key, BROKEN)
    assert checked(registry, cluster, first)
    registry.etcd.delete(key)
    assert checked(registry, cluster, first)


def test_of_another_object(registry: Registry, cluster: Cluster) -> None:
    key = registry.key("shop/web")
    first = registry.etcd.put(key, WHOLE)
    registry.etcd.delete(key)
    registry.etcd.put(key, OF_ANOTHER)
    for _ in range(2):
        with pytest.raises(RefusedByRule) as caught:
            checked(registry, cluster, first)
        assert caught.value.rule == "other-object"
        registry.etcd.delete(key)


def test_the_same_uid_once_more(registry: Registry, cluster: Cluster) -> None:
    """Restored by somebody from elsewhere: the uid says it, whatever the generations."""
    key = registry.key("shop/web")
    first = registry.etcd.put(key, WHOLE)
    registry.etcd.delete(key)
    registry.etcd.put(key, aescbc(secret("web") + b""))
    registry.etcd.put(key, BROKEN)
    assert checked(registry, cluster, first)


def test_of_nobody_knows_which(registry: Registry, cluster: Cluster) -> None:
    key = registry.key("shop/web")
    first = registry.etcd.put(key, WHOLE)
    registry.etcd.delete(key)
    registry.etcd.put(key, BROKEN)
    assert not checked(registry, cluster, first)


@pytest.mark.parametrize("again", [WITHOUT_UID, WHOLE])
def test_without_a_uid_only_the_generation_tells(registry: Registry, cluster: Cluster, again: bytes) -> None:
    key = registry.key("shop/web")
    first = registry.etcd.put(key, WITHOUT_UID)
    registry.etcd.put(key, BROKEN)
    assert checked(registry, cluster, first)
    registry.etcd.delete(key)
    registry.etcd.put(key, again)
    assert not checked(registry, cluster, first)


def test_compacted_in_the_meantime(registry: Registry, cluster: Cluster) -> None:
    """The value was read before; of the present generation it is all the same, of one that is gone nobody knows."""
    key = registry.key("shop/web")
    then = registry.etcd.put(key, WHOLE)
    with LiveSource(cluster.source.client.connection, revision=then) as source:
        stored = source.get(key)
    assert stored is not None
    registry.etcd.put(key, BROKEN)
    registry.etcd.compact()
    assert examined(cluster, key, stored)
    registry.etcd.delete(key)
    registry.etcd.compact()
    assert not examined(cluster, key, stored)
    registry.etcd.put(key, BROKEN)
    assert not examined(cluster, key, stored)
