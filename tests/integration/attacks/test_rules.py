"""Each flag lifts its own rule and no other; what no flag lifts stays refused; what was decided on stands on record."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

import etcdfix
from etcdfix.cli.options import CLUSTER_RULES, DELETION_RULES, REPLACING_RULES
from etcdfix.model.rules import Rule
from tests.support.attacks import (
    EVERY_FLAG,
    OTHER,
    TRUE,
    UID,
    WRONG,
    Attacked,
    config_map,
    declared,
    every_flag_but,
    node,
    seal,
    secret,
)
from tests.support.change_runs import candidate_config
from tests.support.kubernetes_api import KubernetesAPI
from tests.support.objects import IDENTITY, allocation, json_object, namespace_object, provider

pytestmark = [pytest.mark.etcd, pytest.mark.usefixtures("no_variables")]


def _cut_namespace(registry: Attacked) -> bytes:
    return registry.put("shop", namespace_object("shop")[:-9], resource="namespaces")


def _cut_in_kube_system(registry: Attacked) -> bytes:
    return registry.put("kube-system/token", secret("token")[:-9])


def _nonce(registry: Attacked) -> bytes:
    registry.secrets("aesgcm", ["before"])
    at = registry.key("shop/nonce")
    value = bytearray(seal("aesgcm", secret("nonce"), at))
    for offset in range(6):
        value[23 + offset] ^= 0x35
    registry.etcd.put(at, bytes(value))
    registry.secrets("aesgcm", ["later"])
    return at


def _newer(registry: Attacked) -> bytes:
    return registry.put("shop/newer", json_object("v1", "Sekret", "newer"))


def _many(registry: Attacked) -> bytes:
    for at in registry.secrets("aesgcm", [f"cut-{number}" for number in range(10)]):
        registry.etcd.put(at, (registry.stored(at) or b"")[:-40])
    return registry.key("shop/cut-0")


def _moved(registry: Attacked) -> bytes:
    home, copy = registry.key("shop/home"), registry.key("shop/copy")
    registry.etcd.put(copy, seal("aesgcm", secret("home"), home))
    registry.etcd.put(home, seal("aesgcm", secret("home", size=7), home))
    return copy


def _one_bit(registry: Attacked) -> bytes:
    (at,) = registry.secrets("aesgcm", ["bit"])
    stored = registry.stored(at) or b""
    registry.etcd.put(at, stored[:-40] + bytes([stored[-40] ^ 1]) + stored[-39:])
    return at


Prepare = Callable[[Attacked], bytes]
LIFTED: dict[str, tuple[Prepare, Rule]] = {
    "namespace": (_cut_namespace, Rule.CLUSTER_BREAKING),
    "kube-system": (_cut_in_kube_system, Rule.CLUSTER_BREAKING),
    "likely damage": (_nonce, Rule.UNPROVEN_DAMAGE),
    "newer": (_newer, Rule.NEWER_THAN_KNOWN),
    "mass damage": (_many, Rule.MASS_DAMAGE),
    "moved": (_moved, Rule.ONLY_COPY),
    "repairable": (_one_bit, Rule.ONLY_COPY),
}


@pytest.mark.parametrize("case", LIFTED)
def test_each_risk_lifts_its_own_rule_and_no_other(registry: Attacked, case: str) -> None:
    prepare, risk = LIFTED[case]
    at = prepare(registry)
    others = {*DELETION_RULES, *CLUSTER_RULES} - {Rule.UNCHECKED_MEMBER, risk}
    for flags in ((), every_flag_but(risk), [word for other in others for word in ("--accept", other.value)]):
        registry.refuses([at], *flags, accept=risk)
    with registry.nothing_changes():
        ran = registry.delete(at, "--accept", risk.value, "--dry-run")
    assert ran.code == 0, ran.err


def test_two_risks_need_two_words(registry: Attacked) -> None:
    """A value of kube-system that is likely damaged: each flag alone is not enough."""
    registry.secrets("aesgcm", ["before"])
    at = registry.key("kube-system/nonce")
    value = bytearray(seal("aesgcm", secret("nonce"), at))
    value[23:29] = b"\xff" * 6
    registry.etcd.put(at, bytes(value))
    registry.secrets("aesgcm", ["later"])
    registry.refuses([at], "--accept", "cluster-breaking", accept="unproven-damage")
    registry.refuses([at], "--accept", "unproven-damage", accept="cluster-breaking")
    both = ("--accept", "cluster-breaking", "--accept", "unproven-damage")
    assert registry.delete(at, *both, "--dry-run").code == 0


def _readable(registry: Attacked) -> bytes:
    return registry.secrets("aesgcm", ["web"])[0]


def _inconsistent(registry: Attacked) -> bytes:
    at = registry.key("shop/name")
    registry.etcd.put(at, seal("aesgcm", secret("another"), at))
    return at


def _wrong_key(registry: Attacked) -> bytes:
    return registry.secrets("aesgcm", ["web"], WRONG)[0]


def _other_prefix(registry: Attacked) -> bytes:
    at = registry.key("shop/web")
    registry.etcd.put(at, seal("aesgcm", secret("web"), "/registry/secrets/shop/web"))
    return at


def _allocator(registry: Attacked) -> bytes:
    damaged = allocation()[:-4] + b"\xff\xff\xff\xff"
    return registry.put("servicenodeports", damaged, resource="ranges")


NEVER: dict[str, tuple[Prepare, Rule, str]] = {
    "readable": (_readable, Rule.READABLE, ""),
    "inconsistent": (_inconsistent, Rule.INCONSISTENT, ""),
    "wrong key": (_wrong_key, Rule.CURABLE_BY_CONFIGURATION, "wrong-key"),
    "other prefix": (_other_prefix, Rule.CURABLE_BY_CONFIGURATION, "storage-prefix-changed"),
    "allocator": (_allocator, Rule.NEVER_DELETABLE, "allocator-damaged"),
    "gone": (lambda registry: registry.key("shop/nobody"), Rule.GONE, ""),
    "bookkeeping": (
        lambda registry: registry.put("10.0.0.1", b"k8s\0", resource="masterleases"), Rule.NOT_AN_OBJECT, ""
    ),
    "unknown owner": (
        lambda registry: registry.put("shop/thing", b"no object", resource="example.com/gadgets"),
        Rule.UNDETERMINED, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NEVER)
def test_no_flag_lifts_it(registry: Attacked, case: str) -> None:
    prepare, rule, cause = NEVER[case]
    at = prepare(registry)
    for flags in ((), EVERY_FLAG, (*EVERY_FLAG, "--dry-run")):
        registry.refuses([at], *flags, rule=rule, cause=cause)


@pytest.mark.parametrize("case", ["readable", "inconsistent", "wrong key", "other prefix"])
def test_a_fix_over_it_is_refused_too(registry: Attacked, case: str) -> None:
    """What may not be deleted may not be replaced either, by an earlier and readable revision of itself.

    Of what is bound to an etcd key that nobody knows, that revision shows that it is damaged.
    """
    prepare, *_ = NEVER[case]
    at = prepare(registry)
    name = at.decode().rpartition("/")[2]
    now = registry.stored(at)
    assert now is not None
    registry.etcd.put(at, seal("aesgcm", secret(name, size=3), at))
    earlier = registry.mod_revision(at)
    registry.etcd.put(at, now)
    with registry.nothing_changes():
        ran = registry.put_back(at, f"revision:{earlier}", *every_flag_but(of=REPLACING_RULES), "-o", "json")
    rule = {"readable": Rule.READABLE, "inconsistent": Rule.INCONSISTENT}
    cured = {Rule.CURABLE_BY_CONFIGURATION, Rule.PATTERN, Rule.NO_API_SERVER, Rule.UNPROVEN_DAMAGE}
    said = json.loads(ran.out)["refusal"]["rule"]
    assert (ran.code, said == rule.get(case, said)) == (4, True), said
    assert case in rule or said in cured, said


@pytest.mark.parametrize(
    "arguments", [("--expect-mod-revision", "1"), ("--expect-value-sha256", "sha256:" + "0" * 64)]
)
def test_no_flag_lifts_an_expectation(registry: Attacked, arguments: tuple[str, ...]) -> None:
    at = registry.put("shop/cut", secret("cut")[:-9])
    registry.refuses([at], *EVERY_FLAG, *arguments, rule="expectation-differs")


def test_no_flag_stands_for_a_configuration(registry: Attacked) -> None:
    at = registry.put("shop/cut", secret("cut")[:-9])
    registry.refuses(
        [at], *EVERY_FLAG, rule="no-configuration", hint="--encryption-config FILE", configured=False
    )


@pytest.mark.parametrize("kind", ["aescbc", "secretbox"])
def test_no_encryption_makes_nothing_deletable(registry: Attacked, kind: str) -> None:
    """Who says so wrongly reads healthy values like API servers without their key would: as failures."""
    keys = registry.secrets(kind, ["a", "b", "c"])
    envelopes = {
        "cut": b"k8s:enc:aescbc:",
        "unknown": b"k8s:enc:new:v9:key1:" + bytes(60),
        "near": b"k8r:enc:aescbc:v1:key1:",
    }
    keys += [registry.put(f"shop/{name}", value) for name, value in envelopes.items()]
    keys.append(registry.put("shop/plain", secret("plain")[:-9]))
    for more in ((), declared(f"{kind}/v1/key1")):
        flags = (*EVERY_FLAG, *more, "--no-encryption")
        registry.refuses(keys, *flags, rule="configuration-wrong", configured=False)


def test_declaration_of_the_wrong_rule(registry: Attacked) -> None:
    """The key of one rule is lost; a value of another rule, under a key of the same name, is damaged or healthy."""
    kind = "aesgcm"
    registry.rules(
        ("secrets", (provider(kind, key1=WRONG), IDENTITY)),
        ("configmaps", (provider(kind, key1=OTHER), IDENTITY)),
    )
    registry.secrets(kind, ["lost-0", "lost-1"], TRUE)
    healthy = registry.key("shop/settings", "configmaps")
    registry.etcd.put(healthy, seal(kind, config_map("settings"), healthy, OTHER))
    registry.refuses([healthy], *declared(f"{kind}/v1/key1"), rule="readable")
    cut = registry.key("shop/cut", "configmaps")
    registry.etcd.put(cut, seal(kind, config_map("cut"), cut, OTHER)[:-40])
    # Its key wrote it, and is there: nothing was lost.
    registry.refuses([cut], *declared(f"{kind}/v1/key1"), rule="declaration")
    assert registry.delete(cut, "--dry-run").code == 0


def test_declaration_is_no_answer_to_anything_else(registry: Attacked) -> None:
    registry.keyed("aesgcm", WRONG)
    (at,) = registry.secrets("aesgcm", ["web"])
    system = registry.key("kube-system/web")
    registry.etcd.put(system, seal("aesgcm", secret("web"), system))
    lost = declared("aesgcm/v1/key1")
    registry.refuses([system], *lost, "--accept", "ends-cached-reads", accept="cluster-breaking")
    registry.refuses([at], *lost[2:], accept="no-api-server")
    registry.refuses([at], *EVERY_FLAG, cause="wrong-key", hint="--declare-key-lost")
    registry.refuses(
        [at], *lost, "--accept", "ends-cached-reads", rule="not-confirmed", hint="--yes", yes=False
    )


def test_one_that_opens_contradicts_a_loss(registry: Attacked) -> None:
    registry.keyed("aesgcm", TRUE)
    registry.secrets("aesgcm", ["first"], TRUE)
    (at,) = registry.secrets("aesgcm", ["second"], WRONG)
    registry.secrets("aesgcm", ["third"], WRONG)
    lost = declared("aesgcm/v1/key1")
    assert (
        registry.delete(at, *lost, "--accept", "ends-cached-reads", "--dry-run").code == 0
    )  # the third fails too, and later than what opens
    registry.etcd.delete(registry.key("shop/third"))
    registry.refuses([at], *lost, rule="declaration")


@pytest.mark.parametrize("newest", ["another-key", "damaged", "another-rule"])
def test_a_candidate_without_a_proof_that_the_servers_hold_the_key(registry: Attacked, newest: str) -> None:
    """Nothing, or only something old, is stored under the write key that the configuration names."""
    registry.keyed("aesgcm", WRONG)
    registry.secrets("aesgcm", ["older"], WRONG)
    (at,) = registry.secrets("aesgcm", ["web"], TRUE, "old")
    last = registry.key("shop/newest")
    match newest:
        case "another-key":
            registry.etcd.put(last, seal("aesgcm", secret("newest"), last, TRUE))
        case "damaged":
            registry.etcd.put(last, seal("aesgcm", secret("newest"), last, WRONG)[:-40])
        case _:
            registry.etcd.delete(registry.key("shop/older"))
            registry.rules(
                ("secrets", (provider("aesgcm", key1=WRONG), IDENTITY)),
                ("configmaps", (provider("aesgcm", key1=WRONG), IDENTITY)),
            )
            other = registry.key("shop/newest", "configmaps")
            registry.etcd.put(other, seal("aesgcm", config_map("newest"), other, WRONG))
    candidate = candidate_config(registry.folder, provider("aesgcm", old=TRUE))
    with registry.nothing_changes():
        ran = registry.put_back(at, f"candidate:{candidate}", "--accept", "no-api-server")
    registry.refused(ran, hint="--accept undeployed-write-key")


def test_what_a_deletion_rested_on(registry: Attacked, api: KubernetesAPI) -> None:
    """The same in the records and in the backup."""
    registry.put("node-0", node("node-0", "v1.34.1"), resource="minions")
    (at, _) = registry.secrets("aesgcm", ["cut", "whole"])
    registry.etcd.put(at, (registry.stored(at) or b"")[:-40])
    kubeconfig = str(api.kubeconfig(registry.folder))
    ran = registry.delete(at, "--kubeconfig", kubeconfig, "--kubernetes-version", "1.34")
    assert ran.code == 0, ran.err
    content = registry.kept()[-1].content
    found = content.grounds
    assert found is not None
    assert content.tool == f"etcdfix/{etcdfix.__version__}"
    for event in registry.records():
        assert event.grounds == found
    config = hashlib.sha256(registry.config.read_bytes()).hexdigest()
    assert (found.configuration_sha256, found.no_encryption) == (f"sha256:{config}", False)
    assert (found.rule, found.release, found.release_source) == ("secrets", "1.34", "--kubernetes-version")
    assert [answer.server for answer in found.server_answers] == [api.url]
    assert (found.transformer, found.kms_key_id_sha256) == ("aesgcm/v1/key1", "")
    assert [word[:3] for word in found.key_fingerprints] == ["fp:"]
    (counts,) = found.counts
    assert (counts.opened, counts.failed, counts.damaged) == (1, 1, 1)
    assert any(line.startswith("look without tag or padding: right key") for line in found.peek)


def test_nothing_secret_is_on_record(registry: Attacked) -> None:
    (at,) = registry.secrets("aesgcm", ["cut"])
    registry.etcd.put(at, (registry.stored(at) or b"")[:-40])
    ran = registry.delete(at)
    assert ran.code == 0, ran.err
    for text in (
        ran.out.encode(),
        ran.err.encode(),
        registry.log.read_bytes(),
        registry.kept()[0].path.read_bytes(),
    ):
        for hidden in (TRUE, TRUE.hex().encode(), UID, b"never-to-be-shown"):
            assert hidden not in text
