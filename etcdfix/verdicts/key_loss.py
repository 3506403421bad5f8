"""Is it the encryption key, or the object? Counted per rule, transformer and key, by whoever sees many values.

One rule for a scan's advice, a plan, an impact and every change: see :func:`doubt_about`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from etcdfix.model import Outcome, StoredValue
from etcdfix.verdicts.causes import CURABLE_BY_CONFIGURATION
from etcdfix.verdicts.damage import Damage
from etcdfix.verdicts.deletability import (
    FAILED,
    AcceptRisk,
    Deletability,
    deletability_of,
    key_may_be_lost,
    risks_of,
)
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.verdicts.judge import Verdict
from etcdfix.verdicts.observation import Neighbours

ALL_FAIL: Final = 2
"""So many that fail while none opens say that it is the key."""
_NEVER: Final = 1 << 63
MANY_FAIL: Final = 10
"""So many that fail, and at least as many as open, say so too."""


class KeyDoubt(StrEnum):
    """What the values under one encryption key say about the key."""

    NONE = "none"
    NONE_OPENS = "none-opens"
    """None opens, at least two fail, and they are not each proven damaged."""
    MOST_FAIL = "most-fail"
    """At least ten fail, and as many as open."""
    IN_BETWEEN = "in-between"
    """This one is called damaged only for what opens before and after it, and at least one more does not open, and is
    not proven damaged: the key may have had other bytes in between."""
    UNFITTING = "unfitting"
    """The same, where the key of each is proven right: they may have been written with other associated data."""
    MASS_DAMAGE = "mass-damage"
    """As many as in :attr:`MOST_FAIL`, and each is proven damaged: not the key, but something damages values."""


THE_KEY: Final = frozenset({KeyDoubt.NONE_OPENS, KeyDoubt.MOST_FAIL, KeyDoubt.IN_BETWEEN})
"""What points at the key or the configuration."""
BY_NUMBERS: Final = frozenset({KeyDoubt.NONE_OPENS, KeyDoubt.MOST_FAIL})
"""What numbers alone show, without what each of the values shows by itself."""
NOT_THE_KEY: Final = frozenset({KeyDoubt.UNFITTING, KeyDoubt.MASS_DAMAGE})
"""What points at something else that happens to many values."""


class KeyCounts(msgspec.Struct):
    """What the values under one encryption key came to.

    Attributes:
        opened: Readable, or at least served.
        failed: Proven not to be.
        damaged: Of those, how many are proven damaged.
        undetermined: Neither.
        last_failing: Newest mod_revision among those that do not open, the target left out.
        last_opened: Newest mod_revision among those that open; with a target, among those written before it.
        unexplained: How many do not open, and nothing proves that they are damaged or that their key is right; under
            this key in any rule, since here it is what fails that counts.
        unfitting: The same, where their key is proven right.
    """

    opened: int = 0
    failed: int = 0
    damaged: int = 0
    undetermined: int = 0
    last_failing: int = 0
    last_opened: int = 0
    unexplained: int = 0
    unfitting: int = 0

    def add(self, found: Examination, *, target: StoredValue | None = None, times: int = 1) -> None:
        """Count one value, or several that came to the same, of which it is the newest.

        A target says nothing itself about when others failed or opened last.
        """
        revision = found.stored.mod_revision
        outcome = found.verdict.outcome
        if outcome in FAILED:
            self.failed += times
            self.damaged += times * found.verdict.is_damage
        elif outcome is Outcome.UNDETERMINED:
            self.undetermined += times
        else:
            self.opened += times
            if target is None or revision < target.mod_revision:
                self.last_opened = max(self.last_opened, revision)
            return
        if target is None or found.stored.key != target.key:
            self.last_failing = max(self.last_failing, revision)


def doubt_about(counts: KeyCounts, verdict: Verdict) -> KeyDoubt:
    """Say whether the failures under an encryption key point at the key or the configuration, for one that fails."""
    doubt = doubt_by_numbers(opened=counts.opened, failed=counts.failed, damaged=counts.damaged)
    if doubt is not KeyDoubt.NONE or verdict.damage is not Damage.LIKELY:
        return doubt
    return doubt_about_likely(counts, key_proven=verdict.key_proven)


def doubt_about_likely(counts: KeyCounts, *, key_proven: bool) -> KeyDoubt:
    """Say the same of damage that is only likely, where the numbers alone say nothing."""
    if key_proven:
        return KeyDoubt.UNFITTING if counts.unfitting >= ALL_FAIL else KeyDoubt.NONE
    return KeyDoubt.IN_BETWEEN if counts.unexplained >= ALL_FAIL else KeyDoubt.NONE


def doubt_by_numbers(*, opened: int, failed: int, damaged: int) -> KeyDoubt:
    """Say the same of bare numbers, as a report has them."""
    if not opened and failed >= ALL_FAIL and damaged < failed:
        return KeyDoubt.NONE_OPENS
    if failed >= MANY_FAIL and failed >= opened:
        return KeyDoubt.MASS_DAMAGE if damaged == failed else KeyDoubt.MOST_FAIL
    return KeyDoubt.NONE


def is_lifted(doubt: KeyDoubt, *, lost: bool, mass_damage_accepted: bool) -> bool:
    """Say whether a deletion goes on in spite of what the values under an encryption key say.

    Args:
        doubt: What they say.
        lost: The encryption key was declared lost, and may be.
        mass_damage_accepted: ``--accept-risk mass-damage`` was given.
    """
    return doubt is KeyDoubt.NONE or lost or (doubt in NOT_THE_KEY and mass_damage_accepted)


class Needed(msgspec.Struct, frozen=True):
    """What a deletion asks for, as far as verdicts tell.

    Attributes:
        declaration: The encryption key has to be declared lost.
        risks: What has to be accepted.
        refused: So many values fail under a key that is there that no flag lifts it.
    """

    declaration: bool = False
    risks: tuple[AcceptRisk, ...] = ()
    refused: bool = False


def needed_for(found: Examination, doubts: Collection[KeyDoubt]) -> Needed:
    """Return what the deletion of a value needs that may be deleted at all.

    Args:
        found: The value.
        doubts: What the values under each of its encryption keys say, see :func:`doubt_about`.
    """
    risks = risks_of(found)
    if deletability_of(found) is Deletability.DECLARABLE:
        return Needed(declaration=True, risks=tuple(risk for risk in risks if risk is AcceptRisk.ONLY_COPY))
    if all(is_lifted(doubt, lost=False, mass_damage_accepted=False) for doubt in doubts):
        return Needed(risks=risks)
    if all(is_lifted(doubt, lost=False, mass_damage_accepted=True) for doubt in doubts):
        return Needed(risks=(*risks, AcceptRisk.MASS_DAMAGE))
    lost = key_may_be_lost(found)
    return Needed(declaration=lost, risks=risks, refused=not lost)


MOST_KEYS: Final = 10_000
"""So many encryption keys are counted one by one; in hostile data every value can name a new one."""


class KeyCounter:
    """Counts values under their encryption keys as they pass; past :data:`MOST_KEYS`, all others as one.

    Args:
        target: The value in question, if there is one.
        only: Count under these keys alone; None for every key that is met.
    """

    def __init__(self, target: StoredValue | None = None, only: Collection[KeyName] | None = None) -> None:
        self._target = target
        self._only = only
        self._counts: dict[KeyName, KeyCounts] = {}
        self._others = KeyCounts()
        self._anywhere = None if only is None else {_anywhere(name) for name in only}
        self._unproven: Counter[tuple[str, str, bool]] = Counter()

    def add(self, found: Examination, times: int = 1) -> None:
        """Count one value; or several that came to the same, of which it is the newest."""
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            return
        unproven = is_unproven(found)
        for name in found.encryption_keys:
            if self._only is None or name in self._only:
                self._of(name).add(found, target=self._target, times=times)
            if unproven and (self._anywhere is None or _anywhere(name) in self._anywhere):
                self._count_unproven((*_anywhere(name), found.verdict.key_proven), times)

    def unproven(self) -> list[tuple[str, str, bool, int]]:
        """Return what fails under keys in any rule, and nothing proves why: transformer, key, key proven, how many."""
        return sorted((*place, count) for place, count in self._unproven.items())

    def absorb(self, unproven: Iterable[tuple[str, str, bool, int]]) -> None:
        """Add what another counter has in :meth:`unproven`; that alone."""
        for transformer, key, proven, count in unproven:
            self._count_unproven((transformer, key, proven), count)

    def _count_unproven(self, place: tuple[str, str, bool], count: int) -> None:
        if len(self._unproven) >= MOST_KEYS and place not in self._unproven:
            place = (*_OTHERS, place[2])
        self._unproven[place] += count

    def add_plain(self, counts: Iterable[PlainCount]) -> None:
        """Count values that are plain; not where a target asks which of them were written before it."""
        assert self._target is None
        for plain in counts:
            for name in plain.encryption_keys:
                if self._only is None or name in self._only:
                    of_key = self._of(name)
                    of_key.opened += plain.count
                    of_key.last_opened = max(of_key.last_opened, plain.last)

    def of(self, name: KeyName) -> KeyCounts:
        """Return what the values under one key came to."""
        counts = self._counts.get(name, self._others)
        unexplained, unfitting = (
            self._unproven.get((*_anywhere(name), proven), self._unproven[(*_OTHERS, proven)])
            for proven in (False, True)
        )
        return msgspec.structs.replace(counts, unexplained=unexplained, unfitting=unfitting)

    def doubts_about(self, found: Examination) -> frozenset[KeyDoubt]:
        """Return what the values under each encryption key of one that fails say, see :func:`doubt_about`."""
        return frozenset(doubt_about(self.of(name), found.verdict) for name in found.encryption_keys)

    def _of(self, name: KeyName) -> KeyCounts:
        found = self._counts.get(name)
        if found is None:
            if len(self._counts) >= MOST_KEYS:
                return self._others
            found = self._counts[name] = KeyCounts()
        return found


_OTHERS: Final = ("", "")


def _anywhere(name: KeyName) -> tuple[str, str]:
    return name.transformer, name.key


def is_unproven(found: Examination) -> bool:
    """Say whether a value does not open, and nothing proves that it is damaged."""
    verdict = found.verdict
    if verdict.outcome is Outcome.UNDETERMINED:
        return not found.opened
    return verdict.damage is Damage.LIKELY or verdict.cause in CURABLE_BY_CONFIGURATION


class OpenedSpan:
    """From which mod revision to which an encryption key opened values of one resource.

    Attributes:
        key_fingerprints: Of the key, empty where it has none.
        first: Lowest mod revision; above all others until there is one.
        last: Highest mod revision, 0 until there is one.
    """

    __slots__ = ("first", "key_fingerprints", "last")

    def __init__(self, key_fingerprints: tuple[str, ...] = (), *, first: int = _NEVER, last: int = 0) -> None:
        self.key_fingerprints = key_fingerprints
        self.first = first
        self.last = last

    def reach(self, first: int, last: int) -> None:
        """Reach from one mod revision to another as well."""
        self.first = min(self.first, first)
        self.last = max(self.last, last)


class OpenedReach(NamedTuple):
    """An :class:`OpenedSpan` and where it is kept: rule, resource, transformer, key as for :class:`KeyName`."""

    rule: str
    resource: str
    transformer: str
    key: str
    key_fingerprints: tuple[str, ...]
    first: int
    last: int


class OpenedSpans:
    """Which encryption keys opened what, from which mod revision to which.

    A value that does not open is damaged, likely, where values written before and after it open under the same rule and
    key: the key was right at that time.
    """

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[tuple[str, str], OpenedSpan]] = {}

    def place(self, rule: str, resource: str) -> dict[tuple[str, str], OpenedSpan]:
        """Return where the spans of one resource are kept, by transformer and key."""
        return self._places.setdefault((rule, resource), {})

    def add(self, reaches: Iterable[OpenedReach]) -> None:
        """Add what others have seen open."""
        for rule, resource, transformer, key, fingerprints, first, last in reaches:
            spans = self.place(rule, resource)
            span = spans.get((transformer, key))
            if span is None:
                span = spans[transformer, key] = OpenedSpan(fingerprints)
            span.reach(first, last)

    def take(self) -> list[OpenedReach]:
        """Return what opened, for :meth:`add` elsewhere, and forget when it was."""
        taken = []
        for (rule, resource), spans in self._places.items():
            for (transformer, key), span in spans.items():
                if span.first != _NEVER:
                    taken.append(
                        OpenedReach(
                            rule, resource, transformer, key, span.key_fingerprints, span.first, span.last
                        )
                    )
                    span.first, span.last = _NEVER, 0
        return taken

    def hold(self, spans: Mapping[tuple[KeyName, str], tuple[int, int]]) -> None:
        """Let encryption keys have opened what is said here, and nothing else.

        Args:
            spans: By key and resource: lowest and highest mod revision.
        """
        for (rule, resource), found in self._places.items():
            for (transformer, key), span in found.items():
                name = KeyName(rule, transformer, key)
                span.first, span.last = spans.get((name, resource), (_NEVER, 0))

    def around(self, keys: Iterable[KeyName], resource: str, mod_revision: int) -> Neighbours:
        """Say whether values written before and after a mod revision opened under one of the keys."""
        known = Neighbours.NONE
        for name in keys:
            spans = [
                (place, span)
                for (rule, place), found in self._places.items()
                if rule == name.rule and (span := found.get((name.transformer, name.key))) is not None
            ]
            if any(place == resource and span.first < mod_revision < span.last for place, span in spans):
                return Neighbours.SAME_RESOURCE
            if spans and min(s.first for _, s in spans) < mod_revision < max(s.last for _, s in spans):
                known = Neighbours.SAME_KEY
        return known

    def opens(self, rule: str, transformer: str) -> bool:
        """Say whether anything opened under a name of a key, whatever its bytes or its KMS key id."""
        return any(
            place[0] == transformer and span.last > 0
            for (of, _), found in self._places.items()
            if of == rule
            for place, span in found.items()
        )

    def opened(self, keys: Iterable[KeyName]) -> bool:
        """Say whether anything opened under one of the keys."""
        return any(
            (span := found.get((name.transformer, name.key))) is not None and span.last > 0
            for name in keys
            for (rule, _), found in self._places.items()
            if rule == name.rule
        )
