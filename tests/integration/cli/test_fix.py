"""``etcdfix fix`` against a real etcd: revisions, snapshots, backups, candidate configurations; every refusal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.remediation.audit.verify import ChainState, verify
from tests.support.audit_logs import own_directory
from tests.support.change_runs import BROKEN, Registry, candidate_config, holds
from tests.support.kms_plugin import KMSPlugin
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, namespace_object, provider, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEK = {"kek-1": b"1" * 32}
OLD = aescbc(secret("old"), KEY_2, "key2")
WHOLE = aescbc(secret("good-0"))


@pytest.fixture
def good(registry: Registry) -> bytes:
    return registry.key("shop/good-0")


@pytest.mark.parametrize("deleted", [True, False])
def test_from_revision(registry: Registry, good: bytes, deleted: bool) -> None:
    """etcd itself is the list of its revisions, whether the key is there or gone."""
    then = named = registry.mod_revision(good)
    if deleted:
        named = registry.etcd.put(b"/elsewhere", b"")
    registry.etcd.delete(good) if deleted else registry.etcd.put(good, BROKEN)
    ran = registry.put_back(good, f"revision:{named}")
    assert ran.code == 0, ran.err
    shown = f"revision {named} (written at {then})" if deleted else f"revision {then}"
    assert f"From  {shown}, as you named it" in ran.err
    assert f"FIXED {good.decode()} at revision " in ran.out
    assert ran.err.count("\n") <= 30
    assert registry.stored(good) == WHOLE
    assert not registry.records()[0].accepted
    assert [backup.content.stored.value for backup in registry.kept()] == ([] if deleted else [BROKEN])


def test_a_revision_that_holds_no_copy(registry: Registry, good: bytes) -> None:
    then = registry.mod_revision(good)
    registry.etcd.put(good, BROKEN)
    registry.etcd.compact()
    with registry.untouched():
        ran = registry.put_back(good, f"revision:{then}", "--accept", "unknown-uid")
    registry.refused(ran, f"revision:{then} holds no copy of", hint="explain")


def test_from_revision_with_a_protected_kind(registry: Registry) -> None:
    key = registry.put("shop", namespace_object("shop", "u-4"), "namespaces")
    source = f"revision:{registry.mod_revision(key)}"
    registry.etcd.put(key, namespace_object("shop", "u-4")[:-3])
    with registry.untouched():
        ran = registry.put_back(key, source)
    registry.refused(ran, "putting another value over this key may break", hint="--accept cluster-breaking")
    ran = registry.put_back(key, source, "--accept", "cluster-breaking")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == namespace_object("shop", "u-4")


def _saved(registry: Registry) -> Path:
    path = registry.folder / "saved.db"
    registry.etcd.etcdctl("snapshot", "save", path)
    return path


@pytest.mark.parametrize("damaged", [False, True])
def test_from_snapshot(registry: Registry, good: bytes, damaged: bool) -> None:
    """A snapshot keeps earlier revisions as etcd does: where its newest value is damaged, the one before is taken."""
    then = registry.mod_revision(good)
    if damaged:
        registry.etcd.put(good, BROKEN)
    path = _saved(registry)
    if not damaged:
        registry.etcd.delete(good)
    ran = registry.put_back(good, f"snapshot:{path}")
    assert ran.code == 0, ran.err
    assert f"From  revision {then} in snapshot {path}" in ran.err
    assert registry.stored(good) == WHOLE


def test_a_backup_of_another_machine_is_a_copy_like_any_other(registry: Registry) -> None:
    """Nothing of the first machine is there but the file; it comes back where it reads."""
    key = registry.put("shop/found", aescbc(secret("found"), KEY_2, "key2"))
    ran = registry.delete(key, "--accept", "no-api-server", "--declare-key-lost", "aescbc/v1/key2")
    assert ran.code == 0, ran.err
    taken = registry.folder / "from-another-machine.json"
    registry.kept()[0].path.rename(taken)
    registry.backups = own_directory(registry.folder / "fresh")
    registry.log = own_directory(registry.folder / "fresh-log") / "audit.jsonl"
    with registry.untouched():
        ran = registry.put_back(key, f"backup:{taken}")
        registry.refused(ran, "no key of that name is configured", hint="--encryption-config")
        ran = registry.put_back(registry.key("shop/other"), f"backup:{taken}")
        registry.refused(ran, "is of ", hint="name the key")
    registry.configure(provider("aescbc", key1=KEY_1, key2=KEY_2), IDENTITY)
    with registry.untouched():
        ran = registry.put_back(key, f"backup:{taken}", configured=False)
        registry.refused(ran, "no encryption configuration was given", hint="--encryption-config FILE")
    ran = registry.put_back(key, f"backup:{taken}")
    assert ran.code == 0, ran.err
    assert registry.stored(key) == aescbc(secret("found"), KEY_2, "key2")
    assert not holds(taken.read_bytes())


def test_lease_of_a_copy(registry: Registry) -> None:
    key = registry.key("shop/leased")
    lease = registry.grant(key, aescbc(secret("leased")))
    source = f"revision:{registry.mod_revision(key)}"
    registry.etcd.put(key, BROKEN)
    assert registry.put_back(key, source).code == 0
    assert registry.lease(key) == int(lease, 16)
    registry.etcd.etcdctl("lease", "revoke", lease)
    with registry.untouched():
        ran = registry.put_back(key, source)
    registry.refused(ran, "which has expired", hint="--accept expired-lease")
    ran = registry.put_back(key, source, "--accept", "expired-lease")
    assert ran.code == 0, ran.err
    assert registry.lease(key) == 0


def _server_writes(registry: Registry) -> None:
    registry.put("shop/good-0", WHOLE)


@pytest.fixture
def key(registry: Registry) -> bytes:
    key = registry.put("shop/old", OLD)
    _server_writes(registry)
    return key


@pytest.fixture
def candidate(registry: Registry) -> str:
    return f"candidate:{candidate_config(registry.folder)}"


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", KEK) as running:
        yield running


def _kms(plugin: KMSPlugin) -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}}


def test_rewritten_under_the_key_of_today(registry: Registry, key: bytes, candidate: str) -> None:
    before = registry.etcd.revision()
    ran = registry.put_back(key, candidate)
    assert ran.code == 0, ran.err
    written = registry.stored(key)
    assert written is not None
    assert written.startswith(b"k8s:enc:aescbc:v1:key1:")
    assert registry.etcd.revision() == before + 1
    # Today's configuration reads it now, and says what the old one said.
    assert registry.run("scan", key.decode(), *registry.common(places=False, reason=None)).code == 0
    backup = registry.kept()[0]
    assert (backup.content.purpose, backup.content.stored.value) == ("fix", OLD)
    assert not holds(backup.path.read_bytes())
    assert not holds(registry.log.read_bytes())
    assert not holds((ran.out + ran.err).encode())
    assert [(event.verb, event.way) for event in registry.records()] == [("fix", "seal")] * 2
    assert verify(registry.log).state is ChainState.WHOLE


@pytest.mark.parametrize(
    ("name", "value", "words", "hint"),
    [
        ("shop/inside", aescbc(secret("inside")[:-9]), "today's configuration opens", "see every copy and every way"),
        ("shop/broken", BROKEN, "too short", "--encryption-config"),
        ("shop/other", OLD, "another object than the one that its etcd key names", "name another copy"),
    ],
)  # fmt: skip
def test_what_the_candidate_does_not_open(
    registry: Registry, candidate: str, name: str, value: bytes, words: str, hint: str
) -> None:
    key = registry.put(name, value)
    with registry.untouched():
        ran = registry.put_back(key, candidate)
    registry.refused(ran, words, hint=hint)
    assert "kubectl" not in ran.err


def test_candidate_with_a_kms_provider(registry: Registry, plugin: KMSPlugin) -> None:
    """Its endpoint is named by a flag that both configurations hear of, and only one of them has such a provider."""
    key = registry.key("shop/behind")
    registry.etcd.put(key, plugin.stored_v2(secret("behind"), key))
    _server_writes(registry)
    ran = registry.put_back(key, f"candidate:{candidate_config(registry.folder, _kms(plugin))}", "--dry-run")
    assert ran.code == 0, ran.err
    assert "opened with kms/v2/prov" in ran.err
    moved = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere", "timeout": "5s"}}
    source = f"candidate:{candidate_config(registry.folder, moved)}"
    ran = registry.put_back(key, source, "--kms-endpoint", f"prov={plugin.endpoint}")
    assert ran.code == 0, ran.err
    ran = registry.put_back(key, source, "--kms-endpoint", f"nobody={plugin.endpoint}")
    assert (ran.code, "'nobody', which --encryption-config does not have" in ran.err) == (4, True), ran
