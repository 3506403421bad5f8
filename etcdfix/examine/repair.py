"""Whether a value that cannot be read can be had back from its own stored bytes, and by what.

What may have happened to it is undone in every way that is known, and each result is examined as if etcd had it: the
encryption key opens it, an object decodes whole, nothing in it contradicts itself or its etcd key. Only where exactly
one result is left is there a repair.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from etcdfix.encryption.repairs import Rewrite, cbc_rewrites, prefix_rewrites, rewrites, unsearched
from etcdfix.encryption.transformer import ResourceTransformers, TransformFailed
from etcdfix.examine.verdicts.catalogue import CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.plaintext import fixed_undos
from etcdfix.model.model import Outcome, Repair, RepairKind, RepairProof, StoredValue, UndoneDamage
from etcdfix.model.providers import ENCRYPTED_PREFIX, IDENTITY

if TYPE_CHECKING:
    from etcdfix.examine.one import Examiner

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
    own: ResourceTransformers | None,
    undone: UndoneDamage | None,
    examiner: Examiner,
    *,
    thorough: bool,
    fits: Callable[[bytes], bool] | None = None,
) -> RepairSearch:
    """Examine what a value may have been, and return the only result that reads.

    Args:
        stored: As etcd has it.
        own: What serves its resource; None where no configuration is known.
        undone: What a thorough look found.
        examiner: Of the cluster; what is examined here speaks for none of its values.
        thorough: Also search for what takes time: a flipped bit behind the prefix, a wrapped data key, and whatever a
            KMS plugin has to be asked about.
        fits: Says whether a plaintext is the object of the etcd key; None not to search under AES-CBC.

    Raises:
        KMSPending: Only while plugins defer.
    """
    left = unsearched(stored.value, own) if fits is not None and own is not None else ""
    candidates = [*_rewrites_of(stored, own, undone, fits, thorough=thorough)]
    fitting: dict[bytes, tuple[Rewrite, Examination, RepairProof]] = {}
    why_not = NO_REPAIR.why_not
    if candidates:
        trial = examiner.independent_copy(repairs=False)
        with trial.without_recording(), own.learning_nothing() if own is not None else nullcontext():
            for rewrite in candidates:
                other = msgspec.structs.replace(stored, value=rewrite.value)
                known = rewrite.value == stored.value or rewrite.value in fitting
                proof = None if known else _proof_of(other, own)
                if proof is None:
                    continue
                found = trial.examine(other)
                verdict = found.verdict
                if verdict.outcome is Outcome.READABLE and verdict.cause is None:
                    fitting[rewrite.value] = rewrite, found, proof
                elif found.opened and proof is RepairProof.TAG:
                    why_not = f"with {rewrite.words} it opens, and holds what is {verdict.outcome}: {verdict.message}"
    if not fitting:
        return RepairSearch(why_not=f"{why_not}; not searched: {left}" if left else why_not)
    if len(fitting) > 1:
        ways = "; ".join(rewrite.words for rewrite, *_ in fitting.values())
        why_not = f"{len(fitting)} different repairs would make it readable, and nothing says which is right: {ways}"
        return RepairSearch(why_not=why_not, ambiguous=True)
    (value, (rewrite, found, proof)) = next(iter(fitting.items()))
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


def _rewrites_of(
    stored: StoredValue,
    own: ResourceTransformers | None,
    undone: UndoneDamage | None,
    fits: Callable[[bytes], bool] | None,
    *,
    thorough: bool,
) -> Iterator[Rewrite]:
    """Yield what a value may have been."""
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


def _proof_of(stored: StoredValue, own: ResourceTransformers | None) -> RepairProof | None:
    """Say what shows that a value is what was written; None for one that does not open."""
    if own is None:
        return RepairProof.DECODES
    try:
        plain = own.from_storage(stored.value, stored.key)
    except TransformFailed:
        return None
    if plain.transformer == IDENTITY:
        return RepairProof.DECODES
    return RepairProof.TAG if plain.authenticated else RepairProof.NONE
