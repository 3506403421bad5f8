"""An undo goes back to what a change left; over an object that was made since, it is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etcdfix.model.rules import Rule
from etcdfix.testing.servers import EtcdServer
from tests.support.change_runs import BROKEN, Ran, Registry
from tests.support.objects import IDENTITY, KEY_1, KEY_2, UID, aescbc, provider, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

UNKNOWN_UID = "--accept=unknown-uid"
ANOTHER_UID = b"99999999-2222-3333-4444-555555555555"
NEWER = aescbc(secret("broken").replace(UID, ANOTHER_UID))


@pytest.fixture
def registry(etcd: EtcdServer, prefix: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Registry:
    return Registry(etcd, prefix, tmp_path, capfd)


def over(registry: Registry, backup: object, *arguments: str, name: str = "") -> Ran:
    if name:
        return registry.put_back(registry.key(name), f"backup:{backup}", "-o", "json", *arguments)
    return registry.undo(backup, "-o", "json", *arguments)


def refusal(ran: Ran) -> str:
    assert ran.code == 4, ran
    return str(json.loads(ran.out)["refusal"]["rule"])


@pytest.mark.parametrize(
    "newer", [(NEWER,), (NEWER, b"k8s:enc:aescbc:v1:key1:cut"), (b"k8s:enc:aescbc:v1:key1:cut",)]
)
def test_over_a_newer_object(registry: Registry, newer: tuple[bytes, ...]) -> None:
    """The old one cannot be read, so nothing tells its uid; what was made since may be damaged or read."""
    backup = registry.deleted()
    key = registry.key("shop/broken")
    for value in newer:
        registry.etcd.put(key, value)
    for more in ((), ("--accept=unlisted-source",), ("--expect-value-sha256", backup.content.value_sha256)):
        with registry.untouched():
            assert refusal(over(registry, backup.path, *more)) == Rule.PRESENT
    with registry.untouched():
        rule = Rule.READABLE if newer == (NEWER,) else Rule.NOT_READABLE
        assert refusal(over(registry, backup.path, UNKNOWN_UID, name="shop/broken")) == rule
    assert registry.stored(key) == newer[-1]


@pytest.mark.parametrize("known", [True, False])
def test_over_a_newer_object_once_the_key_is_found(registry: Registry, known: bool) -> None:
    """What was deleted reads again: its uid is held against that of the object that was made since."""
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    lost = ("--declare-key-lost", "aescbc/v1/key2", "--accept", "no-api-server")
    backup = registry.deleted("shop/old", *lost)
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    if known:
        registry.etcd.put(key, aescbc(secret("old").replace(UID, ANOTHER_UID)))
    registry.etcd.put(key, BROKEN)
    with registry.untouched():
        rule = Rule.OTHER_OBJECT if known else Rule.UNKNOWN_UID
        assert refusal(over(registry, backup.path, name="shop/old")) == rule
    if known:
        with registry.untouched():
            assert refusal(over(registry, backup.path, UNKNOWN_UID, name="shop/old")) == Rule.OTHER_OBJECT
        return
    assert over(registry, backup.path, UNKNOWN_UID, name="shop/old").code == 0


def test_over_the_same_object_made_again(registry: Registry) -> None:
    """An undo makes a new generation of the same object: by its uid, where that is known."""
    key = registry.put("shop/old", aescbc(secret("old"), KEY_2, "key2"))
    lost = ("--declare-key-lost", "aescbc/v1/key2", "--accept", "no-api-server")
    backup = registry.deleted("shop/old", *lost)
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    registry.etcd.put(key, aescbc(secret("old")))
    registry.etcd.put(key, BROKEN)
    ran = over(registry, backup.path, name="shop/old")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == backup.content.stored.value


def test_over_what_was_damaged_once_more(registry: Registry) -> None:
    """It is no longer what our own change put there, so that what this replaced does not come back."""
    key = registry.key("shop/good-0")
    then = registry.mod_revision(key)
    registry.etcd.put(key, BROKEN)
    assert registry.put_back(key, f"revision:{then}").code == 0
    registry.etcd.put(key, b"k8s:enc:aescbc:v1:key1:cut")
    with registry.untouched():
        assert refusal(over(registry, registry.kept()[-1].path)) == Rule.PRESENT
    assert registry.put_back(key, f"revision:{then}").code == 0
