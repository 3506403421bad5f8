"""Values under every provider, damaged in every way, and a decoder that is played."""

from __future__ import annotations

import base64

from etcdfix.encryption.config import parse_configuration
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.kms.envelopes import KMSPlugin
from etcdfix.encryption.peek import Structures, peek
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.model import GroupResource, Look, Peek
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support import encoders

# Test keys: they protect nothing.
ONE, TWO, THREE = bytes(range(32)), bytes(range(32, 64)), bytes(range(64, 96))
LOCAL = ("aescbc", "aesgcm", "secretbox")
SECRETS = GroupResource("", "secrets")
ETCD_KEY = b"/registry/secrets/shop/web"
UID = b"99999999-8888-7777-6666-555555555555"
STRUCTURES = Structures([("v1", "Secret"), ("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "ConfigMap")])
NONCE12, NONCE16, NONCE24, INFO = b"0123456789ab", b"0123456789abcdef", b"0123456789abcdefghijklmn", b"i" * 32


def secret(size: int = 40) -> bytes:
    """Return a v1 Secret as protobuf, with so many bytes of data, line feeds among them."""
    data = block(2, block(1, b"password") + block(2, b"never\nshown" + b"s" * size))
    return unknown(b"v1", b"Secret", block(1, object_meta(b"web", b"shop", UID)) + data)


PLAIN = secret()


def sealed(provider: str, plaintext: bytes = PLAIN, key: bytes = ONE, etcd_key: bytes = ETCD_KEY) -> bytes:
    """Return a value under a local key that is named ``key1``."""
    body = encoders.local_body(provider, plaintext, key, NONCE24, etcd_key)
    return f"k8s:enc:{provider}:v1:key1:".encode() + body


def seeded(
    plaintext: bytes = PLAIN, seed: bytes = ONE, *, source: bytes = b"wrapped", kind: int = 1
) -> bytes:
    """Return a KMS v2 value of provider ``prov``."""
    data = encoders.kms_v2_seeded_data(plaintext, seed, INFO, NONCE12, ETCD_KEY)
    return b"k8s:enc:kms:v2:prov:" + encoders.kms_v2_body(data, dek_source=source, source_type=kind)


def keyed(plaintext: bytes = PLAIN, key: bytes = ONE, *, kind: int = 0) -> bytes:
    """Return a KMS v2 value whose data key is no seed."""
    data = encoders.aesgcm_body(plaintext, key, NONCE12, ETCD_KEY)
    return b"k8s:enc:kms:v2:prov:" + encoders.kms_v2_body(data, dek_source=b"wrapped", source_type=kind)


def first_version(data: bytes) -> bytes:
    """Return a KMS v1 value with such data."""
    return b"k8s:enc:kms:v1:prov:" + encoders.kms_v1_body(b"wrapped", data)


def transformers(text: str, plugin: KMSPlugin | None = None) -> Transformers:
    """Return the transformers of the ``resources`` of a configuration."""

    def plugin_for(_: KMSProvider) -> KMSPlugin | None:
        return plugin

    raw = f"apiVersion: v1\nkind: EncryptionConfig\nresources:\n{text}".encode()
    return Transformers.from_configuration(parse_configuration(raw, path="test"), plugin_for)


def keys(**named: bytes) -> str:
    """Return keys by name, as a configuration lists them."""
    return ", ".join(f'{{name: "{n}", secret: {base64.b64encode(k).decode()}}}' for n, k in named.items())


def rule(resource: str, **providers: str) -> str:
    """Return a rule of a configuration: for each provider its keys."""
    listed = ", ".join(f"{{{p}: {{keys: [{k}]}}}}" for p, k in providers.items())
    return f"- {{resources: ['{resource}'], providers: [{listed}]}}\n"


def every(**named: bytes) -> Transformers:
    """Return all three local providers with the same keys, for secrets."""
    return transformers(rule("secrets", **dict.fromkeys(LOCAL, keys(**named))))


def look(plaintext: bytes) -> Look:
    """Say that the untouched plaintext is whole, and that anything else breaks."""
    whole = plaintext == PLAIN
    ends_early = not whole and PLAIN.startswith(plaintext)
    return Look(
        whole=whole,
        breaks=not whole,
        ends_early=ends_early,
        ends_as_written=plaintext.endswith(b"\x1a\x00\x22\x00"),
        message="" if whole else "it breaks",
        belongs=(ETCD_KEY,) if whole else (),
    )


def peeked(
    found: Transformers,
    data: bytes,
    *,
    key: bytes = ETCD_KEY,
    other_keys: tuple[bytes, ...] = (),
    thorough: bool = True,
    resource: GroupResource = SECRETS,
) -> Peek:
    """Look at a value."""
    return peek(found, resource, data, key, STRUCTURES, look, other_keys=other_keys, thorough=thorough)
