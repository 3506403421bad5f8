"""What each encryption provider guarantees: one row for each form in which API servers store values.

A provider is added here, in ``encryption/providers/`` under its own name, and in the file format
(``encryption/config_model.py``). Everything else asks for its row by the name of a transformer (``aescbc/v1/key1``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

ENCRYPTED_PREFIX: Final = b"k8s:enc:"
"""Every encrypted value begins with this."""
IDENTITY: Final = "identity"
"""The transformer of unencrypted values, which have no key that could be lost."""


class ProviderType(StrEnum):
    """The members of a provider element, as the file spells them."""

    AESCBC = "aescbc"
    AESGCM = "aesgcm"
    SECRETBOX = "secretbox"
    KMS = "kms"
    IDENTITY = "identity"


class Noise(StrEnum):
    """What was damaged in a value that decrypts to noise under the right encryption key."""

    NONCE = "nonce"
    CIPHERTEXT = "ciphertext"
    """Without a tag, a damaged nonce garbles one block only."""
    ENVELOPE = "envelope"
    """The wrapped data key, or the nonce."""


class ProviderFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One form of stored values.

    Attributes:
        provider: None for a form that no known API server writes.
        version: ``v1``; "" for identity.
        key_sizes: Bytes of the keys that a configuration may give; empty where it gives none.
        least_size: Fewest bytes after the name.
        authenticated: A tag proves that what opens is what was written.
        bound: The etcd key is the associated data.
        stale_is_unbound: Servers once wrote this form with another cipher, without tag and associated data.
        noise: What was damaged where the key is right and the plaintext is noise.
        name_may_hold_colons: The end of the name is known only to the configuration.
        has_key_ids: Values name the key that wraps their data key.
        no_key_error: API server's message where no key has the name that a value gives; "" where it has none.
    """

    provider: ProviderType | None
    version: str = "v1"
    key_sizes: tuple[int, ...] = ()
    least_size: int = 0
    authenticated: bool = False
    bound: bool = False
    stale_is_unbound: bool = False
    noise: Noise = Noise.NONCE
    name_may_hold_colons: bool = True
    has_key_ids: bool = False
    no_key_error: str = ""

    @property
    def under_kms(self) -> bool:
        """Whether a KMS plugin holds the key."""
        return self.provider is ProviderType.KMS

    @property
    def prefix(self) -> bytes:
        """Return what stands before the name in a stored value."""
        return ENCRYPTED_PREFIX + f"{self.provider}:{self.version}:".encode()


_NO_AES_KEY: Final = "no matching key was found for the provided AES transformer"
_NO_SECRETBOX_KEY: Final = "no matching key was found for the provided Secretbox transformer"

PROVIDERS: Final = (
    ProviderFacts(
        provider=ProviderType.AESCBC,
        key_sizes=(16, 24, 32),
        least_size=32,
        noise=Noise.CIPHERTEXT,
        no_key_error=_NO_AES_KEY,
    ),
    ProviderFacts(
        provider=ProviderType.AESGCM,
        key_sizes=(16, 24, 32),
        least_size=28,
        authenticated=True,
        bound=True,
        no_key_error=_NO_AES_KEY,
    ),
    ProviderFacts(
        provider=ProviderType.SECRETBOX,
        key_sizes=(32,),
        least_size=40,
        authenticated=True,
        no_key_error=_NO_SECRETBOX_KEY,
    ),
    ProviderFacts(
        provider=ProviderType.KMS,
        least_size=30,
        authenticated=True,
        bound=True,
        stale_is_unbound=True,
        noise=Noise.ENVELOPE,
    ),
    ProviderFacts(
        provider=ProviderType.KMS,
        version="v2",
        least_size=36,
        authenticated=True,
        bound=True,
        noise=Noise.ENVELOPE,
        name_may_hold_colons=False,
        has_key_ids=True,
    ),
    ProviderFacts(provider=ProviderType.IDENTITY, version="", authenticated=True),
)
ENCRYPTING: Final = tuple(facts for facts in PROVIDERS if facts.version)
"""The forms that begin with ``k8s:enc:``."""

_BY_NAME: Final = {(str(facts.provider), facts.version): facts for facts in PROVIDERS}
_UNKNOWN: Final = ProviderFacts(provider=None, version="")


def facts_about(provider: str, version: str) -> ProviderFacts:
    """Return the row of a provider and version; a row without provider where no API server writes such values."""
    return _BY_NAME.get((provider, version), _UNKNOWN)


def facts_of(transformer: str) -> ProviderFacts:
    """Return the row of a transformer: ``aescbc/v1/key1``, ``identity``."""
    provider, _, rest = transformer.partition("/")
    return facts_about(provider, rest.partition("/")[0])
