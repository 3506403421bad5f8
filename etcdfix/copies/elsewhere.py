"""The value of another etcd key, where a tag shows that it was written for this one; and what stands at its own key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Home, Place, Wanted, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.text.safetext import key_word


class Elsewhere:
    """Looks at other etcd keys; a :class:`~etcdfix.copies.finder.Finder`.

    Args:
        source: What is stored now.
        examiner: Of the source; what it sees here speaks for no other value.
        others: The keys to look at, whatever is wanted: one that a person names.
        moved: The keys whose value was written for another one, by that; it may grow until the first search.
    """

    name = "other etcd keys"

    def __init__(
        self,
        source: Source,
        examiner: Examiner,
        others: Iterable[bytes],
        moved: Mapping[bytes, Sequence[bytes]],
    ) -> None:
        self._source, self._examiner = source, examiner.apart()
        self._others, self._moved = tuple(others), moved
        self.looked: list[LookedInto] = []
        self.problems: list[str] = []

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the values that open under this key, with a tag, and do not stand here."""
        for other in (*self._others, *self._moved.get(wanted.key, ())):
            there = self._source.get(other) if other != wanted.key else None
            if there is None:
                continue
            moved = msgspec.structs.replace(there, key=wanted.key)
            found = self._examiner.examine(moved)
            copy = examined_copy(
                found,
                Place.KEY,
                f"etcd key {display(other)}",
                f"key:{key_word(other)}",
            )
            if copy.outcome is Outcome.READABLE and not self._authenticates(moved):
                copy = msgspec.structs.replace(
                    copy,
                    outcome=Outcome.UNDETERMINED,
                    message="no tag shows that it was written for this key: its provider has none",
                )
            elif copy.reads and copy.cause is not None:
                message = found.verdict.message
                copy = msgspec.structs.replace(copy, outcome=Outcome.UNDETERMINED, message=message)
            # Its revisions are those of the other key.
            yield msgspec.structs.replace(copy, create_revision=0, version=0, proof="its tag fits this key")

    def _authenticates(self, stored: StoredValue) -> bool:
        transformers = self._examiner.readers.reader_for(stored.key).transformers
        if transformers is None:
            return False
        plain = transformers.from_storage(stored.value, stored.key)
        return plain.authenticated and plain.transformer != IDENTITY


def home_of(source: Source, examiner: Examiner, found: Examination) -> Home:
    """Say what stands at the etcd key that a value belongs to; what cannot be read counts as nothing."""
    home, apart = found.verdict.belongs_to, examiner.apart()
    if not home:
        return Home.FREE
    try:
        with (
            source.aside(),
            apart.plugins.without_recording() if apart.plugins is not None else nullcontext(),
        ):
            there = source.get(home)
            return home_holds(apart, found.stored, home, there)
    except SourceError:  # the command that is printed says when it holds
        return Home.FREE


def home_holds(examiner: Examiner, stored: StoredValue, home: bytes, there: StoredValue | None) -> Home:
    """Compare a moved value with what stands at the etcd key that it belongs to."""
    if there is None:
        return Home.FREE
    moved, standing = examiner.examine(msgspec.structs.replace(stored, key=home)), examiner.examine(there)
    if standing.verdict.outcome is not Outcome.READABLE:
        return Home.TAKEN
    contents = examiner.plaintext(moved)
    if contents is not None and contents == examiner.plaintext(standing):
        return Home.SAME
    later = there.mod_revision > stored.mod_revision
    return Home.LATER if later and moved.uid and moved.uid == standing.uid else Home.TAKEN
