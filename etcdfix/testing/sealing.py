"""A value opened and sealed as an API server would with a configuration, or would not: for planting alone."""

from __future__ import annotations

import secrets
from os import PathLike
from pathlib import Path
from typing import Final

from etcdfix.encryption.config import (
    EncryptionConfiguration,
    KeyedProvider,
    NamedKey,
    ProviderType,
    ResourceRule,
    load_configuration,
)
from etcdfix.encryption.encrypt import NotSealed, to_storage
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.transformer import (
    ConfiguredKey,
    ResourceTransformers,
    Transformers,
    TransformFailed,
)
from etcdfix.storagekey import StorageLayout

LOCAL: Final = (ProviderType.AESGCM, ProviderType.SECRETBOX, ProviderType.AESCBC)
"""Providers that need nobody else."""
_ANY = "*.*"


class DoesNotFit(Exception):
    """This damage cannot be done to this value; nothing was written."""


class Seals:
    """How values of one etcd key are opened and sealed."""

    def __init__(
        self, config: EncryptionConfiguration | str | PathLike[str] | None, key: bytes, layout: StorageLayout
    ) -> None:
        """Read the configuration.

        Raises:
            ConfigurationError: An API server would refuse it.
        """
        if isinstance(config, str | PathLike):
            config = load_configuration(Path(config))
        self.key, self.layout = key, layout
        self._transformers = _transformers_of(config, key, layout)
        self.covered = self._transformers.rule is not None
        self.plain_allowed = self._transformers.has_identity
        self.write: ConfiguredKey = self._transformers.keys[0]
        self.configured = {key.provider for key in self._transformers.keys}

    def open(self, stored: bytes) -> bytes:
        """Return the plaintext of a value.

        Raises:
            DoesNotFit: No local key of the configuration opens it.
        """
        try:
            return self._transformers.from_storage(stored, self.key).data
        except TransformFailed as exc:
            raise DoesNotFit("no key of the configuration opens it; KMS is not asked") from exc

    def seal(self, plaintext: bytes, *, bound_to: bytes | None = None) -> bytes:
        """Return a value as it would be written today, bound to another etcd key where one is given.

        Raises:
            DoesNotFit: Today's values are written with KMS.
        """
        return self._sealed(self._transformers, plaintext, bound_to)

    def seal_with(
        self, plaintext: bytes, *, provider: ProviderType, name: str, material: KeyMaterial | None
    ) -> bytes:
        """Return a value under a key of that name; ``material`` None for new random bytes."""
        material = material or KeyMaterial(secrets.token_bytes(32))
        rule = ResourceRule((_ANY,), (KeyedProvider(provider, (NamedKey(name, material),)),))
        configuration = EncryptionConfiguration("", "", (rule,))
        return self._sealed(_transformers_of(configuration, self.key, self.layout), plaintext, None)

    def local_key(self) -> ConfiguredKey:
        """Return the key that today's values are written with, where it is in the configuration itself.

        Raises:
            DoesNotFit: Today's values are not encrypted, or with KMS.
        """
        if self.write.provider not in LOCAL:
            raise DoesNotFit(
                f"it wants a key of aesgcm, aescbc or secretbox; values are written with {self.write.transformer}"
            )
        return self.write

    def other_provider(self) -> ProviderType:
        """Return a provider that the configuration does not have for this resource.

        Raises:
            DoesNotFit: It has all of them.
        """
        for provider in LOCAL:
            if provider not in self.configured:
                return provider
        raise DoesNotFit("the configuration has every provider")

    def _sealed(self, transformers: ResourceTransformers, plaintext: bytes, bound_to: bytes | None) -> bytes:
        while True:
            sealed = to_storage(transformers, plaintext, bound_to or self.key)
            if isinstance(sealed, NotSealed):
                raise DoesNotFit(f"{sealed.transformer} cannot write it ({sealed.reason})")
            prefix = transformers.keys[0].prefix
            if not prefix or not goes_on_as_a_name(sealed.data[len(prefix) :]):
                return sealed.data


def _transformers_of(
    config: EncryptionConfiguration | None, key: bytes, layout: StorageLayout
) -> ResourceTransformers:
    directory, _shared = layout.locate(key)
    whole = config if config is not None else EncryptionConfiguration("", "", ())
    return Transformers.from_configuration(whole).for_resource(directory.group_resource)


def name_of(key: ConfiguredKey) -> str:
    """Return the name of a local key."""
    return key.prefix.split(b":", 4)[4][:-1].decode()


def goes_on_as_a_name(body: bytes) -> bool:
    """Say whether random bytes begin so that the key's name could be longer: one value in 170 does.

    Where such a value shows noise, ``key-name-missing`` is all that can be said; a test wants the same cause each time.
    """
    start, colon, _rest = body.partition(b":")
    try:
        return bool(colon) and start.decode().isprintable()
    except UnicodeDecodeError:
        return False


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    """Return the bytes with one bit changed."""
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
