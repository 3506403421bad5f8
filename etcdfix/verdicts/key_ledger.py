"""What the values under each encryption key come to, kept while values come and go.

It says of a target what :class:`~etcdfix.verdicts.key_loss.KeyCounter` says after one pass over everything; unlike
that, it takes values back.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from typing import NamedTuple

from etcdfix.model import Outcome, StoredValue
from etcdfix.verdicts.deletability import FAILED
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.key_loss import KeyCounts, is_unproven


class Counted(NamedTuple):
    """What of an examination counts under its encryption keys; many values share it.

    Attributes:
        keys: Under which it counts.
        opened: It is readable, or at least served.
        failed: It is proven not to be.
        damaged: It is proven damaged.
        unproven: It does not open, and nothing proves that it is damaged.
        key_proven: Its key is proven right.
    """

    keys: tuple[KeyName, ...]
    opened: bool
    failed: bool
    damaged: bool
    unproven: bool
    key_proven: bool

    @classmethod
    def of(cls, found: Examination) -> Counted | None:
        """Return what counts of an examination; None for what is no object."""
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT:
            return None
        failed = outcome in FAILED
        return cls(
            found.encryption_keys,
            not failed and outcome is not Outcome.UNDETERMINED,
            failed,
            found.verdict.is_damage,
            is_unproven(found),
            found.verdict.key_proven,
        )


class _OfKey:
    __slots__ = ("damaged", "failed", "opened", "undetermined", "unread")

    def __init__(self) -> None:
        self.opened = array("Q")
        self.unread = array("Q")
        self.failed = self.damaged = self.undetermined = 0


class KeyLedger:
    """Counts values under their encryption keys, and takes them back."""

    def __init__(self) -> None:
        self._of_key: dict[KeyName, _OfKey] = {}
        self._unproven: Counter[tuple[str, str, bool]] = Counter()

    def add(self, counted: Counted, mod_revision: int) -> None:
        """Count a value."""
        for name in counted.keys:
            of_key = self._of_key.get(name)
            if of_key is None:
                of_key = self._of_key[name] = _OfKey()
            insort(of_key.opened if counted.opened else of_key.unread, mod_revision)
            self._tally(of_key, name, counted, 1)

    def remove(self, counted: Counted, mod_revision: int) -> None:
        """Take back a value that was counted."""
        for name in counted.keys:
            of_key = self._of_key[name]
            revisions = of_key.opened if counted.opened else of_key.unread
            place = bisect_left(revisions, mod_revision)
            assert revisions[place] == mod_revision  # it was counted
            del revisions[place]
            self._tally(of_key, name, counted, -1)

    def _tally(self, of_key: _OfKey, name: KeyName, counted: Counted, times: int) -> None:
        if counted.failed:
            of_key.failed += times
            of_key.damaged += times * counted.damaged
        elif not counted.opened:
            of_key.undetermined += times
        if counted.unproven:
            self._unproven[name.transformer, name.key, counted.key_proven] += times

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
            opened=len(of_key.opened),
            failed=of_key.failed,
            damaged=of_key.damaged,
            undetermined=of_key.undetermined,
            last_failing=max(others, default=0),
            last_opened=of_key.opened[before - 1] if before else 0,
            unexplained=self._unproven[name.transformer, name.key, False],
            unfitting=self._unproven[name.transformer, name.key, True],
        )

    def has_unread(self, name: KeyName, after: int, before: int) -> bool:
        """Say whether a value under a key does not open that was written between two revisions."""
        of_key = self._of_key.get(name)
        if of_key is None:
            return False
        place = bisect_left(of_key.unread, after)
        return place < len(of_key.unread) and of_key.unread[place] <= before
