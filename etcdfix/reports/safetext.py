"""Hostile bytes made safe for a terminal, a CI log and a pasted command.

Object names come from strangers. Everything printed passes through here; everything meant to be pasted is
built as an argument vector and quoted.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence


def safe_text(text: str) -> str:
    r"""Return text in which every character that a terminal could act upon is spelled out.

    Control characters, bidirectional marks, other invisible format characters, line separators and lone
    surrogates become ``\xNN``, ``\uNNNN`` or ``\UNNNNNNNN``; printable text comes back unchanged.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_plain(key: bytes) -> bool:
    """Say whether a key can be shown and pasted as it is: valid UTF-8, nothing invisible in it."""
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False


def key_arguments(key: bytes) -> list[str]:
    """Return the command-line words that name a key: itself, or ``--key-base64`` where it is not plain."""
    if is_plain(key) and not key.startswith(b"-"):
        return [key.decode()]
    return ["--key-base64", base64.b64encode(key).decode()]


def quote_command(words: Sequence[str]) -> str:
    """Return an argument vector as one shell line; the only way commands get into reports."""
    return shlex.join(safe_text(word) for word in words)
