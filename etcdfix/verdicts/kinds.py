"""What many examinations have in common, told apart and kept once: of a lost encryption key there may be millions.

A kind says nothing of a value that was not examined itself: it is found after the examination, and saves the room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from etcdfix.model import StoredValue
from etcdfix.verdicts.examination import Examination

K = TypeVar("K")

MOST_KINDS: Final = 1_000
"""So many kinds are told apart; in damaged or hostile data every value can bring a new one."""


def may_be_one_of_many(found: Examination) -> bool:
    """Say whether an examination has no more for itself than its record, namespace and name."""
    return found.repair is None and found.decoded is None


class Kinds(Generic[K]):
    """Tells the kinds of examinations apart. Memory does not depend on how many examinations there are.

    Args:
        keep: Makes what is kept of a kind from its first examination, which comes without the bytes of its value.

    Attributes:
        kept: Of each kind, by its number. After a signal it may have one more, which no number leads to.
    """

    def __init__(self, keep: Callable[[Examination], K]) -> None:
        self._keep = keep
        self._numbers: dict[tuple[object, ...], int] = {}
        self.kept: list[K] = []

    def number_of(self, found: Examination) -> int | None:
        """Return which kind an examination is of, counted from 0 as they come.

        None where it has more for itself than its record, namespace and name, or there are too many kinds.
        """
        if not may_be_one_of_many(found):
            return None
        like = (
            found.verdict,
            found.directory,
            found.transformer,
            found.opened,
            found.stale,
            found.kms_key_id,
            found.rule,
            found.key_fingerprints,
            found.keys_untried,
            not found.namespace,  # decides what is at stake
        )
        number = self._numbers.get(like)
        if number is None and len(self.kept) < MOST_KINDS:
            number = len(self.kept)
            stored = msgspec.structs.replace(found.stored, value=b"")
            self.kept.append(self._keep(msgspec.structs.replace(found, stored=stored)))
            self._numbers[like] = number  # last: after a signal no number leads nowhere, or to another kind
        return number


def another(first: Examination, stored: StoredValue, namespace: str, name: str) -> Examination:
    """Return an examination of the same kind as another one, from what is its own."""
    return Examination(
        stored,
        first.directory,
        namespace,
        name,
        first.transformer,
        first.opened,
        first.stale,
        first.verdict,
        None,
        first.kms_key_id,
        first.rule,
        first.key_fingerprints,
        None,
        first.keys_untried,
    )
