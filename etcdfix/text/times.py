"""Times of reports as numbers: a saved report may hold anything in their place."""

from __future__ import annotations

from datetime import datetime


def unix_seconds(at: str) -> int:
    """Return a time of a report in seconds since 1970; 0 where it is none."""
    try:
        return max(0, int(datetime.fromisoformat(at).timestamp()))
    except (OverflowError, ValueError):
        return 0


def seconds_between(first: str, last: str) -> int:
    """Return how long something took, from two times of a report; 0 where they make no sense."""
    return max(0, unix_seconds(last) - unix_seconds(first)) if unix_seconds(first) else 0
