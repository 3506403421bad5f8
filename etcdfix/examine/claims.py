"""Keys that no resource claims, one changed bit away from one that does: their names may have been damaged.

A flipped bit in a key takes its object out of sight without a trace: the API server looks below other names.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from etcdfix.model.model import Evidence, StoredValue
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, display
from etcdfix.text.safetext import quote_command

KEY_NAME_CHECK: Final = "key-name"
"""Of the evidence, as the next one: no resource claims the name, and one does that is one bit away."""

PREDECESSOR_CHECK: Final = "predecessor"
"""The object should have been changed before under this name, and was not."""

Claimed = Callable[[ResourcePrefix], bool]
"""Says whether a resource that is known here keeps its objects in a directory."""

LARGE: Final = 1_400_000
"""Bytes of a value that hardly leaves room in a request of 1.5 MiB, etcd's default limit."""

_ADDRESS: Final = re.compile(r"[0-9a-f.:]{2,45}")
_LONGEST: Final = 160
_MOST_KNOWN: Final = 4096


class ClaimSearch:
    """Looks for the name that a key may have had; what was found for one directory is kept for its other keys."""

    def __init__(self, layout: StorageLayout, claimed: Claimed) -> None:
        self._layout = layout
        self._claimed = claimed
        self._known: dict[bytes, bytes | None] = {}

    def look(self, key: bytes) -> tuple[Evidence, ...]:
        """Return the warning about a key that no resource claims; nothing for most."""
        prefix = self._layout.path()
        start = key[: len(prefix)]
        inside = start == prefix
        if not inside:
            if (int.from_bytes(start) ^ int.from_bytes(prefix)).bit_count() != 1 or len(start) < len(prefix):
                return ()
            candidate = prefix + key[len(prefix) :]
            return self._warning(candidate) if self._belongs(candidate) else ()
        segments = key.split(b"/", prefix.count(b"/") + 2)
        head = b"/".join(segments[:-1]) + b"/"
        if len(head) > _LONGEST or len(segments) < prefix.count(b"/") + 2:
            return ()
        if head not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[head] = self._unflipped(head, len(prefix))
        found = self._known[head]
        return self._warning(found + key[len(head) :]) if found is not None else ()

    def _unflipped(self, head: bytes, start: int) -> bytes | None:
        changed = bytearray(head)
        for at in range(start, len(head) - 1):
            for bit in range(8):
                changed[at] ^= 1 << bit
                candidate = bytes(changed)
                changed[at] ^= 1 << bit
                if self._belongs(candidate + b"x"):
                    return candidate
        return None

    def _belongs(self, key: bytes) -> bool:
        return self._claimed(self._layout.locate(key)[0])

    def _warning(self, candidate: bytes) -> tuple[Evidence, ...]:
        return (
            Evidence(
                KEY_NAME_CHECK,
                "one bit off",
                f"no resource claims this name; one bit away from it is {display(candidate)}, which one does: the name "
                "of the key itself may be damaged",
            ),
        )


def without_its_lease(layout: StorageLayout, stored: StoredValue) -> tuple[Evidence, ...]:
    """Warn of the address of an API server that never expires; nothing for any other key.

    A copy of keys into another etcd loses the leases. An API server that runs puts a new one on its own key.
    """
    folder = layout.path("masterleases/")
    if stored.lease or not stored.key.startswith(folder):
        return ()
    address = display(stored.key[len(folder) :])
    if not _ADDRESS.fullmatch(address):
        return ()
    return (
        Evidence(
            "lease",
            "missing",
            f"it has no lease, so it never expires: Service default/kubernetes keeps {address}. Where "
            f"no API server has that address: {quote_command(('etcdctl', 'del', display(stored.key)))}",
        ),
    )


def too_large(stored: StoredValue) -> tuple[Evidence, ...]:
    """Warn of an object that can hardly be written again; nothing for most."""
    if len(stored.value) < LARGE:
        return ()
    size = f"{len(stored.value):,} bytes, and by default etcd takes 1.5 MiB in a request"
    what = "API servers may be unable to write it again, or to mark it as deleted: remove something first"
    return (Evidence("size", "near the limit of etcd", f"{size}. {what} (kubectl patch)"),)
