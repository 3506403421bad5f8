"""The next command of a scan of a live etcd is the least destructive one that helps, and runs as it is printed."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etcdfix.cli.root import run
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.fixtures import Captured, StartEtcd
from tests.support.impact_objects import protobuf
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    aesgcm,
    configuration_yaml,
    crd,
    namespace_object,
    provider,
    secret,
    widget,
)

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

WEB, POD = "/registry/secrets/shop/web", "/registry/pods/shop/web-0"
DEFINITION = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
FINDINGS, INCOMPLETE = 1, 3


def pod(name: str) -> bytes:
    uid = "aaaaaaaa-2222-3333-4444-555555555555"
    metadata = {"name": name, "namespace": "shop", "uid": uid, "labels": {"app": "web"}}
    return protobuf("v1", "Pod", {"metadata": metadata, "spec": {"nodeName": "node-1"}})


CLUSTER: Mapping[str, bytes] = {
    "/registry/namespaces/kube-system": namespace_object("kube-system"),
    "/registry/namespaces/shop": namespace_object("shop"),
    "/registry/pods/shop/web-1": pod("web-1"),
    DEFINITION: crd(),
    "/registry/example.com/widgets/shop/w-0": widget(),
}
PLACES = [f"/registry/secrets/shop/s-{number:03}" for number in range(20)]
ENCRYPTED = {place: aesgcm(secret(place.rpartition("/")[2]), place) for place in PLACES}


def _flipped() -> bytes:
    damaged = bytearray(aesgcm(secret("web"), WEB))
    damaged[90] ^= 0x08
    return bytes(damaged)


class Ground:
    """An etcd with damage, and what a scan of it says to do next."""

    def __init__(self, capfd: Captured) -> None:
        self._capfd = capfd
        self.next_line = ""

    def etcd(self, start: StartEtcd, *values: Mapping[str, bytes]) -> EtcdServer:
        server = start()
        for some in values:
            server.put_all((key.encode(), value) for key, value in some.items())
        return server

    def next_command(self, server: EtcdServer, configuration: bytes, code: int) -> str:
        Path("encryption.yaml").write_bytes(configuration)
        self._capfd.readouterr()
        assert run(["scan", "--endpoints", server.endpoint, "--encryption-config", "encryption.yaml"]) == code
        head = self._capfd.readouterr().out.partition("\n\n")[0].splitlines()
        (self.next_line,) = (line for line in head if line.startswith("Next: "))
        (command,) = (line for line in head if line.startswith("  etcdfix "))
        return command


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> Ground:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Ground(capfd)


@pytest.mark.parametrize(
    ("values", "verb", "expected"),
    [
        ([{POD: pod("web-0")}, {POD: pod("web-0")[:60]}], ["fix", POD, "--from"], "revision:"),
        ([ENCRYPTED, {WEB: aesgcm(secret(), WEB)[:-20]}], ["copies"], f" {WEB} "),
        ([ENCRYPTED, {WEB: _flipped()}], ["fix", WEB, "--from"], "bit "),
        ([{POD: pod("web-0")[:60]}, {DEFINITION: crd()[:200]}], ["fix", DEFINITION, "--from"], "revision:"),
    ],
    ids=["an earlier revision", "no copy in etcd", "one flipped bit", "a definition before a Pod"],
)
def test_of_damage(
    values: list[dict[str, bytes]], verb: list[str], expected: str, start_etcd: StartEtcd, ground: Ground
) -> None:
    server = ground.etcd(start_etcd, CLUSTER, *values)
    configuration = configuration_yaml(provider("aesgcm", key1=KEY_1), IDENTITY)
    command = ground.next_command(server, configuration, FINDINGS)
    words = shlex.split(command)
    assert words[1 : 1 + len(verb)] == verb
    assert expected in command
    if verb[0] == "fix":
        assert "--dry-run" in words
        assert ("cluster-breaking" in words) == (DEFINITION in verb)
        places = ["--backup-dir", "places", "--audit-log", "places/audit.jsonl"]
        own_directory(Path("places"))
        assert run([*words[1:], *places]) == 0


@pytest.mark.parametrize(
    ("lost", "said"), [(False, "plugin"), (True, "deletion")], ids=["no plugin", "no key in it"]
)
def test_without_a_kms_nothing_is_changed(
    lost: bool, said: str, start_etcd: StartEtcd, ground: Ground
) -> None:
    with KMSPlugin("v2", Path("kms.sock"), {"kek-1": b"k" * 32, "kek-2": b"l" * 32}) as plugin:
        values = {
            place: plugin.stored_v2(secret("a"), place.encode(), name="vault", key_id="kek-1")
            for place in PLACES
        }
        values[WEB] = plugin.stored_v2(secret("web"), WEB.encode(), name="vault", key_id="kek-2")
        server = ground.etcd(start_etcd, CLUSTER, values)
        endpoint = f"unix://{Path('kms.sock').absolute()}"
        kms: dict[str, Any] = {"apiVersion": "v2", "name": "vault", "endpoint": endpoint, "timeout": "3s"}
        if lost:
            del plugin.keks["kek-1"]
        else:
            plugin.stop()
        command = ground.next_command(server, configuration_yaml({"kms": kms}, IDENTITY), INCOMPLETE)
        assert shlex.split(command)[1] == "scan"
        assert said in ground.next_line
