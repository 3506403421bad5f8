"""A cluster that lost an encryption key while its API servers ran: stand-ins over a real etcd, and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from etcdfix.apiserver.kubeconfig import APIAccess
from etcdfix.apiserver.memory import Memory, remember
from etcdfix.apiserver.objects import APIObject
from etcdfix.apiserver.servers import open_all_servers
from etcdfix.model.model import ClusterIdentity, GroupResource, StoredValue
from etcdfix.remediation.audit.log import AuditLog
from etcdfix.remediation.audit.record import Result, Subject, Verb
from etcdfix.remediation.backup.file import BackupCluster, record_intent
from etcdfix.remediation.durable import open_directory
from etcdfix.remediation.saved_objects import RescueStore
from etcdfix.sources.base import Source
from etcdfix.sources.kine import KineSource
from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import TOKEN, EtcdStore, KineStore, Request, StandIn
from tests.support.apiserver.store import Store
from tests.support.audit_logs import OPERATOR, content, entry, own_directory
from tests.support.change_runs import Ran, Registry
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    configuration_yaml,
    json_object,
    namespace_object,
    provider,
)

RESOURCES = ("secrets", "configmaps", "widgets.example.com")
OLD = configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY, resources=RESOURCES)
NEW = configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY, resources=RESOURCES)
THIRD = configuration_yaml(provider("aescbc", key3=b"abcdefghijklmnop"), IDENTITY, resources=RESOURCES)
DATA = "bmV2ZXItdG8tYmUtc2hvd24="
"""``never-to-be-shown``, as a Secret has it."""

_BOTH = (provider("aescbc", key1=KEY_1), provider("aescbc", key2=KEY_2))


class LostKeyCluster(Registry):
    """One or two API servers that have Secrets in memory which nobody can read from etcd any more.

    Attributes:
        p1: The server of the kubeconfig; it has loaded the new configuration, and keeps its cache.
    """

    def __init__(
        self, etcd: EtcdServer, prefix: bytes, folder: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        super().__init__(etcd, prefix, folder, capfd, furnished=False)

    def settle(self, prefix: bytes, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().settle(prefix, folder, capfd)
        self.config.write_bytes(NEW)
        self.saved = own_directory(folder / "saved")

    def serve(self, p1: StandIn) -> None:
        """Take a server for the one of the kubeconfig."""
        self.p1 = p1
        self.kubeconfig = p1.kubeconfig(self.folder)

    @property
    def keys(self) -> list[bytes]:
        """The etcd keys of all Secrets."""
        with self.source() as source:
            return [stored.key for stored in source.current(self.key(""))]

    def place(self, key: bytes, value: bytes) -> None:
        """Write a key past every API server."""
        self.etcd.put(key, value)

    def remove(self, key: bytes) -> None:
        """Delete a key past every API server."""
        self.etcd.delete(key)

    def rescue(self, *names: str, resource: str = "secrets", group: str = "") -> None:
        """Save what the first server has in memory: of these objects in namespace shop, or of all Secrets."""
        place = f"{group}/{resource}" if group else resource
        keys = [self.key(f"shop/{name}", place) for name in names] if names else self.keys
        identity = ClusterIdentity.by_uid(self.p1.uid)
        with (
            open_all_servers(APIAccess(self.kubeconfig), identity) as all_servers,
            RescueStore.open(self.saved) as store,
        ):
            for key in keys:
                namespace, name = key.decode().rsplit("/", 2)[1:]
                thing = APIObject(group, "v1", resource, namespace, name)
                found = remember(all_servers.servers[0], thing)
                assert found.word is Memory.HELD
                assert found.identity is not None
                store.save(
                    key, thing, found.identity, found.raw,
                    server=self.p1.url, cluster_uid=identity.uid,
                    mod_revision=int(found.identity.resource_version),
                )  # fmt: skip

    def written_twice(self, name: str, **metadata: Any) -> StoredValue:
        """Make a Secret of namespace shop under the new key, and write it anew under the old one.

        Returns:
            The first value.
        """
        self.p1.reload(configuration_yaml(*_BOTH[::-1], IDENTITY, resources=RESOURCES))
        key = self.p1.create("v1", "Secret", name, "shop", data={"password": DATA}, metadata=metadata)
        self.p1.wait()
        first = self.stored_value(key)
        self.p1.reload(configuration_yaml(*_BOTH, IDENTITY, resources=RESOURCES))
        path, token = f"/api/v1/namespaces/shop/secrets/{name}", f"Bearer {TOKEN}"
        body = json.dumps({"metadata": {"labels": {"written": "again"}}}).encode()
        kind = "application/merge-patch+json"
        assert self.p1.answer(Request("PATCH", path, body, token, content_type=kind)).status == 200
        self.p1.wait()
        self.p1.reload(NEW)
        assert self.stored_value(key).create_revision == first.create_revision
        return first

    def uid(self, name: str) -> str:
        """Of a Secret of namespace shop, by the memory of the first server."""
        memory = self.p1.process.caches[GroupResource("", "secrets")].memory
        return str(memory[self.key(f"shop/{name}")].value["metadata"]["uid"])

    def sealed(self, name: str, **metadata: Any) -> bytes:
        """Return a Secret of namespace shop as the new key seals it."""
        metadata = {"name": name, "namespace": "shop", **metadata}
        value = json_object("v1", "Secret", name, metadata=metadata, data={"password": DATA})
        return aescbc(value, KEY_2, "key2")

    def back_up(self, stored: StoredValue, *, uid: str | None = None) -> Path:
        """Make a backup of a value that the audit log lists; ``uid`` is that of the cluster."""
        uid = self.p1.uid if uid is None else uid
        about = Subject(
            key=stored.key, group="", api_version="v1", resource="secrets", namespace="shop", name="one",
            mod_revision=stored.mod_revision,
        )  # fmt: skip
        with self.source() as source:
            now = source.describe()
        cluster = BackupCluster(uid, now.cluster_id or "1", (self.where[-1],), now.revision)
        held = content(stored, purpose="undo", cluster=cluster)
        with AuditLog.open(self.log) as log, open_directory(self.backups) as directory:
            intent = record_intent(
                log, entry(verb=Verb.UNDO, subject=about, cluster_uid=uid), held, [directory]
            )
            log.append(intent.closed_by(Result.UNDONE, operator=OPERATOR))
        return Path(intent.backups[0])

    def fix(self, name: str, *arguments: str, yes: bool = True, **common: Any) -> Ran:
        """Run ``fix --from memory`` on a Secret of namespace shop, or on a complete key."""
        key = name if name.startswith("/") else self.key(f"shop/{name}").decode()
        given = ["--rescued", str(self.saved), "--kubeconfig", str(self.kubeconfig)]
        return self.run(
            "fix",
            key,
            "--from",
            "memory",
            *arguments,
            *given,
            *(["--yes"] if yes else []),
            *self.common(**common),
        )

    def told(self, *arguments: str, code: int = 0, **common: Any) -> dict[str, Any]:
        """Run the command, and return its document."""
        ran = self.fix(*arguments, "-o", "json", **common)
        assert ran.code == code, ran
        self.shows_nothing(ran)
        return dict(json.loads(ran.out))

    def report(self) -> Path:
        reading = ["--etcd-prefix", self.prefix, "--encryption-config", str(self.config)]
        ran = self.run("scan", *self.where, *reading, "-o", "json")
        path = self.folder / "scan.json"
        path.write_text(ran.out)
        return path

    def shows_nothing(self, ran: Ran) -> None:
        """Assert that nothing of a Secret is shown or recorded, and no token."""
        recorded = self.log.read_text() if self.log.exists() else ""
        for secret in ("never-to-be-shown", DATA, "token-of-the-test"):
            assert secret not in ran.out + ran.err + recorded

    def patches(self, server: StandIn | None = None) -> list[dict[str, Any]]:
        """The bodies of all PATCHes that a server got."""
        return [dict(r.body) for r in (server or self.p1).requests if r.method == "PATCH"]

    @contextmanager
    def unwritten(self) -> Iterator[None]:
        """Assert that the block changes nothing in the store."""
        with self.source() as source:
            before = list(source.current(self.prefix.encode() + b"/"))
        yield
        with self.source() as source:
            assert list(source.current(self.prefix.encode() + b"/")) == before

    def outcomes(self) -> list[str]:
        """What the log says became of each intent, in order."""
        return [event.outcome for event in self.records() if event.outcome]


_Lost = TypeVar("_Lost", bound=LostKeyCluster)


class LostKeyKineCluster(LostKeyCluster):
    """The same on k3s with SQLite: there is no etcd, and commands read the file of kine.

    Attributes:
        file: The file that commands read: that of the store, until a test names another.
    """

    def __init__(self, store: KineStore, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.store = store
        self.file = store.path
        self.settle(b"/registry", folder, capfd)
        self.put("kube-system", namespace_object("kube-system"), resource="namespaces")

    @property
    def where(self) -> list[str]:
        return ["--kine", str(self.file)]

    @contextmanager
    def source(self) -> Iterator[Source]:
        with KineSource(self.store.path) as source:
            yield source

    def put(self, name: str, value: bytes, resource: str = "secrets") -> bytes:
        key = self.key(name, resource)
        self.place(key, value)
        return key

    def place(self, key: bytes, value: bytes) -> None:
        held = self.store.get(key)
        assert self.store.put(key, value, mod_revision=held.mod_revision if held else 0) is not None

    def remove(self, key: bytes) -> None:
        self.store.writer.delete(key)

    def grant(self, key: bytes, value: bytes) -> str:
        self.store.writer.put(key, value, lease=600)
        return f"{600:x}"

    @contextmanager
    def untouched(self) -> Iterator[None]:
        revision, kept = self.store.revision(), sorted(self.backups.glob("*"))
        yield
        assert self.store.revision() == revision
        assert sorted(self.backups.glob("*")) == kept


LoseKey = Callable[..., AbstractContextManager[LostKeyCluster]]
"""Makes a cluster that lost its key; the names of its Secrets may be given."""


@contextmanager
def lost_key_cluster(
    etcd: EtcdServer,
    prefix: bytes,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
    names: tuple[str, ...] = ("one", "two"),
) -> Iterator[LostKeyCluster]:
    """Make Secrets of namespace shop under the old key, then give the server the new one."""
    store = EtcdStore(etcd.endpoint)
    with (
        closing(store),
        _lost_key(LostKeyCluster(etcd, prefix, folder, capfd), store, authority, names) as cluster,
    ):
        yield cluster


@contextmanager
def lost_key_kine_cluster(
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
    names: tuple[str, ...] = ("one", "two"),
) -> Iterator[LostKeyKineCluster]:
    """Do the same on k3s with SQLite; its file lies in a directory of its own."""
    directory = folder / "db"
    directory.mkdir()
    store = KineStore(directory / "state.db")
    with (
        closing(store),
        _lost_key(LostKeyKineCluster(store, folder, capfd), store, authority, names) as cluster,
    ):
        yield cluster


@contextmanager
def _lost_key(
    cluster: _Lost, store: Store, authority: CertificateAuthority, names: tuple[str, ...]
) -> Iterator[_Lost]:
    with StandIn(authority, store=store, configuration=OLD, prefix=cluster.prefix, given_up_after=0.2) as p1:
        p1.create("v1", "Namespace", "shop")
        for name in names:
            p1.create("v1", "Secret", name, "shop", type="Opaque", data={"password": DATA})
        p1.wait()
        cluster.serve(p1)
        p1.reload(NEW)
        p1.requests.clear()
        yield cluster


@contextmanager
def beside(cluster: LostKeyCluster, configuration: bytes) -> Iterator[StandIn]:
    """Run a second API server of the same cluster, started now; it is listed by the first one."""
    with StandIn(
        cluster.p1.authority,
        store=cluster.p1.store,
        configuration=configuration,
        prefix=cluster.prefix,
        given_up_after=0.2,
        furnished=False,
    ) as p2:
        cluster.p1.behaviour.listed = [("127.0.0.1", cluster.p1.port), ("127.0.0.1", p2.port)]
        yield p2
