"""Is it the encryption key, or the object? Counted per rule, transformer and key, by whoever sees many values.

One rule for a scan's advice, a plan, an impact and every change: see :func:`doubt_about`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.examine.verdicts.catalogue import CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.deletability import (
    FAILED,
    Deletability,
    deletability_of,
    key_may_be_lost,
    rests_on_others,
    risks_of,
)
from etcdfix.examine.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.model.model import Outcome
from etcdfix.model.rules import Rule

ALL_FAIL: Final = 2
"""So many that fail while none opens say that it is the key."""
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
        last_failing: Of a target (:meth:`KeyLedger.beside`): mod_revision of the next one that fails and was written
            after it, where none opens in between, else of the newest one that was not written after it.
        last_opened: Newest mod_revision among those that open and were written before it.
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

    def add(self, found: Examination, times: int = 1) -> None:
        """Count one value, or several that came to the same."""
        outcome = found.verdict.outcome
        if outcome in FAILED:
            self.failed += times
            self.damaged += times * found.verdict.is_damage
        elif outcome is Outcome.UNDETERMINED:
            self.undetermined += times
        else:
            self.opened += times


def doubt_about(counts: KeyCounts, verdict: Verdict) -> KeyDoubt:
    """Say whether the failures under an encryption key point at the key or the configuration, for one that fails."""
    doubt = doubt_by_numbers(opened=counts.opened, failed=counts.failed, damaged=counts.damaged)
    if doubt is not KeyDoubt.NONE or not rests_on_others(verdict):
        return doubt
    if verdict.key_proven:
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
    """Say whether a deletion goes on in spite of what the values under an encryption key say."""
    return doubt is KeyDoubt.NONE or lost or (doubt in NOT_THE_KEY and mass_damage_accepted)


class Needed(msgspec.Struct, frozen=True):
    """What a deletion asks for, as far as verdicts tell.

    Attributes:
        declaration: The encryption key has to be declared lost.
        refused: So many values fail under a key that is there that no flag lifts it.
    """

    declaration: bool = False
    risks: tuple[Rule, ...] = ()
    refused: bool = False


def needed_for(found: Examination, doubts: Collection[KeyDoubt]) -> Needed:
    """Return what the deletion of a value needs that may be deleted at all."""
    risks = risks_of(found)
    if deletability_of(found) is Deletability.DECLARABLE:
        return Needed(declaration=True, risks=tuple(risk for risk in risks if risk is Rule.ONLY_COPY))
    if all(is_lifted(doubt, lost=False, mass_damage_accepted=False) for doubt in doubts):
        return Needed(risks=risks)
    if all(is_lifted(doubt, lost=False, mass_damage_accepted=True) for doubt in doubts):
        return Needed(risks=(*risks, Rule.MASS_DAMAGE))
    lost = key_may_be_lost(found)
    return Needed(declaration=lost, risks=risks, refused=not lost)


MOST_KEYS: Final = 10_000
"""So many encryption keys are counted one by one; in hostile data every value can name a new one."""


class KeyCounter:
    """Counts values under their encryption keys as they pass; past :data:`MOST_KEYS`, all others as one.

    ``keys`` are counted one by one in any case.
    """

    def __init__(self, keys: Iterable[KeyName] = ()) -> None:
        self._counts = {name: KeyCounts() for name in keys}
        self._others = KeyCounts()
        self._unproven = Counter({(*_anywhere(name), proven): 0 for name in keys for proven in (False, True)})

    def add(self, found: Examination, times: int = 1) -> None:
        """Count one value, or several that came to the same."""
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            return
        unproven = is_unproven(found)
        for name in found.encryption_keys:
            self._of(name).add(found, times)
            if unproven:
                self._count_unproven((*_anywhere(name), found.verdict.key_proven), times)

    def _count_unproven(self, place: tuple[str, str, bool], count: int) -> None:
        if len(self._unproven) >= MOST_KEYS and place not in self._unproven:
            place = (*_OTHERS, place[2])
        self._unproven[place] += count

    def add_plain(self, counts: Iterable[PlainCount]) -> None:
        """Count values that are plain."""
        for plain in counts:
            for name in plain.encryption_keys:
                self._of(name).opened += plain.count

    @property
    def names(self) -> Collection[KeyName]:
        """The keys that were met, up to :data:`MOST_KEYS`."""
        return self._counts.keys()

    def of(self, name: KeyName) -> KeyCounts:
        """Return what the values under one key came to."""
        counts = self._counts.get(name, self._others)
        unexplained, unfitting = (
            self._unproven.get((*_anywhere(name), proven), self._unproven[(*_OTHERS, proven)])
            for proven in (False, True)
        )
        return msgspec.structs.replace(counts, unexplained=unexplained, unfitting=unfitting)

    def doubts_in(self, name: KeyName) -> bool:
        """Say whether the numbers alone speak against single damage under a key."""
        counts = self.of(name)
        doubt = doubt_by_numbers(opened=counts.opened, failed=counts.failed, damaged=counts.damaged)
        return doubt is not KeyDoubt.NONE

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


class KeyLedger(KeyCounter):
    """Counts values in the same way, and keeps what was written next before and after one that does not open."""

    def __init__(self, target: Examination) -> None:
        super().__init__(target.encryption_keys)
        self._target = target.stored
        self._next_to = {name: _NextTo() for name in target.encryption_keys}

    def add(self, found: Examination, times: int = 1) -> None:
        """Count one value, and look at when it was written."""
        super().add(found, times)
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT or found.stored.key == self._target.key:
            return
        for name in found.encryption_keys:
            if name in self._next_to:
                self._next_to[name].add(found, self._target.mod_revision)

    def beside(self, name: KeyName) -> KeyCounts:
        """Return what the values under one key of the target come to."""
        found = self._next_to[name]
        failing, later = found.failing_before, found.failing_after
        if later and not 0 < found.opened_after < later:
            failing = later
        return msgspec.structs.replace(self.of(name), last_failing=failing, last_opened=found.opened_before)


class _NextTo(msgspec.Struct):
    """Mod revisions next to that of a value; 0 for none."""

    failing_before: int = 0
    failing_after: int = 0
    opened_before: int = 0
    opened_after: int = 0

    def add(self, found: Examination, at: int) -> None:
        revision = found.stored.mod_revision
        if does_not_read(found):
            if revision <= at:
                self.failing_before = max(self.failing_before, revision)
            else:
                self.failing_after = min(self.failing_after or revision, revision)
        elif revision < at:
            self.opened_before = max(self.opened_before, revision)
        elif revision > at:
            self.opened_after = min(self.opened_after or revision, revision)


def does_not_read(found: Examination) -> bool:
    """Say whether a value speaks against its encryption key, or cannot speak for it."""
    return found.verdict.outcome in FAILED or found.verdict.outcome is Outcome.UNDETERMINED


_OTHERS: Final = ("", "")


def _anywhere(name: KeyName) -> tuple[str, str]:
    return name.transformer, name.key


def is_unproven(found: Examination) -> bool:
    """Say whether a value does not open, and nothing proves that it is damaged."""
    verdict = found.verdict
    if verdict.outcome is Outcome.UNDETERMINED:
        return not found.opened
    return rests_on_others(verdict) or verdict.cause in CURABLE_BY_CONFIGURATION
