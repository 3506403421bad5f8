"""Only the newest value of a resource, written by an API server, shows which key API servers write with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etcdfix.commands.fix import run_fix
from etcdfix.copies.finder import parse_named
from etcdfix.encryption.encrypt import NotSealed, SealRefusal
from etcdfix.examine.one import Examiner
from etcdfix.remediation import present as present_module
from etcdfix.remediation.checks import sealing
from etcdfix.remediation.choice import FixRequest
from etcdfix.remediation.members import LeaseState
from tests.support.audit_logs import own_directory
from tests.support.change_runs import Ran, Registry, candidate_config
from tests.support.fixtures import Patch
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
from tests.support.remediation_ground import Yes

pytestmark = pytest.mark.etcd

OLD = aescbc(secret("old"), KEY_2, "key2")
ACCEPTED = ("--accept", "undeployed-write-key")


def fix(registry: Registry, *arguments: str, name: str = "shop/old", path: Path | None = None) -> Ran:
    path = path or candidate_config(registry.folder)
    return registry.put_back(registry.key(name), f"candidate:{path}", *arguments)


def unproven(registry: Registry, key: str = "aescbc/v1/key1", name: str = "shop/old") -> None:
    with registry.untouched():
        ran = fix(registry, name=name)
    registry.refused(
        ran, f"nothing shows that the API servers hold the key of {key}", hint="--accept undeployed-write-key"
    )


def gcm(registry: Registry, name: str, key: bytes = KEY_1, resource: str = "secrets") -> bytes:
    at = registry.key(f"shop/{name}", resource)
    registry.etcd.put(at, aesgcm(secret(name), at.decode(), key, "fresh"))
    return at


def test_proof_is_a_value_that_reads_under_the_very_key(registry: Registry) -> None:
    """aescbc key1 comes second now: what is stored under it is stale, and under aesgcm there is something broken."""
    registry.configure(provider("aesgcm", fresh=KEY_1), provider("aescbc", key1=KEY_1), IDENTITY)
    registry.put("shop/old", OLD)
    registry.put("shop/good-0", aescbc(secret("good-0")))
    unproven(registry, "aesgcm/v1/fresh")
    gcm(registry, "gcm-broken", KEY_2)
    unproven(registry, "aesgcm/v1/fresh")
    proof = gcm(registry, "gcm-good")
    ran = fix(registry)
    assert ran.code == 0, ran.err
    assert f"{proof.decode()} is stored under it" in ran.err


def _older(registry: Registry) -> None:
    gcm(registry, "gcm-good")
    gcm(registry, "gcm-newer", KEY_2)
    gcm(registry, "x", resource="configmaps")


def _same_name(registry: Registry) -> None:
    registry.configure(provider("aesgcm", fresh=KEY_1), provider("aesgcm", fresh=KEY_2), IDENTITY)
    gcm(registry, "gcm-other", KEY_2)


def _in_the_clear(registry: Registry) -> None:
    registry.put("shop/plain", secret("plain"))


def _only_ours(registry: Registry) -> None:
    for name in ("broken", "good-0", "good-1"):
        registry.etcd.delete(registry.key(f"shop/{name}"))
    registry.configure(provider("aescbc", key1=KEY_1), IDENTITY)
    assert fix(registry, *ACCEPTED).code == 0
    registry.configure(provider("aesgcm", fresh=KEY_1), IDENTITY)
    registry.put("shop/old", OLD)


@pytest.mark.parametrize("prepare", [_older, _same_name, _in_the_clear, _only_ours])
def test_what_is_no_proof(registry: Registry, prepare: Callable[[Registry], None]) -> None:
    registry.configure(provider("aesgcm", fresh=KEY_1), IDENTITY)
    registry.put("shop/old", OLD)
    prepare(registry)
    unproven(registry, "aesgcm/v1/fresh")


def _other_log(registry: Registry) -> None:
    registry.log = own_directory(registry.folder / "other") / "audit.jsonl"


@pytest.mark.parametrize("case", ["as it is", "its backup is damaged", "written again since"])
def test_what_another_log_says_we_wrote_is_no_proof(registry: Registry, case: str) -> None:
    """Only what is surely ours is passed over: an API server may have written it since, under another key."""
    registry.put("shop/second", aescbc(secret("second"), KEY_2, "key2"))
    registry.put("shop/old", OLD)
    assert fix(registry, *ACCEPTED).code == 0
    _other_log(registry)
    if case == "its backup is damaged":
        (backup,) = registry.backups.glob("*.json")
        backup.write_bytes(backup.read_bytes()[:-9])
    elif case == "written again since":
        registry.put("shop/old", OLD)
    unproven(registry, name="shop/second")
    good = registry.put("shop/good-0", aescbc(secret("good-0")))
    ran = fix(registry, name="shop/second")
    assert ran.code == 0, ran.err
    assert f"{good.decode()} is stored under it" in ran.err


def test_own_log_speaks_for_its_backups(registry: Registry) -> None:
    """What it says that we wrote is passed over; what an API server wrote there since is a proof."""
    for name in ("second", "third"):
        registry.put(f"shop/{name}", aescbc(secret(name), KEY_2, "key2"))
    first = registry.put("shop/old", OLD)
    good = registry.put("shop/good-0", aescbc(secret("good-0")))
    assert fix(registry).code == 0
    assert f"{good.decode()} is stored under it" in fix(registry, name="shop/second").err
    registry.put("shop/old", aescbc(secret("old")))
    assert f"{first.decode()} is stored under it" in fix(registry, name="shop/third").err


def test_what_an_open_intent_may_have_put_there_is_no_proof(registry: Registry) -> None:
    """It opens under the key; nobody knows whether it is ours."""
    registry.put("shop/old", OLD)
    good = registry.key("shop/good-0")
    source = parse_named(f"revision:{registry.mod_revision(good)}")
    registry.etcd.delete(good)

    def die(step: str) -> None:
        if step == "transaction: after answer":
            raise KeyboardInterrupt

    request = FixRequest(key=good, named=source, reason="r", record_paths=registry.places)
    with registry.cluster() as cluster, pytest.raises(KeyboardInterrupt):
        run_fix(cluster, request, Yes(), preview=lambda *_: None, step=die)
    assert registry.stored(good) is not None
    unproven(registry)


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
        ran = registry.put_back(key, f"candidate:{path}", *ACCEPTED)
    registry.refused(ran, "no readable CustomResourceDefinition claims", hint=" ")


@pytest.mark.parametrize("case", ["it does not read back", "its lease ran out", "its plugin is gone"])
def test_what_comes_in_between(registry: Registry, monkeypatch: Patch, case: str) -> None:
    registry.grant(registry.key("shop/old"), OLD)
    registry.put("shop/good-0", aescbc(secret("good-0")))
    words = {
        "it does not read back": "aescbc/v1/key1: what was written does not read back",
        "its lease ran out": "has expired",
        "its plugin is gone": "shop/old",
    }[case]
    if case == "it does not read back":
        refusal = NotSealed("aescbc/v1/key1", SealRefusal.NOT_READ_BACK)
        monkeypatch.setattr(sealing, "to_storage", lambda *_: refusal)
    elif case == "its lease ran out":
        gone = LeaseState(lease=7, alive=False, remaining_seconds=0)
        monkeypatch.setattr(present_module, "read_lease", lambda *_: gone)
    else:
        monkeypatch.setattr(Examiner, "plaintext", lambda *_: None)
    with registry.untouched():
        ran = fix(registry, *ACCEPTED)
    registry.refused(ran, words, hint=" ")
