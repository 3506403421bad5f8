"""Hostile bytes made safe for a terminal, a CI log and a pasted command.

Object names come from strangers. Everything printed passes through here; everything meant to be pasted is
built as an argument vector and quoted.
"""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Sequence
from typing import Final

_PATTERN: Final = frozenset(b"*?[")
BOOTSTRAP: Final = b"bootstrap"
"""Every key of which a part is withheld has this in it."""
WITHHELD: Final = "<withheld>"
"""The end of a key of which part is withheld."""
_OF_A_TOKEN: Final = re.compile(rb"[0-9a-f]{8,64}")


def shown_key(key: bytes) -> bytes:
    """Return an etcd key as it may be shown, logged and reported: every key passes through here.

    Under ``/bootstrap/`` k3s and RKE2 keep their configuration, and what follows is a digest of the server's token:
    whoever has that can try tokens as fast as they can be hashed. So it is withheld, also below the prefix that a
    proxy or another program puts in front.

    Format:
        k3s ``pkg/cluster/storage.go``: ``/bootstrap/`` and the first 12 hex digits of the token's SHA-256.
    """
    if BOOTSTRAP not in key:
        return key
    segments = key.split(b"/")
    first = next(at for at, segment in enumerate(segments) if segment)
    for at in (first, first + 1):
        following = [segment for segment in segments[at + 1 :] if segment]
        if segments[at : at + 1] != [BOOTSTRAP] or not following:
            continue
        # Below a prefix it may be the name of anything else.
        if at == first or (len(following) == 1 and _OF_A_TOKEN.fullmatch(following[0])):
            return b"/".join([*segments[: at + 1], WITHHELD.encode()])
    return key


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
    """Return what stands beside a key in a report, where the key as it is shown could be misread; else None.

    Nothing stands beside a key of which part is withheld.
    """
    return None if is_plain(key) or shown_key(key) != key else base64.b64encode(key).decode()


def key_word(key: bytes) -> str:
    """Return the word of a command line that names a key: itself, or ``base64:…`` where it could be misread.

    Of a key of which part is withheld the word names no key: who pastes it puts the rest there.
    """
    if shown_key(key) != key:
        return shown_key(key).decode("utf-8", "backslashreplace")
    # Anything else would be read as a resource, as an option, as a pattern, or as a prefix of more than this key.
    if is_plain(key) and key.startswith(b"/") and not key.endswith(b"/") and _PATTERN.isdisjoint(key):
        return key.decode()
    return f"base64:{base64.b64encode(key).decode()}"


def quote_command(words: Sequence[str]) -> str:
    """Return an argument vector as one shell line; the only way commands get into reports."""
    return shlex.join(safe_text(word) for word in words)
