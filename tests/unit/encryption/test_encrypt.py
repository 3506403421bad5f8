"""Writing as the API server would: checked by the encoders of the tests, which go another way."""

from __future__ import annotations

import base64
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etcdfix.encryption import encrypt
from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.encrypt import NotSealed, Sealed, SealRefusal, to_storage
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import ResourceTransformers, Transformers
from etcdfix.model.model import GroupResource
from etcdfix.model.providers import ProviderType
from tests.support import encoders
from tests.support.encoders import NONCE_SIZES, local_body
from tests.support.fixtures import Patch

ETCD_KEY = b"/registry/secrets/default/s1"
SECRETS = GroupResource("", "secrets")
ONE, TWO = bytes(range(32)), bytes(range(32, 64))
PLAIN = b"k8s\x00what nobody may see"
IDENTITY = "{identity: {}}"
KMS = "{kms: {apiVersion: v2, name: prov, endpoint: 'unix:///run/prov.sock'}}"


def keyed(provider: str, *keys: tuple[str, bytes]) -> str:
    listed = ", ".join(f'{{name: "{name}", secret: {base64.b64encode(key).decode()}}}' for name, key in keys)
    return f"{{{provider}: {{keys: [{listed}]}}}}"


def for_secrets(*providers: str, resource: GroupResource = SECRETS) -> ResourceTransformers:
    text = (
        "apiVersion: v1\nkind: EncryptionConfig\nresources:\n"
        f"- resources: [secrets]\n  providers: [{', '.join(providers)}]\n"
    )
    return Transformers.from_configuration(parse_configuration(text.encode(), path="test")).for_resource(
        resource
    )


def sealed(transformers: ResourceTransformers, plaintext: bytes = PLAIN) -> Sealed:
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
    made = to_storage(for_secrets(KMS, keyed("aescbc", ("k", ONE))), PLAIN, ETCD_KEY)
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
    made = to_storage(for_secrets(keyed(provider, ("k", ONE))), PLAIN, ETCD_KEY)
    assert made == NotSealed(f"{provider}/v1/k", SealRefusal.NOT_READ_BACK)


def test_other_plaintext_is_not_given_out(monkeypatch: Patch) -> None:
    """An aescbc value opens whatever it holds; only the comparison tells."""
    seal_otherwise(monkeypatch, lambda _: encoders.aescbc_body(b"other", ONE, b"n" * 16))
    made = to_storage(for_secrets(keyed("aescbc", ("k", ONE))), PLAIN, ETCD_KEY)
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
        assert body == local_body(provider, PLAIN, ONE, b"n" * size, ETCD_KEY)
    assert asked == list(NONCE_SIZES.values())
