"""Reading in the order that the API server has, and writing as it would, checked by the encoders of the tests."""

from __future__ import annotations

import base64
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etcdfix.encryption import encrypt
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.encryption.keyring import fingerprint
from etcdfix.encryption.kms.envelopes import Failure, KMSPlugin
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import ResourceTransformers, Transformers, TransformFailed
from etcdfix.model.model import Attempt, FailureReason, GroupResource, Plaintext
from etcdfix.model.providers import ProviderType
from tests.support import encoders
from tests.support.encoders import NONCE_SIZES, local_body
from tests.support.fixtures import Patch
from tests.support.played_plugins import OneAnswer

ETCD_KEY = b"/registry/secrets/default/s1"
SECRETS = GroupResource("", "secrets")
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
KEY_ID = "key-id-1"
NONCE12, NONCE16, NONCE24 = b"n" * 12, b"n" * 16, b"n" * 24
PLAIN = b"k8s\x00plaintext"
FP_ONE, FP_TWO = fingerprint(ONE), fingerprint(TWO)


def keyed(provider: str, *keys: tuple[str, bytes]) -> str:
    listed = ", ".join(f'{{name: "{name}", secret: {base64.b64encode(key).decode()}}}' for name, key in keys)
    return f"{{{provider}: {{keys: [{listed}]}}}}"


def kms(name: str, version: str = "v2") -> str:
    return f"{{kms: {{apiVersion: {version}, name: '{name}', endpoint: 'unix:///run/{name}.sock'}}}}"


IDENTITY = "{identity: {}}"


def transformers(*rules: tuple[str, list[str]], plugins: dict[str, KMSPlugin] | None = None) -> Transformers:
    text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n"
    for resources, providers in rules:
        text += f"- resources: [{resources}]\n  providers: [{', '.join(providers)}]\n"

    def plugin_for(provider: KMSProvider) -> KMSPlugin | None:
        return (plugins or {}).get(provider.name)

    return Transformers.from_configuration(parse_configuration(text.encode(), path="test"), plugin_for)


def for_secrets(*providers: str, plugins: dict[str, KMSPlugin] | None = None) -> ResourceTransformers:
    return transformers(("secrets", list(providers)), plugins=plugins).for_resource(SECRETS)


def opened(reader: ResourceTransformers, data: bytes, etcd_key: bytes = ETCD_KEY) -> Plaintext:
    return reader.from_storage(data, etcd_key)


def names(reader: ResourceTransformers) -> list[tuple[str, str]]:
    return [(key.transformer, key.key_fingerprint) for key in reader.keys]


def failure(reader: ResourceTransformers, data: bytes, etcd_key: bytes = ETCD_KEY) -> TransformFailed:
    with pytest.raises(TransformFailed) as caught:
        reader.from_storage(data, etcd_key)
    return caught.value


def gcm(name: str, key: bytes, etcd_key: bytes = ETCD_KEY) -> bytes:
    return f"k8s:enc:aesgcm:v1:{name}:".encode() + encoders.aesgcm_body(PLAIN, key, NONCE12, etcd_key)


def cbc(name: str, key: bytes) -> bytes:
    return f"k8s:enc:aescbc:v1:{name}:".encode() + encoders.aescbc_body(PLAIN, key, NONCE16)


def box(name: str, key: bytes) -> bytes:
    return f"k8s:enc:secretbox:v1:{name}:".encode() + encoders.secretbox_body(PLAIN, key, NONCE24)


GCM_ONE, GCM_TWO = keyed("aesgcm", ("k", ONE)), keyed("aesgcm", ("k", TWO))
CBC_ONE, BOX_ONE = keyed("aescbc", ("k", ONE)), keyed("secretbox", ("k", ONE))


NO_PREFIX = "no matching prefix found"
NO_AES_KEY = "no matching key was found for the provided AES transformer"
NO_BOX_KEY = "no matching key was found for the provided Secretbox transformer"
NOT_AUTHENTIC = "cipher: message authentication failed"


NO_BLOCKS = "the stored data is not a multiple of the block size"
NO_KEY = FailureReason.NO_KEY_MATCHED


def tried(reason: FailureReason, error: str, transformer: str, key: str = "") -> Attempt:
    return Attempt(reason, (error,), transformer=transformer, key_fingerprint=key)


UNDER_TWO = tried(FailureReason.AUTHENTICATION_FAILED, NOT_AUTHENTIC, "aesgcm/v1/k", FP_TWO)


@pytest.mark.parametrize(
    ("providers", "data", "message", "attempts"),
    [
        ([CBC_ONE], gcm("k", ONE), NO_PREFIX, []),
        ([CBC_ONE], PLAIN, NO_PREFIX, []),
        ([IDENTITY], gcm("k", ONE), NO_PREFIX, []),
        ([CBC_ONE, IDENTITY], b"k8s:enc:rot13:v1:k:x", NO_PREFIX, []),
        ([CBC_ONE], b"k8s:enc:aescbc:v2:k:x", NO_PREFIX, []),
        ([kms("p")], b"k8s:enc:kms:v2:q:x", NO_PREFIX, []),
        (
            [keyed("aesgcm", ("l", TWO)), IDENTITY], gcm("k", ONE), NO_AES_KEY,
            [tried(NO_KEY, NO_AES_KEY, "aesgcm/v1")],
        ),
        (
            [keyed("aescbc", ("l", TWO))], b"k8s:enc:aescbc:v1:", NO_AES_KEY,
            [tried(NO_KEY, NO_AES_KEY, "aescbc/v1")],
        ),
        (
            [keyed("secretbox", ("l", TWO))], box("k", ONE), NO_BOX_KEY,
            [tried(NO_KEY, NO_BOX_KEY, "secretbox/v1")],
        ),
        ([GCM_TWO], gcm("k", ONE), NOT_AUTHENTIC, [UNDER_TWO]),
        # The same message twice is said once, without brackets.
        ([keyed("aesgcm", ("k", TWO), ("k", TWO)), GCM_TWO], gcm("k", ONE), NOT_AUTHENTIC, [UNDER_TWO] * 3),
        # Different ones stand in brackets, across both levels.
        (
            [keyed("aesgcm", ("l", TWO)), GCM_TWO], gcm("k", ONE), f"[{NO_AES_KEY}, {NOT_AUTHENTIC}]",
            [tried(NO_KEY, NO_AES_KEY, "aesgcm/v1"), UNDER_TWO],
        ),
        (
            [CBC_ONE],
            cbc("k", ONE)[:-1],
            NO_BLOCKS,
            [tried(FailureReason.NOT_BLOCK_MULTIPLE, NO_BLOCKS, "aescbc/v1/k", FP_ONE)],
        ),
    ],
)  # fmt: skip
def test_failures(providers: list[str], data: bytes, message: str, attempts: list[Attempt]) -> None:
    failed = failure(for_secrets(*providers), data)
    assert failed.message == failed.failure.message == message
    assert list(failed.failure.attempts) == attempts
    reasons = [attempt.reason for attempt in attempts] or [FailureReason.NO_PROVIDER_MATCHED]
    # Whatever a matching key said matters more than a key name that is absent.
    assert failed.failure.reason is reasons[-1]


def test_resource_without_an_entry() -> None:
    reader = transformers(("configmaps", [GCM_ONE])).for_resource(SECRETS)
    assert (reader.rule, reader.has_identity, names(reader)) == (None, True, [("identity", "")])
    assert opened(reader, PLAIN) == Plaintext(PLAIN, "identity", stale=False)
    failed = failure(reader, gcm("k", ONE))
    assert failed.message == "identity transformer tried to read encrypted data"
    assert failed.failure.reason is FailureReason.IDENTITY_REFUSED


def plugin_with(answer: bytes | Failure) -> OneAnswer:
    return OneAnswer(answer, write_key_id=KEY_ID)


def kms_v1(name: str = "p") -> bytes:
    data = encoders.aesgcm_body(PLAIN, ONE, NONCE12, ETCD_KEY)
    return f"k8s:enc:kms:v1:{name}:".encode() + encoders.kms_v1_body(b"wrapped", data)


def test_nothing_proven_wins_over_what_another_provider_said() -> None:
    # Two v1 providers of one name, as a server without automatic reload allows.
    refused, silent = (
        plugin_with(Failure("INVALID_ARGUMENT", "no")),
        plugin_with(Failure("UNAVAILABLE", "later")),
    )
    text = "apiVersion: v1\nkind: EncryptionConfig\nresources:\n- resources: [secrets]\n  providers:\n"
    text += f"  - {kms('p', 'v1')}\n" * 2
    plugins = iter([refused, silent])
    both = Transformers.from_configuration(
        parse_configuration(text.encode(), path="test"), lambda _: next(plugins)
    ).for_resource(SECRETS)
    failed = failure(both, kms_v1())
    assert failed.failure.reason is FailureReason.KMS_UNREACHABLE
    assert failed.failure.message == "[no, later]"
    assert [attempt.reason for attempt in failed.failure.attempts] == [
        FailureReason.KMS_REFUSED,
        FailureReason.KMS_UNREACHABLE,
    ]


def test_kms_without_plugin_with_a_broken_envelope_is_no_proof_either() -> None:
    failed = failure(for_secrets(kms("p")), b"k8s:enc:kms:v2:p:")
    assert failed.failure.reason is FailureReason.KMS_UNREACHABLE
    assert failed.message == failed.failure.message == "encrypted data is empty"
    failed = failure(for_secrets(kms("p", "v1")), b"k8s:enc:kms:v1:p:\xff")
    assert failed.failure.reason is FailureReason.KMS_UNREACHABLE
    assert failed.message.endswith("failed to read uint16 length prefixed data")


def test_what_keys_of_one_name_say_is_told_apart_by_the_names_that_begin_a_value() -> None:
    """The same words of other keys are another failure, and so are other words of the same keys."""
    reader = for_secrets(keyed("aesgcm", *((name, name.encode().ljust(32)) for name in ("a:b", "a:c", "a"))))
    lost = bytes(32)
    values = [gcm(name, lost) for name in ("a:b", "a:c", "a", "a:d", "a:b:c")]
    values += [b"k8s:enc:aesgcm:v1:a:b:short", b"k8s:enc:aesgcm:v1:a:b:", b"k8s:enc:aesgcm:v1:z:" + lost]
    for data in (*values, *values):
        failure(reader, data)
    named = [
        tuple(attempt.transformer for attempt in failure(reader, data).failure.attempts) for data in values
    ]
    assert named[:3] == [("aesgcm/v1/a:b", "aesgcm/v1/a"), ("aesgcm/v1/a:c", "aesgcm/v1/a"), ("aesgcm/v1/a",)]


WRITTEN = b"k8s\x00what nobody may see"


def sealed(transformers: ResourceTransformers, plaintext: bytes = WRITTEN) -> Sealed:
    made = to_storage(transformers, plaintext, ETCD_KEY)
    assert isinstance(made, Sealed)
    return made


@pytest.mark.parametrize("provider", NONCE_SIZES)
@settings(max_examples=30)
@given(
    plaintext=st.binary(max_size=200)
    | st.sampled_from([b"", b"\x20" * 32, b"k8s:enc:aescbc:v1:k:" + b"x" * 40])
)
def test_bytes_are_those_of_another_implementation(provider: str, plaintext: bytes) -> None:
    made = sealed(for_secrets(keyed(provider, ("new", ONE), ("old", TWO)), IDENTITY), plaintext)
    prefix = f"k8s:enc:{provider}:v1:new:".encode()
    assert made.transformer == f"{provider}/v1/new"
    assert made.data.startswith(prefix)
    body = made.data[len(prefix) :]
    assert body == local_body(provider, plaintext, ONE, body, ETCD_KEY)


def test_plaintext_that_looks_encrypted_does_not_come_back_from_identity() -> None:
    made = to_storage(for_secrets(IDENTITY), b"k8s:enc:aescbc:v1:k:body", ETCD_KEY)
    assert made == NotSealed("identity", SealRefusal.NOT_READ_BACK)


def test_kms_does_not_write() -> None:
    made = to_storage(for_secrets(kms("prov"), keyed("aescbc", ("k", ONE))), WRITTEN, ETCD_KEY)
    assert made == NotSealed("kms/v2/prov", SealRefusal.KMS_WRITES)


def seal_otherwise(monkeypatch: Patch, change: Callable[[bytes], bytes]) -> None:
    real = cipher_of

    def changed(provider: ProviderType, key: bytes) -> SimpleNamespace:
        return SimpleNamespace(seal=lambda *given: change(real(provider, key).seal(*given)))

    monkeypatch.setattr(encrypt, "cipher_of", changed)


@pytest.mark.parametrize("damage", [lambda body: body[:-1], lambda body: body[:-1] + bytes([body[-1] ^ 1])])
@pytest.mark.parametrize("provider", NONCE_SIZES)
def test_what_does_not_open_again_is_not_given_out(
    provider: str, damage: Callable[[bytes], bytes], monkeypatch: Patch
) -> None:
    seal_otherwise(monkeypatch, damage)
    made = to_storage(for_secrets(keyed(provider, ("k", ONE))), WRITTEN, ETCD_KEY)
    assert made == NotSealed(f"{provider}/v1/k", SealRefusal.NOT_READ_BACK)


def test_other_plaintext_is_not_given_out(monkeypatch: Patch) -> None:
    """An aescbc value opens whatever it holds; only the comparison tells."""
    seal_otherwise(monkeypatch, lambda _: encoders.aescbc_body(b"other", ONE, b"n" * 16))
    made = to_storage(for_secrets(keyed("aescbc", ("k", ONE))), WRITTEN, ETCD_KEY)
    assert made == NotSealed("aescbc/v1/k", SealRefusal.NOT_READ_BACK)


def test_neither_key_nor_plaintext_prints() -> None:
    transformers = for_secrets(keyed("aescbc", ("k", ONE)))
    shown = repr(sealed(transformers)) + repr(sealed(for_secrets(IDENTITY))) + repr(transformers.keys[0])
    for hidden in ("nobody", ONE.hex(), base64.b64encode(ONE).decode(), repr(ONE)[2:-1]):
        assert hidden not in shown


def test_random_bytes_are_those_of_the_system(monkeypatch: Patch) -> None:
    asked = []

    def token_bytes(size: int) -> bytes:
        asked.append(size)
        return b"n" * size

    monkeypatch.setattr("secrets.token_bytes", token_bytes)
    for provider, size in NONCE_SIZES.items():
        body = sealed(for_secrets(keyed(provider, ("k", ONE)))).data.removeprefix(
            f"k8s:enc:{provider}:v1:k:".encode()
        )
        assert body == local_body(provider, WRITTEN, ONE, b"n" * size, ETCD_KEY)
    assert asked == list(NONCE_SIZES.values())
