"""Words with their numbers."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes


def counted(number: int, noun: str) -> str:
    """Return ``1 key``, ``2 keys``, ``2 copies``; what ends in a vowel and y keeps it."""
    if number == 1:
        return f"1 {noun}"
    ies = noun.endswith("y") and noun[-2:-1] not in {"a", "e", "o", "u"}
    return f"{number} {noun[:-1]}ies" if ies else f"{number} {noun}s"


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
