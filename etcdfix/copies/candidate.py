"""The value itself, opened by a candidate configuration that today's API servers do not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Place, Wanted, Way, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.model.model import Outcome
from etcdfix.text.safetext import safe_text


class Candidate:
    """Opens values with another configuration; a :class:`~etcdfix.copies.finder.Finder`.

    Args:
        path: The configuration's file.
        examiner: Of the source, with that configuration.
    """

    name = "candidate configurations"

    def __init__(self, path: Path, examiner: Examiner) -> None:
        self._path, self._examiner = path, examiner
        self.looked = [LookedInto(place=Place.CANDIDATE, path=safe_text(str(path)))]
        self.problems: list[str] = []

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the value as the candidate opens it; nothing where today's configuration opens it."""
        if wanted.found is None or wanted.found.opened or not wanted.found.stored.value:
            return
        found = self._examiner.examine(wanted.found.stored)
        opened = f"opened with {found.transformer} of" if found.opened else "not opened by"
        copy = examined_copy(
            found,
            Place.CANDIDATE,
            f"this value, {opened} {safe_text(str(self._path))}",
            f"candidate:{self._path}",
            way=Way.SEAL,
        )
        plaintext = self._examiner.plaintext(found) if copy.reads else None
        if copy.reads and (copy.cause is not None or plaintext is None):
            why = found.verdict.message if copy.cause is not None else "it opened once, and not again"
            copy = msgspec.structs.replace(copy, outcome=Outcome.UNDETERMINED, message=why)
        yield msgspec.structs.replace(copy, plaintext=plaintext)
