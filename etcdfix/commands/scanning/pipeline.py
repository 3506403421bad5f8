"""From the examinations of a scan to its counts, groups, and findings in the order of their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.claims import KEY_NAME_CHECK, PREDECESSOR_CHECK
from etcdfix.copies.elsewhere import home_of
from etcdfix.copies.model import THE_VALUE, Home
from etcdfix.errors import SourceError
from etcdfix.examine import PLAIN, Examiner
from etcdfix.examine_all import View
from etcdfix.model import Evidence, Outcome, ReadableRevision, ServerBehaviour
from etcdfix.readable_revision import ReadableRevisions, Sought
from etcdfix.remediation.offers import at_hand, remedy_of, saved_of
from etcdfix.repair import unasked
from etcdfix.report.advice.change import Beside
from etcdfix.report.advice.finding import ways_out
from etcdfix.report.advice.ways import first_way
from etcdfix.report.compact import CompactFinding, CompactFindings, shown_digest, with_evidence
from etcdfix.report.counts import COUNTED, DoubtfulNames, NewFindings
from etcdfix.report.finding import finding_from, is_finding, status_cause
from etcdfix.report.groups import Group, Groups, Member, member_of_lost_key
from etcdfix.report.key_loss import KeyLosses, Lost, Place, places_of
from etcdfix.report.model import Finding, Remedy, Summary
from etcdfix.report.render import Writer
from etcdfix.report.tally import Tally
from etcdfix.sources.base import Source
from etcdfix.spool import Spool
from etcdfix.storagekey import ResourcePrefix, StorageLayout, display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.verdicts.judge import Verdict
from etcdfix.verdicts.key_loss import KeyCounter
from etcdfix.verdicts.kinds import MOST_KINDS
from etcdfix.verdicts.severity import stake_of

if TYPE_CHECKING:
    from etcdfix.commands.scan import ScanRequest

FAILING: Final = tuple(map(Outcome, COUNTED))
"""Outcomes that make the exit code of a scan, if nobody chose among them."""
SAMPLE: Final = 200
"""So many keys that hold no object tell where the others may be."""
# Causes of a value that may lie under a name that is not its own.
_NAME_IN_DOUBT = frozenset(
    {
        Cause.IDENTITY_MISMATCH,
        Cause.VALUE_MOVED,
        Cause.ASSOCIATED_DATA_UNKNOWN,
        Cause.AUTHENTICATION_FAILED,
        Cause.OWNER_UNKNOWN,
    }
)
# Each is a question to etcd; of many keys in one state, these tell enough.
_MOST_PREDECESSORS = _MOST_HOMES = 1000
_MOST_SEARCHED = 16
"""So many values of one encryption key are searched for a bit that no tag proves; one can take a second."""
_MOST_SEARCHED_SIZE = 4 << 10
_NOT_SEARCHED: Final = Evidence(
    "repair", "not looked for", "etcdfix explain KEY tries to put back each bit of it"
)
_ENDED: Final = Sought(None, "the scan was ended early")
_READABLE_CHECK = "earlier-revision"
_OF_NAMES: Final = frozenset({KEY_NAME_CHECK, PREDECESSOR_CHECK})


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
        self._source = source
        self._examiner = examiner
        self._searched: Counter[KeyName] = Counter()
        live = not request.run.of_a_file
        self._readable = ReadableRevisions.of_many(source, examiner, live=live)
        self.readable_revisions = 0
        self.readable_not_sought = 0
        self._predecessors_asked = self._homes_asked = 0
        self._trees: dict[bytes, bool] = {}
        namespace = request.scope.namespaces[0] if len(request.scope.namespaces) == 1 else ""
        self.tally = Tally(
            past=request.run.of_the_past or source.describe().type != "etcd",
            max_causes=request.max_causes,
            list_prefix=partial(_list_prefix, request.layout, namespace),
        )
        self.not_object_sample: list[bytes] = []
        self.elsewhere: Counter[str] = Counter()
        self.new = dict.fromkeys(FAILING, 0)
        self._first_new: bytes | None = None
        self._request = request
        self._writer = writer
        self._held: Spool[_Waiting] = Spool(_Waiting)
        self.out_of_order = False
        self._losses = KeyLosses(request.run)
        # From the first finding on that may belong to a lost key: whether it is lost is known at the end.
        self._undecided: Spool[_Waiting] = Spool(_Waiting)
        self._deciding = True
        self._compact = CompactFindings()
        self._with_told: dict[tuple[Verdict, Evidence], Verdict] = {}
        self._groups, self._keys = Groups(), KeyCounter()
        self._doubtful_names: DoubtfulNames | None = None

    def close(self) -> None:
        """Forget what waits."""
        self._held.close()
        self._undecided.close()

    def take_plain(self, counts: Sequence[PlainCount]) -> None:
        """Count values that are plain."""
        self.tally.add_plain(counts)
        self._keys.add_plain(counts)

    @property
    def failed(self) -> int:
        """How many values cannot be read so far; those of a known kind are in the tally at the end only."""
        return self.tally.failed + sum(kind.more for kind in self._compact.counted)

    def report_until(self, key: bytes | None) -> None:
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
        self._emit(self._with_remedies(held))

    def _decide(self, lost: Mapping[Place, Lost]) -> None:
        """Write what waited; what belongs to a lost key has no remedies of its own."""
        place_of = self._compact.kinds_of(lost)
        listed = set(place_of)
        groups: dict[int, tuple[Group, Member]] = {}
        for held in self._undecided.drain():
            if isinstance(held, _Held) or held.kind not in place_of:
                self._emit(self._with_remedies(held))
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

    def _with_remedies(self, held: _Waiting) -> _Held:
        if isinstance(held, _Held):
            return held
        whole = self._held_of(self._compact.examination(held), held.readable, baseline=held.baseline)
        size, digest = held.value_size, shown_digest(held)
        finding = msgspec.structs.replace(whole.finding, value_size=size, value_sha256=digest)
        return msgspec.structs.replace(whole, finding=finding)

    def _list_cause(self, directory: ResourcePrefix, finding: Finding) -> bool:
        if finding.apiserver != ServerBehaviour.CORRUPT or not self.tally.lists_more(directory):
            return False
        shown = status_cause(finding)
        if shown is not None:
            self.tally.list_cause(directory, shown)
        return True

    def _emit(self, held: _Held) -> None:
        self._list_cause(held.directory, held.finding)
        self._groups.add(held.finding, held.member)
        self._writer.row(held.finding)

    def end(self) -> tuple[Summary, Remedy | None]:
        """Write all that waited; return all counts, and the first way out of the worst that is wrong."""
        self.report_until(None)
        for kind in self._compact.counted:
            self.tally.add_more(
                kind.found,
                kind.more,
                first_mod_revision=kind.first_mod_revision,
                last_mod_revision=kind.last_mod_revision,
                first_key=kind.first_key,
            )
        summary = self.tally.summary()
        if self._request.baseline is not None:
            first = None if self._first_new is None else display(self._first_new)
            summary.new = NewFindings(sum(self.new.values()), self.new[Outcome.UNDETERMINED], first)
        lost = self._losses.lost(summary.by_transformer)
        self._decide(lost)
        summary.key_loss = [key.entry for key in lost.values()]
        summary.groups, way = self._groups.summed(self._keys)
        summary.warnings, summary.doubtful_names = self._groups.warnings, self._doubtful_names
        return summary, way

    def take(self, found: Examination, view: View) -> None:
        """Count one examination, and report it where there is something to say.

        A finding is held back while others, with earlier keys, are still open.
        """
        self._keys.add(found)
        if found.verdict is PLAIN:  # it waited for a plugin
            self.tally.add(found)
            return
        outcome = found.verdict.outcome
        finding = is_finding(found)
        if view.draining and self._held.count and finding:
            self.report_until(found.stored.key)
        if outcome is Outcome.NOT_AN_OBJECT and finding:
            found = self._without_neighbour(found)
            finding = is_finding(found)
        if not finding:
            self.tally.add(found)
            if outcome is Outcome.NOT_AN_OBJECT:
                self._note_stranger(found.stored.key)
            return
        found = found if view.ended else self._put_right(found)
        baseline = self._request.baseline
        known = baseline is not None and baseline.knows(found)
        if known:
            self.tally.known_findings += 1
        elif outcome in self.new:
            self.new[outcome] += 1
            key = found.stored.key
            self._first_new = key if self._first_new is None else min(self._first_new, key)
        try:
            sought = _ENDED if view.ended else self._readable.of(found)
        except KeyboardInterrupt:
            self._hold_for_order(self._count(found, _ENDED, baseline=known), view)  # it was examined
            raise
        self._hold_for_order(self._count(found, sought, baseline=known), view)

    def _note_stranger(self, key: bytes) -> None:
        if len(self.not_object_sample) < SAMPLE:
            self.not_object_sample.append(key)
        other = self._request.layout.other_known_prefix(key)
        if other:
            self.elsewhere[other] += 1

    def _hold_for_order(self, record: _Waiting, view: View) -> None:
        if not view.draining and not self.out_of_order and view.waiting:
            try:
                self._held.append(record)
            except OSError:
                self.out_of_order = True
            else:
                return
        self._enqueue(record)

    def _count(self, found: Examination, sought: Sought, *, baseline: bool) -> _Waiting:
        own = self._warnings_of_name(found)
        self._note_name(found, own)
        readable = sought.revision
        told = self._told_of_earlier(sought)
        if readable is not None:
            own = (*own, told) if told is not None else own
        elif told is not None:
            found = self._with_more(found, told)
        places, compact, new = places_of(found), None, True
        if places and self._deciding:
            kinds = len(self._compact)
            compact = self._compact.compact(found, own=own, readable=readable, baseline=baseline)
            new = compact is None or len(self._compact) > kinds
        if new:  # of a kind that is known, all are counted at the end
            self.tally.add(found)
        if places and (new or readable is not None) and (stake := stake_of(found)):
            self._losses.add(found, places, stake, self._saved(found, readable))
        if compact is not None:
            return compact
        return self._held_of(with_evidence(found, own), readable, baseline=baseline)

    def _saved(self, found: Examination, readable: ReadableRevision | None) -> Remedy | None:
        if readable is None:
            return None
        bare = msgspec.structs.replace(found, repair=None)
        return saved_of(at_hand(bare, self._request.run, readable)[0])

    def _held_of(self, found: Examination, readable: ReadableRevision | None, *, baseline: bool) -> _Held:
        beside = Beside(home=self._home_of(found))
        offered = at_hand(found, self._request.run, readable)
        offers = [remedy_of(offer) for offer in offered]
        ways = ways_out(found, self._request.run, offers=offers, beside=beside)
        careful = {
            way: saved_of(offer)
            for way, offer in zip(offers, offered, strict=True)
            if offer.copy.place not in THE_VALUE
        }
        of_many = [careful.get(way, way) for way in ways] if careful else ways
        stake = stake_of(found)
        return _Held(
            found.stored.key,
            found.directory,
            finding_from(found, ways, baseline=baseline),
            Member(stake.rank if stake is not None else None, first_way(ways), first_way(of_many)),
        )

    def _home_of(self, found: Examination) -> Home:
        if not found.verdict.belongs_to:
            return Home.FREE
        self._homes_asked += 1
        return (
            home_of(self._source, self._examiner, found) if self._homes_asked <= _MOST_HOMES else Home.TAKEN
        )

    def _put_right(self, found: Examination) -> Examination:
        """Add the repair of a value that no tag protects: each bit is tried, so of few values, and none large."""
        size = self._examiner.cbc_size(found) if found.repair is None else 0
        if not size:
            return found
        self._searched.update(found.encryption_keys)
        if size > _MOST_SEARCHED_SIZE or any(
            self._searched[key] > _MOST_SEARCHED for key in found.encryption_keys
        ):
            return self._with_more(found, _NOT_SEARCHED)
        search = unasked(self._examiner.search_repair(found), found.verdict.cause)
        return msgspec.structs.replace(found, repair=search.repair)

    def _without_neighbour(self, found: Examination) -> Examination:
        """Take the warning from a key of a tree of its own: another cluster's prefix may be one bit away from ours."""
        verdict, key = found.verdict, found.stored.key
        start = key[: len(self._request.layout.prefix_bytes)]
        if start not in self._trees:
            try:
                with self._source.aside():  # pages further on may have been read already
                    self._trees[start] = len(list(islice(self._source.current(start), 2))) > 1
            except SourceError:  # as below
                self._trees[start] = True
        if not self._trees[start]:
            return found
        return msgspec.structs.replace(found, verdict=msgspec.structs.replace(verdict, evidence=()))

    def _warnings_of_name(self, found: Examination) -> tuple[Evidence, ...]:
        """Warn of a key whose name nothing bears out: it should have been changed before, and was not."""
        if found.stored.version == 1 or self._predecessors_asked >= _MOST_PREDECESSORS:
            return ()
        verdict = found.verdict
        doubtful = verdict.cause in _NAME_IN_DOUBT or any(e.check == KEY_NAME_CHECK for e in verdict.evidence)
        if not doubtful:
            return ()
        self._predecessors_asked += 1
        try:
            if not self._source.lacks_predecessor(found.stored):
                return ()
        except SourceError:  # the scan itself says what it cannot read
            return ()
        warning = Evidence(
            PREDECESSOR_CHECK,
            "missing",
            f"version {found.stored.version or 'unknown'}, and nothing stood under this name before mod_revision "
            f"{found.stored.mod_revision}: the name of the key itself may be damaged",
        )
        return (warning,)

    def _note_name(self, found: Examination, own: tuple[Evidence, ...]) -> None:
        """Count a key whose own name may be damaged, and keep the first: API servers do not see such objects."""
        seen = [e.detail for e in (*found.verdict.evidence, *own) if e.check in _OF_NAMES]
        if seen:
            key = display(found.stored.key)
            before = self._doubtful_names or DoubtfulNames(0, key, seen[0])
            first = min((key, seen[0]), (before.first, before.detail))
            self._doubtful_names = DoubtfulNames(before.count + 1, *first)

    def _with_more(self, found: Examination, told: Evidence) -> Examination:
        """Return an examination with what was said of its earlier revisions; of many that is one and the same."""
        place = found.verdict, told
        verdict = self._with_told.get(place)
        if verdict is None:
            verdict = with_evidence(found, (told,)).verdict
            if len(self._with_told) < MOST_KINDS:
                self._with_told[place] = verdict
        return msgspec.structs.replace(found, verdict=verdict)

    def _told_of_earlier(self, sought: Sought) -> Evidence | None:
        if sought.revision is not None:
            self.readable_revisions += 1
            readable = sought.revision
            return Evidence(
                _READABLE_CHECK,
                "readable" if readable.same_object else "readable, perhaps of another object",
                f"mod_revision {readable.mod_revision} is kept, and stands at revision {readable.at}",
            )
        if not sought.not_sought:
            return None
        self.readable_not_sought += 1
        return Evidence(_READABLE_CHECK, "not looked for", f"{sought.not_sought}; etcdfix explain KEY looks")


def _list_prefix(layout: StorageLayout, namespace: str, directory: ResourcePrefix) -> str:
    base = display(layout.directory_prefix(directory))
    return f"{base}{namespace}/" if namespace and directory.namespaced is not False else base
