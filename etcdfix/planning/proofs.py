"""Every pattern in one pass: what :mod:`etcdfix.remediation.pattern` counts for one transformer, for all of them."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import NamedTuple

from etcdfix.encryption.envelope import parse_envelope
from etcdfix.model import Outcome
from etcdfix.remediation.pattern import Tally
from etcdfix.verdicts.examination import Examination


class ProofKey(NamedTuple):
    """What belongs together: the bytes that values under one transformer start with, and a KMS key id's digest.

    ``marker`` is b"" for values in the clear; ``kms_key_id_sha256`` is "" for all of a transformer.
    """

    marker: bytes
    kms_key_id_sha256: str = ""


class Count:
    """What values came to.

    Attributes:
        tally: As a deletion counts them.
        newest: The newest mod_revision among those that do not open.
        second: The newest but one. For the value that is itself the newest, it is the newest of all others.
        opened: mod_revisions of those that open, in no order.
    """

    __slots__ = ("newest", "opened", "second", "tally")

    def __init__(self) -> None:
        self.tally = Tally()
        self.opened = array("q")
        self.newest = self.second = 0

    def add(self, found: Examination) -> None:
        """Count one value."""
        opened = self.tally.opened
        self.tally.add(found)
        if self.tally.opened == opened:
            self._failed(found.stored.mod_revision)
        else:
            self.opened.append(found.stored.mod_revision)

    def join(self, other: Count) -> None:
        """Add what others came to, but for their list of revisions."""
        self.tally.opened += other.tally.opened
        self.tally.failed += other.tally.failed
        self.tally.undetermined += other.tally.undetermined
        self._failed(other.newest)
        self._failed(other.second)

    def _failed(self, mod_revision: int) -> None:
        if mod_revision > self.newest:
            self.newest, self.second = mod_revision, self.newest
        elif mod_revision > self.second:
            self.second = mod_revision


class Proofs:
    """Counts examinations.

    Args:
        prefix: Storage prefix; other keys do not count.
        names: Configured key and provider names.
        key_ids: Digests of the KMS key ids that are counted one by one.
    """

    def __init__(self, prefix: bytes, names: Collection[str], key_ids: Collection[str]) -> None:
        self._prefix = prefix
        self._names = names
        self._key_ids = frozenset(key_ids)
        self._counts: dict[ProofKey, Count] = {}
        self._sorted: dict[str, list[bytes]] | None = None
        self._opened: dict[ProofKey, array[int]] = {}
        self.keys = 0

    def add(self, found: Examination) -> None:
        """Count one value."""
        if not found.stored.key.startswith(self._prefix):
            return
        self.keys += 1
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            return
        marker = self.marker(found)
        self._counts.setdefault(ProofKey(marker), Count()).add(found)
        key_id = found.kms_key_id_sha256
        if key_id in self._key_ids:
            self._counts.setdefault(ProofKey(marker, key_id), Count()).add(found)

    def marker(self, found: Examination) -> bytes:
        """Return what every value under the same transformer starts with; b"" for values in the clear."""
        envelope = parse_envelope(found.stored.value, self._names)
        return found.stored.value[: envelope.body_offset] if envelope is not None else b""

    def count(self, wanted: ProofKey) -> Count:
        """Return what all values came to that start with a marker; call it when everything was added.

        A key's name may begin with another's and a colon, and a damaged envelope's marker is the beginning of many: so
        all markers count that start with this one.
        """
        self._sort()
        total = Count()
        for marker in self._alike(wanted):
            total.join(self._counts[ProofKey(marker, wanted.kms_key_id_sha256)])
        return total

    def opened_before(self, wanted: ProofKey, mod_revision: int) -> int:
        """Return the newest mod_revision before another at which a value was written that opens; 0 for none."""
        self._sort()
        newest = 0
        for marker in self._alike(wanted):
            key = ProofKey(marker, wanted.kms_key_id_sha256)
            opened = self._opened.get(key)
            if opened is None:
                opened = self._opened[key] = array("q", sorted(self._counts[key].opened))
            position = bisect_left(opened, mod_revision)
            newest = max(newest, opened[position - 1] if position else 0)
        return newest

    def _sort(self) -> None:
        if self._sorted is None:
            self._sorted = {}
            for marker, key_id in sorted(self._counts):
                self._sorted.setdefault(key_id, []).append(marker)

    def _alike(self, wanted: ProofKey) -> Iterator[bytes]:
        assert self._sorted is not None  # _sort() made it
        markers = self._sorted.get(wanted.kms_key_id_sha256, [])
        for position in range(bisect_left(markers, wanted.marker), len(markers)):
            marker = markers[position]
            if not marker.startswith(wanted.marker) or (marker and not wanted.marker):
                return
            yield marker
