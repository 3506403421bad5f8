"""The mark of an EncryptionConfiguration that etcdfix made: it is for reading, and nothing may be written by it.

The mark is a name of ours, ``<made by>.not-for-writing.etcdfix.io``. It stands twice. In a comment, for people; and
as a resource in a rule of its own, which API servers take like that of any custom resource, and which none has. So
it is still there in a file that a tool has turned into JSON, or written anew without comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

NOT_FOR_WRITING: Final = "not-for-writing.etcdfix.io"
"""The API group of the mark."""

MADE_BY_RECOVER: Final = "recover"
"""The command that takes one out of the datastore of k3s or RKE2."""

UNKNOWN_MAKER: Final = "etcdfix"
"""Of a file in which only the group is left."""

_MARK: Final = re.compile(rb"(?:([a-z]{1,32})\.)?" + re.escape(NOT_FOR_WRITING.encode()), re.IGNORECASE)


def mark_of(made_by: str) -> str:
    """Return the resource that marks a file, for the command that made it: ``merge``."""
    return f"{made_by}.{NOT_FOR_WRITING}"


def is_mark(entry: str) -> bool:
    """Say whether an entry of a resource list is a mark, and no resource."""
    return entry == NOT_FOR_WRITING or entry.endswith(f".{NOT_FOR_WRITING}")


def find_mark(raw: bytes, entries: Iterable[str]) -> str:
    """Return what made a file that is marked; "" for a file that is not.

    The name counts wherever it stands, comments and later documents included. The entries may be written with escapes.
    """
    for text in (raw, *(entry.encode(errors="replace") for entry in entries)):
        found = _MARK.search(text)
        if found is not None:
            return found[1].decode().lower() if found[1] is not None else UNKNOWN_MAKER
    return ""
