"""A value opened and sealed as an API server would with a configuration, or would not: for planting alone."""

from __future__ import annotations

import secrets
from os import PathLike
from pathlib import Path
from typing import Final

from etcdfix.encryption.config import load_configuration
from etcdfix.encryption.config_model import EncryptionConfiguration, KeyedProvider, NamedKey, ResourceRule
from etcdfix.encryption.encrypt import NotSealed, to_storage
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.transformer import ConfiguredKey, ResourceTransformers, Transformers, TransformFailed
from etcdfix.model.providers import ProviderType
from etcdfix.model.storagekey import StorageLayout

Config = EncryptionConfiguration | str | PathLike[str] | None
"""A configuration, the path of its file, or None where nothing is encrypted."""
_NONE: Final = EncryptionConfiguration("", "", ())
_LOCAL: Final = (ProviderType.AESGCM, ProviderType.SECRETBOX, ProviderType.AESCBC)


class DoesNotFit(Exception):
    """This damage cannot be done to this value; nothing was written."""


class Seals:
    """How values of one etcd key are opened and sealed.

    Raises:
        ConfigurationError: An API server would refuse the configuration.
    """

    def __init__(self, config: Config, key: bytes, layout: StorageLayout) -> None:
        if isinstance(config, str | PathLike):
            config = load_configuration(Path(config))
        self.key, self.layout = key, layout
        self.transformers = self._transformers(config or _NONE)
        self._write = self.transformers.keys[0]

    def _transformers(self, config: EncryptionConfiguration) -> ResourceTransformers:
        directory, _shared = self.layout.locate(self.key)
        return Transformers.from_configuration(config).for_resource(directory.group_resource)

    def open(self, stored: bytes) -> bytes:
        """Return the plaintext of a value; raises DoesNotFit where no local key opens it."""
        try:
            return self.transformers.from_storage(stored, self.key).data
        except TransformFailed as exc:
            raise DoesNotFit("no key of the configuration opens it; KMS is not asked") from exc

    def seal(self, plaintext: bytes) -> bytes:
        """Return a value as it would be written today.

        Raises:
            DoesNotFit: Today's values are written with KMS.
        """
        return self._sealed(self.transformers, plaintext)

    def seal_with(self, plaintext: bytes, name: str, *, provider: ProviderType | None = None) -> bytes:
        """Return a value under a new random key of that name, of today's provider unless one is named."""
        provider = provider or self.local_key().provider
        named = NamedKey(name, KeyMaterial(secrets.token_bytes(32)))
        rule = ResourceRule(("*.*",), (KeyedProvider(provider, (named,)),))
        transformers = self._transformers(EncryptionConfiguration("", "", (rule,)))
        return self._sealed(transformers, plaintext)

    def local_key(self) -> ConfiguredKey:
        """Return the key that today's values are written with, where it is in the configuration itself.

        Raises:
            DoesNotFit: Today's values are not encrypted, or with KMS.
        """
        if self._write.provider not in _LOCAL:
            written = self._write.transformer
            raise DoesNotFit(
                f"it wants a key of aesgcm, aescbc or secretbox; values are written with {written}"
            )
        return self._write

    def other_provider(self) -> ProviderType:
        """Return a provider that the configuration does not have; raises DoesNotFit where it has all of them."""
        configured = {key.provider for key in self.transformers.keys}
        for provider in _LOCAL:
            if provider not in configured:
                return provider
        raise DoesNotFit("the configuration has every provider")

    def _sealed(self, transformers: ResourceTransformers, plaintext: bytes) -> bytes:
        while True:
            sealed = to_storage(transformers, plaintext, self.key)
            if isinstance(sealed, NotSealed):
                raise DoesNotFit(f"{sealed.transformer} cannot write it ({sealed.reason})")
            prefix = transformers.keys[0].prefix
            if not prefix or not goes_on_as_a_name(sealed.data[len(prefix) :]):
                return sealed.data


def goes_on_as_a_name(body: bytes) -> bool:
    """Say whether random bytes begin so that the key's name could be longer: one value in 170 does.

    Where such a value shows noise, ``key-name-missing`` is all that can be said; a test wants the same cause each time.
    """
    start, colon, _rest = body.partition(b":")
    try:
        return bool(colon) and start.decode().isprintable()
    except UnicodeDecodeError:
        return False
