"""What the values under one encryption key show of it: which of them open, from when to when, and which do not.

Everything is kept within bounds, and comes to the same in whatever order values pass, and in however many processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush, heappushpop, nlargest
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.examine.verdicts.examination import KeyName
from etcdfix.examine.verdicts.observation import Neighbours, OwnKey

_NEVER: Final = 1 << 63
MOST_NEWEST: Final = 16
"""So many of the newest values under a key are told apart."""
_ENOUGH: Final = 3
"""So many others that open show that a key is right, or that etcd keys are the associated data."""
_TWO_WRITERS: Final = 3
"""So many runs of failures among the newest values are no accident."""


class OpenedSpan(msgspec.Struct, array_like=True):
    """What an encryption key did for the values of one resource.

    Attributes:
        first: Lowest mod revision that opened; above all others until there is one.
        last: Highest mod revision that opened, 0 until there is one.
        newest: Mod revisions of the newest values that opened, as a heap; several may have one.
        failing: The newest values that do not open although the key may be theirs, as a heap: mod revision, etcd key;
            of each etcd key the newest.
        elsewhere: A value opens only with the associated data of another etcd key.
        unbound: What opened may have had no associated data.
        first_unfitting: Lowest mod revision of a whole object that the key does not open; above all others until there
            is one.
    """

    key_fingerprints: tuple[str, ...] = ()
    first: int = _NEVER
    last: int = 0
    newest: list[int] = []
    failing: list[tuple[int, bytes]] = []
    elsewhere: bool = False
    unbound: bool = False
    first_unfitting: int = _NEVER

    def reach(self, revisions: Sequence[int], *, unbound: bool = False) -> tuple[int, int]:
        """Take note of mod revisions of values that opened; at least one.

        Returns:
            The lowest and the highest.
        """
        first, last = min(revisions), max(revisions)
        self.first = min(self.first, first)
        self.last = max(self.last, last)
        self.unbound = self.unbound or unbound
        _keep_newest(self.newest, revisions)
        return first, last

    def note_failing(self, mod_revision: int, key: bytes) -> None:
        """Take note of a value that does not open although the key may be its own."""
        # A value is looked at more than once, and earlier revisions of it are too.
        if all(of != key or revision < mod_revision for revision, of in self.failing):
            self.forget(key)
            _keep_newest(self.failing, ((mod_revision, key),))

    def forget(self, key: bytes) -> None:
        """Forget that a value did not open."""
        if any(of == key for _, of in self.failing):
            self.failing = sorted(entry for entry in self.failing if entry[1] != key)

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known of the key."""
        return self.first == self.first_unfitting == _NEVER and not (self.failing or self.elsewhere)

    def merge(self, other: OpenedSpan) -> None:
        """Add what was seen elsewhere."""
        self.first = min(self.first, other.first)
        self.last = max(self.last, other.last)
        self.first_unfitting = min(self.first_unfitting, other.first_unfitting)
        self.elsewhere = self.elsewhere or other.elsewhere
        self.unbound = self.unbound or other.unbound
        _keep_newest(self.newest, other.newest)
        for failing in other.failing:
            self.note_failing(*failing)


def _keep_newest(newest: list[Any], others: Iterable[Any]) -> None:
    if len(newest) == MOST_NEWEST:
        least = newest[0]
        others = [one for one in others if one > least]  # of a page, next to none are left
    for one in others:
        if len(newest) < MOST_NEWEST:
            heappush(newest, one)
        elif one > newest[0]:
            heappushpop(newest, one)


class PlacedSpan(NamedTuple):
    """A span and where it is kept: rule, resource, transformer, key as for :class:`KeyName`."""

    rule: str
    resource: str
    transformer: str
    key: str
    span: OpenedSpan


class OpenedSpans:
    """Which encryption keys opened what, and what not."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], dict[tuple[str, str], OpenedSpan]] = {}

    def place(self, rule: str, resource: str) -> dict[tuple[str, str], OpenedSpan]:
        """Return where the spans of one resource are kept, by transformer and key."""
        return self._places.setdefault((rule, resource), {})

    def add(self, taken: Iterable[PlacedSpan]) -> None:
        """Add what others have seen."""
        for rule, resource, transformer, key, seen in taken:
            spans = self.place(rule, resource)
            span = spans.setdefault((transformer, key), OpenedSpan(seen.key_fingerprints))
            span.merge(seen)

    def take(self) -> list[PlacedSpan]:
        """Return what was seen, for :meth:`add` elsewhere, and forget it."""
        taken = []
        for (rule, resource), spans in self._places.items():
            for (transformer, key), span in spans.items():
                if span.is_blank:
                    continue
                span.newest.sort()
                span.failing.sort()
                taken.append(PlacedSpan(rule, resource, transformer, key, span))
                spans[transformer, key] = OpenedSpan(span.key_fingerprints)
        return taken

    def _under(self, name: KeyName) -> list[OpenedSpan]:
        place = name.transformer, name.key
        return [
            found[place] for (rule, _), found in self._places.items() if rule == name.rule and place in found
        ]

    def around(self, keys: Iterable[KeyName], mod_revision: int, key: bytes) -> Neighbours:
        """Say what the others under one of the keys show of a value that does not open."""
        known = Neighbours.NONE
        for name in keys:
            spans = self._under(name)
            if not any(span.last for span in spans):
                continue
            if _is_written_by_two(spans):
                return Neighbours.TWO_WRITERS
            first, last = min(span.first for span in spans), max(span.last for span in spans)
            if first < mod_revision < last:
                known = Neighbours.SAME_KEY
            elif known is Neighbours.NONE and last < mod_revision:
                failing = {entry for span in spans for entry in span.failing}
                if len(_newest(spans)) >= _ENOUGH and failing <= {(mod_revision, key)}:
                    known = Neighbours.NEWEST
        return known

    def own_key(self, name: KeyName, mod_revision: int) -> OwnKey:
        """Say what the others under its key show of a whole object under a tag that does not fit.

        Values that were copied from another prefix were written before every value that opens with its own etcd key.
        One that was written later goes with others that were not, unless its copying began later too.
        """
        spans = self._under(name)
        if not any(span.last for span in spans) or any(span.unbound for span in spans):
            return OwnKey.NONE
        first = min(span.first for span in spans)
        copied = any(span.elsewhere or span.first_unfitting < first for span in spans)
        if copied or first >= mod_revision or len(_newest(spans)) < _ENOUGH:
            return OwnKey.ANOTHER_OPENS
        return OwnKey.OTHERS_OPEN

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
        return any(span.last > 0 for name in keys for span in self._under(name))


def _newest(spans: Iterable[OpenedSpan]) -> list[int]:
    return [revision for span in spans for revision in span.newest]


def _is_written_by_two(spans: Sequence[OpenedSpan]) -> bool:
    """Say whether openings and failures alternate up to the newest value, as where two API servers have two keys."""
    writes = [(revision, True) for revision in _newest(spans)]
    writes += [(revision, False) for span in spans for revision, _ in span.failing]
    newest = sorted(nlargest(MOST_NEWEST, writes))
    return sum(not opens for opens, _ in groupby(newest, itemgetter(1))) >= _TWO_WRITERS
