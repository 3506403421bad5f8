r"""Key material that cannot print itself.

A key is needed in two places: the constructor of a cipher, and a configuration file that is written. Everywhere else
it is named by its fingerprint.

Fingerprint: ``fp:`` and the first 16 hex digits of ``SHA-256("etcdfix key fingerprint v1\0" + key)``. The
same bytes give the same fingerprint under every provider and name, so a key that was merely renamed is
recognised. The label in front keeps the value different from a plain digest of the key that another tool
may have logged. Showing it is safe for the keys that belong into an EncryptionConfiguration, 128 to 256
random bits: finding such a key from a digest means trying 2^128 of them, and 64 bits of digest fit
countless keys. It is not safe for a key that was derived from a guessable pass phrase: there a
fingerprint confirms a guess, as any of the stored values would.
"""

from __future__ import annotations

import hashlib
from typing import NoReturn

_LABEL = b"etcdfix key fingerprint v1\x00"
_DIGITS = 16


def fingerprint(key: bytes) -> str:
    """Return the short name by which a key may be shown: ``fp:`` and 16 hex digits."""
    return f"fp:{hashlib.sha256(_LABEL + key).hexdigest()[:_DIGITS]}"


class Withheld:
    """Secret bytes, wrapped so that they leave only by asking for them: no comparison by value, no pickle, no copy."""

    __slots__ = ("_secret",)

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def __repr__(self) -> str:
        return type(self).__name__

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is not serialised")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError(f"{type(self).__name__} is not serialised")


class KeyMaterial(Withheld):
    """The bytes of one key; ``repr``, ``str`` and format show the fingerprint. Compare fingerprints instead of keys.

    Attributes:
        fingerprint: See the module documentation.
        size: Length of the key, bytes.
    """

    __slots__ = ("fingerprint", "size")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        self.fingerprint = fingerprint(secret)
        self.size = len(secret)

    def expose(self) -> bytes:
        """Return the key itself; only for the constructor of a cipher, and for a configuration file that is written."""
        return self._secret

    def __repr__(self) -> str:
        return f"KeyMaterial({self.fingerprint})"
