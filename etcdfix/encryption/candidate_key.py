"""One encryption key that was found somewhere, as a configuration that tries it for every provider that it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from etcdfix.encryption.config import (
    EncryptionConfiguration,
    KeyedProvider,
    NamedKey,
    ProviderType,
    ResourceRule,
)
from etcdfix.encryption.config_rules import EVERYTHING, key_bytes, rule_name
from etcdfix.encryption.keyring import KeyMaterial, shown
from etcdfix.errors import ConfigurationError, why
from etcdfix.inputs.inputfile import read_secret

AES_KEY_SIZES: Final = (16, 24, 32)
_SECRETBOX_KEY_SIZE: Final = 32
_MOST_BYTES: Final = 4096


def load_candidate_key(name: str, path: Path) -> EncryptionConfiguration:
    """Read a file that holds one key, and return what tries it for every resource and provider under a name.

    Base64 as in an EncryptionConfiguration, or the key's own bytes; where both make a key, both are tried.

    Raises:
        ConfigurationError: It cannot be read, or holds no key.
    """
    # A key that was typed in the place of its file is not repeated.
    option = f"--candidate-key {shown(f'{name}={path}', quote='')}"

    try:
        raw, exposed = read_secret(path, most_bytes=_MOST_BYTES)
    except OSError as exc:
        raise ConfigurationError(
            f"{option}: {why(exc)}", hint="NAME=FILE, where the file holds the key"
        ) from exc
    keys = _keys_in(raw)
    if not keys:
        raise ConfigurationError(
            f"{option}: it holds {len(raw)} bytes, which are neither the base64 of a key nor a key",
            hint="one key is expected: what stands behind secret: in an EncryptionConfiguration, or 16, 24 or 32 bytes",
        )
    providers = [
        KeyedProvider(kind, tuple(NamedKey(name, key) for key in keys if key.size in sizes))
        for kind, sizes in (
            (ProviderType.AESCBC, AES_KEY_SIZES),
            (ProviderType.AESGCM, AES_KEY_SIZES),
            (ProviderType.SECRETBOX, (_SECRETBOX_KEY_SIZE,)),
        )
    ]
    return EncryptionConfiguration(
        path=str(path),
        sha256="",
        rules=(
            ResourceRule(
                (rule_name(EVERYTHING),),
                tuple(provider for provider in providers if provider.keys),
            ),
        ),
        warnings=(exposed,) if exposed else (),
    )


def _keys_in(raw: bytes) -> list[KeyMaterial]:
    """Return what the file may mean, once each: the text decoded, its bytes, its bytes without the end of a line."""
    text = raw.strip()
    found = [
        key_bytes(text.decode("latin-1")) if text else None,
        raw,
        raw.removesuffix(b"\n").removesuffix(b"\r"),
    ]
    keys = [KeyMaterial(key) for key in found if key is not None and len(key) in AES_KEY_SIZES]
    return list({key.fingerprint: key for key in keys}.values())


class NamedCandidate(msgspec.Struct, frozen=True):
    """A configuration that may open what today's does not."""

    name: str
    configuration: EncryptionConfiguration
    is_key: bool = False

    @property
    def fingerprints(self) -> list[str]:
        """Return the fingerprints of a single key: several where its file may mean several."""
        providers = [provider for rule in self.configuration.rules for provider in rule.providers]
        keys = [key for p in providers if isinstance(p, KeyedProvider) for key in p.keys]
        return list(dict.fromkeys(key.material.fingerprint for key in keys)) if self.is_key else []
