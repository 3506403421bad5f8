"""The local providers: each module bears the name of its provider, and has its cipher and the parts of its values."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from etcdfix.encryption.cipher import Cipher
from etcdfix.model.providers import ProviderType, facts_about


class LocalProvider(Protocol):
    """What the module of a local provider has.

    Attributes:
        PARTS: Names and sizes of what follows the name in a value, in order; 0 for the one that takes the rest.
    """

    PARTS: tuple[tuple[str, int], ...]

    @staticmethod
    def cipher(key: bytes) -> Cipher:
        """Return the cipher with one key."""
        ...


def local_provider(provider: ProviderType) -> LocalProvider:
    """Return the module of a provider that has keys of its own; each loads its library when it is needed first."""
    if not facts_about(provider, "v1").key_sizes:
        raise ValueError(f"{provider} has no key of its own")
    module: LocalProvider = import_module(f"{__name__}.{provider}")  # type: ignore[assignment]
    return module


def cipher_of(provider: ProviderType, key: bytes) -> Cipher:
    """Return the cipher of a local provider with one key."""
    return local_provider(provider).cipher(key)
