"""The value itself: put right, opened by another configuration, or standing at another etcd key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from etcdfix.copies.finder import Finder, LookedInto
from etcdfix.copies.model import Copy, Home, Place, Wanted, Way, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.examine.repair import RepairSearch, without_doubtful_prefix
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Confidence, Outcome, Repair, RepairProof, StoredValue
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Source
from etcdfix.text.safetext import key_word, safe_text

_PROOFS = {
    RepairProof.TAG: "the tag proves it",
    RepairProof.DECODES: "an object of this key decodes whole",
    RepairProof.NONE: "",
}


class Bit(Finder):
    """Looks for the only way in which the stored bytes read again.

    Args:
        examiner: Of the source; of values behind KMS it must know what others under the same provider came to.
        every: Also what nothing but a person's word lets go back, as a damaged key name.
    """

    name = "the value put right"

    def __init__(self, examiner: Examiner, *, every: bool = False) -> None:
        super().__init__()
        self._examiner, self._every = examiner, every
        self.why_not, self.ambiguous = "", False

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the value as it was before it was damaged; nothing where that is not known."""
        found = wanted.found
        if found is None or found.verdict.outcome not in FAILED | {Outcome.UNDETERMINED}:
            return
        search = (
            self._examiner.closer.search_repair(found) if found.stored.value else RepairSearch(found.repair)
        )
        if not self._every and found.repair is None:  # else what stands beside the value has told more
            search = without_doubtful_prefix(search, found.verdict.cause)
        self.why_not, self.ambiguous = search.why_not, search.ambiguous
        if search.repair is not None:
            yield put_right(found, search.repair, search.repaired)


def put_right(found: Examination, repair: Repair, repaired: Examination | None = None) -> Copy:
    """Return the copy that a value is once it is put right; it can be written only where that was examined."""
    stored = found.stored
    if repaired is not None:
        copy = examined_copy(repaired, Place.BIT, repair.words, Place.BIT.value)
    else:
        copy = Copy(
            key=stored.key,
            place=Place.BIT,
            where=repair.words,
            source=Place.BIT.value,
            mod_revision=stored.mod_revision,
            create_revision=stored.create_revision,
            version=stored.version,
            lease=stored.lease,
            outcome=Outcome.READABLE,
        )
    # A copy that is proven is better than one of which only its shape speaks.
    sure = Confidence.CERTAIN if repair.proven else Confidence.POSSIBLE
    return msgspec.structs.replace(copy, repair=repair, proof=_PROOFS[repair.proof], sure=sure)


class Candidate(Finder):
    """Opens values with another configuration.

    Args:
        path: The configuration's file.
        examiner: Of the source, with that configuration.
    """

    name = "candidate configurations"

    def __init__(self, path: Path, examiner: Examiner) -> None:
        super().__init__(LookedInto(place=Place.CANDIDATE, path=safe_text(str(path))))
        self._path, self._examiner = path, examiner

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


class Elsewhere(Finder):
    """Looks at other etcd keys, where a tag shows that the value was written for this one.

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
        super().__init__()
        self._source, self._examiner = source, examiner.independent_copy()
        self._others, self._moved = tuple(others), moved

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
    home, apart = found.verdict.belongs_to, examiner.independent_copy()
    if not home:
        return Home.FREE
    try:
        with source.aside(), apart.without_recording():
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
