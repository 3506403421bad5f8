"""What many examinations have in common, told apart and kept once: of a lost encryption key there may be millions.

A kind says nothing of a value that was not examined itself: it is found after the examination, and saves the room.
"""

from __future__ import annotations

from typing import Final

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import StoredValue

MOST_KINDS: Final = 1_000
"""So many kinds are told apart; in damaged or hostile data every value can bring a new one."""


class CompactExamination(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one examination has for itself, and the number of its kind; or all of it, where it has more."""

    kind: int | None
    stored: StoredValue | None = None
    namespace: str = ""
    name: str = ""
    whole: Examination | None = None


class AlikeExaminations:
    """Tells the kinds of examinations apart. Memory does not depend on how many examinations there are."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._firsts: list[Examination] = []

    def _number_of(self, found: Examination) -> int | None:
        """Return which kind an examination is of, counted from 0 as they come.

        None where it has more for itself than its record, namespace and name, or there are too many kinds.
        """
        if found.repair is not None or found.decoded is not None:  # it has more than its record and name
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
        if number is None and len(self._firsts) < MOST_KINDS:
            number = len(self._firsts)
            self._firsts.append(
                msgspec.structs.replace(found, stored=msgspec.structs.replace(found.stored, value=b""))
            )
            self._numbers[like] = number  # last: after a signal no number leads nowhere, or to another kind
        return number

    def compact(self, found: Examination) -> CompactExamination:
        """Return what has to be kept of an examination, for :meth:`expand`."""
        number = self._number_of(found)
        if number is None:
            return CompactExamination(None, whole=found)
        return CompactExamination(number, found.stored, found.namespace, found.name)

    def expand(self, part: CompactExamination) -> Examination:
        """Return an examination of which :meth:`compact` was kept."""
        if part.kind is not None:
            own = {"stored": part.stored, "namespace": part.namespace, "name": part.name}
            return msgspec.structs.replace(self._firsts[part.kind], **own)
        assert part.whole is not None  # one of the two always is there
        return part.whole
