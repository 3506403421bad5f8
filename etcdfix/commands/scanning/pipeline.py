"""From the examinations of a scan to its counts, groups, and findings in the order of their keys.

Findings wait, each in a few hundred bytes, until every value was examined: only then is it known which encryption keys
are lost. They are read twice, once to count and once to be reported. Memory does not depend on how many there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.scanning.closer import ENDED, CloserLook, with_evidence
from etcdfix.copies.model import THE_VALUE, Home
from etcdfix.examine.one import Examiner
from etcdfix.examine.readable_revision import RevisionSearch
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.key_loss import KeyCounter
from etcdfix.examine.verdicts.kinds import AlikeExaminations, CompactExamination
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.model.model import Evidence, Outcome, ReadableRevision, digest_of
from etcdfix.model.storagekey import display
from etcdfix.remediation.offers import Offer, at_hand, remedy_of, saved_of
from etcdfix.report.advice.finding import Surroundings, ways_out
from etcdfix.report.advice.ways import first_way
from etcdfix.report.finding import Statuses, finding_from, is_finding
from etcdfix.report.groups import Groups
from etcdfix.report.key_loss import KeyLosses, keys_in_doubt
from etcdfix.report.model import COUNTED, Finding, NewFindings, Remedy, Status, Summary
from etcdfix.report.rows import Rows, SortedRows, turn_of
from etcdfix.report.tally import Tally
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.commands.scan import ScanRequest

FAILING: Final = tuple(map(Outcome, COUNTED))
"""Outcomes that make the exit code of a scan, if nobody chose among them."""


class _Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A finding that waits.

    Attributes:
        part: Its examination, without the bytes of the value.
        evidence: What the closer look showed.
        home: What stands at the etcd key that a moved value belongs to.
        baseline: The baseline knows it.
    """

    part: CompactExamination
    value_size: int
    value_sha256: str
    evidence: tuple[Evidence, ...]
    readable: ReadableRevision | None
    home: Home
    baseline: bool


class FindingPipeline:
    """Takes examinations; then :meth:`count` counts them, and :meth:`report` yields the findings.

    Attributes:
        failed: How many values cannot be read so far.
        new: Findings that the baseline does not know, by outcome.
        elsewhere: How many keys lie under other storage prefixes.
    """

    def __init__(self, source: Source, examiner: Examiner, request: ScanRequest) -> None:
        self._request, self._closer = request, CloserLook(source, examiner, request)
        self._tally = Tally(past=request.run.of_the_past or source.describe().type != "etcd")
        self._keys, self._kinds, self._losses = KeyCounter(), AlikeExaminations(), KeyLosses(request.run)
        self._groups = Groups()
        self._statuses = Statuses(request.layout, request.scope.namespaces)
        self._sorted = SortedRows(_Waiting)
        self._rows: Rows[_Waiting] | None = None
        self.elsewhere: Counter[str] = Counter()
        self.new = dict.fromkeys(FAILING, 0)
        self.failed = 0
        self._cut_short = False

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count values that are plain."""
        self._tally.add_plain(counts)
        self._keys.add_plain(counts)

    def cut_short(self) -> None:
        """Ask the source nothing more: the scan was ended early, or the source is lost."""
        self._cut_short = True

    def take(self, found: Examination) -> None:
        """Count one examination; where there is something to say, look closer, and put it aside."""
        self._keys.add(found)
        outcome = found.verdict.outcome
        if outcome is Outcome.NOT_AN_OBJECT and is_finding(found):
            found = self._closer.without_neighbour(found)
        if not is_finding(found):
            self._tally.add(found)
            if outcome is Outcome.NOT_AN_OBJECT:
                other = self._request.layout.other_known_prefix(found.stored.key)
                self.elsewhere.update([other] if other else [])
            return
        self.failed += outcome in FAILED
        found = found if self._cut_short else self._closer.put_right(found)
        try:
            sought = ENDED if self._cut_short else self._closer.earlier(found)
        except KeyboardInterrupt:
            self._put_aside(found, ENDED)  # it was examined
            raise
        self._put_aside(found, sought)

    def _put_aside(self, found: Examination, sought: RevisionSearch) -> None:
        stored, baseline = found.stored, self._request.baseline
        bare = msgspec.structs.replace(found, stored=msgspec.structs.replace(stored, value=b""))
        row = _Waiting(
            self._kinds.compact(bare),
            len(stored.value),
            digest_of(stored.value),
            self._closer.evidence_of(found, sought),
            sought.revision,
            self._closer.home_of(found) if sought is not ENDED else Home.TAKEN,
            baseline is not None and baseline.knows(found),
        )
        self._sorted.add(turn_of(stored.key), row)

    @property
    def waiting(self) -> int:
        """How many findings there are, once they were counted."""
        return len(self._rows or ())

    def _each(self) -> Iterator[tuple[_Waiting, Examination]]:
        """Yield what waits, with its examination, in the order of the keys."""
        if self._rows is None:
            self._rows = self._sorted.finish()
        for row in self._rows:
            yield row, with_evidence(self._kinds.expand(row.part), row.evidence)

    def count(self) -> Summary:
        """Return all counts, once every value was taken; without groups.

        Raises:
            SourceError: There is no room for a temporary file.
        """
        known = 0
        first_new: str | None = None
        for row, found in self._each():
            self._tally.add(found)
            outcome, key = found.verdict.outcome, found.stored.key
            known += row.baseline
            if outcome in self.new and not row.baseline:
                self.new[outcome] += 1
                first_new = first_new or display(key)
            self._losses.add(found, self._saved(found, row.readable))
        summary = self._tally.summary()
        if self._request.baseline is not None:
            summary.new = NewFindings(sum(self.new.values()), self.new[Outcome.UNDETERMINED], first_new)
        summary.known_findings = known
        return summary

    def _saved(self, found: Examination, readable: ReadableRevision | None) -> Remedy | None:
        if readable is None:
            return None
        return saved_of(at_hand(msgspec.structs.replace(found, repair=None), self._request.run, readable)[0])

    def report(self, summary: Summary) -> Iterator[Finding]:
        """Yield every finding, in the order of the keys; then groups and lost keys stand in the summary."""
        lost = self._losses.lost(summary.by_transformer)
        summary.key_loss = [key.entry for key in lost.values()]
        doubtful = {(name.rule, name.transformer) for name in self._keys.names if self._keys.doubts_in(name)}
        for row, found in self._each():
            its = next((lost[key] for key in keys_in_doubt(found) if key in lost), None)
            if its is not None and found.repair is None:
                finding = _finding(row, found, ())  # the remedies are those of the key
                self._groups.add(finding, its.rank, its.first, lost=True)
            else:
                finding = self._by_itself(row, found, doubtful)
            self._statuses.add(found.directory, finding)
            yield finding
        summary.groups, summary.warnings = self._groups.published(), self._groups.warnings

    def _by_itself(self, row: _Waiting, found: Examination, doubtful: Collection[tuple[str, str]]) -> Finding:
        offered = at_hand(found, self._request.run, row.readable)
        beside = Surroundings(home=row.home)
        ways = ways_out(found, self._request.run, offers=[*map(remedy_of, offered)], beside=beside)
        finding, stake = _finding(row, found, ways), stake_of(found)
        if (found.rule, found.transformer) in doubtful:  # nothing is written over so many values
            kept = [*map(_kept_only, offered)]
            ways = ways_out(found, self._request.run, offers=kept, beside=beside)
        self._groups.add(finding, stake.rank if stake is not None else None, first_way(ways))
        return finding

    @property
    def first_way(self) -> Remedy | None:
        """The first way out of the worst that is wrong, once all was reported."""
        return self._groups.first_way

    def statuses(self) -> list[Status]:
        """Return the Status of each resource with corrupt objects, once all was reported."""
        return self._statuses.published()


def _kept_only(offer: Offer) -> Remedy:
    return remedy_of(offer) if offer.copy.place in THE_VALUE else saved_of(offer)


def _finding(row: _Waiting, found: Examination, ways: Sequence[Remedy]) -> Finding:
    size, digest = row.value_size, row.value_sha256
    return finding_from(found, ways, baseline=row.baseline, size=size, digest=digest)
