"""Damage that tells one thing from another, made to real values: flipped bits, wrong keys, cuts, other releases."""

from __future__ import annotations

import itertools
import random

import pytest

from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import ResourceTransformers, Transformers, TransformFailed
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of, risks_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Confidence, GroupResource, Outcome
from etcdfix.model.rules import Rule
from etcdfix.model.storagekey import StorageLayout
from tests.support.decoders import shared_decoder
from tests.support.encoders import aescbc_body
from tests.support.memory_source import MemorySource, stored
from tests.support.objects import (
    IDENTITY,
    KEY_1,
    KEY_2,
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
from tests.support.thorough import some

SECRET_KEY = "/registry/secrets/shop/web"
CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
WIDGET_KEY = "/registry/example.com/widgets/shop/w-0"
APISERVICE_KEY = "/registry/apiregistration.k8s.io/apiservices/v1.x"
# A key and its value for each storage codec: protobuf, custom resource, JSON and YAML of a built-in type.
OBJECTS = {SECRET_KEY: secret(), WIDGET_KEY: widget(), CRD_KEY: crd()}
HPA_KEY = "/registry/horizontalpodautoscalers/shop/web"
HPA_V2 = json_object("autoscaling/v2", "HorizontalPodAutoscaler", "web")
EVERYTHING = ("*.*",)
CBC = configuration(provider("aescbc", key1=KEY_1), resources=EVERYTHING)
CBC_OR_PLAIN = configuration(provider("aescbc", key1=KEY_1), IDENTITY, resources=EVERYTHING)
GCM = configuration(provider("aesgcm", key1=KEY_1), resources=EVERYTHING)
BLOCK = 16
HEAD = len(aescbc(b"")) - 2 * BLOCK  # k8s:enc:aescbc:v1:key1: stands before the IV and the one padding block


def look(
    key: str, value: bytes, config: EncryptionConfiguration | None = None, *, minor: int | None = 36
) -> Examination:
    transformers = Transformers.from_configuration(config) if config is not None else None
    release = f"1.{minor}" if minor else ""
    examiner = Examiner(StorageLayout(), transformers, shared_decoder(minor), assumed_release=release)
    examiner.learn_custom_resources(MemorySource({CRD_KEY: crd() if config is None else aescbc(crd())}))
    if config is GCM:
        examiner.learn_custom_resources(MemorySource({CRD_KEY: aesgcm(crd(), CRD_KEY)}))
    return examiner.examine(stored(key, value))


def flipped(value: bytes, *bits: int) -> bytes:
    data = bytearray(value)
    for bit in bits:
        data[bit // 8] ^= 1 << bit % 8
    return bytes(data)


ONE_BIT: list[tuple[int, ...]] = [(bit,) for bit in range(64)]
SOME_BITS = [tuple(random.Random(n).sample(range(64), 2 + n % 2)) for n in range(16)]


@pytest.mark.parametrize("bits", ONE_BIT + SOME_BITS)
@pytest.mark.parametrize("key", OBJECTS)
def test_a_damaged_envelope_prefix_is_recognised_in_every_stack(key: str, bits: tuple[int, ...]) -> None:
    value = flipped(aescbc(OBJECTS[key]), *bits)
    for config, outcome in (
        (CBC, Outcome.DECRYPT_FAILURE),
        (CBC_OR_PLAIN, Outcome.DECODE_FAILURE),
        (None, Outcome.DECODE_FAILURE),
    ):
        found = look(key, value, config)
        assert (found.verdict.outcome, found.verdict.cause) == (outcome, Cause.ENVELOPE_DAMAGED)
        assert found.verdict.confidence is Confidence.LIKELY
        assert deletability_of(found) is Deletability.NEVER


@pytest.mark.parametrize("plaintext", [b"\x9d\x01" * 30, b"junk" * 20])
def test_junk_below_an_intact_envelope_does_not_accuse_the_envelope(plaintext: bytes) -> None:
    verdict = look(SECRET_KEY, aesgcm(plaintext, SECRET_KEY), GCM).verdict
    assert verdict.outcome is Outcome.DECODE_FAILURE
    assert verdict.cause in {Cause.UNKNOWN_ENCODING, Cause.JSON_DAMAGED}


def test_padding_that_fits_by_chance_under_an_earlier_key_of_the_name_proves_nothing() -> None:
    """The API server looks no further than the first key whose padding fits; another one of that name opens it."""
    twice = (
        provider("aescbc", key1=KEY_2)["aescbc"]["keys"] + provider("aescbc", key1=KEY_1)["aescbc"]["keys"]
    )
    both = configuration({"aescbc": {"keys": twice}}, resources=("secrets",))
    values = (
        b"k8s:enc:aescbc:v1:key1:" + aescbc_body(secret(), KEY_1, n.to_bytes(BLOCK))
        for n in itertools.count()
    )
    first = Transformers.from_configuration(configuration(provider("aescbc", key1=KEY_2)))
    rule = first.for_resource(GroupResource("", "secrets"))
    found = look(SECRET_KEY, next(value for value in values if opens(rule, value)), both)
    assert (found.verdict.outcome, found.verdict.cause) == (Outcome.DECODE_FAILURE, Cause.KEY_RENAMED)
    assert deletability_of(found) is Deletability.CURABLE


def opens(rule: ResourceTransformers, value: bytes) -> bool:
    try:
        rule.from_storage(value, SECRET_KEY.encode())
    except TransformFailed:
        return False
    return True


def test_values_of_another_key_of_the_name_are_no_neighbours() -> None:
    """The key that wrote the value is known, and it opened nothing."""
    twice = (
        provider("aesgcm", key1=KEY_2)["aesgcm"]["keys"] + provider("aesgcm", key1=KEY_1)["aesgcm"]["keys"]
    )
    for neighbours, cause in ((KEY_2, Cause.ASSOCIATED_DATA_UNKNOWN), (KEY_1, Cause.CIPHERTEXT_DAMAGED)):
        both = configuration({"aesgcm": {"keys": twice}}, resources=("secrets",))
        examiner = Examiner(StorageLayout(), Transformers.from_configuration(both), shared_decoder(36))
        for revision in (3, 8, 9):
            key = f"/registry/secrets/shop/at-{revision}"
            value = aesgcm(secret(f"at-{revision}"), key, neighbours)
            assert examiner.examine(stored(key, value, mod_revision=revision)).opened
        value = aesgcm(secret(), "/elsewhere", KEY_1)
        found = examiner.examine(stored(SECRET_KEY, value, mod_revision=5))
        assert (found.verdict.outcome, found.verdict.cause) == (Outcome.DECRYPT_FAILURE, cause)


@pytest.mark.parametrize("key", OBJECTS)
def test_a_lost_iv_garbles_the_first_block_in_every_stack(key: str) -> None:
    value = aescbc(OBJECTS[key])
    found = look(key, value[:HEAD] + b"\x91" * BLOCK + value[HEAD + BLOCK :], CBC)
    assert (found.verdict.outcome, found.verdict.cause) == (Outcome.DECODE_FAILURE, Cause.IV_DAMAGED)
    assert found.verdict.confidence is Confidence.LIKELY
    assert deletability_of(found) is Deletability.DELETABLE


# What the bytes are then is said by what the decoder finds in them, and the key is right.
BROKEN_BY_A_BIT = {
    Cause.IV_DAMAGED,
    Cause.PROTOBUF_DAMAGED,
    Cause.JSON_DAMAGED,
    Cause.KIND_MISSING,
    Cause.KIND_NOT_REGISTERED,
    Cause.EMPTY_OBJECT,
    Cause.IDENTITY_MISMATCH,
}


@pytest.mark.parametrize("block", range(4))
@pytest.mark.parametrize("key", OBJECTS)
def test_no_flipped_bit_under_aescbc_is_called_a_wrong_key(key: str, block: int) -> None:
    value = aescbc(OBJECTS[key])
    for bit in some(range(8 * BLOCK), of=4, turn=block + len(key)):
        found = look(key, flipped(value, (HEAD + block * BLOCK) * 8 + bit), CBC)
        verdict = found.verdict
        if (
            verdict.cause is Cause.MAGIC_DAMAGED
        ):  # one bit off, and the object is whole: a newer magic looks the same
            assert (block, bit < 32) == (0, True)
            assert set(risks_of(found)) == {Rule.ONLY_COPY, Rule.NEWER_THAN_KNOWN}
            continue
        assert verdict.cause in BROKEN_BY_A_BIT | {None}
        # The bit of the IV that was flipped is flipped in the first block, and nowhere else.
        assert verdict.cause is not Cause.IV_DAMAGED or block < 2
        # A magic that is one bit off may be a newer one, before a whole object.
        magic = key == SECRET_KEY and block == 0 and bit < 32
        confidence = Confidence.POSSIBLE if magic else Confidence.LIKELY
        assert verdict.cause is not Cause.IV_DAMAGED or verdict.confidence is confidence
        assert (Rule.ONLY_COPY in risks_of(found)) == magic
        if verdict.outcome is Outcome.DECODE_FAILURE:
            assert deletability_of(found) is Deletability.DELETABLE
            # Another header looks like a first block that begins as nothing that is known; one word lets it go.
            another_start = verdict.cause is Cause.IV_DAMAGED and (block == 1 or bit < 16)
            newer = magic or another_start or verdict.cause is Cause.KIND_NOT_REGISTERED
            # Where a tag is hit, nothing comes out but a field that nobody knows.
            if verdict.cause is not Cause.EMPTY_OBJECT:
                assert (Rule.NEWER_THAN_KNOWN in risks_of(found)) == newer


def test_under_aescbc_a_version_that_nobody_knows_may_be_newer_however_near_it_is_to_a_known_one() -> None:
    """One bit lies between v2 and a version to come."""
    hpa = json_object("autoscaling/v3", "HorizontalPodAutoscaler", "web")
    for value in (hpa, json_object("v1", "Sebret", "web")):
        key = HPA_KEY if value is hpa else SECRET_KEY
        found = look(key, aescbc(value), CBC)
        assert found.verdict.cause in {Cause.KIND_NOT_REGISTERED, Cause.WRONG_KEY}
        assert risks_of(found) or found.verdict.damage is Damage.NONE
    known_later = look(HPA_KEY, aescbc(HPA_V2), CBC, minor=20)
    assert known_later.verdict.cause is Cause.KIND_NOT_REGISTERED
    assert risks_of(known_later) == (Rule.NEWER_THAN_KNOWN,)


@pytest.mark.parametrize("minor", [17, 36, None])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        (APISERVICE_KEY, secret("v1.x", "")),
        (APISERVICE_KEY, json_object("v1", "Secret", "v1.x", "")),
        (CRD_KEY, json_object("v1", "Pod", "widgets.example.com", "")),
        (APISERVICE_KEY, crd()),
        (SECRET_KEY, crd()),
        (SECRET_KEY, json_object("apiregistration.k8s.io/v1", "APIService", "web", "")),
        (SECRET_KEY, config_map("web")),
    ],
)
def test_a_kind_of_another_api_server_is_the_wrong_kind(key: str, value: bytes, minor: int | None) -> None:
    verdict = look(key, value, minor=minor).verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.DECODE_FAILURE, Cause.WRONG_KIND_FOR_KEY)


@pytest.mark.parametrize("number", [b"1e9999", b"-4711471147114711e999"])
@pytest.mark.parametrize(
    ("key", "start"),
    [
        (WIDGET_KEY, b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w-0"},"x":'),
        (SECRET_KEY, b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"shop","generation":'),
    ],
)  # fmt: skip
def test_numbers_are_withheld(key: str, start: bytes, number: bytes) -> None:
    verdict = look(key, start + number + b"}" * (start.count(b"{") - start.count(b"}"))).verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.DECODE_FAILURE, Cause.JSON_DAMAGED)
    assert f"number <{len(number)} bytes withheld>" in verdict.upstream_message
    assert number.decode() not in repr(verdict)


def test_a_kind_of_any_length_is_echoed_in_part() -> None:
    for key, version in ((SECRET_KEY, "v1"), (WIDGET_KEY, "example.com/v1")):
        verdict = look(key, json_object(version, "K" * 200_000, "web")).verdict
        assert verdict.outcome in {Outcome.DECODE_FAILURE, Outcome.INCONSISTENT}
        assert len(verdict.message) < 5000
        assert len(verdict.upstream_message) < 5000
        assert all(len(evidence.detail) < 5000 for evidence in verdict.evidence)


@pytest.mark.parametrize("cut", range(len(b"k8s:enc:aesgcm:v1:"), len(b"k8s:enc:aesgcm:v1:key1:")))
def test_a_value_that_ends_inside_its_envelope_is_cut(cut: int) -> None:
    verdict = look(SECRET_KEY, aesgcm(secret(), SECRET_KEY)[:cut], GCM).verdict
    assert (verdict.outcome, verdict.cause) == (Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED)
    assert verdict.confidence is Confidence.CERTAIN


@pytest.mark.parametrize("config", [None, CBC, CBC_OR_PLAIN])
@pytest.mark.parametrize("value", [b"x", aescbc(b"x"), aescbc(b"{}")])
def test_strange_keys_among_the_allocators_are_never_decrypted(
    value: bytes, config: EncryptionConfiguration | None
) -> None:
    found = look("/registry/ranges/foo", value, config)
    assert (found.verdict.outcome, found.verdict.cause) == (Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN)
    assert found.verdict.message.startswith("no known type is stored under ranges")
    assert found.transformer != "aescbc/v1/key1" or not found.opened
