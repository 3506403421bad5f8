"""A cluster without encryption at rest: said by ``--no-encryption``, contradicted by what etcd holds."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.remediation.cluster import looks_enveloped
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import ACKNOWLEDGED, Ran, Registry, follow_up
from tests.support.fixtures import Captured, StartEtcd
from tests.support.objects import aescbc, config_map, namespace_object, secret

pytestmark = pytest.mark.etcd

DAMAGED = b"k8s\x00" + config_map("damaged")[4:-3]


@pytest.fixture(scope="module")
def own_etcd(start_etcd: StartEtcd) -> EtcdServer:
    return start_etcd()


@pytest.fixture
def registry(own_etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Iterator[Registry]:
    found = Registry(own_etcd, prefix, tmp_path, capfd)
    yield found
    own_etcd.etcdctl("del", "--prefix", "")


@pytest.fixture
def plain(registry: Registry) -> Registry:
    for name in ("good-0", "good-1", "broken"):
        registry.etcd.delete(registry.key(f"shop/{name}"))
    registry.put("shop/good", config_map("good"), "configmaps")
    registry.put("shop/damaged", DAMAGED, "configmaps")
    return registry


def delete(registry: Registry, *arguments: str, name: str = "shop/damaged") -> Ran:
    key = registry.key(name, "configmaps").decode()
    given = [ACKNOWLEDGED, "--yes", "--no-encryption", *arguments]
    return registry.run("delete", key, *given, *registry.common(configured=False))


def test_a_deletion_says_and_records_it(plain: Registry) -> None:
    ran = delete(plain)
    assert ran.code == 0, ran.err
    assert "Encryption  none at rest, as you say (--no-encryption)" in ran.err
    grounds = plain.records()[-1].grounds
    assert grounds is not None
    assert (grounds.no_encryption, grounds.configuration_sha256) == (True, None)
    (backup,) = plain.kept()
    assert backup.content.grounds is not None
    assert backup.content.grounds.no_encryption
    undo = follow_up(ran.out, "Undo")
    words = shlex.split(undo.removeprefix("etcdfix "))
    back = plain.run(*words, "--yes", "--backup-dir", str(plain.backups))
    assert back.code == 0, back.err
    assert plain.stored(plain.key("shop/damaged", "configmaps")) == DAMAGED


def test_without_either_nothing_is_deleted(plain: Registry) -> None:
    with plain.untouched():
        ran = plain.run(
            "delete", plain.key("shop/damaged", "configmaps").decode(), ACKNOWLEDGED, "--yes",
            *plain.common(configured=False),
        )  # fmt: skip
    plain.refused(ran, "no encryption configuration was given", hint="--no-encryption")


def test_one_encrypted_value_anywhere_refuses(plain: Registry) -> None:
    plain.put("other/one", aescbc(secret("one")))
    with plain.untouched():
        ran = delete(plain)
    plain.refused(
        ran, "--no-encryption, and the value of", "secrets/other/one", hint="--encryption-config FILE"
    )


def test_an_encrypted_value_under_another_prefix_refuses(plain: Registry) -> None:
    """Two clusters in one etcd, or a prefix that was changed: there is encryption at rest in this etcd."""
    assert delete(plain).code == 0
    backup = plain.kept()[0]
    plain.put("shop/damaged", DAMAGED, "configmaps")
    other = b"/other-cluster/secrets/shop/one"
    plain.etcd.put(other, aescbc(secret("one")))
    try:
        with plain.untouched():
            ran = delete(plain)
        plain.refused(
            ran, "--no-encryption, and the value of", other.decode(), hint="--encryption-config FILE"
        )
        plain.etcd.delete(plain.key("shop/damaged", "configmaps"))
        with plain.untouched():
            ran = plain.undo(backup.path, "--no-encryption", configured=False)
        plain.refused(
            ran, "--no-encryption, and the value of", other.decode(), hint="an undo needs no such option"
        )
    finally:
        plain.etcd.delete(other)


def test_the_value_in_question_is_encrypted_itself(plain: Registry) -> None:
    plain.put("shop/damaged", b"k8c:enc:aescbc:v1:key1:" + bytes(40), "configmaps")
    with plain.untouched():
        ran = delete(plain)
    plain.refused(ran, "--no-encryption, and the value of", "shop/damaged", hint="--encryption-config FILE")


def test_both_contradict_each_other(plain: Registry) -> None:
    with plain.untouched():
        ran = delete(plain, "--encryption-config", str(plain.config))
    assert ran.code == 2
    assert "one of them is wrong" in ran.err
    ran = plain.run("scan", "--no-encryption", *plain.common(places=False, reason=None))
    assert ran.code == 2


@pytest.mark.parametrize("bits", [1, 3, 4])
def test_an_envelope_is_known_by_all_but_three_bits(bits: int) -> None:
    begins = bytes([ord("k") ^ (1 << bits) - 1]) + b"8s:enc:"
    assert looks_enveloped(begins + b"aescbc:v1:key1:") is (bits <= 3)
    for clear in (b"", b"k8s", b"k8s\x00\x0a\x0c", b'{"kind":', namespace_object("a")):
        assert not looks_enveloped(clear)
