"""Names of encryption keys that hold colons, as k3s and RKE2 give them; on a real etcd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.testing.servers import EtcdServer
from tests.support.attacks import declared
from tests.support.change_runs import Registry, candidate_config
from tests.support.fixtures import Captured
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret

pytestmark = pytest.mark.etcd

ONE = "aescbckey-2026-05-12T18:43:18+02:00"
OTHER = "aescbckey-2026-05-12T18:51:02+02:00"


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: Captured) -> Registry:
    found = Registry(etcd, prefix, tmp_path, capfd)
    for number, name in enumerate((ONE, ONE, OTHER, OTHER, OTHER)):
        found.put(f"shop/rotated-{number}", aescbc(secret(f"rotated-{number}"), KEY_2, name))
    return found


def test_two_lost_keys_of_one_hour_are_two(registry: Registry) -> None:
    ran = registry.run("scan", "-o", "json", *registry.common(places=False, reason=None))
    summary = json.loads(ran.out)["summary"]
    found = {entry["transformer"]: entry["failures"] for entry in summary["by_transformer"]}
    assert (found[f"aescbc/v1/{ONE}"], found[f"aescbc/v1/{OTHER}"]) == (2, 3)
    assert "its name may be longer" not in ran.out


def test_the_whole_name_is_declared_lost(registry: Registry) -> None:
    key = registry.key("shop/rotated-0")
    for name in (OTHER, ONE.partition(":")[0]):
        with registry.untouched():
            ran = registry.delete(key, *declared(f"aescbc/v1/{name}"))
        assert ran.code == 4, ran.err
    ran = registry.delete(key, *declared(f"aescbc/v1/{ONE}"), "--dry-run")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("configured", [True, False])
def test_a_name_whose_end_nobody_knows_is_said(registry: Registry, *, configured: bool) -> None:
    registry.put("shop/odd", aescbc(secret("odd"), KEY_2, "a:b"))
    common = registry.common(places=False, reason=None, configured=configured)
    ran = registry.run("scan", registry.key("shop/odd").decode(), "-o", "json", *common)
    assert "aescbc/v1/a" in ran.out
    assert "its name may be longer: text and another colon follow" in ran.out


def test_a_name_of_the_candidate_is_whole(registry: Registry) -> None:
    key = registry.put("shop/odd", aescbc(secret("odd"), KEY_2, "a:b"))
    candidate = candidate_config(registry.folder, provider("aescbc", **{"a:b": KEY_2}))
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY)
    ran = registry.put_back(key, f"candidate:{candidate}", "--accept", "undeployed-write-key")
    assert ran.code == 0, ran.err
    grounds = registry.records()[-1].grounds
    assert grounds is not None
    assert grounds.transformer in {"", "aescbc/v1/a:b"}
    assert "aescbc/v1/a:b" in ran.err
