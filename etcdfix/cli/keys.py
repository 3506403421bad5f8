"""How a command line names an etcd key: as it is, as base64, or as ``scan -o name`` prints it."""

from __future__ import annotations

import base64
from typing import Final

import click

from etcdfix.errors import ConfigurationError
from etcdfix.storagekey import display

_BASE64: Final = "base64:"
_COMPACTION_KEY: Final = "compact_rev_key"


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


def wanted_key(word: str | None, text: str | None) -> bytes:
    """Return the one key that a command of one key was given, as a word or with ``--key-base64``.

    Raises:
        click.UsageError: Both or neither were given.
        ConfigurationError: The word is no key, or what should be base64 is not.
    """
    if (word is None) == (text is None):
        raise click.UsageError("name exactly one key: KEY, or --key-base64 BASE64")
    if word is None:
        return decoded_key(text or "")
    if not is_key(word):
        raise ConfigurationError(
            f"{display(named_key(word))!r} is no key: keys start with /",
            hint="etcdfix get RESOURCE -A -o wide lists keys",
        )
    return named_key(word)


def is_key(word: str) -> bool:
    """Say whether a word names an etcd key, and not a resource or a cause."""
    return word.startswith("/") or is_base64(word) or word == _COMPACTION_KEY
