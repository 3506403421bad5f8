"""From the examinations of a scan to its counts, groups, and findings in the order of their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.commands.scanning.closer import CloserLook
from etcdfix.copies.model import THE_VALUE
from etcdfix.examine.all import View
from etcdfix.examine.one import PLAIN, Examiner
from etcdfix.examine.readable_revision import Sought
from etcdfix.examine.spool import Spool
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.key_loss import KeyCounter
from etcdfix.examine.verdicts.severity import stake_of
from etcdfix.model.model import Outcome, ReadableRevision, ServerBehaviour
from etcdfix.model.storagekey import ResourcePrefix, StorageLayout, display
from etcdfix.remediation.offers import at_hand, remedy_of, saved_of
from etcdfix.report.advice.finding import Beside, ways_out
from etcdfix.report.advice.ways import first_way
from etcdfix.report.compact import CompactFinding, CompactFindings, shown_digest, with_evidence
from etcdfix.report.finding import finding_from, is_finding, status_cause
from etcdfix.report.groups import Group, Groups, Member, member_of_lost_key
from etcdfix.report.key_loss import KeyLosses, Lost, Place, places_of
from etcdfix.report.model import COUNTED, Finding, NewFindings, Remedy, Summary
from etcdfix.report.render import Writer
from etcdfix.report.tally import Tally
from etcdfix.sources.base import Source

if TYPE_CHECKING:
    from etcdfix.commands.scan import ScanRequest

FAILING: Final = tuple(map(Outcome, COUNTED))
"""Outcomes that make the exit code of a scan, if nobody chose among them."""
SAMPLE: Final = 200
"""So many keys that hold no object tell where the others may be."""


class _Held(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A finding that waits for its turn, or for the verdict on its encryption key: findings stand in key order."""

    key: bytes
    directory: ResourcePrefix
    finding: Finding
    member: Member


_Waiting = _Held | CompactFinding


class FindingPipeline:
    """Counts examinations, and writes findings in the order of their keys."""

    def __init__(self, source: Source, examiner: Examiner, request: ScanRequest, writer: Writer) -> None:
        self._request, self._writer = request, writer
        self.closer = CloserLook(source, examiner, request)
        namespace = request.scope.namespaces[0] if len(request.scope.namespaces) == 1 else ""
        self.tally = Tally(
            past=request.run.of_the_past or source.describe().type != "etcd",
            max_causes=request.max_causes,
            list_prefix=partial(_list_prefix, request.layout, namespace),
        )
        self._groups, self._keys = Groups(), KeyCounter()
        self.not_object_sample: list[bytes] = []
        self.elsewhere: Counter[str] = Counter()
        self.new = dict.fromkeys(FAILING, 0)
        self._first_new: bytes | None = None
        self._held: Spool[_Waiting] = Spool(_Waiting)
        self.out_of_order = False
        self._losses = KeyLosses(request.run)
        # From the first finding on that may belong to a lost key: whether it is lost is known at the end.
        self._undecided: Spool[_Waiting] = Spool(_Waiting)
        self._deciding = True
        self._compact = CompactFindings()

    def close(self) -> None:
        """Forget what waits."""
        self._held.close()
        self._undecided.close()

    @property
    def failed(self) -> int:
        """How many values cannot be read so far; those of a known kind are in the tally at the end only."""
        return self.tally.failed + sum(kind.more for kind in self._compact.counted)

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count values that are plain."""
        self.tally.add_plain(counts)
        self._keys.add_plain(counts)

    def take(self, found: Examination, view: View) -> None:
        """Count one examination, and report it where there is something to say.

        A finding is held back while others, with earlier keys, are still open.
        """
        self._keys.add(found)
        if found.verdict is PLAIN:  # it waited for a plugin
            self.tally.add(found)
            return
        outcome, finding = found.verdict.outcome, is_finding(found)
        if view.draining and self._held.count and finding:
            self._report_until(found.stored.key)
        if outcome is Outcome.NOT_AN_OBJECT and finding:
            found = self.closer.without_neighbour(found)
            finding = is_finding(found)
        if not finding:
            self.tally.add(found)
            if outcome is Outcome.NOT_AN_OBJECT:
                self._note_stranger(found.stored.key)
            return
        found = found if view.ended else self.closer.put_right(found)
        known = self._is_known(found)
        try:
            sought = self.closer.earlier(found, ended=view.ended)
        except KeyboardInterrupt:
            sought = self.closer.earlier(found, ended=True)  # it was examined
            self._hold_for_order(self._count(found, sought, baseline=known), view)
            raise
        self._hold_for_order(self._count(found, sought, baseline=known), view)

    def _is_known(self, found: Examination) -> bool:
        baseline, outcome, key = self._request.baseline, found.verdict.outcome, found.stored.key
        if baseline is not None and baseline.knows(found):
            self.tally.known_findings += 1
            return True
        if outcome in self.new:
            self.new[outcome] += 1
            self._first_new = key if self._first_new is None else min(self._first_new, key)
        return False

    def _note_stranger(self, key: bytes) -> None:
        if len(self.not_object_sample) < SAMPLE:
            self.not_object_sample.append(key)
        other = self._request.layout.other_known_prefix(key)
        if other:
            self.elsewhere[other] += 1

    def _count(self, found: Examination, sought: Sought, *, baseline: bool) -> _Waiting:
        found, own = self.closer.told(found, sought)
        readable = sought.revision
        places, compact, new = places_of(found), None, True
        if places and self._deciding:
            kinds = len(self._compact)
            compact = self._compact.compact(found, own=own, readable=readable, baseline=baseline)
            new = compact is None or len(self._compact) > kinds
        if new:  # of a kind that is known, all are counted at the end
            self.tally.add(found)
        if places and (new or readable is not None) and (stake := stake_of(found)):
            saved = None
            if readable is not None:
                bare = msgspec.structs.replace(found, repair=None)
                saved = saved_of(at_hand(bare, self._request.run, readable)[0])
            self._losses.add(found, places, stake, saved)
        if compact is not None:
            return compact
        return self._held_of(with_evidence(found, own), readable, baseline=baseline)

    def _held_of(self, found: Examination, readable: ReadableRevision | None, *, baseline: bool) -> _Held:
        offered = at_hand(found, self._request.run, readable)
        offers = [remedy_of(offer) for offer in offered]
        beside = Beside(home=self.closer.home_of(found))
        ways = ways_out(found, self._request.run, offers=offers, beside=beside)
        saves = {
            way: saved_of(offer)
            for way, offer in zip(offers, offered, strict=True)
            if offer.copy.place not in THE_VALUE
        }
        stake, of_many = stake_of(found), [saves.get(way, way) for way in ways] if saves else ways
        return _Held(
            found.stored.key,
            found.directory,
            finding_from(found, ways, baseline=baseline),
            Member(stake.rank if stake is not None else None, first_way(ways), first_way(of_many)),
        )

    def _hold_for_order(self, record: _Waiting, view: View) -> None:
        if not view.draining and not self.out_of_order and view.waiting:
            try:
                self._held.append(record)
            except OSError:
                self.out_of_order = True
            else:
                return
        self._enqueue(record)

    def _report_until(self, key: bytes | None) -> None:
        """Write the findings that wait, those with keys before this one; None for all."""
        while self._held.count:
            held = self._held.peek()
            if key is not None and held.key > key:
                return
            self._held.drop()
            self._enqueue(held)

    def _enqueue(self, held: _Waiting) -> None:
        if self._deciding and (isinstance(held, CompactFinding) or self._undecided.count):
            try:
                self._undecided.append(held)
            except OSError:  # then each keeps its own remedies, which hold all the same
                self._deciding = False
                self._decide({})
            else:
                return
        self._emit(held)

    def _decide(self, lost: Mapping[Place, Lost]) -> None:
        """Write what waited; what belongs to a lost key has no remedies of its own."""
        place_of = self._compact.kinds_of(lost)
        listed = set(place_of)
        groups: dict[int, tuple[Group, Member]] = {}
        for held in self._undecided.drain():
            if isinstance(held, _Held) or held.kind not in place_of:
                self._emit(held)
                continue
            kind, finding = held.kind, self._compact.finding(held)
            if kind not in groups:
                member = member_of_lost_key(lost[place_of[kind]])
                groups[kind] = self._groups.group_of(finding, member, lost=True), member
            group, member = groups[kind]
            group.add(finding, member)
            if kind in listed and not self._list_cause(self._compact.directory(kind), finding):
                listed.discard(kind)  # no other one of its kind will be
            self._writer.row(finding)

    def _emit(self, held: _Waiting) -> None:
        if isinstance(held, CompactFinding):
            whole = self._held_of(self._compact.examination(held), held.readable, baseline=held.baseline)
            size, digest = held.value_size, shown_digest(held)
            finding = msgspec.structs.replace(whole.finding, value_size=size, value_sha256=digest)
            held = msgspec.structs.replace(whole, finding=finding)
        self._list_cause(held.directory, held.finding)
        self._groups.add(held.finding, held.member)
        self._writer.row(held.finding)

    def _list_cause(self, directory: ResourcePrefix, finding: Finding) -> bool:
        if finding.apiserver != ServerBehaviour.CORRUPT or not self.tally.lists_more(directory):
            return False
        shown = status_cause(finding)
        if shown is not None:
            self.tally.list_cause(directory, shown)
        return True

    def end(self) -> tuple[Summary, Remedy | None]:
        """Write all that waited; return all counts, and the first way out of the worst that is wrong."""
        self._report_until(None)
        for kind in self._compact.counted:
            self.tally.add_more(
                kind.found,
                kind.more,
                first_mod_revision=kind.first_mod_revision,
                last_mod_revision=kind.last_mod_revision,
                first_key=kind.first_key,
            )
        summary, closer = self.tally.summary(), self.closer
        if self._request.baseline is not None:
            first = None if self._first_new is None else display(self._first_new)
            summary.new = NewFindings(sum(self.new.values()), self.new[Outcome.UNDETERMINED], first)
        lost = self._losses.lost(summary.by_transformer)
        self._decide(lost)
        summary.key_loss = [key.entry for key in lost.values()]
        summary.groups, way = self._groups.summed(self._keys)
        summary.warnings, summary.doubtful_names = self._groups.warnings, closer.doubtful_names
        summary.readable_revisions, summary.readable_revisions_not_sought = closer.readable, closer.not_sought
        return summary, way


def _list_prefix(layout: StorageLayout, namespace: str, directory: ResourcePrefix) -> str:
    base = display(layout.directory_prefix(directory))
    return f"{base}{namespace}/" if namespace and directory.namespaced is not False else base
