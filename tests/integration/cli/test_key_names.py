"""Names of encryption keys that hold colons, as k3s and RKE2 give them; on a real etcd."""

from __future__ import annotations

from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.attacks import declared
from tests.support.change_runs import Registry
from tests.support.fixtures import Captured
from tests.support.objects import KEY_2, aescbc, secret

pytestmark = pytest.mark.etcd

ONE = "aescbckey-2026-05-12T18:43:18+02:00"
OTHER = "aescbckey-2026-05-12T18:51:02+02:00"


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Registry:
    found = Registry(etcd, prefix, tmp_path, capfd)
    for number, name in enumerate((ONE, ONE, OTHER, OTHER, OTHER)):
        found.put(f"shop/rotated-{number}", aescbc(secret(f"rotated-{number}"), KEY_2, name))
    return found


def test_the_whole_name_is_declared_lost(registry: Registry) -> None:
    key = registry.key("shop/rotated-0")
    for name in (OTHER, ONE.partition(":")[0]):
        with registry.untouched():
            ran = registry.delete(key, *declared(f"aescbc/v1/{name}"))
        assert ran.code == 4, ran.err
    ran = registry.delete(key, *declared(f"aescbc/v1/{ONE}"), "--dry-run")
    assert ran.code == 0, ran.err
