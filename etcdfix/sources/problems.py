"""What a source could not read, as sentences for a report: a damaged file may have very many."""

from __future__ import annotations

from typing import Final

MAX_PROBLEMS: Final = 100
"""Problems told one by one; beyond that they are counted."""

DAMAGE_NOTE: Final = (
    "what cannot be read may hide newer revisions: a key may be missing, show an older value,"
    " or appear although it was deleted"
)
"""Stands last among the problems where part of the tree was lost."""

_MAX_COUNTED: Final = 100_000


class ProblemList:
    """Distinct problems: the first hundred as they are, the rest as a number."""

    def __init__(self) -> None:
        self._sentences: dict[str, None] = {}
        self._further: set[int] = set()

    def add(self, sentence: str) -> None:
        """Add one, unless it is there: several walks meet the same damage."""
        if sentence in self._sentences:
            return
        if len(self._sentences) < MAX_PROBLEMS:
            self._sentences[sentence] = None
        elif len(self._further) < _MAX_COUNTED:
            self._further.add(hash(sentence))

    def sentences(self) -> list[str]:
        """Return what was added, in order, and how many more there were."""
        further = len(self._further)
        if not further:
            return list(self._sentences)
        count = f"at least {further}" if further >= _MAX_COUNTED else str(further)
        return [*self._sentences, f"{count} more problems like these were found"]
