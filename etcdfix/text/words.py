"""Words with their numbers."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return ``1 key``, ``2 keys``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
