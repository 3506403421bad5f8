"""When to ask an API server again that answered for the moment only: it has too much to do, or does not serve yet."""

from __future__ import annotations

from typing import Final

PASSING: Final = frozenset({408, 429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that say nothing of what was asked for."""
AGAIN: Final = "run the same again in a moment"
"""What to do after one of them."""

_SHORTEST_SECONDS: Final = 1
_LONGEST_SECONDS: Final = 30


def pause_seconds(retry_after: int | None) -> int:
    """Return how long to wait: as long as the server says, within bounds."""
    return min(max(retry_after or 0, _SHORTEST_SECONDS), _LONGEST_SECONDS)
