"""Every command that talks to API servers, against one that writes down what it is asked: only ``heal`` writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from etcdfix.cli.root import cli
from etcdfix.model import GroupResource
from etcdfix.remediation.patcher import HEALED_AT
from tests.support.apiserver import Request
from tests.support.certificates import CertificateAuthority
from tests.support.change_runs import Ran, candidate_config
from tests.support.etcd_server import EtcdServer
from tests.support.healing import NEW, LostKeyCluster, beside, lost_key_cluster
from tests.support.objects import KEY_2, aescbc, provider, secret

pytestmark = pytest.mark.etcd

KEY_3 = b"abcdefghijklmnop"
REVIEWS = {
    "/apis/authentication.k8s.io/v1/selfsubjectreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
}


# What each command needs to come to an end on a cluster whose key is lost.


def _delete(cluster: LostKeyCluster) -> Iterator[Ran]:
    lost = cluster.key("shop/one")
    more = [*_api(cluster), "--declare-key-lost", "aescbc/v1/key1"]
    yield cluster.delete(lost, *_api(cluster))
    yield cluster.delete(lost, *more)
    yield cluster.delete(lost, *more, "--accept-risk", "ends-cached-reads", "--dry-run", yes=False)
    yield cluster.delete(lost, *more, "--accept-risk", "ends-cached-reads")


def _restore(cluster: LostKeyCluster) -> Iterator[Ran]:
    *_, done = _delete(cluster)
    yield done
    backup = str(next(cluster.backups.glob("*.json"), "none"))
    yield cluster.restore(backup, *_api(cluster), "--dry-run", yes=False)
    yield cluster.restore(backup, *_api(cluster))


def _reencrypt(cluster: LostKeyCluster) -> Iterator[Ran]:
    key = cluster.put("shop/other", aescbc(secret("other"), KEY_3, name="key3"))
    cluster.p1.create("v1", "Secret", "newest", "shop", data={"password": "YQ=="})
    candidate = candidate_config(cluster.folder, provider("aescbc", key3=KEY_3))
    yield cluster.reencrypt(key, candidate, *_api(cluster), "--dry-run", yes=False)
    yield cluster.reencrypt(key, candidate, *_api(cluster))


def _repair(cluster: LostKeyCluster) -> Iterator[Ran]:
    cluster.configure(provider("aesgcm", key2=KEY_2))
    cluster.p1.reload(cluster.config.read_bytes())
    cluster.p1.create("v1", "Secret", "flipped", "shop", data={"password": "YQ=="})
    key = cluster.key("shop/flipped")
    value = bytearray(cluster.stored(key) or b"")
    value[60] ^= 1
    cluster.etcd.put(key, bytes(value))
    yield cluster.repair(key, *_api(cluster), "--dry-run", yes=False)
    yield cluster.repair(key, *_api(cluster))


def _rescue(cluster: LostKeyCluster) -> Iterator[Ran]:
    words = [
        "rescue",
        "--from-report",
        str(cluster.report()),
        *_api(cluster),
        "--save-dir",
        str(cluster.saved),
    ]
    words += ["--audit-log", str(cluster.log), "--rate", "1000", "--etcd-prefix", cluster.prefix]
    yield cluster.run(*words)
    yield cluster.run(*words, "--reveal")
    yield cluster.run(*words, "--reveal")


def _doctor(cluster: LostKeyCluster) -> Iterator[Ran]:
    yield cluster.run("doctor", *cluster.common(reason=None), *_api(cluster))


def _copies(cluster: LostKeyCluster) -> Iterator[Ran]:
    arguments = ["--endpoints", cluster.endpoints, "--etcd-prefix", cluster.prefix, "--encryption-config"]
    for output in ("table", "json"):
        words = [*arguments, str(cluster.config), "--backup-dir", str(cluster.backups), "-o", output]
        yield cluster.run("copies", *words, *_api(cluster))


def _heal(cluster: LostKeyCluster) -> Iterator[Ran]:
    cluster.rescue()
    cluster.p1.requests.clear()
    report = str(cluster.report())
    yield cluster.heal("--from-report", report, "--dry-run", yes=False)
    assert cluster.p1.methods == {"GET"}
    yield cluster.heal("--from-report", report)


def _api(cluster: LostKeyCluster) -> list[str]:
    return ["--kubeconfig", str(cluster.kubeconfig)]


ATTEMPTS: dict[str, Callable[[LostKeyCluster], Iterator[Ran]]] = {
    "delete": _delete,
    "restore": _restore,
    "reencrypt": _reencrypt,
    "repair": _repair,
    "rescue": _rescue,
    "doctor": _doctor,
    "copies": _copies,
    "heal": _heal,
}


@pytest.fixture
def cluster(
    etcd: EtcdServer,
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    authority: CertificateAuthority,
) -> Iterator[LostKeyCluster]:
    with lost_key_cluster(etcd, prefix, tmp_path, capfd, authority) as cluster:
        yield cluster


def _commands(group: click.Group, *path: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, *path, name)
        elif command is not None:
            yield " ".join((*path, name)), command


def test_every_command_that_asks_api_servers_is_tried_here() -> None:
    asking = {
        name
        for name, command in _commands(cli)
        if any("--kubeconfig" in parameter.opts for parameter in command.params)
    }
    assert asking == set(ATTEMPTS)


@pytest.mark.parametrize("command", sorted(set(ATTEMPTS) - {"heal"}))
def test_nothing_but_heal_changes_anything_through_the_api(cluster: LostKeyCluster, command: str) -> None:
    runs = list(ATTEMPTS[command](cluster))
    assert runs[-1].code == (1 if command == "doctor" else 0), runs[-1]
    assert cluster.p1.requests, "no API server was asked: nothing is shown"
    for request in cluster.p1.requests:
        _only_asks(request)


@pytest.mark.parametrize("command", sorted(set(ATTEMPTS) - {"heal"}))
def test_nor_where_servers_are_in_trouble(cluster: LostKeyCluster, command: str) -> None:
    """Lost caches, overload, a death midway, refused rights: no other way is tried than to ask."""
    with beside(cluster, NEW) as p2:
        cluster.p1.lose_cache("secrets")
        cluster.p1.behaviour.overloaded = 2
        cluster.p1.behaviour.denied.add(("delete", "secrets"))
        p2.die_after(2)
        list(ATTEMPTS[command](cluster))
        for request in [*cluster.p1.requests, *p2.requests]:
            _only_asks(request)


def test_heal_sends_one_patch_for_each_object_and_nothing_else(cluster: LostKeyCluster) -> None:
    before = {key: json.loads(_served(cluster, key)) for key in cluster.keys}
    runs = list(_heal(cluster))
    assert [ran.code for ran in runs] == [0, 0], runs
    patches = [request for request in cluster.p1.requests if request.method == "PATCH"]
    for request in cluster.p1.requests:
        if request.method != "PATCH":
            _only_asks(request)
    assert len(patches) == len(before)
    for request in patches:
        (old,) = (o for o in before.values() if request.place.endswith(f"/{o['metadata']['name']}"))
        assert request.content_type == "application/merge-patch+json"
        assert set(request.query) <= {"fieldManager"}
        assert set(request.body) == {"metadata"}
        metadata: dict[str, Any] = request.body["metadata"]
        assert set(metadata) == {"uid", "resourceVersion", "annotations"}
        assert metadata["uid"] == old["metadata"]["uid"]
        assert metadata["resourceVersion"] == old["metadata"]["resourceVersion"]
        assert set(metadata["annotations"]) == {HEALED_AT}


def _served(cluster: LostKeyCluster, key: bytes) -> str:
    cached = cluster.p1.process.caches[GroupResource("", "secrets")].memory[key]
    return json.dumps(cached.value)


def _only_asks(request: Request) -> None:
    if request.method == "POST":
        assert request.place in REVIEWS, request.path
    else:
        assert request.method == "GET", (request.method, request.path)
    assert "dryRun" not in request.query
