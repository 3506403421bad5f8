"""The API server's way of putting things into words, minus what it gives away.

Errors here are compared with server logs, so quoting and joining follow Go. What a person typed into the
wrong place may be a key, so nothing is echoed that could hold one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from etcdfix.golang.goquote import go_quote, withheld

# 22 base64 characters carry 128 bits, the smallest key a provider takes; 32 hex digits carry as many.
_KEY_RUN = re.compile(r"[A-Za-z0-9+/_=-]{22,}")
_HEX_RUN = re.compile(r"[0-9A-Fa-f]{32}")
# Words written in camel case (EncryptionConfigurations) are long, mixed in case, and no keys.
_CAMEL_CASE = re.compile(r"(?:[A-Z]?[a-z]{3,})(?:[A-Z][a-z]{2,})*")


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


def shown(text: str) -> str:
    """Return ``text`` quoted like Go, or its size alone where it could hold a key."""
    return withheld(text) if may_hold_key(text) else go_quote(text)


def shown_bare(text: str) -> str:
    """Return ``text`` without quotes, or its size alone where it could hold a key."""
    return withheld(text) if may_hold_key(text) else text


def shown_list(texts: Sequence[str]) -> str:
    """Return a list of strings as Go's ``encoding/json`` prints it, or its size where one could be a key."""
    rendered = json.dumps(list(texts), ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        rendered = rendered.replace(character, f"\\u{ord(character):04x}")
    return withheld(rendered) if any(map(may_hold_key, texts)) else rendered


def aggregate(messages: Iterable[str]) -> str:
    """Join messages as ``k8s.io/apimachinery/pkg/util/errors`` does: each once, brackets around several."""
    distinct = list(dict.fromkeys(messages))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
