"""Rewriting under today's key: what the command cannot bring about by itself."""

from __future__ import annotations

import pytest

from etcdfix.encryption.seal import NotSealed, SealRefusal
from etcdfix.remediation import reencrypt as reencrypt_module
from etcdfix.remediation.members import LeaseState
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Registry, candidate_config
from tests.support.objects import IDENTITY, KEY_1, KEY_2, aescbc, aesgcm, provider, secret

pytestmark = pytest.mark.etcd

WITHOUT_PROOF = "nothing shows that the API servers hold the key of aesgcm/v1/fresh"
OLD = aescbc(secret("old"), KEY_2, "key2")


def test_value_that_does_not_read_back(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key = registry.put("shop/old", OLD)
    refusal = NotSealed("aescbc/v1/key1", SealRefusal.NOT_READ_BACK)
    monkeypatch.setattr(reencrypt_module, "to_storage", lambda *_: refusal)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(ran, "aescbc/v1/key1: what was written does not read back", hint="etcdfix get")


def test_lease_that_ran_out_meanwhile(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key = registry.key("shop/old")
    registry.grant(key, OLD)
    registry.put("shop/good-0", aescbc(secret("good-0")))
    gone = LeaseState(lease=7, alive=False, remaining_seconds=0, granted_seconds=0)
    monkeypatch.setattr(reencrypt_module, "read_lease", lambda *_: gone)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(ran, "the lease of", "has expired", hint="look again in a moment")


def test_proof_is_a_value_that_reads_under_the_very_key(registry: Registry) -> None:
    """aescbc key1 comes second now: what is stored under it is stale, and under aesgcm there is something broken."""
    registry.configure(provider("aesgcm", fresh=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY)
    broken = registry.key("shop/gcm-broken")
    registry.etcd.put(broken, aesgcm(secret("gcm-broken"), broken.decode(), KEY_2, "fresh"))
    key = registry.put("shop/old", OLD)
    path = candidate_config(registry.folder)
    with registry.untouched():
        ran = registry.reencrypt(key, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="--accept-undeployed"
    )
    proof = registry.key("shop/gcm-good")
    registry.etcd.put(proof, aesgcm(secret("gcm-good"), proof.decode(), KEY_1, "fresh"))
    ran = registry.reencrypt(key, path)
    assert ran.code == 0, ran.err
    assert f"{proof.decode()} is stored under it" in ran.err


def test_an_older_value_under_the_key_is_no_proof(registry: Registry) -> None:
    """The newest other one does not open: the API servers may have another key since."""
    registry.configure(provider("aesgcm", fresh=KEY_1), IDENTITY)
    good = registry.key("shop/gcm-good")
    registry.etcd.put(good, aesgcm(secret("gcm-good"), good.decode(), KEY_1, "fresh"))
    key = registry.put("shop/old", OLD)
    newer = registry.key("shop/gcm-newer")
    registry.etcd.put(newer, aesgcm(secret("gcm-newer"), newer.decode(), KEY_2, "fresh"))
    path = candidate_config(registry.folder)
    with registry.untouched():
        ran = registry.reencrypt(key, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="undeployed-write-key"
    )
    # Another resource says nothing.
    registry.etcd.delete(newer)
    elsewhere = registry.key("shop/x", "configmaps")
    registry.etcd.put(elsewhere, aesgcm(secret("x"), elsewhere.decode(), KEY_2, "fresh"))
    registry.etcd.put(good, aesgcm(secret("gcm-good"), good.decode(), KEY_1, "fresh"))
    assert registry.reencrypt(key, path).code == 0


def test_an_older_value_is_no_proof_where_the_target_is_the_newest(registry: Registry) -> None:
    """The stale file names key1; an API server has just written the target under key2."""
    key = registry.put("shop/old", OLD)
    path = candidate_config(registry.folder)
    with registry.untouched():
        ran = registry.reencrypt(key, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aescbc/v1/key1", hint="undeployed-write-key"
    )
    assert registry.reencrypt(key, path, "--accept-undeployed-write-key").code == 0


def _other_log(registry: Registry) -> None:
    registry.log = own_directory(registry.folder / "other") / "audit.jsonl"


@pytest.mark.parametrize("damaged", [False, True])
def test_what_another_log_says_we_wrote_is_no_proof(registry: Registry, damaged: bool) -> None:
    second = registry.put("shop/second", aescbc(secret("second"), KEY_2, "key2"))
    first = registry.put("shop/old", OLD)
    path = candidate_config(registry.folder)
    assert registry.reencrypt(first, path, "--accept-undeployed-write-key").code == 0
    _other_log(registry)
    if damaged:
        (backup,) = registry.backups.glob("*.json")
        backup.write_bytes(backup.read_bytes()[:-9])
    with registry.untouched():
        ran = registry.reencrypt(second, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aescbc/v1/key1", hint="undeployed-write-key"
    )
    good = registry.put("shop/good-0", aescbc(secret("good-0")))
    ran = registry.reencrypt(second, path)
    assert ran.code == 0, ran.err
    assert f"{good.decode()} is stored under it" in ran.err


def test_what_may_be_ours_does_not_uncover_an_older_proof(registry: Registry) -> None:
    """An API server may have written it since, under another key: only what is surely ours is passed over."""
    second = registry.put("shop/second", aescbc(secret("second"), KEY_2, "key2"))
    first = registry.put("shop/old", OLD)
    registry.put("shop/good-0", aescbc(secret("good-0")))
    path = candidate_config(registry.folder)
    assert registry.reencrypt(first, path).code == 0
    _other_log(registry)
    registry.put("shop/old", OLD)
    with registry.untouched():
        ran = registry.reencrypt(second, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aescbc/v1/key1", hint="undeployed-write-key"
    )


def test_own_log_speaks_for_its_backups(registry: Registry) -> None:
    """What it says that we wrote is passed over; what an API server wrote there since is a proof."""
    second = registry.put("shop/second", aescbc(secret("second"), KEY_2, "key2"))
    third = registry.put("shop/third", aescbc(secret("third"), KEY_2, "key2"))
    first = registry.put("shop/old", OLD)
    good = registry.put("shop/good-0", aescbc(secret("good-0")))
    path = candidate_config(registry.folder)
    assert registry.reencrypt(first, path).code == 0
    assert f"{good.decode()} is stored under it" in registry.reencrypt(second, path).err
    registry.put("shop/old", aescbc(secret("old")))
    assert f"{first.decode()} is stored under it" in registry.reencrypt(third, path).err


def test_a_key_of_the_same_name_and_other_bytes_is_no_proof(registry: Registry) -> None:
    """The newest value opens under a second key that is called fresh too: it is not the one that would write."""
    registry.configure(provider("aesgcm", fresh=KEY_1), provider("aesgcm", fresh=KEY_2), IDENTITY)
    other = registry.key("shop/gcm-other")
    registry.etcd.put(other, aesgcm(secret("gcm-other"), other.decode(), KEY_2, "fresh"))
    key = registry.put("shop/old", OLD)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="undeployed-write-key"
    )


def test_a_value_in_the_clear_is_no_proof(registry: Registry) -> None:
    registry.configure(provider("aesgcm", fresh=KEY_1), IDENTITY)
    registry.put("shop/plain", secret("plain"))
    key = registry.put("shop/old", OLD)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="undeployed-write-key"
    )
