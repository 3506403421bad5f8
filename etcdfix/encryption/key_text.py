"""What may be shown of a file that holds keys.

What a person typed into the wrong place may be a key, so nothing is echoed that could hold one.
"""

from __future__ import annotations

import re

from etcdfix.golang.goquote import go_quote, withheld

# 22 base64 characters carry 128 bits, the smallest key a provider takes; 32 hex digits carry as many.
_KEY_RUN = re.compile(r"[A-Za-z0-9+/_=-]{22,}")
_HEX_RUN = re.compile(r"[0-9A-Fa-f]{32}")
# Words written in camel case (EncryptionConfigurations) are long, mixed in case, and no keys.
_CAMEL_CASE = re.compile(r"(?:[A-Z]?[a-z]{3,})(?:[A-Z][a-z]{2,})*")
# All of a text, without a dot: names of files have one. It may be shorter than the key: a path keeps one slash of two.
_NOTHING_ELSE = re.compile(r"[A-Za-z0-9+/_-]{20,64}|[A-Za-z0-9+/_-]{12,64}={1,2}")


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
