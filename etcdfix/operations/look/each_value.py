"""Has workers hand over each value that they examine, what is plain too, and take nothing out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from etcdfix.examine import Examiner
from etcdfix.verdicts.examination import Examination

EACH_VALUE: Final = f"{__name__}:make"
_COUNT_BYTES: Final = 4


class _EachValue:
    """Draws nothing: what a value was found to be is enough."""

    def draw(self, _found: Examination) -> None:
        """Take nothing."""

    def pack(self, drawn: Sequence[None]) -> bytes:
        """Return how many they are."""
        return len(drawn).to_bytes(_COUNT_BYTES)

    def unpack(self, packed: bytes) -> Sequence[None]:
        """Return as many."""
        return [None] * int.from_bytes(packed)


def make(_examiner: Examiner, _setup: bytes) -> _EachValue:
    """Return what draws nothing; named by :data:`EACH_VALUE`."""
    return _EachValue()
