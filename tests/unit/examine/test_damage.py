"""Damage that tells one thing from another, made to real values: flipped bits, wrong keys, cuts, other releases."""

from __future__ import annotations

import itertools

import pytest

from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.transformer import ResourceTransformers, Transformers, TransformFailed
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import Deletability, deletability_of
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import GroupResource, Outcome
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
)

SECRET_KEY = "/registry/secrets/shop/web"
CRD_KEY = "/registry/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
WIDGET_KEY = "/registry/example.com/widgets/shop/w-0"
APISERVICE_KEY = "/registry/apiregistration.k8s.io/apiservices/v1.x"
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


# What the bytes are then is said by what the decoder finds in them, and the key is right.


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


@pytest.mark.parametrize("config", [None, CBC, CBC_OR_PLAIN])
@pytest.mark.parametrize("value", [b"x", aescbc(b"x"), aescbc(b"{}")])
def test_strange_keys_among_the_allocators_are_never_decrypted(
    value: bytes, config: EncryptionConfiguration | None
) -> None:
    found = look("/registry/ranges/foo", value, config)
    assert (found.verdict.outcome, found.verdict.cause) == (Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN)
    assert found.verdict.message.startswith("no known type is stored under ranges")
    assert found.transformer != "aescbc/v1/key1" or not found.opened
