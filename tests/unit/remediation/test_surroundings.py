"""The target among those like it: one pass over a source in memory."""

from __future__ import annotations

import pytest

from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.all import no_progress
from etcdfix.examine.maybe_newer import Similarity, similarity_of
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.remediation.surroundings import SameKeyEvidence, look_at_all
from tests.support.decoders import shared_decoder
from tests.support.encoders import kms_v2_body
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
    KMS_V2,
    TWO_RULES,
    aescbc,
    aesgcm,
    config_map,
    configuration,
    crd,
    json_object,
    provider,
    secret,
    widget,
)

SHORT = b"k8s:enc:aescbc:v1:key1:short"
GCM = configuration(provider("aesgcm", key1=KEY_1), IDENTITY)
X, Y = "/registry/secrets/shop/x", "/registry/secrets/shop/y"
ELSEWHERE = "/registry/configmaps/shop/y"
WIDGET = "/registry/example.com/widgets/shop/w-1"
CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"


def examiner(source: MemorySource, config: object = None, minor: int | None = None) -> Examiner:
    used = config or configuration(provider("aescbc", key1=KEY_1, key10=KEY_1), IDENTITY)
    transformers = Transformers.from_configuration(used, no_plugin)  # type: ignore[arg-type]
    release = f"1.{minor}" if minor else ""
    made = Examiner(StorageLayout(), transformers, shared_decoder(minor), assumed_release=release)
    made.learn_custom_resources(source)
    return made


CBOR = b"\xd9\xd9\xf7\xa3JapiVersionNexample.com/v1DkindFWidgetHmetadata\xa2DnameCw-2InamespaceDshop"

HOLDS = {
    "/elsewhere": b"not ours",
    "/registry/configmaps/shop/settings": config_map(),
    "/registry/configmaps/shop/torn": config_map()[:-3],
    "/registry/masterleases/10.0.0.1": b"x",
    "/registry/secrets/shop/good": aescbc(secret("good")),
    "/registry/secrets/shop/other": aescbc(secret("other"), name="key10"),
    "/registry/secrets/shop/short": SHORT,
    "/registry/secrets/shop/shorter": SHORT[:-1],
}


def look(
    key: str,
    holds: dict[str, bytes] | MemorySource = HOLDS,
    *,
    config: object = None,
    minor: int | None = None,
    before: StoredValue | None = None,
) -> SameKeyEvidence:
    """Look at everything, the target as it is there or as it was before."""
    source = holds if isinstance(holds, MemorySource) else MemorySource(holds)
    under_test = examiner(source, config, minor)
    target = before or source.get(key.encode())
    assert target is not None
    return look_at_all(source, under_test, under_test.examine(target), no_progress, see=lambda _found: None)


def test_only_what_was_written_under_the_same_key_counts() -> None:
    found = look("/registry/secrets/shop/short")
    ((name, counts),) = found.counts.items()
    assert (name.rule, name.transformer, name.key[:3]) == ("secrets", "aescbc/v1/key1", "fp:")
    assert (counts.opened, counts.failed, counts.damaged, counts.undetermined) == (1, 2, 2, 0)
    assert found.keys == 7
    assert found.target is not None
    assert found.target.stored.key == b"/registry/secrets/shop/short"
    assert found.similar.similarity is None
    # In the clear all values are alike, but bookkeeping is not.
    found = look("/registry/configmaps/shop/torn")
    ((name, counts),) = found.counts.items()
    assert (name, counts.opened, counts.failed) == (KeyName("", "identity", ""), 1, 1)


@pytest.mark.parametrize(
    "now",
    [
        None,
        stored("/registry/secrets/shop/short", b"k8s:enc:aescbc:v1:key1:changed"),
        stored("/registry/secrets/shop/short", aescbc(secret("short"))),
        # The same bytes, written again.
        stored("/registry/secrets/shop/short", SHORT, mod_revision=8),
    ],
)
def test_a_target_that_was_changed_meanwhile_is_not_met_again(now: StoredValue | None) -> None:
    others = [stored(key, value) for key, value in HOLDS.items() if not key.endswith("/short")]
    source = MemorySource(others if now is None else [*others, now])
    before = stored("/registry/secrets/shop/short", SHORT)
    assert look("", source, before=before).target is None


def test_everything_is_seen_in_the_same_pass() -> None:
    source = MemorySource(HOLDS)
    under_test = examiner(source)
    target = source.get(b"/registry/secrets/shop/short")
    assert target is not None
    seen: list[str] = []
    found = look_at_all(
        source, under_test, under_test.examine(target), no_progress,
        see=lambda found: seen.append(found.stored.key.decode()),
    )  # fmt: skip
    below = {key for key in HOLDS if key.startswith("/registry/")}
    assert sorted(seen) == sorted(below)
    assert found.keys == len(seen)


def test_the_target_is_searched_for_what_damaged_it_even_if_it_is_alone() -> None:
    """Nothing else opens under its key: a scan would not take the time."""
    key = "/registry/secrets/shop/web"
    value = aesgcm(secret(), key)
    found = look(key, {key: value[:-1] + bytes([value[-1] ^ 1])}, config=GCM)
    assert found.target is not None
    assert (found.target.verdict.cause, found.target.verdict.damage) == (
        Cause.CIPHERTEXT_DAMAGED,
        Damage.PROVEN,
    )


def test_a_value_of_another_prefix_is_known_for_one_though_its_end_is_not_as_written() -> None:
    key, home = "/registry/new/secrets/shop/web", "/registry/secrets/shop/web"
    value = aesgcm(json_object("v1", "Secret", "web"), home)
    source = MemorySource({key: value})
    transformers = Transformers.from_configuration(GCM, no_plugin)
    under_test = Examiner(StorageLayout("/registry/new"), transformers, shared_decoder(None))
    target = source.get(key.encode())
    assert target is not None
    found = look_at_all(source, under_test, under_test.examine(target), no_progress, see=lambda _found: None)
    assert found.target is not None
    assert found.target.verdict.cause is Cause.STORAGE_PREFIX_CHANGED


def test_two_rules_with_one_key_name_are_counted_apart() -> None:
    """Thirteen ConfigMaps that open under another key1 once outvoted twelve Secrets under a wrong one."""
    from etcdfix.encryption.config import parse_configuration

    config = parse_configuration(TWO_RULES, path="test")
    holds = {}
    for number in range(13):
        key = f"/registry/configmaps/shop/{number}"
        holds[key] = aesgcm(config_map(str(number)), key, KEY_2)
    for number in range(12):
        key = f"/registry/secrets/shop/{number}"
        holds[key] = aesgcm(secret(str(number)), key, b"0" * 16)
    found = look("/registry/secrets/shop/3", holds, config=config)
    ((name, counts),) = found.counts.items()
    assert name.rule == "secrets"
    assert (counts.opened, counts.failed, counts.damaged) == (0, 12, 0)
    assert not found.transformer_opens


@pytest.mark.parametrize("good", [False, True])
def test_what_opens_and_is_no_object_speaks_neither_for_its_transformer_nor_against_it(good: bool) -> None:
    holds = {
        "/registry/secrets/shop/short": SHORT,
        "/registry/secrets/shop/torn": aescbc(secret("torn")[:-9]),
    }
    holds |= {"/registry/secrets/shop/good": aescbc(secret("good"))} if good else {}
    assert look("/registry/secrets/shop/short", holds).transformer_opens is good


def test_what_could_not_be_asked_does_not_open() -> None:
    value = b"k8s:enc:kms:v2:prov:" + kms_v2_body(bytes(60), key_id="k1", dek_source=b"1")
    found = look(X, {X: value, Y: value}, config=configuration(KMS_V2, IDENTITY))
    assert found.target is not None
    assert found.target.verdict.outcome is Outcome.UNDETERMINED
    assert not found.transformer_opens


# What values have in common that a newer cluster may have written.


def kind(name: str, kind: str = "Sekret", api_version: str = "v1") -> bytes:
    return json_object(api_version, kind, name)


@pytest.mark.parametrize(
    ("key", "value", "similarity"),
    [
        ("/registry/secrets/shop/x", b"k8s:enc:kms:v3:prov:x", Similarity("", Cause.UNKNOWN_ENVELOPE, "kms/v3")),
        ("/registry/secrets/shop/x", b"k8s:enc:chacha20:v1:k:x", Similarity("", Cause.UNKNOWN_ENVELOPE, "chacha20/v1")),
        ("/registry/secrets/shop/x", b"k8s:enc:", Similarity("", Cause.UNKNOWN_ENVELOPE, "/")),
        ("/registry/secrets/shop/x", b"\x9dnew encoding", Similarity("secrets", Cause.UNKNOWN_ENCODING, "9d6e6577")),
        ("/registry/secrets/shop/x", b"k8s\x01" + b"\xff" * 40, Similarity("secrets", Cause.MAGIC_DAMAGED, "6b387301")),
        ("/registry/secrets/shop/x", kind("x"), Similarity("secrets", Cause.KIND_NOT_REGISTERED, "v1 Sekret")),
        ("/registry/secrets/shop/x", config_map("x"), Similarity("secrets", Cause.WRONG_KIND_FOR_KEY, "v1 ConfigMap")),
        (WIDGET, b"\xd9\xd9\xf7\xa1", Similarity("widgets.example.com", Cause.CBOR_DAMAGED, "")),
        (
            WIDGET,
            json_object("other.com/v1", "Widget", "w-1"),
            Similarity("widgets.example.com", Cause.WRONG_KIND_FOR_KEY, "other.com/v1 Widget"),
        ),
        # The definition alone can cure that.
        (WIDGET, json_object("example.com/v9", "Widget", "w-1"), None),
        ("/registry/secrets/shop/x", secret("x"), None),
        ("/registry/secrets/shop/x", secret("x")[:-9], None),
        ("/registry/secrets/shop/x", SHORT, None),
    ],
)  # fmt: skip
def test_likeness(key: str, value: bytes, similarity: Similarity | None) -> None:
    under_test = examiner(MemorySource({CRD_KEY: crd()}))
    assert similarity_of(under_test.examine(stored(key, value)), under_test) == similarity


@pytest.mark.parametrize(
    ("holds", "failed", "read"),
    [
        ({X: kind("x")}, 1, 0),
        ({X: kind("x"), Y: kind("y")}, 2, 0),
        ({X: kind("x"), Y: kind("y", api_version="v2")}, 1, 0),
        ({X: kind("x"), ELSEWHERE: kind("y")}, 1, 0),
        # Another kind that reads says nothing of this one.
        ({X: kind("x"), Y: secret("y")}, 1, 0),
        ({X: b"k8s:enc:kms:v3:p:x", ELSEWHERE: b"k8s:enc:kms:v3:q:y"}, 2, 0),
        ({X: b"k8s:enc:kms:v3:p:x", Y: b"k8s:enc:kms:v4:p:y"}, 1, 0),
        ({X: b"\x9dnew", Y: b"\x9dnew too"}, 2, 0),
        ({X: b"\x9dnew", Y: secret("y")}, 1, 0),
    ],
)
def test_likes_are_counted(holds: dict[str, bytes], failed: int, read: int) -> None:
    found = look(X, holds)
    assert (found.similar.failed, found.similar.read) == (failed, read)


def test_cbor_behind_a_tag_that_does_not_fit_is_held_against_cbor() -> None:
    """What reads in another encoding says nothing of the one that the tool may be too old for."""
    place = "/registry/example.com/widgets/shop/"
    config = configuration(provider("aesgcm", key1=KEY_1), IDENTITY, resources=("widgets.example.com",))
    # One breaks at its end, and one in the middle.
    broken = {"w-1": CBOR[:-9], "w-4": CBOR.replace(b"DkindF", b"Dkind\xff")}
    damaged = {f"{place}{name}": _tag_off(aesgcm(text, f"{place}{name}")) for name, text in broken.items()}
    holds = {CRD_KEY: crd(), f"{place}w-3": widget("w-3"), **damaged}
    found = look(f"{place}w-1", holds, config=config)
    assert found.similar.similarity == Similarity("widgets.example.com", Cause.CIPHERTEXT_DAMAGED, "")
    assert (found.similar.failed, found.similar.read) == (2, 0)
    found = look(f"{place}w-1", holds | {f"{place}w-2": CBOR}, config=config)
    assert (found.similar.failed, found.similar.read) == (2, 1)


def _tag_off(value: bytes) -> bytes:
    return value[:-1] + bytes([value[-1] ^ 0xFF])


def test_what_does_not_convert_is_held_against_its_own_version() -> None:
    deployments = "/registry/deployments/shop/"
    old = "apps/v1beta2"
    rollback = b'"metadata": {"annotations": {"deprecated.deployment.rollback.to": "not a number"}, '
    holds = {
        f"{deployments}{name}": json_object(old, "Deployment", name).replace(b'"metadata": {', rollback)
        for name in "ab"
    }
    holds[f"{deployments}c"] = json_object("apps/v1", "Deployment", "c")
    found = look(f"{deployments}a", holds)
    assert found.similar.similarity == Similarity(
        "deployments.apps", Cause.CONVERSION_FAILED, f"{old} Deployment"
    )
    assert (found.similar.failed, found.similar.read) == (2, 0)
    holds[f"{deployments}d"] = json_object(old, "Deployment", "d")
    assert look(f"{deployments}a", holds).similar.read == 1
    holds[f"{deployments}b"] = json_object("apps/v1", "Deployment", "b").replace(b'"metadata": {', rollback)
    assert look(f"{deployments}a", holds).similar.failed == 1


def test_what_is_left_that_may_not_be_read() -> None:
    holds = HOLDS | {
        "/registry/configmaps/shop/empty": b"",
        # Served under a name that is not its own: a LIST does not fail for it.
        "/registry/configmaps/shop/misplaced": config_map("another"),
        "/registry/strangers/shop/x": b"\x01",
    }
    found = look("/registry/secrets/shop/short", holds)
    assert found.unread == {"configmaps": 2, "secrets": 1, "strangers": 1}
