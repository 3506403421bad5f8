"""Whether a value that cannot be read can be had back from its own stored bytes, and by what.

What may have happened to it is undone in every way that is known, and each result is examined as if etcd had it: the
encryption key opens it, an object decodes whole, nothing in it contradicts itself or its etcd key. Only where exactly
one result is left is there a repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from etcdfix.encryption.repairs import Rewrite, cbc_rewrites, prefix_rewrites, rewrites
from etcdfix.encryption.transformer import ResourceTransformers, TransformFailed
from etcdfix.examine.verdicts.catalogue import CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.plaintext import fixed_undos
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof, StoredValue, UndoneDamage
from etcdfix.model.providers import ENCRYPTED_PREFIX, IDENTITY

_UNDONE = {
    RepairKind.MAGIC: "the first four bytes are those of a protobuf object again",
    RepairKind.TEXT_MODE: "every CR LF turned back into LF",
    RepairKind.TRAILING_BYTES: "what follows the whole object cut off",
}


class RepairSearch(NamedTuple):
    """What came of a search for a repair.

    Attributes:
        repair: None for none.
        value: The stored bytes that it leads to; b"" for none.
        repaired: What those are; None for none.
        why_not: Why there is none, for people; "" where there is one.
        ambiguous: There are several, and nothing says which.
    """

    repair: Repair | None = None
    value: bytes = b""
    repaired: Examination | None = None
    why_not: str = (
        "no single bit or known change makes it readable under the encryption keys of this configuration"
    )
    ambiguous: bool = False

    def __repr__(self) -> str:
        return f"RepairSearch({self.repair!r}, {len(self.value)} bytes, {self.why_not!r})"


NO_REPAIR = RepairSearch()


def find_repair(
    stored: StoredValue,
    candidates: Iterable[Rewrite],
    proof_of: Callable[[StoredValue], RepairProof | None],
    examine: Callable[[StoredValue], Examination],
    *,
    unsearched: str = "",
) -> RepairSearch:
    """Examine what a value may have been, and return the only result that reads."""
    fits: dict[bytes, tuple[Rewrite, Examination, RepairProof]] = {}
    nearly = ""
    for rewrite in candidates:
        if rewrite.value == stored.value or rewrite.value in fits:
            continue
        other = msgspec.structs.replace(stored, value=rewrite.value)
        proof = proof_of(other)
        if proof is None:
            continue
        found = examine(other)
        if _reads(found):
            fits[rewrite.value] = rewrite, found, proof
        elif found.opened and proof is RepairProof.TAG:
            verdict = found.verdict
            nearly = (
                f"with {rewrite.words} it opens, and what it holds is {verdict.outcome}: {verdict.message}"
            )
    if not fits:
        why_not = nearly or NO_REPAIR.why_not
        return RepairSearch(why_not=f"{why_not}; not searched: {unsearched}" if unsearched else why_not)
    if len(fits) > 1:
        ways = "; ".join(rewrite.words for rewrite, *_ in fits.values())
        why_not = f"{len(fits)} different repairs would each make it readable, and nothing says which is right: {ways}"
        return RepairSearch(why_not=why_not, ambiguous=True)
    (value, (rewrite, found, proof)) = next(iter(fits.items()))
    if rewrite.kind is RepairKind.NAME:
        proof = RepairProof.NONE
    return RepairSearch(Repair(rewrite.kind, rewrite.words, proof), value, found, "")


def without_doubtful_prefix(search: RepairSearch, cause: Cause | None) -> RepairSearch:
    """Drop a repaired prefix or name that a wrong configuration, or another key, would explain too.

    What others come to may tell more: see :class:`~etcdfix.examine.two_passes.TwoPasses`.
    """
    repair = search.repair
    if repair is None or repair.kind not in {RepairKind.PREFIX, RepairKind.NAME}:
        return search
    if repair.kind is RepairKind.NAME:
        why = "a key that had that name looks the same: nothing tells"
    elif cause in CURABLE_BY_CONFIGURATION:
        why = "the configuration may be what is wrong"
    else:
        return search
    return RepairSearch(why_not=f"with {repair.words} it would read, but {why}")


def _reads(found: Examination) -> bool:
    return found.verdict.outcome is Outcome.READABLE and found.verdict.cause is None


def rewrites_of(
    stored: StoredValue,
    own: ResourceTransformers | None,
    undone: UndoneDamage | None,
    *,
    thorough: bool,
    fits: Callable[[bytes], bool] | None = None,
) -> Iterator[Rewrite]:
    """Yield what a value may have been.

    Args:
        stored: As etcd has it.
        own: What serves its resource; None where no configuration is known.
        undone: What a thorough look found.
        thorough: Also search for what takes time: a flipped bit behind the prefix, a wrapped data key, and whatever a
            KMS plugin has to be asked about.
        fits: Says whether a plaintext is the object of the etcd key; None not to search under AES-CBC.
    """
    data = stored.value
    if not data.startswith(ENCRYPTED_PREFIX):
        for kind, value in fixed_undos(data):  # the few that are fixed, and never a searched bit
            yield Rewrite(value, kind, _UNDONE[kind])
    if own is None:
        return
    if thorough and data.startswith(ENCRYPTED_PREFIX):
        yield from rewrites(data, stored.key, own, undone)
        if fits is not None:
            yield from cbc_rewrites(data, own, fits)
    else:
        yield from prefix_rewrites(data, own, plugins=thorough)


def proof_of(stored: StoredValue, own: ResourceTransformers | None) -> RepairProof | None:
    """Say what shows that a value is what was written; None for one that does not open.

    Raises:
        KMSPending: Only while plugins defer.
    """
    if own is None:
        return RepairProof.DECODES
    try:
        plain = own.from_storage(stored.value, stored.key)
    except TransformFailed:
        return None
    if plain.transformer == IDENTITY:
        return RepairProof.DECODES
    return RepairProof.TAG if plain.authenticated else RepairProof.NONE
