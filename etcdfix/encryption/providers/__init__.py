"""The local providers: one module for each, and the arithmetic behind two of them."""

from __future__ import annotations

from etcdfix.encryption.cipher import Cipher
from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.providers.aescbc import AESCBCCipher
from etcdfix.encryption.providers.aesgcm import AESGCMCipher


def cipher_of(provider: ProviderType, key: bytes) -> Cipher:
    """Return the cipher of a local provider with one key."""
    match provider:
        case ProviderType.AESCBC:
            return AESCBCCipher(key)
        case ProviderType.AESGCM:
            return AESGCMCipher(key)
        case ProviderType.SECRETBOX:
            # PyNaCl loads a library of its own: only those who use secretbox wait for it.
            from etcdfix.encryption.providers.secretbox import SecretboxCipher  # noqa: PLC0415

            return SecretboxCipher(key)
        case _:
            raise ValueError(f"{provider} has no key of its own")
