"""Is it the encryption key, or the object? Counted per rule, transformer and key, by whoever sees many values.

One rule for a scan's advice, a plan, an impact and every change: see :func:`doubt_about`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

import msgspec

from etcdfix.examine.verdicts.causes import CURABLE_BY_CONFIGURATION
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
from etcdfix.model.model import Outcome, StoredValue
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
        damaged: Of those, how many are proven damaged.
        undetermined: Neither.
        last_failing: Newest mod_revision among those that do not open. With a target, of the others: that of the next
            one written after it, where none opens in between, else the newest one that was not written after it.
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
        if target is None or (found.stored.key != target.key and revision <= target.mod_revision):
            self.last_failing = max(self.last_failing, revision)


def doubt_about(counts: KeyCounts, verdict: Verdict) -> KeyDoubt:
    """Say whether the failures under an encryption key point at the key or the configuration, for one that fails."""
    doubt = doubt_by_numbers(opened=counts.opened, failed=counts.failed, damaged=counts.damaged)
    if doubt is not KeyDoubt.NONE or not rests_on_others(verdict):
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


_EVER: Final = 1 << 63


class KeyCounter:
    """Counts values under their encryption keys as they pass; past :data:`MOST_KEYS`, all others as one."""

    def __init__(self, target: StoredValue | None = None, only: Collection[KeyName] | None = None) -> None:
        self._target = target
        self._only = only
        self._counts: dict[KeyName, KeyCounts] = {}
        self._others = KeyCounts()
        self._anywhere = None if only is None else {_anywhere(name) for name in only}
        self._unproven: Counter[tuple[str, str, bool]] = Counter()
        # Written after the target: the first one that does not open, and the first one that does.
        self._after: dict[KeyName, tuple[int, int]] = {}

    def add(self, found: Examination, times: int = 1) -> None:
        """Count one value; or several that came to the same, of which it is the newest."""
        if found.verdict.outcome is Outcome.NOT_AN_OBJECT:
            return
        unproven = is_unproven(found)
        for name in found.encryption_keys:
            if self._only is None or name in self._only:
                self._of(name).add(found, target=self._target, times=times)
                if self._target is not None and found.stored.mod_revision > self._target.mod_revision:
                    self._note_after(name, found)
            if unproven and (self._anywhere is None or _anywhere(name) in self._anywhere):
                self._count_unproven((*_anywhere(name), found.verdict.key_proven), times)

    def _note_after(self, name: KeyName, found: Examination) -> None:
        failing, opened = self._after.get(name, (_EVER, _EVER))
        revision = found.stored.mod_revision
        if found.verdict.outcome in FAILED or found.verdict.outcome is Outcome.UNDETERMINED:
            failing = min(failing, revision)
        else:
            opened = min(opened, revision)
        self._after[name] = failing, opened

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
        failing, opened = self._after.get(name, (_EVER, _EVER))
        last = failing if failing != _EVER and failing <= opened else counts.last_failing
        return msgspec.structs.replace(
            counts, last_failing=last, unexplained=unexplained, unfitting=unfitting
        )

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


_OTHERS: Final = ("", "")


def _anywhere(name: KeyName) -> tuple[str, str]:
    return name.transformer, name.key


def is_unproven(found: Examination) -> bool:
    """Say whether a value does not open, and nothing proves that it is damaged."""
    verdict = found.verdict
    if verdict.outcome is Outcome.UNDETERMINED:
        return not found.opened
    return rests_on_others(verdict) or verdict.cause in CURABLE_BY_CONFIGURATION
