"""Ages as people type them: weeks, days and hours, which durations of Go do not have."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_AGE: Final = re.compile(r"([1-9]\d{0,5})([wdh])", re.ASCII)
_HOURS: Final = {"w": 7 * 24, "d": 24, "h": 1}


def age_of(text: str) -> timedelta | None:
    """Return what ``12w``, ``90d`` or ``36h`` means; None for anything else."""
    found = _AGE.fullmatch(text)
    return timedelta(hours=int(found[1]) * _HOURS[found[2]]) if found is not None else None
