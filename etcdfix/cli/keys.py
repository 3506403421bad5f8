"""How a command line names an etcd key: as it is, as base64, or as ``scan -o name`` prints it."""

from __future__ import annotations

import base64
from typing import Final

from etcdfix.errors import ConfigurationError

_BASE64: Final = "base64:"


def is_base64(word: str) -> bool:
    """Say whether a word is a key as ``scan -o name`` prints those that cannot be typed: ``base64:…``."""
    return word.startswith(_BASE64)


def decoded_key(text: str) -> bytes:
    """Return the key that ``--key-base64`` names, or the word ``base64:…`` in its place.

    Raises:
        ConfigurationError: It is not base64, or of nothing.
    """
    what = f"{_BASE64}…" if is_base64(text) else "--key-base64"
    try:
        key = base64.b64decode(text.removeprefix(_BASE64), validate=True)
    except ValueError as exc:  # binascii.Error, or characters outside ASCII
        raise ConfigurationError(f"{what}: not base64 ({exc})") from exc
    if not key:
        raise ConfigurationError(f"{what}: names no key")
    return key


def named_key(word: str) -> bytes:
    """Return the key that a word names.

    Raises:
        ConfigurationError: It says that it is base64, and is not.
    """
    return decoded_key(word) if is_base64(word) else word.encode("utf-8", "surrogateescape")
