"""Findings of one encryption key in few bytes each, until it is known whether the key is lost.

A lost key may have millions. What they have in common is kept once; only where the key is not lost, each value's own
ways out are looked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.kinds import Kinds
from etcdfix.model.model import Evidence, ReadableRevision, StoredValue
from etcdfix.model.storagekey import ResourcePrefix, display
from etcdfix.report.finding import finding_from, shown_lease
from etcdfix.report.key_loss import Place, places_of
from etcdfix.report.model import Finding, FindingEvidence
from etcdfix.text.safetext import key_base64


class CompactFinding(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """What one value does not share with the others of its kind.

    ``kind`` is its number in :class:`Kinds`, ``lease`` 0 for none, ``value_digest`` SHA-256 of
    the stored bytes, and ``evidence`` what was seen of this value alone.
    """

    kind: int
    key: bytes
    mod_revision: int
    create_revision: int
    version: int
    lease: int
    value_size: int
    value_digest: bytes
    namespace: str
    name: str
    baseline: bool = False
    evidence: tuple[Evidence, ...] = ()
    readable: ReadableRevision | None = None


class Counted(msgspec.Struct):
    """How many values of one kind came after its first, ``found``; revisions and ``first_key`` are of all."""

    found: Examination
    more: int
    first_mod_revision: int
    last_mod_revision: int
    first_key: bytes

    def count(self, key: bytes, mod_revision: int) -> None:
        """Count one more."""
        if mod_revision > self.last_mod_revision:
            self.last_mod_revision = mod_revision
        elif mod_revision < self.first_mod_revision:
            self.first_mod_revision = mod_revision
        self.first_key = min(self.first_key, key)
        self.more += 1


class _Kind(Counted):
    finding: Finding
    places: tuple[Place, ...]


def with_evidence(found: Examination, more: tuple[Evidence, ...]) -> Examination:
    """Return an examination with further evidence."""
    if not more:
        return found
    verdict = msgspec.structs.replace(found.verdict, evidence=(*found.verdict.evidence, *more))
    return msgspec.structs.replace(found, verdict=verdict)


class CompactFindings:
    """Compacts findings, and expands them again. Memory does not depend on how many there are."""

    def __init__(self) -> None:
        self._told_apart = Kinds()
        self._kinds: list[_Kind] = []

    def compact(
        self,
        found: Examination,
        *,
        own: tuple[Evidence, ...] = (),
        readable: ReadableRevision | None = None,
        baseline: bool = False,
    ) -> CompactFinding | None:
        """Return a value in few bytes; None where it shares too little, or there are too many kinds.

        ``own`` was seen of it alone, beside the evidence of its verdict.
        """
        stored = found.stored
        number = self._told_apart.number_of(found)
        if number is None:
            return None
        new = number >= len(self._kinds)
        while number >= len(self._kinds):  # one, or more after a signal
            self._kinds.append(self._kind_of(self._told_apart.first(len(self._kinds))))
        compact = CompactFinding(
            number,
            stored.key,
            stored.mod_revision,
            stored.create_revision,
            stored.version,
            stored.lease,
            len(stored.value),
            hashlib.sha256(stored.value).digest(),
            found.namespace,
            found.name,
            baseline,
            own,
            readable,
        )
        if not new:  # last: after a signal none is counted that is in no report
            self._kinds[number].count(stored.key, stored.mod_revision)
        return compact

    @staticmethod
    def _kind_of(found: Examination) -> _Kind:
        stored = found.stored
        revision = stored.mod_revision
        return _Kind(found, 0, revision, revision, stored.key, finding_from(found, ()), places_of(found))

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def counted(self) -> Sequence[Counted]:
        """Every kind, in the order of their first values."""
        return self._kinds

    def directory(self, kind: int) -> ResourcePrefix:
        """Return where the values of a kind belong."""
        return self._kinds[kind].found.directory

    def finding(self, one: CompactFinding) -> Finding:
        """Return the finding of a value whose key is lost: it has no ways out of its own."""
        whole = self._kinds[one.kind].finding
        evidence = whole.evidence
        if one.evidence:
            evidence = [*evidence, *(FindingEvidence(e.check, e.result, e.detail) for e in one.evidence)]
        return msgspec.structs.replace(
            whole,
            key=display(one.key),
            key_base64=key_base64(one.key),
            namespace=one.namespace,
            name=one.name,
            mod_revision=one.mod_revision,
            create_revision=one.create_revision,
            version=one.version,
            lease=shown_lease(one.lease),
            value_size=one.value_size,
            value_sha256=shown_digest(one),
            evidence=evidence,
            baseline=one.baseline,
        )

    def examination(self, one: CompactFinding) -> Examination:
        """Return the examination of a value, without the bytes of that; no way out of a lost key depends on these."""
        stored = StoredValue(one.key, b"", one.mod_revision, one.create_revision, one.version, one.lease)
        found = self._told_apart.examination(one.kind, stored, one.namespace, one.name)
        return with_evidence(found, one.evidence)

    def kinds_of(self, lost: Iterable[Place]) -> dict[int, Place]:
        """Return the kinds whose values belong to one of these keys, and to which."""
        keys = [*lost]
        return {
            number: key
            for number, kind in enumerate(self._kinds)
            for key in reversed(keys)
            if key in kind.places
        }


def shown_digest(one: CompactFinding) -> str:
    """Return the digest of the stored bytes as reports have it."""
    return f"sha256:{one.value_digest.hex()}"
