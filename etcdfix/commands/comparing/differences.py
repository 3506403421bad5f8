"""Streams of values walked side by side; the keys that differ are examined, counted, and kept in order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from etcdfix.examine import Examiner
from etcdfix.model import Outcome, StoredValue
from etcdfix.report.compare import Change, CopyOfKey, KeyDifference
from etcdfix.report.sorted_rows import SortedRows
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.safetext import key_base64
from etcdfix.verdicts.examination import Examination

_ORDER: Final = {change: number for number, change in enumerate(Change)}
_FINE: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})
_PROVEN_BAD: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE, Outcome.INCONSISTENT})


class Differing(NamedTuple):
    """A key that is not the same everywhere.

    Attributes:
        copies: One for each stream; None where it has no such key.
        unknown: Streams of which it cannot be told: they could not be read whole.
    """

    key: bytes
    copies: tuple[StoredValue | None, ...]
    unknown: frozenset[int]


class Walk:
    """One walk over streams, each in byte order of its keys; iterate it once.

    Attributes:
        keys: How many keys were compared so far.
        unknown: How many of them could not be: a stream that is not whole does not have them, and the others agree.

    Args:
        is_whole: Says of a stream, by its number, whether a key that it did not yield is really not there.
    """

    def __init__(self, streams: Sequence[Iterator[StoredValue]], is_whole: Callable[[int], bool]) -> None:
        self.keys = 0
        self.unknown = 0
        self._streams = streams
        self._is_whole = is_whole

    def __iter__(self) -> Iterator[Differing]:
        """Yield the keys that differ, in their order."""
        streams, count = self._streams, len(self._streams)
        heads = [next(stream, None) for stream in streams]
        while True:
            first = heads[0]
            if first is not None and heads.count(first) == count:  # nearly always
                self.keys += 1
                heads = [next(stream, None) for stream in streams]
                continue
            key = min((head.key for head in heads if head is not None), default=None)
            if key is None:
                return
            self.keys += 1
            copies = tuple(head if head is not None and head.key == key else None for head in heads)
            for at, copy in enumerate(copies):
                if copy is not None:
                    heads[at] = next(streams[at], None)
            unknown = frozenset(
                at for at, copy in enumerate(copies) if copy is None and not self._is_whole(at)
            )
            if len({copy for at, copy in enumerate(copies) if at not in unknown}) > 1:
                yield Differing(key, copies, unknown)
            else:
                self.unknown += 1


class Side(msgspec.Struct, frozen=True):
    """One of what is compared: how it is called, what examines its values, and where they are."""

    label: str
    examiner: Examiner
    source: Source


class Differences:
    """Takes the keys that differ.

    Attributes:
        changes: How many in which way.
        only_readable: By label, of how many keys a side has a readable copy where another one has none.
        unreadable: By label, of how many keys it has none where another one has.
        first: Of each kind of change, the first key.
        only_damage: Every difference is damage alone: the copies that can be read are one and the same, and each other
            one is there and unreadable at their very mod_revision. A copy that is older, newer or absent may be a write
            or a deletion that some member missed, so which one is right does not show.
    """

    def __init__(self, sides: Sequence[Side], *, in_time: bool) -> None:
        self.changes: Counter[Change] = Counter()
        self.only_readable: Counter[str] = Counter()
        self.unreadable: Counter[str] = Counter()
        self.first: dict[Change, bytes] = {}
        self.only_damage = True
        self.rows: SortedRows[KeyDifference] = SortedRows(KeyDifference)
        self._sides = sides
        self._in_time = in_time

    def add(self, differing: Differing) -> None:
        """Examine the copies of one key, and take note of it.

        Raises:
            SourceError: There is no room for it.
        """
        found = self._examine(differing.copies)
        fine = [one is not None and one.verdict.outcome in _FINE for one in found]
        change = _in_time_change(differing, fine) if self._in_time else _member_change(differing, fine)
        known = {at for at in range(len(fine)) if at not in differing.unknown}
        for at, readable in enumerate(fine):
            others = [fine[other] for other in known - {at}]
            if readable and not all(others):
                self.only_readable[self._sides[at].label] += 1
            elif not readable and at in known and any(others):
                self.unreadable[self._sides[at].label] += 1
        self.only_damage &= not differing.unknown and _is_damage(found)
        self.changes[change] += 1
        self.first.setdefault(change, differing.key)
        seen = next(one for one in found if one is not None)
        row = KeyDifference(
            key=display(differing.key),
            key_base64=key_base64(differing.key),
            group=seen.directory.group,
            resource=seen.directory.resource,
            namespace=seen.namespace,
            name=seen.name,
            change=change,
            copies=tuple(
                _copy(side.label, one, unknown=at in differing.unknown)
                for at, (side, one) in enumerate(zip(self._sides, found, strict=True))
            ),
        )
        # A key may be the beginning of another one: the zero byte and the length keep their turns apart.
        turn = bytes([_ORDER[change]]) + differing.key.replace(b"\0", b"\0\1") + b"\0\0"
        self.rows.add(turn, row)

    def _examine(self, copies: Sequence[StoredValue | None]) -> list[Examination | None]:
        seen: dict[tuple[int, StoredValue | None], Examination | None] = {}
        for side, stored in zip(self._sides, copies, strict=True):
            at = (id(side.examiner), stored)
            if at not in seen:
                seen[at] = side.examiner.examine(stored) if stored is not None else None
        return [seen[id(side.examiner), stored] for side, stored in zip(self._sides, copies, strict=True)]


def _in_time_change(differing: Differing, fine: Sequence[bool]) -> Change:
    earlier, later = differing.copies
    if earlier is None:
        return Change.ADDED
    if later is None:
        return Change.REMOVED
    if fine[0] and not fine[1]:
        return Change.UNREADABLE_NOW
    same = earlier.mod_revision == later.mod_revision
    return Change.SAME_REVISION_OTHER_BYTES if same else Change.CHANGED


def _member_change(differing: Differing, fine: Sequence[bool]) -> Change:
    known = [readable for at, readable in enumerate(fine) if at not in differing.unknown]
    if all(known):
        return Change.READABLE_ON_ALL
    return Change.READABLE_ON_SOME if any(known) else Change.READABLE_ON_NONE


def _is_damage(found: Sequence[Examination | None]) -> bool:
    """Say whether there is one readable value, and besides it only unreadable copies of the same write."""
    good = {one.stored for one in found if one is not None and one.verdict.outcome in _FINE}
    if len(good) != 1:
        return False
    (right,) = good
    return all(
        one is not None
        and one.stored.mod_revision == right.mod_revision
        and (one.stored == right or one.verdict.outcome in _PROVEN_BAD)
        for one in found
    )


def _copy(label: str, found: Examination | None, *, unknown: bool) -> CopyOfKey:
    if found is None:
        return CopyOfKey(label=label, state="unknown" if unknown else "absent")
    stored, verdict = found.stored, found.verdict
    return CopyOfKey(
        label=label,
        state="present",
        mod_revision=stored.mod_revision,
        create_revision=stored.create_revision,
        version=stored.version,
        lease=f"{stored.lease:x}" if stored.lease else None,
        value_size=len(stored.value),
        value_sha256=f"sha256:{hashlib.sha256(stored.value).hexdigest()}",
        outcome=verdict.outcome.value,
        cause=verdict.cause.value if verdict.cause is not None else None,
    )
