"""The objects of which copies are wanted: what cannot be read, was deleted lately, or is named.

They are found in one pass over the datastore. A key was deleted lately where the datastore, or a log, still knows a
value of it and none stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from etcdfix.commands.copying.kept_values import KeptValues
from etcdfix.copies.model import Wanted
from etcdfix.examine.all import Ending, Progress, examine_all
from etcdfix.examine.first_pass import FirstPass, Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.scope import beside, searched_for, values_in
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.model.errors import SourceError
from etcdfix.model.model import Outcome, StoredValue
from etcdfix.model.scope import InRanges, KeyRange
from etcdfix.model.storagekey import StorageCodec, display
from etcdfix.report.rows import SortedRows, turn_of
from etcdfix.report.tally import Stakes
from etcdfix.sources.base import Source, has_keys
from etcdfix.sources.pages import paged
from etcdfix.text.words import counted

_MOST_HISTORIES: Final = 20
"""Keys of which a live etcd is asked for the history; each takes a tenth of a second."""
_MOST_MOVED: Final = 1000
# No copy tells more of these.
_NOT_WANTED: Final = frozenset({Cause.NO_CONFIGURATION, Cause.OWNER_UNKNOWN, Cause.NOT_AN_OBJECTS_KEY})


class WantedObjects:
    """Finds them.

    Args:
        ranges: The keys in scope.
        named: A person named the single keys among these: each is wanted, whatever stands there.

    Attributes:
        found: Without bytes, in the order of the keys.
        kept: What the datastore keeps of it besides; None to ask it key by key.
        known: Takes what else is known of keys, before the pass.
        moved: Etcd keys whose value was written for another one, by that; the first thousand.
        expired: How many deleted keys had a lease.
        nothing_there: Nothing lies below the storage prefix.
    """

    def __init__(
        self, source: Source, request: Reading, examiner: Examiner, ranges: Sequence[KeyRange], *, named: bool
    ) -> None:
        self._source, self._request, self._examiner, self._ranges = source, request, examiner, ranges
        self._scope = InRanges(ranges)
        exact = {one.prefix for one in ranges if one.exact}
        self._named = exact if named else set()
        self._unseen = set(exact)
        # What is plain comes as counts, and what an interruption leaves does not come at all.
        self._unsaid: dict[bytes, StoredValue] = {}
        file = source.describe().type != "etcd"
        few = all(one.exact for one in ranges) and (file or len(ranges) <= _MOST_HISTORIES)
        self._reads_all = not few
        self.known = KeptValues(source, self._scope)
        self.kept = None if file or few else self.known
        self.found = SortedRows(Wanted)
        self.moved: dict[bytes, list[bytes]] = {}
        self.problems: list[str] = []
        self.stakes = Stakes(past=request.run.of_the_past or file)
        self.expired = self._unconfigured = 0
        self.nothing_there = self._seen = False

    def seek(self, progress: Progress, jobs: Jobs) -> Ending:
        """Look at everything in scope, and take note of what is wanted."""
        if self._reads_all:
            try:
                self.known.read(progress, values=self.kept is not None)
            except SourceError as exc:
                self.problems.append(f"earlier values could not be read to their end: {exc.message}")
        denied: list[bytes] = []
        values = self.known.noting_deleted(
            self._noting_named(values_in(self._source, self._ranges, denied)),
            lambda: not self._source.problems,
            self._deleted,
        )
        ending = examine_all(
            self._examiner,
            paged(values),
            self._take,
            plain=self._take_plain,
            first_pass=FirstPass(self._examiner, self._request, self._source, jobs) if jobs != 1 else None,
            targets=searched_for(self._ranges),
            progress=progress,
            witnesses=beside(self._source, self._request.layout, self._ranges),
        )
        for stored in [*self._unsaid.values()]:
            self._take(self._examiner.examine(stored))
        self.problems += [f"lost {display(key)}: permission denied" for key in denied if key in self._named]
        if ending.ended is None:
            for key in sorted(self._unseen.difference(denied)):
                if not self._is_only_a_prefix(key):
                    self._want(Wanted.gone(key, self._request.layout))
            if not self._seen and not ending.problems:
                self.nothing_there = not has_keys(self._source, self._request.layout)
        if self._unconfigured:
            self.problems.append(
                f"undetermined: {counted(self._unconfigured, 'value')} without an encryption configuration or a known "
                "owner; etcdfix does not look for their copies"
            )
        return ending

    def _want(self, wanted: Wanted) -> None:
        self.found.add(turn_of(wanted.key), wanted)

    def _noting_named(self, values: Iterator[StoredValue]) -> Iterator[StoredValue]:
        for stored in values:
            self._unseen.discard(stored.key)
            if stored.key in self._named:
                self._unsaid[stored.key] = stored
            yield stored

    def _take_plain(self, _counts: Sequence[PlainCount]) -> None:
        self._seen = True

    def _take(self, found: Examination) -> None:
        key, verdict = found.stored.key, found.verdict
        named = self._unsaid.pop(key, None) is not None or key in self._named
        if verdict.outcome is Outcome.NOT_AN_OBJECT and not named:
            return
        self._seen = True
        wrong = verdict.outcome in {*FAILED, Outcome.UNDETERMINED}
        if not named and (not wrong or verdict.cause in _NOT_WANTED):
            self._unconfigured += wrong and verdict.outcome is Outcome.UNDETERMINED
            return
        if wrong:
            self.stakes.add(found)
        if verdict.belongs_to and len(self.moved) < _MOST_MOVED:
            self.moved.setdefault(verdict.belongs_to, []).append(key)
        self._want(Wanted.of(found).without_bytes())

    def _deleted(self, key: bytes, leased: bool) -> None:
        directory, _shared = self._examiner.layout.locate(key)
        if directory.codec is StorageCodec.NOT_AN_OBJECT and key not in self._unseen:
            return
        if leased and key not in self._unseen:  # events, above all: nobody deleted them
            self.expired += 1
            return
        self._unseen.discard(key)
        self._want(Wanted.gone(key, self._request.layout))

    def _is_only_a_prefix(self, key: bytes) -> bool:
        """Say whether a word that names no etcd key names others below it: then it was meant as a prefix."""
        below = key + b"/"
        if below not in self._scope:
            return False
        return next(iter(self._source.current(below)), None) is not None or self.known.knows_below(below)
