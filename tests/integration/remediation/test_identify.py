"""Which cluster this is, on the night when namespace kube-system cannot be read; on a real etcd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from etcdfix.model.model import ClusterIdentity, KnownBy, digest_of
from etcdfix.remediation.backup.file import (
    Backup,
    BackupContent,
    BackupIntent,
    encode_content,
    encode_document,
)
from etcdfix.remediation.identify import identify
from etcdfix.sources.errors import SourceDenied
from etcdfix.sources.live import LiveSource
from etcdfix.sources.snapshot import SnapshotSource
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.change_runs import ACKNOWLEDGED, BROKEN, Ran, Registry, follow_up
from tests.support.fixtures import Patch, StartEtcd
from tests.support.kubernetes_api import KUBE_SYSTEM, Answer, KubernetesAPI, object_answer, status_answer
from tests.support.objects import IDENTITY, KEY_1, KUBE_SYSTEM_UID, aescbc, namespace_object, provider, secret

pytestmark = pytest.mark.etcd

LOST = b"k8s:enc:aescbc:v1:lost:" + bytes(range(64))
NAMELESS = b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system"}}'


def unreadable(registry: Registry, *, kept: bool = False) -> bytes:
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("secrets", "namespaces"))
    key = registry.key("kube-system", "namespaces")
    registry.etcd.put(key, LOST)
    if not kept:
        registry.etcd.compact()
    return key


def look(registry: Registry, *directories: Path) -> ClusterIdentity:
    with registry.cluster() as cluster:
        return identify(cluster.source, cluster.examiner, directories)


def annotated(registry: Registry) -> ClusterIdentity:
    grounds = registry.records()[-1].grounds
    assert grounds is not None
    assert grounds.cluster is not None
    return grounds.cluster


def test_a_kept_revision(registry: Registry, monkeypatch: Patch) -> None:
    """Who may not watch is told by the create revision."""
    before = look(registry)
    assert (before.uid, before.known_by) == (KUBE_SYSTEM_UID, KnownBy.VALUE)
    assert before.created > 0
    unreadable(registry, kept=True)
    found = look(registry)
    assert (found.uid, found.known_by) == (KUBE_SYSTEM_UID, KnownBy.KEPT_REVISION)
    assert (str(before.changed) in found.source, found.is_same(before)) == (True, True)

    def denied(_self: LiveSource, _key: bytes) -> Iterator[object]:
        raise SourceDenied("no watching")
        yield  # type: ignore[unreachable]  # it makes the function a generator

    monkeypatch.setattr(LiveSource, "history", denied)
    assert look(registry).known_by is KnownBy.CREATE_REVISION


def test_a_kept_revision_of_an_earlier_generation_says_nothing(registry: Registry) -> None:
    """It was deleted and made again: that one had another uid."""
    key = registry.key("kube-system", "namespaces")
    registry.etcd.delete(key)
    unreadable(registry, kept=True)
    found = look(registry)
    assert (found.uid, found.known_by) == ("", KnownBy.CREATE_REVISION)


def test_a_namespace_that_says_no_uid(registry: Registry) -> None:
    """It reads; so the one that it had before counts."""
    registry.put("kube-system", NAMELESS, resource="namespaces")
    found = look(registry)
    assert (found.uid, found.known_by) == (KUBE_SYSTEM_UID, KnownBy.KEPT_REVISION)


def test_a_revision_that_belongs_elsewhere_says_nothing(registry: Registry) -> None:
    """Another object's value stood at the key for a while; its uid names no cluster."""
    key = registry.key("kube-system", "namespaces")
    registry.etcd.delete(key)
    registry.etcd.put(key, namespace_object("default", "of-default"))
    unreadable(registry, kept=True)
    assert look(registry).uid == ""


def test_a_backup_of_the_same_generation(registry: Registry) -> None:
    """Others are passed over; one of another cluster says nothing, nor do backups that contradict each other."""
    backup = registry.deleted()
    unreadable(registry)
    (registry.backups / "notes.json").write_text("{}")
    os.mkfifo(registry.backups / "pipe.json")
    foreign = own_directory(registry.folder / "foreign")
    (foreign / "copy.json").write_text("{}")
    foreign.chmod(0o777)
    found = look(registry, registry.folder / "none", foreign, registry.backups)
    assert (found.uid, found.known_by) == (KUBE_SYSTEM_UID, KnownBy.BACKUP)
    assert found.source == f"backup {backup.path}"
    identity = backup.content.cluster.named
    for change in ({"created": 1}, {"cluster_id": "beef"}):
        other = msgspec.structs.replace(identity, **change)
        cluster = msgspec.structs.replace(backup.content.cluster, identity=other)
        _rewrite(backup, msgspec.structs.replace(backup.content, cluster=cluster))
        assert look(registry, registry.backups).known_by is KnownBy.CREATE_REVISION
    _rewrite(backup, backup.content)
    other = msgspec.structs.replace(identity, uid="another")
    cluster = msgspec.structs.replace(backup.content.cluster, identity=other, kube_system_uid="another")
    content = encode_content(msgspec.structs.replace(backup.content, cluster=cluster))
    (registry.backups / "other.json").write_bytes(encode_document(content, backup.intent))
    assert look(registry, registry.backups).known_by is KnownBy.CREATE_REVISION


def test_a_backup_of_the_namespace_itself(registry: Registry) -> None:
    """One of before identities were kept, of the very generation."""
    before = look(registry)
    backup = registry.deleted()
    key = unreadable(registry)
    cluster = msgspec.structs.replace(backup.content.cluster, identity=None, kube_system_uid=None)

    def known_by(value: bytes, *, key: bytes = key, created: int = before.created, **of: object) -> KnownBy:
        content = msgspec.structs.replace(
            backup.content, key=key.decode(), key_base64=key, create_revision=created,
            value_base64=value, value_size=len(value), stored_as_plaintext=value != LOST,
            cluster=msgspec.structs.replace(cluster, **of),
        )  # fmt: skip
        _rewrite(backup, content)
        return look(registry, registry.backups).known_by

    value = namespace_object("kube-system")
    assert known_by(value) is KnownBy.BACKUP
    # What the backup says of the cluster counts, whether its value reads or not.
    assert known_by(LOST) is KnownBy.CREATE_REVISION
    assert known_by(LOST, kube_system_uid=KUBE_SYSTEM_UID) is KnownBy.BACKUP
    assert known_by(LOST, identity=before) is KnownBy.BACKUP
    # Another generation, another cluster, another object.
    assert known_by(value, created=before.created + 1) is KnownBy.CREATE_REVISION
    assert known_by(value, cluster_id="beef") is KnownBy.CREATE_REVISION
    elsewhere = registry.key("default", "namespaces")
    assert known_by(namespace_object("default"), key=elsewhere) is KnownBy.CREATE_REVISION


def _rewrite(backup: Backup, content: BackupContent) -> None:
    content = msgspec.structs.replace(content, value_sha256=digest_of(content.value_base64))
    intent = BackupIntent(backup.intent.sequence, backup.intent.sha256, backup.intent.audit_log)
    backup.path.write_bytes(encode_document(encode_content(content), intent))


def test_a_file_has_no_cluster_id(registry: Registry) -> None:
    """So no backup fits it, not even one that names none either."""
    backup = registry.deleted()
    key = unreadable(registry)
    path = registry.folder / "saved.db"
    registry.etcd.etcdctl("snapshot", "save", path)
    with registry.cluster() as cluster, SnapshotSource(path) as source:
        found = identify(source, cluster.examiner)
        assert not found.is_known
        assert found.cluster_id == ""
        content = msgspec.structs.replace(
            backup.content, key=key.decode(), key_base64=key, create_revision=found.created,
            cluster=msgspec.structs.replace(backup.content.cluster, identity=None, cluster_id=""),
        )  # fmt: skip
        _rewrite(backup, content)
        assert identify(source, cluster.examiner, [registry.backups]) == found


def test_a_deletion_needs_no_flag_and_says_what_it_rests_on(registry: Registry) -> None:
    unreadable(registry)
    ran = registry.delete(registry.key("shop/broken"))
    assert ran.code == 0, ran.err
    assert "Cluster  kube-system cannot be read; it was created at revision" in ran.err
    assert "(accepted)" not in ran.err
    assert annotated(registry).known_by is KnownBy.CREATE_REVISION
    (backup,) = registry.kept()
    assert backup.content.cluster.kube_system_uid is None
    assert backup.content.cluster.identity == annotated(registry)
    # and it goes back, in this cluster and in no other
    ran = registry.undo(backup.path)
    assert ran.code == 0, ran.err


def test_a_backup_does_not_go_into_a_cluster_of_another_generation(registry: Registry) -> None:
    key = unreadable(registry)
    assert registry.delete(registry.key("shop/broken")).code == 0
    registry.etcd.delete(key)
    unreadable(registry)
    with registry.untouched():
        ran = registry.undo(registry.kept()[0].path)
    registry.refused(ran, "comes from the cluster with kube-system cannot be read", hint="--endpoints")


@pytest.fixture
def events(registry: Registry, start_etcd: StartEtcd) -> EtcdServer:
    server = start_etcd()
    server.put(registry.key("shop/broken"), BROKEN)
    server.put(registry.key("shop/good-0"), aescbc(secret("good-0")))
    return server


def _delete_there(registry: Registry, server: EtcdServer, *arguments: str) -> Ran:
    common = registry.common()
    common[1] = server.endpoint
    return registry.run(
        "delete", registry.key("shop/broken").decode(), ACKNOWLEDGED, "--yes", *arguments, *common
    )


def test_the_main_etcd_names_the_cluster(registry: Registry, events: EtcdServer) -> None:
    refused = _delete_there(registry, events)
    registry.refused(refused, "there is no namespace kube-system here", hint="--main-endpoints")
    ran = _delete_there(registry, events, "--main-endpoints", registry.endpoints)
    assert ran.code == 0, ran.err
    assert f"kube-system uid {KUBE_SYSTEM_UID} (main etcd at {registry.endpoints})" in ran.err
    assert f"--main-endpoints {registry.endpoints}" in ran.out  # the undo works as pasted
    assert annotated(registry).main_endpoints == (registry.endpoints,)
    undo = follow_up(ran.out, "Undo")
    words = undo.removeprefix("etcdfix ").replace("REASON", "undo").split()
    ran = registry.run(*words, "--yes", "--backup-dir", str(registry.backups))
    assert ran.code == 0, ran.err


def test_a_manifest_names_the_main_etcd(registry: Registry, events: EtcdServer) -> None:
    """The etcd of the key's own resource is the one that is changed."""
    flags = [
        f"--etcd-servers={registry.endpoints}",
        f"--etcd-servers-overrides=/secrets#{events.endpoint}",
        f"--etcd-prefix={registry.prefix}",
    ]
    manifest = registry.folder / "kube-apiserver.yaml"
    manifest.write_text(
        "spec:\n  containers:\n  - command: [kube-apiserver, "
        + ", ".join(f'"{flag}"' for flag in flags)
        + "]\n    image: kube-apiserver\n"
    )
    with registry.untouched():
        ran = registry.run(
            "delete", registry.key("shop/broken").decode(), ACKNOWLEDGED, "--yes", "--reason", "r",
            "--manifest", str(manifest), "--encryption-config", str(registry.config),
            "--audit-log", str(registry.log), "--backup-dir", str(own_directory(registry.folder / "there")),
        )  # fmt: skip
    assert ran.code == 0, ran.err
    assert f"(main etcd at {registry.endpoints})" in ran.err
    assert registry.stored(registry.key("shop/broken")) == BROKEN  # in the main etcd nothing was touched


def test_a_main_etcd_that_does_not_know_either(registry: Registry, events: EtcdServer) -> None:
    registry.lose_kube_system()
    with registry.untouched():
        ran = _delete_there(registry, events, "--main-endpoints", registry.endpoints)
    registry.refused(ran, "the main etcd at", "either", hint="--etcd-servers")


def test_a_main_etcd_of_another_cluster_than_this_one(registry: Registry, start_etcd: StartEtcd) -> None:
    other = start_etcd()
    other.put(registry.key("kube-system", "namespaces"), namespace_object("kube-system", uid="another"))
    with registry.untouched():
        ran = registry.delete(registry.key("shop/broken"), "--main-endpoints", other.endpoint)
    registry.refused(ran, "kube-system uid another", hint="leave --main-endpoints out")


def _ask(registry: Registry, api: KubernetesAPI) -> Ran:
    return registry.delete(
        registry.key("shop/broken"), "--dry-run", "--kubeconfig", str(api.kubeconfig(registry.folder))
    )


MEMORY = f"{KUBE_SYSTEM}?resourceVersion=0"


def test_a_server_that_remembers_kube_system(registry: Registry, api: KubernetesAPI) -> None:
    key = unreadable(registry)
    api.instead[KUBE_SYSTEM] = status_answer(500)
    at = str(registry.mod_revision(key))
    api.instead[MEMORY] = _namespace(KUBE_SYSTEM_UID, at)
    ran = _ask(registry, api)
    assert ran.code == 0, ran.err
    assert "was not compared" not in ran.err
    api.instead[MEMORY] = _namespace(KUBE_SYSTEM_UID, "3")
    registry.refused(_ask(registry, api), "belongs to another cluster", "mod_revision", hint="kubeconfig")
    api.instead[MEMORY] = status_answer(429)
    ran = _ask(registry, api)
    assert (ran.code, "it was not compared which cluster it is of" in ran.err) == (0, True)
    grounds = registry.records()[-1].grounds
    assert grounds is not None
    assert "it was not compared which cluster it is of" in grounds.server_answers[0].answer


def _namespace(uid: str, resource_version: str) -> Answer:
    found = object_answer(name="kube-system", uid=uid, resourceVersion=resource_version)
    return found._replace(body=found.body.replace(b"PartialObjectMetadata", b"Namespace"))
