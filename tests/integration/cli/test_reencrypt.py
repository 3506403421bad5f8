"""``etcdfix reencrypt`` against a real etcd: rewritten under today's key, and every refusal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etcdfix.remediation.audit.verify import ChainState, verify
from etcdfix.wire.etcd import ALARM, STATUS, message
from tests.support.change_runs import BROKEN, UID, Registry, candidate_config, holds, typing
from tests.support.kms_plugin import KMSPlugin
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.lossy_etcd import TXN, LossyProxy
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, provider, secret

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]

KEK = {"kek-1": b"1" * 32}
OLD = aescbc(secret("old"), KEY_2, "key2")


def _server_writes(registry: Registry) -> None:
    """Let the newest Secret show which key the API servers have."""
    registry.put("shop/good-0", aescbc(secret("good-0")))


@pytest.fixture
def key(registry: Registry) -> bytes:
    """A Secret that only key2 opens."""
    key = registry.put("shop/old", OLD)
    _server_writes(registry)
    return key


@pytest.fixture
def candidate(registry: Registry) -> Path:
    return candidate_config(registry.folder)


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[KMSPlugin]:
    with KMSPlugin("v2", f"@etcdfix-test-{os.getpid()}-{tmp_path.name}", KEK) as running:
        yield running


def _kms(plugin: KMSPlugin) -> dict[str, Any]:
    return {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": plugin.endpoint, "timeout": "5s"}}


def test_rewritten_under_the_key_of_today(registry: Registry, key: bytes, candidate: Path) -> None:
    before = registry.etcd.revision()
    ran = registry.reencrypt(key, candidate)
    assert ran.code == 0, ran.err
    written = registry.stored(key)
    assert written is not None
    assert written.startswith(b"k8s:enc:aescbc:v1:key1:")
    assert registry.etcd.revision() == before + 1
    # Today's configuration reads it now, and says what the old one said.
    assert registry.run("scan", key.decode(), *registry.common(places=False, reason=None)).code == 0
    for words in (
        "Now  decrypt-failure, key-name-missing",
        "Candidate  opens it with aescbc/v1/key2: a readable Secret",
        "Written with  aescbc/v1/key1",
        "/secrets/shop/good-0 is stored under it",
        f"kube-system uid {UID}, at {registry.endpoints}",
        "the etcd credentials are the only gate",
    ):
        assert words in ran.err, words
    assert f"REENCRYPTED {key.decode()} at revision {before + 1}." in ran.out
    backup = registry.kept()[0]
    assert (backup.content.purpose, backup.content.stored.value) == ("reencrypt", OLD)
    assert not holds(backup.path.read_bytes())
    assert not holds(registry.log.read_bytes())
    assert not holds((ran.out + ran.err).encode())
    assert [event.verb for event in registry.events()] == ["reencrypt", "reencrypt"]
    assert verify(registry.log).state is ChainState.WHOLE


def test_undone_by_its_backup(registry: Registry, key: bytes, candidate: Path) -> None:
    assert registry.reencrypt(key, candidate).code == 0
    registry.etcd.delete(key)
    ran = registry.restore(str(registry.kept()[0].path), configured=False)
    assert ran.code == 0, ran.err
    assert registry.stored(key) == OLD


def test_not_confirmed(
    registry: Registry, key: bytes, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry.untouched():
        ran = registry.reencrypt(key, candidate, yes=False)
    registry.refused(ran, "was not typed back; nothing was changed", hint="--yes")
    with typing(monkeypatch, key.decode()):
        assert registry.reencrypt(key, candidate, yes=False).code == 0


def test_lease_is_kept(registry: Registry, candidate: Path) -> None:
    key = registry.key("shop/old")
    lease = registry.grant(key, OLD).lstrip("0")
    _server_writes(registry)
    ran = registry.reencrypt(key, candidate)
    assert ran.code == 0, ran.err
    assert f"Lease  {lease}, kept" in ran.err
    assert f"{registry.lease(key):x}" == lease


def test_a_new_secret_shows_the_write_key_where_every_other_is_broken(
    registry: Registry, candidate: Path
) -> None:
    """What cannot be read cannot be updated either: only a new object has an API server write anything."""
    for name in ("good-0", "good-1"):
        registry.etcd.delete(registry.key(f"shop/{name}"))
    key = registry.put("shop/old", OLD)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate)
    new = "create a new one through the API: kubectl create secret generic etcdfix-write-key -n shop"
    registry.refused(ran, "nothing shows that the API servers hold the key", hint=new)
    assert "annotate" not in ran.err
    registry.put("shop/etcdfix-write-key", aescbc(secret("etcdfix-write-key")))
    assert registry.reencrypt(key, candidate).code == 0


def test_what_opens_and_is_damaged_inside_is_not_for_the_api(registry: Registry, candidate: Path) -> None:
    key = registry.put("shop/inside", aescbc(secret("inside")[:-9]))
    with registry.untouched():
        ran = registry.reencrypt(key, candidate)
    registry.refused(ran, "today's configuration opens", hint="does not change what is wrong inside it")
    assert "kubectl" not in ran.err


def test_candidate_does_not_read_it(registry: Registry, candidate: Path) -> None:
    with registry.untouched():
        ran = registry.reencrypt(registry.key("shop/broken"), candidate)
    registry.refused(
        ran, "under the candidate configuration", "is decrypt-failure", hint="find the configuration"
    )


def test_name_in_it_is_another(registry: Registry, candidate: Path) -> None:
    key = registry.put("shop/other", OLD)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate)
    registry.refused(ran, "is inconsistent: ", hint="find the configuration, or the key")


def test_no_configuration_of_today(registry: Registry, key: bytes, candidate: Path) -> None:
    with registry.untouched():
        ran = registry.run(
            "reencrypt", key.decode(), "--candidate-config", str(candidate), "--yes",
            *registry.common(configured=False),
        )  # fmt: skip
    registry.refused(ran, "so today's write key is unknown", hint="--encryption-config FILE")


@pytest.mark.parametrize("lacking", [True, False])
def test_ciphertext_is_never_turned_into_plaintext(
    registry: Registry, key: bytes, candidate: Path, lacking: bool
) -> None:
    registry.put("shop/plain", secret("plain"))
    if lacking:
        registry.configure(provider("aescbc", key1=KEY_1), resources=("configmaps",))
    else:
        registry.configure(IDENTITY, provider("aescbc", key1=KEY_1))
    with registry.untouched():
        ran = registry.reencrypt(key, candidate, "--accept", "undeployed-write-key")
    registry.refused(ran, "would leave its contents unencrypted", hint="that the API servers use today")
    assert not registry.log.exists()


def test_undone_in_place(registry: Registry, key: bytes, candidate: Path) -> None:
    assert registry.reencrypt(key, candidate).code == 0
    written, there = registry.stored(key), registry.mod_revision(key)
    backup = str(registry.kept()[0].path)
    with registry.untouched():
        registry.refused(
            registry.restore(backup), "exists: created at revision", hint=f"--replace-mod-revision {there}"
        )
        ran = registry.restore(backup, "--replace-mod-revision", str(there - 1))
        registry.refused(ran, f"stands at mod_revision {there}, not at {there - 1}", hint="examine it again")
    ran = registry.restore(backup, "--replace-mod-revision", str(there), configured=False)
    assert ran.code == 0, ran.err
    assert "put there by record 1 of this audit log; backed up first" in ran.err
    assert registry.stored(key) == OLD
    second = registry.kept()[-1]
    assert (second.content.purpose, second.content.stored.value) == ("restore", written)
    assert second.content.stored_as_plaintext is False
    # Once more, in the other direction.
    again = str(registry.mod_revision(key))
    assert registry.restore(str(second.path), "--replace-mod-revision", again, configured=False).code == 0
    assert registry.stored(key) == written
    assert verify(registry.log).state is ChainState.WHOLE


def test_undone_in_place_keeps_the_lease(registry: Registry, candidate: Path) -> None:
    key = registry.key("shop/old")
    lease = registry.grant(key, OLD)
    _server_writes(registry)
    assert registry.reencrypt(key, candidate).code == 0
    ran = registry.restore(
        str(registry.kept()[0].path), "--replace-mod-revision", str(registry.mod_revision(key))
    )
    assert ran.code == 0, ran.err
    assert (registry.stored(key), registry.lease(key)) == (OLD, int(lease, 16))
    left = registry.kept()[-1].content.lease_ttl_seconds
    assert left is not None
    assert 0 < left <= 86_400


def test_undone_although_the_answer_never_came(registry: Registry, key: bytes, candidate: Path) -> None:
    with LossyProxy(registry.etcd.endpoint) as lossy:
        registry.endpoints = lossy.endpoint
        lossy.lost = {TXN}
        assert registry.reencrypt(key, candidate).code == 0
    registry.endpoints = registry.etcd.endpoint
    there = registry.mod_revision(key)
    assert registry.events()[-1].annotations.header_revision == str(there)
    ran = registry.restore(str(registry.kept()[0].path), "--replace-mod-revision", str(there))
    assert ran.code == 0, ran.err


def test_no_space(registry: Registry, key: bytes, candidate: Path) -> None:
    def alarm(path: str, answer: bytes) -> bytes:
        if path == STATUS.path:
            status = message("StatusResponse").FromString(answer)
            status.version = "3.6.0"  # the first that lets a deletion pass; 3.4.22 and 3.5.7 do too
            return bytes(status.SerializeToString())
        if path != ALARM.path:
            return answer
        found = message("AlarmResponse").FromString(answer)
        for kind in (9, 1):  # one of a later release, and NOSPACE
            found.alarms.append(message("AlarmMember")(memberID=5, alarm=kind))
        return bytes(found.SerializeToString())

    backup = registry.deleted("shop/broken", "--accept", "ends-cached-reads")
    with LossyProxy(registry.etcd.endpoint) as lossy:
        lossy.rewrite = alarm
        registry.endpoints = lossy.endpoint
        records = len(registry.events())
        for ran in (
            registry.reencrypt(key, candidate),
            registry.reencrypt(key, candidate, "--dry-run"),
            registry.restore(str(backup.path)),
        ):
            registry.refused(ran, "has raised etcd's NOSPACE alarm", hint="etcdctl alarm disarm")
        assert len(registry.events()) == records
        # A deletion is what makes room.
        broken = registry.put("shop/broken", BROKEN)
        ran = registry.delete(broken, "--accept", "ends-cached-reads")
        assert ran.code == 0, ran.err
        assert "NOSPACE" in ran.err


def test_kms_write_key(registry: Registry, key: bytes, candidate: Path, plugin: KMSPlugin) -> None:
    registry.configure(_kms(plugin), provider("aescbc", key1=KEY_1), IDENTITY)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate)
    registry.refused(
        ran,
        "kms/v2/prov: writing through a KMS plugin is not supported",
        hint="let an API server write it: save the object",
    )


def test_candidate_with_a_kms_provider(registry: Registry, plugin: KMSPlugin) -> None:
    key = registry.key("shop/behind")
    registry.etcd.put(key, plugin.stored_v2(secret("behind"), key))
    _server_writes(registry)
    ran = registry.reencrypt(key, candidate_config(registry.folder, _kms(plugin)))
    assert ran.code == 0, ran.err
    assert "opens it with kms/v2/prov" in ran.err


def test_endpoint_given_for_the_provider_of_the_candidate(registry: Registry, plugin: KMSPlugin) -> None:
    """It is named by a flag that both configurations hear of, and only one of them has such a provider."""
    key = registry.key("shop/behind")
    registry.etcd.put(key, plugin.stored_v2(secret("behind"), key))
    _server_writes(registry)
    moved = {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///nowhere", "timeout": "5s"}}
    path = candidate_config(registry.folder, moved)
    ran = registry.reencrypt(key, path, "--kms-endpoint", f"prov={plugin.endpoint}")
    assert ran.code == 0, ran.err
    ran = registry.reencrypt(key, path, "--kms-endpoint", f"nobody={plugin.endpoint}")
    assert ran.code == 2
    assert "'nobody', which the encryption configuration does not have" in ran.err


def test_a_server_that_reads_it(registry: Registry, key: bytes, candidate: Path, api: KubernetesAPI) -> None:
    """Before, it speaks against today's configuration; of what we wrote ourselves it may be read, to be undone."""
    asked = ("--kubeconfig", str(api.kubeconfig(registry.folder)))
    api.reads = True
    with registry.untouched():
        ran = registry.reencrypt(key, candidate, *asked)
    registry.refused(
        ran, f"the API server at {api.url} reads secrets shop/old", hint="compare with that server's"
    )
    api.reads = False
    assert registry.reencrypt(key, candidate, *asked).code == 0
    api.reads = True
    backup = str(registry.kept()[0].path)
    ran = registry.restore(backup, "--replace-mod-revision", str(registry.mod_revision(key)), *asked)
    assert ran.code == 0, ran.err
    assert f"API server  {api.url} reads it" in ran.err
    assert registry.stored(key) == OLD
