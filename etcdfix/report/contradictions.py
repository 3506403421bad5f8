"""What a saved report says twice: its findings, held against what its summary says of them.

Where the two differ, the file was edited, or a part of it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from etcdfix.report.model import COUNTED

_CONTRADICTS: Final = "the report contradicts itself:"


def contradictions(found: Mapping[str, int], told: Mapping[str, int]) -> list[str]:
    """Say where the findings are not those that the summary counts.

    Args:
        found: How many findings there are, by field of the summary.
        told: What the summary says.
    """
    return [
        f"{_CONTRADICTS} it has {found[field]} findings of {outcome}, and counts {told[field]}"
        for outcome, field in COUNTED.items()
        if found[field] != told[field]
    ]
