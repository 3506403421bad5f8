"""The undo that a change prints runs as it is printed, whatever options the change had."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etcdfix.testing.certificates import CertificateAuthority
from etcdfix.testing.servers import EtcdServer
from tests.support.audit_logs import own_directory
from tests.support.change_runs import ACKNOWLEDGED, BROKEN, Registry, candidate_config, follow_up
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, provider, secret
from tests.support.syslogs import PlayedSyslog

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

Prepared = Callable[[Registry], tuple[bytes, list[str]]]
"""Makes something to change; returns its etcd key, and the command that changes it."""


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let nothing get to where records go to which nobody gives a place."""
    place = tmp_path / "default"
    monkeypatch.setattr("etcdfix.remediation.places.default_directory", lambda: place)
    monkeypatch.setattr("etcdfix.remediation.places.default_audit_log", lambda: place / "audit.jsonl")
    yield
    assert not place.exists()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[PlayedSyslog]:
    with PlayedSyslog(tmp_path / "socket") as played:
        yield played


def delete(registry: Registry) -> tuple[bytes, list[str]]:
    key = registry.key("shop/broken")
    return key, ["delete", key.decode(), ACKNOWLEDGED]


def restore(registry: Registry) -> tuple[bytes, list[str]]:
    """Put an earlier revision over what was damaged since."""
    key = registry.key("shop/good-0")
    then = registry.etcd.revision()
    at = str(registry.etcd.put(key, BROKEN))
    return key, ["restore", "--from-revision", str(then), key.decode(), "--replace-mod-revision", at]


def repair(registry: Registry) -> tuple[bytes, list[str]]:
    """Put one flipped bit back."""
    registry.configure(provider("aesgcm", key1=KEY_1), IDENTITY)
    for name in ("good-0", "good-1", "damaged"):
        key = registry.key(f"shop/{name}")
        value = aesgcm(secret(name), key.decode())
        registry.etcd.put(key, value)
    registry.etcd.put(key, value[:-20] + bytes([value[-20] ^ 1]) + value[-19:])
    return key, ["repair", key.decode()]


def reencrypt(registry: Registry) -> tuple[bytes, list[str]]:
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    registry.put("shop/newest", aescbc(secret("newest")))
    return key, ["reencrypt", key.decode(), "--candidate-config", str(candidate_config(registry.folder))]


CHANGES = [delete, restore, repair, reencrypt]


def stored(registry: Registry, key: bytes) -> bytes:
    """Return what etcd holds, by its own tool."""
    return registry.etcd.etcdctl("get", "--print-value-only", os.fsdecode(key))


def undone(registry: Registry, prepared: Prepared, *more: str) -> list[str]:
    """Change a value, undo it by the command that is printed, and return the words of that."""
    key, command = prepared(registry)
    before = stored(registry, key)
    ran = registry.run(*command, *registry.common(), *more, "--yes")
    assert ran.code == 0, ran.err
    assert stored(registry, key) != before
    line = follow_up(ran.out, "Undo").removeprefix("etcdfix ")
    words = shlex.split(line)
    ran = registry.run(*words, "--yes")
    assert ran.code == 0, (words, ran.err)
    assert stored(registry, key) == before
    return words


@pytest.mark.parametrize("prepared", CHANGES)
def test_places(registry: Registry, syslog: PlayedSyslog, prepared: Prepared) -> None:
    """What the undo replaces is kept where the change kept what it replaced: in each directory."""
    second = own_directory(registry.folder / "second one")
    words = undone(registry, prepared, "--backup-dir", str(second), "--audit-syslog", str(syslog.path))
    number = 1 if prepared is delete else 2
    assert [len(list(folder.glob("*.json"))) for folder in (registry.backups, second)] == [number, number]
    assert words.count("--backup-dir") == (0 if prepared is delete else 2)
    assert words[words.index("--audit-log") + 1] == str(registry.log)
    assert len(registry.events()) == len(syslog.heads())


def test_a_place_that_is_named_once_more(registry: Registry) -> None:
    """Somebody adds to the printed command what he always adds."""
    key, command = restore(registry)
    ran = registry.run(*command, *registry.common(), "--yes")
    line = follow_up(ran.out, "Undo").removeprefix("etcdfix ")
    places = ("--backup-dir", str(registry.backups), "--audit-log", str(registry.log))
    ran = registry.run(*shlex.split(line), *places, "--yes")
    assert ran.code == 0, ran.err
    assert len(registry.kept()) == 2
    assert registry.stored(key) == BROKEN


@pytest.mark.parametrize("prepared", CHANGES)
def test_servers_that_are_asked(registry: Registry, api: KubernetesAPI, prepared: Prepared) -> None:
    kubeconfig = api.kubeconfig(registry.folder)
    undone(registry, prepared, "--kubeconfig", str(kubeconfig))


@pytest.mark.parametrize("prepared", CHANGES)
def test_a_cluster_that_has_no_name(registry: Registry, prepared: Prepared) -> None:
    registry.lose_kube_system()
    undone(registry, prepared, "--accept", "unknown-cluster")


@pytest.mark.parametrize("prepared", [delete, restore])
def test_certificates(
    start_etcd: Callable[..., EtcdServer],
    authority: CertificateAuthority,
    prefix: bytes,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    prepared: Prepared,
) -> None:
    files = authority.issue("somebody")
    server = start_etcd(authority=authority, client_certificates=True)
    registry = Registry(server, prefix, tmp_path, capfd)
    shown = ("--cacert", str(authority.cert), "--cert", str(files.cert), "--key", str(files.key))
    undone(registry, prepared, *shown)
