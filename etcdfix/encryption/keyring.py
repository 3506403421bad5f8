r"""Key material that cannot print itself, and what may be shown of text that may hold a key.

A key is needed in three places: the constructor of a cipher, a configuration file that is written, and the pipe to a
worker process. Everywhere else it is named by its fingerprint.

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
import re
from typing import NoReturn

from etcdfix.golang.goquote import go_quote, withheld

_LABEL = b"etcdfix key fingerprint v1\x00"
_DIGITS = 16
# 22 base64 characters carry 128 bits, the smallest key a provider takes; 32 hex digits carry as many.
_KEY_RUN = re.compile(r"[A-Za-z0-9+/_=-]{22,}")
_HEX_RUN = re.compile(r"[0-9A-Fa-f]{32}")
# Words written in camel case (EncryptionConfigurations) are long, mixed in case, and no keys.
_CAMEL_CASE = re.compile(r"(?:[A-Z]?[a-z]{3,})(?:[A-Z][a-z]{2,})*")
# All of a text, without a dot: names of files have one. It may be shorter than the key: a path keeps one slash of two.
_NOTHING_ELSE = re.compile(r"[A-Za-z0-9+/_-]{20,64}|[A-Za-z0-9+/_-]{12,64}={1,2}")


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
        """Return the key itself; only for the places that the module's docstring names."""
        return self._secret

    def __repr__(self) -> str:
        return f"KeyMaterial({self.fingerprint})"


def may_hold_key(text: str) -> bool:
    """Say whether text contains something that could be the base64 or hex form of a key.

    A random key of 128 bits or more has letters of both cases in its base64 form, but for one in a
    hundred thousand; lower-case resource names of any length therefore stay readable.
    """
    squeezed = "".join(text.split())
    if _HEX_RUN.search(squeezed):
        return True
    return any(
        run != run.lower() and run != run.upper() and not _CAMEL_CASE.fullmatch(run)
        for run in _KEY_RUN.findall(squeezed)
    )


def is_key_text(text: str) -> bool:
    """Say whether text could be the base64 or hex form of a key and nothing else; a path that is no file may be."""
    return _NOTHING_ELSE.fullmatch(text) is not None and (text.endswith("=") or may_hold_key(text))


def shown(text: str, quote: str = '"') -> str:
    """Return ``text`` quoted like Go, or its size alone where it could hold a key."""
    return withheld(text) if may_hold_key(text) else quote + go_quote(text)[1:-1] + quote
