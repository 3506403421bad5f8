"""Findings that differ in little but their etcd keys: what they have in common is kept, and published, once.

Of a lost encryption key there may be millions. What is said of one value stands in few bytes until it is known whether
its key is lost; only where it is not, the value's own ways out are sought.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET

from etcdfix.model import Evidence, ReadableRevision, StoredValue
from etcdfix.report.finding import finding_from, shown_lease
from etcdfix.report.key_loss import Place, places_of
from etcdfix.report.model import Finding, FindingEvidence, SharedWords
from etcdfix.storagekey import ResourcePrefix, display
from etcdfix.text.safetext import key_base64
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.kinds import Kinds

_ID_DIGITS: Final = 10


class OneOfMany(msgspec.Struct, frozen=True, tag=True, array_like=True, gc=False):
    """What one value has for itself, and the number of its kind.

    Attributes:
        kind: As :class:`~etcdfix.verdicts.kinds.Kinds` counts them.
        key: Etcd key.
        mod_revision: Of the key, as the next three.
        create_revision: Revision at which this generation of the key began.
        version: Number of changes since then.
        lease: etcd lease id, 0 for none.
        value_size: Bytes.
        value_digest: SHA-256 of the stored bytes.
        namespace: Namespace in the key.
        name: Name in the key.
        baseline: It was known before.
        evidence: What was seen of this value alone.
        readable: An earlier revision that still reads; None for none.
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
    """How many values of one kind came after its first, and what is published of all of them.

    Attributes:
        found: The first, without the bytes of its value.
        more: How many came after it.
        first_mod_revision: The lowest of all.
        last_mod_revision: The highest of all.
        first_key: The first etcd key of all.
    """

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
    shared: SharedWords
    places: tuple[Place, ...]


class _CommonWords:
    """Names what several findings say in the same words."""

    def __init__(self) -> None:
        self._named: dict[str, SharedWords] = {}

    def of(self, finding: Finding) -> SharedWords:
        """Return what all findings with this cause, message and evidence have in common."""
        words = SharedWords("", finding.cause or "", finding.message, finding.evidence)
        digest = hashlib.sha256(msgspec.json.encode(words)).hexdigest()
        for digits in range(_ID_DIGITS, len(digest) + 1):
            named = msgspec.structs.replace(words, id=digest[:digits])
            if self._named.setdefault(named.id, named) == named:
                return named
        raise AssertionError("two texts have one SHA-256")


def _shortened(finding: Finding, shared: SharedWords) -> Finding:
    """Return a finding of a lost key without what is said of many."""
    return msgspec.structs.replace(
        finding,
        message="",
        evidence=[],
        remedies=[],
        kms_key_id_sha256=finding.kms_key_id_sha256 or UNSET,
        group_version_kind=UNSET,
        readable_until=finding.readable_until or UNSET,
        lease=finding.lease or UNSET,
        shared=shared.id,
    )


def with_evidence(found: Examination, more: tuple[Evidence, ...]) -> Examination:
    """Return an examination with further evidence."""
    if not more:
        return found
    verdict = msgspec.structs.replace(found.verdict, evidence=(*found.verdict.evidence, *more))
    return msgspec.structs.replace(found, verdict=verdict)


class Alike:
    """Tells the kinds of findings apart that may belong to a lost key. Memory does not depend on how many there are."""

    def __init__(self) -> None:
        self._told_apart = Kinds()
        self._kinds: list[_Kind] = []
        self._words = _CommonWords()

    def one(
        self,
        found: Examination,
        *,
        own: tuple[Evidence, ...] = (),
        readable: ReadableRevision | None = None,
        baseline: bool = False,
    ) -> OneOfMany | None:
        """Return what is one value's own; None where it has too much of that, or there are too many kinds.

        Args:
            found: A value that may belong to a lost key.
            own: What was seen of it alone, beside the evidence of its verdict.
            readable: An earlier revision that still reads.
            baseline: It was known before.
        """
        stored = found.stored
        number = self._told_apart.number_of(found)
        if number is None:
            return None
        new = number >= len(self._kinds)
        while number >= len(self._kinds):  # one, or more after a signal
            self._kinds.append(self._kind_of(self._told_apart.first(len(self._kinds))))
        one = OneOfMany(
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
        return one

    def _kind_of(self, found: Examination) -> _Kind:
        finding = finding_from(found, ())
        shared = self._words.of(finding)
        stored = found.stored
        return _Kind(
            found,
            0,
            stored.mod_revision,
            stored.mod_revision,
            stored.key,
            _shortened(finding, shared),
            shared,
            places_of(found),
        )

    def __len__(self) -> int:
        return len(self._kinds)

    @property
    def counted(self) -> Sequence[Counted]:
        """Every kind, in the order of their first values."""
        return self._kinds

    def directory(self, kind: int) -> ResourcePrefix:
        """Return where the values of a kind belong."""
        return self._kinds[kind].found.directory

    def shared(self, place: Place) -> list[SharedWords]:
        """Return what is said of many findings that belong to one key."""
        return sorted(
            {kind.shared.id: kind.shared for kind in self._kinds if place in kind.places}.values(),
            key=lambda words: words.id,
        )

    def published(self, one: OneOfMany) -> tuple[Finding, SharedWords]:
        """Return a finding that belongs to a lost key, without what is said of many; and that."""
        kind = self._kinds[one.kind]
        key = one.key
        return (
            msgspec.structs.replace(
                kind.finding,
                key=display(key),
                key_base64=key_base64(key),
                namespace=one.namespace,
                name=one.name,
                mod_revision=one.mod_revision,
                create_revision=one.create_revision,
                version=one.version,
                lease=shown_lease(one.lease) or UNSET,
                value_size=one.value_size,
                value_sha256=shown_digest(one),
                evidence=[FindingEvidence(e.check, e.result, e.detail) for e in one.evidence],
                baseline=one.baseline,
            ),
            kind.shared,
        )

    def examination(self, one: OneOfMany) -> Examination:
        """Return the examination of a value, without the bytes of that; no way out of a lost key depends on these."""
        stored = StoredValue(one.key, b"", one.mod_revision, one.create_revision, one.version, one.lease)
        found = self._told_apart.examination(one.kind, stored, one.namespace, one.name)
        return with_evidence(found, one.evidence)

    def kinds_of(self, lost: Iterable[Place]) -> frozenset[int]:
        """Return the kinds of which the values belong to one of these keys."""
        keys = frozenset(lost)
        return frozenset(
            number for number, kind in enumerate(self._kinds) if not keys.isdisjoint(kind.places)
        )


def shown_digest(one: OneOfMany) -> str:
    """Return the digest of the stored bytes as reports have it."""
    return f"sha256:{one.value_digest.hex()}"
