"""From plaintext to stored bytes, as the API server would write them today.

The one direction that a tool for reading needs in one place only: rewriting a value under the present key. What is
written is opened again by our own reader, with the same configuration, before anybody gets it.

Format:
    Bodies as in ``aescbc``, ``aesgcm`` and ``secretbox``, behind the prefix of the first key of the first provider
    (``k8s.io/apiserver/pkg/storage/value/encrypt/…``, ``TransformToStorage``). Initialisation vectors and nonces
    come from the system's random source. 96 random bits are enough for a nonce of AES-GCM as long as no key sees
    more than 2^32 values; the API server draws its own the same way.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.providers import aescbc, aesgcm
from etcdfix.encryption.transformer import ConfiguredKey, ResourceTransformers, TransformFailed


class SealRefusal(StrEnum):
    """Why nothing was written."""

    KMS_WRITES = "kms-writes"
    """Today's write transformer is a KMS provider; writing with one is not supported."""
    NOT_READ_BACK = "not-read-back"
    """Our own reader does not get the plaintext back, or would call the value stale."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A value ready to be stored; the bytes are left out of the ``repr``: under identity they are plaintext.

    Attributes:
        transformer: What it was written with: ``aescbc/v1/key1``, ``identity``.
    """

    transformer: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NotSealed:
    """No value, and why."""

    transformer: str
    reason: SealRefusal


def to_storage(transformers: ResourceTransformers, plaintext: bytes, key: bytes) -> Sealed | NotSealed:
    """Turn plaintext into what the API server would store today, and open it again."""
    write_key = transformers.keys[0]
    if write_key.provider is ProviderType.KMS:
        return NotSealed(write_key.transformer, SealRefusal.KMS_WRITES)
    data = write_key.prefix + _body(write_key, plaintext, key)
    if not _reads_back(transformers, data, plaintext, key):
        return NotSealed(write_key.transformer, SealRefusal.NOT_READ_BACK)
    return Sealed(write_key.transformer, data)


def _reads_back(transformers: ResourceTransformers, data: bytes, plaintext: bytes, key: bytes) -> bool:
    try:
        found = transformers.from_storage(data, key)
    except TransformFailed:
        return False
    write_key = transformers.keys[0]
    return found.data == plaintext and found.transformer == write_key.transformer and not found.stale


def _body(write_key: ConfiguredKey, plaintext: bytes, key: bytes) -> bytes:
    if write_key.material is None:
        return plaintext
    secret = write_key.material.expose()
    match write_key.provider:
        case ProviderType.AESCBC:
            return _aescbc_body(plaintext, secret)
        case ProviderType.AESGCM:
            nonce = secrets.token_bytes(aesgcm.NONCE_SIZE)
            return nonce + AESGCM(secret).encrypt(nonce, plaintext, key)
        case ProviderType.SECRETBOX:
            return _secretbox_body(plaintext, secret)
        case _:
            raise ValueError(f"{write_key.provider} has no key of its own")


def _aescbc_body(plaintext: bytes, secret: bytes) -> bytes:
    padder = PKCS7(aescbc.BLOCK_SIZE * 8).padder()
    padded = padder.update(plaintext) + padder.finalize()
    iv = secrets.token_bytes(aescbc.BLOCK_SIZE)
    encryptor = Cipher(AES(secret), CBC(iv)).encryptor()
    return iv + encryptor.update(padded) + encryptor.finalize()


def _secretbox_body(plaintext: bytes, secret: bytes) -> bytes:
    from nacl.bindings import crypto_secretbox  # noqa: PLC0415 - only where a configuration names the provider

    from etcdfix.encryption.providers.secretbox import NONCE_SIZE  # noqa: PLC0415 - same

    nonce = secrets.token_bytes(NONCE_SIZE)
    return nonce + crypto_secretbox(plaintext, nonce, secret)
