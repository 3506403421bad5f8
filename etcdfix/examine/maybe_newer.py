"""Values that a newer cluster may have written: how many like one of them fail, and whether any of its kind reads.

Where at least two fail and none reads, it is the tool, the release or the definition, and not the objects.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from etcdfix.encryption.envelope import parse_envelope
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import GroupResource, Outcome
from etcdfix.model.storagekey import StorageCodec

NOT_THE_OBJECT: Final = "this tool, the release or the definition, not the object"
_STARTS: Final = 4
_BY_THEIR_BYTES: Final = frozenset({Cause.UNKNOWN_ENCODING, Cause.MAGIC_DAMAGED, Cause.IV_DAMAGED})
_CBOR: Final = "cbor"
_MANY: Final = 2
_MOST: Final = 10_000
# Kinds of a release that is in our tables, so that one which no API server is older than proves them.
_BY_OUR_TABLES: Final = frozenset({Cause.VERSION_REMOVED, Cause.WRONG_KIND_FOR_KEY})
_BUILT_IN: Final = frozenset({StorageCodec.BUILTIN, StorageCodec.JSON_BUILTIN})


class Similarity(msgspec.Struct, frozen=True):
    """What values have in common that a newer cluster may have written.

    Attributes:
        resource: Display name; "" where the envelope alone says it.
        cause: Why they fail.
        stated: Provider and version of an envelope, apiVersion and kind of a value, or how its bytes begin; "" for
            none of these.
    """

    resource: str
    cause: Cause
    stated: str

    def __str__(self) -> str:
        of = f" of {self.resource}" if self.resource else ""
        # How bytes begin that may have been decrypted is compared, and never shown.
        stated = "" if self.cause in _BY_THEIR_BYTES else self.stated
        return f"{stated or self.cause}{of}"


class SimilarCounts(msgspec.Struct, frozen=True):
    """What those like one value came to.

    Attributes:
        similarity: What they share; None where no newer cluster can have written the value.
        failed: How many of them fail, the value itself included.
        read: How many of its kind can be read.
    """

    similarity: Similarity | None = None
    failed: int = 0
    read: int = 0

    def __str__(self) -> str:
        return f"{self.failed} values like it ({self.similarity}) fail and {self.read or 'none'} can be read"

    @property
    def points_at_us(self) -> bool:
        """So many fail and none reads, that it is the tool, the release or the definition."""
        return self.failed >= _MANY and not self.read


class SimilarValues:
    """Counts values as they pass, by what a newer cluster may have written; past 10,000 ways, all others as one."""

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner
        self._failed: Counter[Similarity] = Counter()
        self._others = 0
        self._read: Counter[tuple[GroupResource, str]] = Counter()
        self._read_as_cbor: Counter[GroupResource] = Counter()

    def add(self, found: Examination) -> Similarity | None:
        """Count one value that was examined just now; return what it has in common with others that fail."""
        if found.verdict.outcome is Outcome.READABLE:
            if found.decoded is None or found.verdict.cause is not None:
                return None
            resource, gvk = found.directory.group_resource, found.decoded.gvk
            self._read[resource, f"{gvk.api_version} {gvk.kind}"] += 1
            if found.decoded.encoding.endswith(_CBOR):
                self._read_as_cbor[resource] += 1
            return None
        similarity = similarity_of(found, self._examiner)
        if similarity is None:
            return None
        if similarity in self._failed or len(self._failed) < _MOST:
            self._failed[similarity] += 1
        else:
            self._others += 1
        return similarity

    def of(self, found: Examination, similarity: Similarity | None) -> SimilarCounts:
        """Return what those like a value came to, whose similarity is known."""
        if similarity is None:
            return SimilarCounts()
        resource = found.directory.group_resource
        behind_a_peek = not similarity.stated and found.verdict.seen_encoding == _CBOR
        # Where the value states nothing, nothing is known to be of its kind.
        if similarity.cause is Cause.CBOR_DAMAGED or behind_a_peek:
            read = self._read_as_cbor[resource]
        else:
            read = self._read[resource, similarity.stated]
        return SimilarCounts(similarity, self._failed.get(similarity, self._others), read)


def similarity_of(found: Examination, examiner: Examiner) -> Similarity | None:
    """Return what a value that fails shares with others that a newer cluster may have written, None for nothing."""
    verdict = found.verdict
    if not verdict.maybe_newer:
        return None
    cause = verdict.cause
    assert cause is not None  # what may be newer has failed, and every failure has one
    resource = str(found.directory.group_resource)
    if cause is Cause.UNKNOWN_ENVELOPE:
        envelope = parse_envelope(found.stored.value)
        assert envelope is not None  # it begins as one
        return Similarity("", cause, f"{envelope.provider}/{envelope.version}")
    if found.opened and cause is Cause.CIPHERTEXT_DAMAGED:
        cause = Cause.UNKNOWN_ENCODING  # its padding fits, and what it holds begins as nothing that is known
    if cause in _BY_THEIR_BYTES:
        plaintext = examiner.plaintext(found) or b""
        return Similarity(resource, cause, plaintext[:_STARTS].hex())
    if cause is Cause.VALUE_TRUNCATED and verdict.seen_encoding == _CBOR:
        # An encoding that nobody knows breaks here in the middle and there at the end.
        cause = Cause.CIPHERTEXT_DAMAGED
    return Similarity(resource, cause, verdict.stated_kind)


def in_our_tables(found: Examination) -> bool:
    """Say whether our tables know the kind; those of custom resources are in none."""
    return found.verdict.cause in _BY_OUR_TABLES and found.directory.codec in _BUILT_IN
