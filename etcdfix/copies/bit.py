"""The value itself, put right: one bit, its prefix, a wrapped data key, its first bytes, line ends, what follows it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.copies.finder import LookedInto
from etcdfix.copies.model import Copy, Place, Wanted, examined_copy
from etcdfix.examine.one import Examiner
from etcdfix.examine.repair import RepairSearch, unasked
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import Confidence, Outcome, Repair, RepairProof

_PROOFS = {
    RepairProof.TAG: "its tag proves it",
    RepairProof.DECODES: "an object of this key decodes whole",
    RepairProof.NONE: "",
}


class Bit:
    """Looks for the only way in which the stored bytes read again; a :class:`~etcdfix.copies.finder.Finder`.

    Args:
        examiner: Of the source; of values behind KMS it must know what others under the same provider came to.
        every: Also what nothing but a person's word lets go back, as a damaged key name.
    """

    name = "the value put right"

    def __init__(self, examiner: Examiner, *, every: bool = False) -> None:
        self._examiner, self._every = examiner, every
        self.looked: list[LookedInto] = []
        self.problems: list[str] = []
        self.why_not, self.ambiguous = "", False

    def find(self, wanted: Wanted) -> Iterator[Copy]:
        """Yield the value as it was before it was damaged; nothing where that is not known."""
        found = wanted.found
        if found is None or found.verdict.outcome not in FAILED | {Outcome.UNDETERMINED}:
            return
        search = self._examiner.search_repair(found) if found.stored.value else RepairSearch(found.repair)
        if not self._every and found.repair is None:  # else what stands beside the value has told more
            search = unasked(search, found.verdict.cause)
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
