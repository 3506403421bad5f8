"""What the values under each encryption key come to, for any of them: a pass over everything is made once for many.

It says of a target what :class:`~etcdfix.examine.verdicts.key_loss.KeyCounter` says after a pass for that target alone.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter

from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.key_loss import KeyCounts, is_unproven
from etcdfix.model.model import Outcome, StoredValue


class _OfKey:
    __slots__ = ("damaged", "failed", "gone", "opened", "undetermined", "unread")

    def __init__(self) -> None:
        self.opened = array("Q")
        self.unread = array("Q")
        self.failed = self.damaged = self.undetermined = self.gone = 0


class KeyLedger:
    """Counts values under their encryption keys, and keeps when each was written."""

    def __init__(self) -> None:
        self._of_key: dict[KeyName, _OfKey] = {}
        self._unproven: Counter[tuple[str, str, bool]] = Counter()

    def add(self, found: Examination) -> None:
        """Count a value."""
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            return
        failed = outcome in FAILED
        opened = not failed and outcome is not Outcome.UNDETERMINED
        unproven = is_unproven(found)
        for name in found.encryption_keys:
            of_key = self._of_key.setdefault(name, _OfKey())
            insort(of_key.opened if opened else of_key.unread, found.stored.mod_revision)
            of_key.failed += failed
            of_key.damaged += failed and found.verdict.is_damage
            of_key.undetermined += outcome is Outcome.UNDETERMINED
            self._unproven[name.transformer, name.key, found.verdict.key_proven] += unproven

    def take_out(self, found: Examination) -> None:
        """Take out a value that is gone, or one like it that opened; what failed goes on counting among what fails.

        Which value failed last is no longer asked of it.
        """
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            return
        for name in found.encryption_keys:
            if outcome in FAILED or outcome is Outcome.UNDETERMINED:
                self._of_key[name].unread.remove(found.stored.mod_revision)
            else:
                self._of_key[name].gone += 1

    def of(self, name: KeyName, target: StoredValue, *, target_counts: bool) -> KeyCounts:
        """Return what the values under one key come to, for one of them that does not open."""
        of_key = self._of_key.get(name) or _OfKey()
        written = bisect_right(of_key.unread, target.mod_revision)
        others = of_key.unread[max(0, written - 2) : written]
        if target_counts and target.mod_revision in others:
            others.remove(target.mod_revision)
        before = bisect_left(of_key.opened, target.mod_revision)
        later, opened_later = (
            revisions[(at := bisect_right(revisions, target.mod_revision)) : at + 1]
            for revisions in (of_key.unread, of_key.opened)
        )
        if later and not (opened_later and opened_later < later):
            others = later
        return KeyCounts(
            opened=len(of_key.opened) - of_key.gone,
            failed=of_key.failed,
            damaged=of_key.damaged,
            undetermined=of_key.undetermined,
            last_failing=max(others, default=0),
            last_opened=of_key.opened[before - 1] if before else 0,
            unexplained=self._unproven[name.transformer, name.key, False],
            unfitting=self._unproven[name.transformer, name.key, True],
        )

    def fails(self, name: KeyName) -> bool:
        """Say whether a value under a key does not open."""
        of_key = self._of_key.get(name)
        return of_key is not None and bool(of_key.unread)

    def opened_last(self, name: KeyName) -> bool:
        """Say whether the newest value under a key opens."""
        of_key = self._of_key.get(name)
        if of_key is None or not of_key.opened:
            return False
        return not of_key.unread or of_key.opened[-1] > of_key.unread[-1]
