"""The stand-in API server over HTTPS and over a real etcd: what the recordings do not show by themselves."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.apiserver import TOKEN, EtcdStore, KineStore, MemoryStore, StandIn
from tests.support.apiserver.store import Store
from tests.support.objects import IDENTITY, KEY_1, KEY_2, configuration_yaml, provider

OLD = configuration_yaml(provider("aescbc", key1=KEY_1), IDENTITY)
NEW = configuration_yaml(provider("aescbc", key2=KEY_2), IDENTITY)
SECRETS = "/api/v1/namespaces/shop/secrets"
HEAL = {"metadata": {"annotations": {"etcdfix.io/fixed-at": "now"}}}


class Got(NamedTuple):
    status: int
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)


class Client:
    def __init__(self, server: StandIn) -> None:
        self._port = server.port
        self._context = ssl.create_default_context(cafile=str(server.authority.cert))

    def send(
        self, method: str, path: str, body: Any = None, kind: str = "application/merge-patch+json"
    ) -> Got:
        connection = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._context, timeout=20)
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "application/json", "Content-Type": kind}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return Got(answer.status, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Got:
        return self.send("GET", path)


@pytest.fixture(params=["memory", "kine", "etcd"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "memory":
        yield MemoryStore()
        return
    store: EtcdStore | KineStore
    if request.param == "kine":
        store = KineStore(tmp_path / "state.db")
    else:
        etcd: EtcdServer = request.getfixturevalue("etcd")
        store = EtcdStore(etcd.endpoint)
    yield store
    store.close()


@pytest.fixture
def server(store: Store, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StandIn]:
    authority = CertificateAuthority(tmp_path / "ca")
    prefix = f"/standin-{abs(hash(request.node.name))}"
    with StandIn(authority, store=store, configuration=OLD, given_up_after=0.3, prefix=prefix) as server:
        for name in ("one", "two"):
            server.create("v1", "Secret", name, "shop", data={"password": "bmV2ZXIgc2hvd24="})
        server.create("v1", "ConfigMap", "settings", "shop", data={"a": "b"})
        yield server


def test_a_lost_key_leaves_cached_reads_and_a_patch_heals(server: StandIn) -> None:
    client = Client(server)
    before = client.get(f"{SECRETS}/one").body
    server.reload(NEW)
    assert client.get(f"{SECRETS}/one").status == 500
    assert client.get(f"{SECRETS}/one?resourceVersion=0").body == before
    assert len(client.get(SECRETS).body["items"]) == 2
    healed = client.send("PATCH", f"{SECRETS}/one", HEAL)
    assert healed.status == 200
    assert healed.body == client.get(f"{SECRETS}/one").body
    assert healed.body["metadata"]["uid"] == before["metadata"]["uid"]
    assert healed.body["data"] == before["data"]
    assert int(healed.body["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
    assert server.methods == {"GET", "PATCH"}
