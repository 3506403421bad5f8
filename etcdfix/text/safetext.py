"""Hostile bytes made safe for a terminal, a CI log and a pasted command.

Object names come from strangers. Everything printed passes through here; everything meant to be pasted is
built as an argument vector and quoted.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from typing import Final

_PATTERN: Final = frozenset(b"*?[")


def safe_text(text: str) -> str:
    r"""Return text in which every character that a terminal could act upon is spelled out.

    Control characters, bidirectional marks, other invisible format characters, line separators and lone
    surrogates become ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``; printable text comes back unchanged.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def safe_json(encoded: bytes) -> bytes:
    r"""Return encoded JSON in which every character that a terminal could act upon is ``\uNNNN``.

    The document means the same: JSON encoders escape only the C0 controls, and terminals also obey DEL, the C1
    controls and bidirectional marks.

    Args:
        encoded: One JSON value on one line, UTF-8.
    """
    if encoded.isascii() and b"\x7f" not in encoded:
        return encoded
    return "".join(c if c.isprintable() else _json_escape(c) for c in encoded.decode()).encode()


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


def is_plain(key: bytes) -> bool:
    """Say whether a key can be shown and pasted as it is: valid UTF-8, nothing invisible in it."""
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False


def key_base64(key: bytes) -> str | None:
    """Return what stands beside a key in a report, where the key as it is shown could be misread; else None."""
    return None if is_plain(key) else base64.b64encode(key).decode()


def key_arguments(key: bytes) -> list[str]:
    """Return the command-line words that name a key: itself, or ``--key-base64`` where it could be misread."""
    # Anything else would be read as a resource, as an option, as a pattern, or as a prefix of more than this key.
    if is_plain(key) and key.startswith(b"/") and not key.endswith(b"/") and _PATTERN.isdisjoint(key):
        return [key.decode()]
    return ["--key-base64", base64.b64encode(key).decode()]


def quote_command(words: Sequence[str]) -> str:
    """Return an argument vector as one shell line; the only way commands get into reports."""
    return shlex.join(safe_text(word) for word in words)
