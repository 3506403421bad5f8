"""An earlier revision is of the object that is there now, or was there last; or nobody knows; or it is refused."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from etcdfix.errors import RefusedByRule
from etcdfix.model import ClusterIdentity, KnownBy, StoredValue
from etcdfix.remediation.preflight.cluster import Cluster
from etcdfix.remediation.preflight.same_object import (
    check_same_object,
    check_uid,
    last_stored,
    newest_readable,
    said_uids,
)
from etcdfix.sources.kine import KineSource
from etcdfix.sources.live import LiveSource
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.change_runs import BROKEN, Registry
from tests.support.kine import KineWriter
from tests.support.object_files import json_secret, saved
from tests.support.objects import KUBE_SYSTEM_UID, UID, aescbc, secret

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
    with LiveSource(cluster.client.connection, revision=then) as source:
        stored = source.get(key)
    assert stored is not None
    return examined(cluster, key, stored)


def examined(cluster: Cluster, key: bytes, stored: StoredValue) -> bool:
    reading = cluster.now.read_key(key)
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
    with LiveSource(cluster.client.connection, revision=then) as source:
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


# A value from elsewhere: its uid alone says it.


def uid_fits(
    registry: Registry, cluster: Cluster, value: bytes, *, uid: str = KUBE_SYSTEM_UID, cluster_id: str = ""
) -> bool:
    key = registry.key("shop/web")
    found = cluster.examiner.apart().examine(StoredValue(key, value, 0, 0, 0, 0))
    reading = cluster.now.read_key(key)
    identity = ClusterIdentity(uid=uid, known_by=KnownBy.VALUE, cluster_id=cluster_id)
    return check_uid(cluster, reading, found, identity, registry.places)


def test_the_uid_of_what_etcd_keeps(registry: Registry, cluster: Cluster) -> None:
    key = registry.key("shop/web")
    registry.etcd.put(key, WHOLE)
    registry.etcd.put(key, BROKEN)
    for _ in range(2):
        assert uid_fits(registry, cluster, WHOLE)
        assert not uid_fits(registry, cluster, WITHOUT_UID)
        with pytest.raises(RefusedByRule, match="is of the object with uid 99999999") as caught:
            uid_fits(registry, cluster, OF_ANOTHER)
        assert caught.value.rule == "other-object"
        registry.etcd.delete(key)
    registry.etcd.put(key, BROKEN)  # a generation of which nothing reads
    assert not uid_fits(registry, cluster, WHOLE)
    assert not uid_fits(registry, cluster, OF_ANOTHER)


def test_an_object_without_a_uid_is_known_by_none(registry: Registry, cluster: Cluster) -> None:
    registry.etcd.put(registry.key("shop/web"), WITHOUT_UID)
    assert not uid_fits(registry, cluster, WITHOUT_UID)
    assert not uid_fits(registry, cluster, WHOLE)


def test_the_uid_of_a_backup_that_the_log_lists(registry: Registry, cluster: Cluster) -> None:
    """An object put back over a broken value, and undone: the backup of that has the object."""
    key = registry.key("shop/web")
    registry.etcd.put(key, BROKEN)
    registry.etcd.put(registry.key("shop/good-1"), aescbc(secret("good-1")))
    file = saved(registry.folder, json_secret("web", uid=UID.decode()))
    given = (
        "--accept",
        "unlisted-source",
        "--accept",
        "unknown-uid",
        "--accept",
        "no-api-server",
        "--replace-mod-revision",
    )
    ran = registry.restore("--from-object", str(file), key.decode(), *given, str(registry.mod_revision(key)))
    assert ran.code == 0, ran.err
    ran = registry.restore(
        str(registry.kept()[-1].path), "--replace-mod-revision", str(registry.mod_revision(key))
    )
    assert ran.code == 0, ran.err
    registry.etcd.compact()
    assert uid_fits(registry, cluster, WHOLE)
    with pytest.raises(RefusedByRule, match=r"has uid 11111111-.* \(backup "):
        uid_fits(registry, cluster, OF_ANOTHER)
    assert not uid_fits(registry, cluster, WHOLE, uid="of-another-cluster")
    assert not uid_fits(registry, cluster, WHOLE, cluster_id="of-another-etcd")
    registry.etcd.delete(key)
    registry.etcd.compact()
    assert uid_fits(registry, cluster, WHOLE)  # nothing of the key is left in etcd
    registry.etcd.put(key, BROKEN)
    assert not uid_fits(registry, cluster, WHOLE)  # another generation
    registry.etcd.delete(key)
    registry.etcd.compact()
    for backup in registry.kept():
        backup.path.with_name(f"{backup.path.name[:-5]}-copy.json").write_bytes(b"{}")
    assert uid_fits(registry, cluster, WHOLE)
    registry.log.write_bytes(b"")
    assert not uid_fits(registry, cluster, WHOLE)  # no log lists it


def test_what_the_file_of_kine_keeps(registry: Registry, cluster: Cluster) -> None:
    """Also of a key that was written after the file was opened."""
    key, writer = registry.key("shop/web"), KineWriter(registry.folder / "state.db")
    first = writer.put(key, WHOLE)
    with KineSource(writer.path) as source:
        kine = msgspec.structs.replace(cluster, source=source)

        def said() -> list[tuple[str, str]]:
            reading = kine.now.read_key(key)
            found = said_uids(kine, reading, key, ClusterIdentity.by_uid(KUBE_SYSTEM_UID), registry.places)
            return [(each.uid, each.origin) for each in found]

        for _ in range(2):
            writer.put(key, BROKEN)
            assert said() == [(UID.decode(), f"mod_revision {first} in kine")]
        writer.delete(key)
        writer.put(key, BROKEN)
        assert said() == []
    writer.close()


def test_the_last_record_of_a_key(registry: Registry, cluster: Cluster) -> None:
    key = registry.key("shop/web")
    for step in (None, "put", "deleted", "compacted"):
        if step == "put":
            registry.etcd.put(key, WHOLE)
        elif step == "deleted":
            registry.etcd.delete(key)
        elif step == "compacted":
            registry.etcd.compact()
        reading = cluster.now.read_key(key)
        last = last_stored(cluster, reading, key)
        newest = newest_readable(cluster, reading, key)
        there = step in {"put", "deleted"}
        assert (last is not None and last.value == WHOLE) is there
        assert (newest is not None and newest.stored == last) is there
    registry.etcd.put(key, BROKEN)
    assert newest_readable(cluster, cluster.now.read_key(key), key) is None
