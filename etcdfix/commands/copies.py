"""Every copy that still exists of what cannot be read, or was deleted lately; nothing is changed.

What is wanted is found first, in one pass over the datastore; then every place is asked for each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.commands.copying.wanted import WantedObjects
from etcdfix.copies.finder import Finder
from etcdfix.copies.log import Log
from etcdfix.copies.model import Copy, Home, Sameness, Wanted
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.copies.value import Candidate, home_of
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.first_pass import Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readable_revision import Keeps
from etcdfix.examine.scope import resolved
from etcdfix.examine.verdicts.deletability import FAILED
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.errors import ConfigurationError, EndedEarly, SourceError
from etcdfix.model.model import Outcome
from etcdfix.model.scope import KeyRange, ResolvedScope, ScopeRequest
from etcdfix.model.storagekey import display
from etcdfix.remediation.backup.folder import with_records
from etcdfix.remediation.identify import identify
from etcdfix.remediation.offers import offers, shown_of, ways_of
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.advice.finding import Surroundings
from etcdfix.report.advice.ways import WayKind, first_way
from etcdfix.report.copies import CopiesReport, Grade, ObjectCopies, ObjectState
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin, shown_scope
from etcdfix.report.rows import Rows, SortedRows, turn_of
from etcdfix.report.saved_report import SavedReport
from etcdfix.sources.base import Source
from etcdfix.text.commands import explain
from etcdfix.text.safetext import key_base64
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_MOST_READ: Final = 100
"""Values of which a person is helped by a long search for what is wrong with them: half a second each, at worst."""
_MOST_TOLD: Final = 20
"""Copies of one object."""
_STATES: Final = {
    **dict.fromkeys(FAILED, ObjectState.UNREADABLE),
    Outcome.UNDETERMINED: ObjectState.UNDETERMINED,
    Outcome.INCONSISTENT: ObjectState.INCONSISTENT,
}


class CopiesRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what is looked for, and where.

    Attributes:
        report: A scan's report, whose findings are looked for instead of the scope.
    """

    scope: ScopeRequest = ScopeRequest()
    report: SavedReport | None = None
    places: Places = Places()
    records: RecordPaths = RecordPaths()


class CopiesResult(NamedTuple):
    """What was found, and what ended the look early.

    ``nothing_there``: nothing lies below the storage prefix, and nothing is known that did.
    """

    report: CopiesReport
    ended: EndedEarly | None
    nothing_there: bool


def find_copies(
    source: Source,
    request: CopiesRequest,
    *,
    plugins: KMSPlugins | None = None,
    candidates: Mapping[Path, Examiner] | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> CopiesResult:
    """Look for copies of every object in scope that cannot be read or was deleted lately, and of each that is named.

    Raises:
        ConfigurationError: The scope names something that does not exist, or the report is of another cluster.
        SourceError: Nothing could be read.
    """
    examiner = Examiner.of_cluster(source, request, plugins)
    uid = examiner.kube_system_uid(source)
    scope, ranges = _resolved(request, examiner, source, uid)
    request = msgspec.structs.replace(request, scope=scope)
    wanted = WantedObjects(source, request, examiner, ranges, named=request.report is None)
    identity = identify(source, examiner.independent_copy(), request.records.directories)
    places = msgspec.structs.replace(request.places, kept=wanted.kept, moved=wanted.moved, progress=progress)
    places = with_records(places, request.records, identity)
    with open_finders(source, examiner, places, uid=uid, identity=identity, candidates=candidates) as finders:
        for key in (key for finder in finders if isinstance(finder, Log) for key in finder.deleted(b"")):
            wanted.known.know(key)
        ending = wanted.seek(progress, jobs)
        search = _Search(source, request, examiner, finders, wanted.kept)
        with plugins.without_recording() if plugins is not None else nullcontext():
            ended = search.each(wanted.found.finish(), progress, ending.ended)
    problems = [*source.problems, *ending.problems, *ending.lost, *wanted.problems]
    problems += [*problems_of(finders), *search.problems]
    if ended is not None:
        problems.append(f"{ended.reason} before the end")
    report = _report(source, request, uid, wanted, search, problems)
    empty = wanted.nothing_there and not any(one.copies for one in report.objects)
    return CopiesResult(report, ended, empty)


def _resolved(request: CopiesRequest, examiner: Examiner, source: Source, uid: str | None) -> ResolvedScope:
    report = request.report
    if report is None:
        return resolved(request.scope, examiner, source)
    theirs = report.header.source.kube_system_uid
    if theirs != uid:
        raise ConfigurationError(
            f"the report is from another cluster: kube-system has uid {theirs or 'unknown'} there, "
            f"and {uid or 'unknown'} here",
            hint="name the etcd or the snapshot that was scanned, or scan this one",
        )
    return ResolvedScope(request.scope, [KeyRange(key, exact=True) for key in sorted(report.findings)])


class _Row(msgspec.Struct, frozen=True):
    wanted: Wanted
    copies: list[Copy] = []
    home: Home = Home.FREE


class _Search:
    """Asks every finder for each object; what they find waits in a temporary file."""

    def __init__(
        self,
        source: Source,
        request: CopiesRequest,
        examiner: Examiner,
        finders: Sequence[Finder],
        kept: Keeps | None,
    ) -> None:
        self._source, self._request, self._examiner, self._kept = source, request, examiner, kept
        self.finders, self._read = finders, 0
        self._rows: Sequence[_Row] = ()
        self.problems: list[str] = []

    def each(
        self, wanted: Sequence[Wanted], progress: Progress, ended: EndedEarly | None
    ) -> EndedEarly | None:
        """Take every object with its copies; without any from where somebody ended it, which is returned."""
        rows = SortedRows(_Row)
        done = 0
        try:
            for one in progress(iter(wanted if ended is None else ()), "objects", len(wanted)):
                rows.add(turn_of(one.key), self._look_at(one))
                done += 1
        except KeyboardInterrupt as exc:
            ended = EndedEarly.of(exc)
        for one in islice(wanted, done, None):
            rows.add(turn_of(one.key), _Row(one))
        self._rows = rows.finish()
        return ended

    def _look_at(self, wanted: Wanted) -> _Row:
        asked, found, home = wanted, wanted.found, Home.FREE
        try:
            present = found.stored if found is not None else None
            life = life_of(self._source, self._examiner, wanted.key, present, kept=self._kept)
            asked = wanted = msgspec.structs.replace(wanted, life=life)
            if found is not None:
                home = home_of(self._source, self._examiner, found)
                asked = self._with_bytes(wanted, found)
        except SourceError as exc:
            self.problems.append(f"what stands at a key, or is kept of it, could not be read: {exc.message}")
        return _Row(wanted, [copy.for_listing() for copy in copies_of(asked, self.finders)], home)

    def _with_bytes(self, wanted: Wanted, found: Examination) -> Wanted:
        """Return it with its bytes again, where something can be made of them."""
        tried = any(isinstance(one, Candidate) for one in self.finders)
        if self._read >= _MOST_READ and found.repair is None and not tried:
            return wanted
        self._read += 1
        stored = self._source.get(wanted.key)
        if stored is None or stored.mod_revision != found.stored.mod_revision:
            return wanted
        return msgspec.structs.replace(wanted, found=msgspec.structs.replace(found, stored=stored))

    def objects(self) -> Iterator[ObjectCopies]:
        """Yield each object as it is published."""
        return map(self._object, self._rows)

    def _object(self, row: _Row) -> ObjectCopies:
        wanted, run, saved = row.wanted, self._request.run, self._request.places.rescued
        found = offers(row.copies, wanted, run, rescued=str(saved[0]) if saved else "DIR")
        stored, cause = None, None
        state = ObjectState.DELETED
        if wanted.found is not None:
            stored, cause = wanted.found.stored, wanted.found.verdict.cause
            state = _STATES.get(wanted.found.verdict.outcome, ObjectState.READABLE)
        step = first_way(ways_of(wanted, found, run, beside=Surroundings(home=row.home)))
        if step is not None and step.verb is WayKind.COPIES:  # that is what was done just now
            step = Remedy("See every other way out", explain(wanted.key))
        told = (copy.uid for copy in row.copies if copy.same_object is Sameness.SAME and copy.uid)
        return ObjectCopies(
            key=display(wanted.key),
            key_base64=key_base64(wanted.key),
            state=state,
            cause=cause.value if cause is not None else None,
            mod_revision=stored.mod_revision if stored is not None else None,
            uid=wanted.life.uid or next(told, ""),
            next=step,
            left_out=max(len(found) - _MOST_TOLD, 0),
            copies=[shown_of(offer) for offer in found[:_MOST_TOLD]],
        )


def _report(
    source: Source,
    request: CopiesRequest,
    uid: str | None,
    wanted: WantedObjects,
    search: _Search,
    problems: list[str],
) -> CopiesReport:
    states: Counter[ObjectState] = Counter()
    grades: Counter[Grade] = Counter()
    first: dict[Grade, Remedy] = {}
    for one in search.objects():
        states[one.state] += 1
        grades[one.best] += 1
        if one.next is not None:
            first.setdefault(one.best, one.next)
    reasons = [*dict.fromkeys(problems)]
    undetermined = states[ObjectState.UNDETERMINED]
    if undetermined:
        reasons.append(f"undetermined: {counted(undetermined, 'object')}")
    limited_to = source.describe().limited_to
    return CopiesReport(
        **report_origin(source.describe(), request.configuration, uid),
        scope=shown_scope(request.scope, request.layout, request.kubernetes_minor, limited_to=limited_to),
        places=looked_into(search.finders),
        count=states.total(),
        unreadable=states[ObjectState.UNREADABLE],
        undetermined=undetermined,
        deleted=states[ObjectState.DELETED],
        with_good_copy=grades[Grade.GOOD],
        with_doubtful_copy=grades[Grade.DOUBTFUL],
        without_copy=grades[Grade.UNUSABLE],
        expired=wanted.expired,
        at_stake=wanted.stakes.at_stake,
        do_not_restart=wanted.stakes.do_not_restart,
        next=next((first[grade] for grade in Grade if grade in first), None),
        complete=not reasons,
        incomplete_reasons=reasons,
        objects=Rows(states.total(), search.objects),
    )
