"""What tells the uid of the object that stands at a key, or stood there last."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from etcdfix.model.model import ClusterIdentity, KnownBy
from etcdfix.remediation.change import ChangeRequest
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.present import Present
from etcdfix.remediation.uids import in_backups, said_uids
from etcdfix.sources.kine import KineSource
from tests.support.change_runs import BROKEN, Registry
from tests.support.kine import KineWriter
from tests.support.object_files import json_secret, saved
from tests.support.objects import KUBE_SYSTEM_UID, UID, aescbc, secret

pytestmark = pytest.mark.etcd

WHOLE = aescbc(secret("web"))


@pytest.fixture
def cluster(registry: Registry) -> Iterator[Cluster]:
    with registry.cluster() as found:
        yield found


def uid_by_backups(
    registry: Registry, cluster: Cluster, *, uid: str = KUBE_SYSTEM_UID, cluster_id: str = ""
) -> str:
    key = registry.key("shop/web")
    present = Present(cluster, key, ChangeRequest(reason="a test", record_paths=registry.places))
    present.known["identity"] = ClusterIdentity(uid=uid, known_by=KnownBy.VALUE, cluster_id=cluster_id)
    generation = 0 if present.absent else present.stored.create_revision
    said = in_backups(present, create_revision=generation)
    return said[0].uid if said else ""


def test_the_uid_of_a_backup_that_the_log_lists(registry: Registry, cluster: Cluster) -> None:
    """An object put back over a broken value, and undone: the backup of that has the object."""
    key = registry.key("shop/web")
    registry.etcd.put(key, BROKEN)
    registry.etcd.put(registry.key("shop/good-1"), aescbc(secret("good-1")))
    file = saved(registry.folder, json_secret("web", uid=UID.decode()))
    ran = registry.put_back(key, f"object:{file}", "--accept", "unknown-uid", "--accept", "no-api-server")
    assert ran.code == 0, ran.err
    assert registry.undo(registry.kept()[-1].path).code == 0
    registry.etcd.compact()
    assert uid_by_backups(registry, cluster) == UID.decode()
    assert not uid_by_backups(registry, cluster, uid="of-another-cluster")
    assert not uid_by_backups(registry, cluster, cluster_id="of-another-etcd")
    path = saved(
        registry.folder, json_secret("web", uid="99999999-2222-3333-4444-555555555555"), "other.json"
    )
    with registry.untouched():
        ran = registry.put_back(key, f"object:{path}", "--accept", "unknown-uid", "--accept", "no-api-server")
    registry.refused(ran, UID.decode(), "(backup ", hint="explain")
    registry.etcd.delete(key)
    registry.etcd.compact()
    assert uid_by_backups(registry, cluster)  # nothing of the key is left in etcd
    registry.etcd.put(key, BROKEN)
    assert not uid_by_backups(registry, cluster)  # another generation
    registry.etcd.delete(key)
    registry.etcd.compact()
    for backup in registry.kept():
        backup.path.with_name(f"{backup.path.name[:-5]}-copy.json").write_bytes(b"{}")
    assert uid_by_backups(registry, cluster)
    registry.log.write_bytes(b"")
    assert not uid_by_backups(registry, cluster)  # no log lists it


def test_what_the_file_of_kine_keeps(registry: Registry, cluster: Cluster) -> None:
    """Also of a key that was written after the file was opened."""
    key, writer = registry.key("shop/web"), KineWriter(registry.folder / "state.db")
    first = writer.put(key, WHOLE)
    with KineSource(writer.path) as source:
        kine = msgspec.structs.replace(cluster, source=source)

        def said() -> list[tuple[str, str]]:
            present = Present(kine, key, ChangeRequest(reason="a test", record_paths=registry.places))
            present.known["identity"] = ClusterIdentity.by_uid(KUBE_SYSTEM_UID)
            return [(each.uid, each.origin) for each in said_uids(present)]

        for _ in range(2):
            writer.put(key, BROKEN)
            assert said() == [(UID.decode(), f"mod_revision {first} in kine")]
        writer.delete(key)
        writer.put(key, BROKEN)
        assert said() == []
    writer.close()
