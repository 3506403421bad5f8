"""Words with their numbers."""

from __future__ import annotations

import math
from urllib.parse import unquote_to_bytes


def counted(number: int, noun: str) -> str:
    """Return ``1 key``, ``2 keys``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def transformer_words(transformer: str) -> str:
    """Return what a transformer is called: where its name is no text, which ciphertext may be, its length instead."""
    *parts, name = transformer.split("/")
    raw = unquote_to_bytes(name)
    try:
        readable = raw.decode().isprintable()
    except UnicodeDecodeError:
        readable = False
    return transformer if readable else "/".join([*parts, f"(unreadable name, {counted(len(raw), 'byte')})"])


def fit(text: str, most: int, *, end: bool = False) -> str:
    """Return a text of at most so many characters: what stands in its middle is left out, or at its end."""
    if len(text) <= most:
        return text
    if end:
        return f"{text[: most - 1].rstrip(' ,')}…"
    return f"{text[: most // 2]}…{text[len(text) - (most - 1 - most // 2) :]}"


_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_YEAR = 365 * _DAY
# Below which length, in which unit, and with which smaller one beside it.
_DURATIONS = (
    (2 * _MINUTE, (1, "s"), None),
    (10 * _MINUTE, (_MINUTE, "m"), (1, "s")),
    (3 * _HOUR, (_MINUTE, "m"), None),
    (8 * _HOUR, (_HOUR, "h"), (_MINUTE, "m")),
    (2 * _DAY, (_HOUR, "h"), None),
    (8 * _DAY, (_DAY, "d"), (_HOUR, "h")),
    (2 * _YEAR, (_DAY, "d"), None),
    (8 * _YEAR, (_YEAR, "y"), (_DAY, "d")),
    (math.inf, (_YEAR, "y"), None),
)


def short_duration(seconds: int) -> str:
    """Return a duration as short as kubectl's ages: ``90s``, ``5m30s``, ``47h``, ``3y41d``."""
    (size, letter), smaller = next((unit, smaller) for below, unit, smaller in _DURATIONS if seconds < below)
    whole, rest = divmod(seconds, size)
    beside = f"{rest // smaller[0]}{smaller[1]}" if smaller is not None and rest >= smaller[0] else ""
    return f"{whole}{letter}{beside}"
