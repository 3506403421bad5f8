"""What a plan takes out of the plaintext of one value; made where the value is examined, maybe in another process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from etcdfix.examine import Examiner
from etcdfix.graph import extraction
from etcdfix.graph.extraction import GraphExtraction, ObjectExtract
from etcdfix.graph.recreation import Claim, read_claims
from etcdfix.maybe_newer import Similarity, similarity_of
from etcdfix.model import Outcome
from etcdfix.verdicts.examination import Examination

PLAN_EXTRACTION: Final = f"{__name__}:make"
"""Names :func:`make` for other processes."""


class PlanExtract(msgspec.Struct, array_like=True, gc=False):
    """What a plan needs of one value beside its verdict.

    Attributes:
        object: What the index needs; None where the value cannot be looked into.
        claims: What its spec makes controllers create.
        similarity: Of a value that fails, what it has in common with what a newer cluster may have written.
    """

    object: ObjectExtract | None
    claims: list[Claim]
    similarity: Similarity | None


class _Page(msgspec.Struct, array_like=True):
    objects: bytes
    others: list[tuple[int, list[Claim], Similarity | None]]
    """Those that have anything beside the object, by number."""


_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(_Page).decode


def make(examiner: Examiner, setup: bytes) -> PlanExtraction:
    """Return what extracts from values that an examiner examines; for a process of its own."""
    return PlanExtraction(examiner, extraction.make(examiner, setup))


class PlanExtraction:
    """Extracts from values what a plan needs of them."""

    def __init__(self, examiner: Examiner, graph: GraphExtraction) -> None:
        self._examiner = examiner
        self._graph = graph

    def extract(self, found: Examination) -> PlanExtract:
        """Return what matters of a value.

        Raises:
            KMSPending: See :meth:`~etcdfix.graph.contents.ContentReader.read`.
        """
        failing = found.verdict.outcome is not Outcome.READABLE
        return PlanExtract(
            self._graph.extract(found),
            read_claims(self._graph.reader, found),
            similarity_of(found, self._examiner) if failing else None,
        )

    def pack(self, extracted: Sequence[PlanExtract]) -> bytes:
        """Return what was extracted from a page as bytes.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        others = [
            (number, one.claims, one.similarity)
            for number, one in enumerate(extracted)
            if one.claims or one.similarity is not None
        ]
        return _encode(_Page(self._graph.pack([one.object for one in extracted]), others))

    def unpack(self, packed: bytes) -> list[PlanExtract]:
        """Return what was packed."""
        page = _decode_page(packed)
        extracted = [PlanExtract(one, [], None) for one in self._graph.unpack(page.objects)]
        for number, claims, similarity in page.others:
            extracted[number].claims, extracted[number].similarity = claims, similarity
        return extracted
