"""Rewriting under today's key: what the command cannot bring about by itself."""

from __future__ import annotations

import pytest

from etcdfix.encryption.encrypt import NotSealed, SealRefusal
from etcdfix.errors import RefusedByRule
from etcdfix.examine import Examiner
from etcdfix.operations.change import sealing as sealing_module
from etcdfix.operations.change.candidate import Candidate, RestoreRequest
from etcdfix.operations.change.reencrypt import ReencryptRequest, run_reencrypt
from etcdfix.operations.change.restore import run_restore
from etcdfix.remediation.preflight import target as target_module
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster
from etcdfix.remediation.preflight.members import LeaseState
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Agreeing, Registry, candidate_config
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    aescbc,
    aesgcm,
    configuration_yaml,
    crd,
    provider,
    secret,
    widget,
)

pytestmark = pytest.mark.etcd

WITHOUT_PROOF = "nothing shows that the API servers hold the key of aesgcm/v1/fresh"
OLD = aescbc(secret("old"), KEY_2, "key2")


def test_value_that_does_not_read_back(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key = registry.put("shop/old", OLD)
    refusal = NotSealed("aescbc/v1/key1", SealRefusal.NOT_READ_BACK)
    monkeypatch.setattr(sealing_module, "to_storage", lambda *_: refusal)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(ran, "aescbc/v1/key1: what was written does not read back", hint="etcdfix get")


def test_lease_that_ran_out_meanwhile(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    key = registry.key("shop/old")
    registry.grant(key, OLD)
    registry.put("shop/good-0", aescbc(secret("good-0")))
    gone = LeaseState(lease=7, alive=False, remaining_seconds=0)
    monkeypatch.setattr(target_module, "read_lease", lambda *_: gone)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(ran, "the lease of", "has expired", hint="look again in a moment")


def test_proof_is_a_value_that_reads_under_the_very_key(registry: Registry) -> None:
    """aescbc key1 comes second now: what is stored under it is stale, and under aesgcm there is something broken."""
    registry.configure(provider("aesgcm", fresh=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY)
    key = registry.put("shop/old", OLD)
    path = candidate_config(registry.folder)
    broken = registry.key("shop/gcm-broken")
    for newest, value in (
        (registry.key("shop/good-0"), aescbc(secret("good-0"))),
        (broken, aesgcm(secret("gcm-broken"), broken.decode(), KEY_2, "fresh")),
    ):
        registry.etcd.put(newest, value)
        with registry.untouched():
            ran = registry.reencrypt(key, path)
        registry.refused(ran, WITHOUT_PROOF, hint="--accept undeployed-write-key")
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
    assert registry.reencrypt(key, path, "--accept", "undeployed-write-key").code == 0


def _other_log(registry: Registry) -> None:
    registry.log = own_directory(registry.folder / "other") / "audit.jsonl"


@pytest.mark.parametrize("damaged", [False, True])
def test_what_another_log_says_we_wrote_is_no_proof(registry: Registry, damaged: bool) -> None:
    second = registry.put("shop/second", aescbc(secret("second"), KEY_2, "key2"))
    first = registry.put("shop/old", OLD)
    path = candidate_config(registry.folder)
    assert registry.reencrypt(first, path, "--accept", "undeployed-write-key").code == 0
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
    key = registry.put("shop/old", OLD)
    other = registry.key("shop/gcm-other")
    registry.etcd.put(other, aesgcm(secret("gcm-other"), other.decode(), KEY_2, "fresh"))
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="undeployed-write-key"
    )


def test_a_value_in_the_clear_is_no_proof(registry: Registry) -> None:
    registry.configure(provider("aesgcm", fresh=KEY_1), IDENTITY)
    key = registry.put("shop/old", OLD)
    registry.put("shop/plain", secret("plain"))
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder))
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aesgcm/v1/fresh", hint="undeployed-write-key"
    )


@pytest.mark.parametrize(
    ("name", "resource", "value", "rule"),
    [
        ("10.0.0.1", "masterleases", b"k8s\x00", "not-an-object"),
        ("shop/web", "example.com/widgets", OLD, "undetermined"),  # no definition claims it
    ],
)
def test_what_is_not_proven_unreadable_is_refused_by_its_own_rule(
    registry: Registry, name: str, resource: str, value: bytes, rule: str
) -> None:
    request = ReencryptRequest(
        key=registry.put(name, value, resource), reason="r", record_paths=registry.places
    )
    with (
        registry.untouched(),
        registry.cluster() as cluster,
        pytest.raises(RefusedByRule, match="it is not proven") as caught,
    ):
        run_reencrypt(cluster, cluster.examiner, request, Agreeing(), preview=lambda _shown: None)
    assert caught.value.rule == rule


def test_candidate_that_opens_what_no_definition_claims(registry: Registry) -> None:
    """It reads the value, and not the definition: whether it is what belongs there, nobody can tell."""
    definitions = "customresourcedefinitions.apiextensions.k8s.io"
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY, resources=("widgets.example.com",))
    registry.put("widgets.example.com", crd(), resource="apiextensions.k8s.io/customresourcedefinitions")
    key = registry.put("shop/w-0", aescbc(widget(), KEY_2, "key2"), resource="example.com/widgets")
    path = registry.folder / "candidate.yaml"
    path.write_bytes(
        configuration_yaml(provider("aescbc", key2=KEY_2), resources=("widgets.example.com", definitions))
    )
    with registry.untouched():
        ran = registry.reencrypt(key, path, "--accept", "undeployed-write-key")
    registry.refused(
        ran, "is readable: parses; no readable CustomResourceDefinition claims", hint="find the configuration"
    )


def test_value_that_opens_once_and_not_again(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin may be gone by the time that the plaintext is taken out."""
    key = registry.put("shop/old", OLD)
    monkeypatch.setattr(Examiner, "plaintext", lambda *_: None)
    with registry.untouched():
        ran = registry.reencrypt(key, candidate_config(registry.folder), "--accept", "undeployed-write-key")
    registry.refused(ran, "under the candidate configuration", hint="find the configuration")


def test_nothing_but_what_we_wrote_is_no_proof(registry: Registry) -> None:
    for name in ("broken", "good-0", "good-1"):
        registry.etcd.delete(registry.key(f"shop/{name}"))
    key = registry.put("shop/old", OLD)
    ran = registry.reencrypt(key, candidate_config(registry.folder), "--accept", "undeployed-write-key")
    assert ran.code == 0, ran.err
    # The write key is changed, and the only value of the resource is ours.
    registry.configure(provider("aesgcm", fresh=KEY_2), IDENTITY)
    path = candidate_config(registry.folder, provider("aescbc", key1=KEY_1))
    with registry.untouched():
        ran = registry.reencrypt(key, path)
    registry.refused(ran, WITHOUT_PROOF, hint="undeployed-write-key")


def _put_back_and_die(cluster: Cluster, registry: Registry, key: bytes) -> None:
    """Restore what stands at a key over its absence, and never learn what became of it."""

    def die(step: str) -> None:
        if step == "transaction: after answer":
            raise KeyboardInterrupt

    stored = cluster.source.get(key)
    assert stored is not None
    registry.etcd.delete(key)
    request = RestoreRequest(
        candidate=Candidate(stored=stored, origin="elsewhere", cluster=None),
        reason="r",
        accepted=Acceptances(words=("unlisted-source",)),
        record_paths=registry.places,
    )
    with pytest.raises(KeyboardInterrupt):
        run_restore(cluster, request, Agreeing(), preview=lambda _shown: None, step=die)


def test_what_an_open_intent_may_have_put_there_is_no_proof(registry: Registry) -> None:
    """It opens under the key; nobody knows whether it is ours."""
    key = registry.put("shop/old", OLD)
    with registry.cluster() as cluster:
        _put_back_and_die(cluster, registry, registry.key("shop/good-0"))
    assert registry.stored(registry.key("shop/good-0")) is not None
    path = candidate_config(registry.folder)
    with registry.untouched():
        ran = registry.reencrypt(key, path)
    registry.refused(
        ran, "nothing shows that the API servers hold the key of aescbc/v1/key1", hint="undeployed-write-key"
    )
