"""All that is known of one etcd key: its bytes, every attempt at them, what that rules out, its copies, the ways out.

One pass goes over what is needed: the values of the same resource, as a scan examines them, for what lies beside a
value decides whether the value or its encryption key is wrong. Where the key could be deleted, the pass goes over
everything, for what a deletion would set off.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from etcdfix.commands.explaining.history import history_of
from etcdfix.commands.explaining.impact import impact_of, ways_without_finding
from etcdfix.commands.explaining.value import SiblingValues, of_the_value
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.log import Log
from etcdfix.copies.model import THE_VALUE, Copy, Home, Life, Place, Wanted, Way
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.copies.value import Bit, home_of
from etcdfix.examine.all import Progress, no_progress
from etcdfix.examine.first_pass import Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.cluster import ClusterIndex, index_cluster
from etcdfix.graph.model import Risk
from etcdfix.model.errors import EndedEarly, EtcdfixError, SourceError
from etcdfix.model.model import ClusterIdentity, Outcome
from etcdfix.model.rules import Rule, refuse
from etcdfix.model.storagekey import display
from etcdfix.remediation.backup.folder import with_records
from etcdfix.remediation.checks.sealing import find_proof
from etcdfix.remediation.identify import identify
from etcdfix.remediation.offers import Offer, offers, shown_of, ways_of
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.advice.finding import Surroundings, may_be_deleted
from etcdfix.report.advice.ways import WayKind, first_way
from etcdfix.report.explain import ExplainReport, History, Shows
from etcdfix.report.impact import Impact
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin
from etcdfix.report.tally import Stakes
from etcdfix.sources.base import Source
from etcdfix.text.commands import NO_COMMAND
from etcdfix.text.safetext import key_base64

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_PLAIN_ENOUGH: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})
"""The values beside such a value tell nothing more about it."""


class ExplainRequest(Reading, frozen=True, kw_only=True):
    """Everything that decides what a report says about one etcd key.

    Attributes:
        places: Where else to look for copies.
        assess: Everything that may depend on the object is in this etcd, and may be looked at.
        shows: What stands on the first screen.
        policy: How the object would be deleted through the API; None as it is under way, else as kubectl does.
    """

    key: bytes
    places: Places = Places()
    records: RecordPaths = RecordPaths()
    assess: bool = True
    shows: Shows = Shows.ALL
    policy: str | None = None


class Explained(NamedTuple):
    """What a look at one key came to; no ``report`` where nothing is stored under it, and nothing is kept of it."""

    report: ExplainReport | None
    problems: list[str]
    ended: EndedEarly | None


def explain_key(
    source: Source,
    request: ExplainRequest,
    *,
    plugins: KMSPlugins | None = None,
    candidates: Mapping[Path, Examiner] | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> Explained:
    """Say all that is known of one key, stored or deleted.

    Raises:
        SourceError: Nothing could be read.
    """
    request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, source))
    look = _Look(source, request, plugins, progress)
    look.examine(jobs)
    try:
        look.assess()
        if look.ended is None:  # who ended the look does not want to wait for more
            look.look_for_copies(candidates or {})
    except KeyboardInterrupt as exc:
        look.end(EndedEarly.of(exc))
    problems = [*dict.fromkeys([*source.problems, *look.problems])]
    history = look.history
    known = look.copies or (history is not None and (history.count or history.writes))
    if look.found is None and look.impact is None and not known:
        return Explained(None, problems, look.ended)
    return Explained(look.report(problems), problems, look.ended)


class _Look:
    """One look at one key, step by step: what stands there, what lies beside it, its copies, what was written to it."""

    def __init__(
        self, source: Source, request: ExplainRequest, plugins: KMSPlugins | None, progress: Progress
    ) -> None:
        self._source, self._request, self._plugins, self._progress = source, request, plugins, progress
        self._stored = source.get(request.key)
        self._examiner = Examiner.of_cluster(source, request, plugins)
        self._uid = self._examiner.kube_system_uid(source)
        self.found = self._examiner.examine(self._stored) if self._stored is not None else None
        self._home = self._home_of(self.found)
        self._beside = SiblingValues(self._examiner, self.found) if self.found is not None else None
        self._cluster: ClusterIndex | None = None
        self.impact: Impact | None = None
        self.copies: list[Copy] = []
        self._places: list[LookedInto] = []
        self.history: History | None = None
        self._life, self._no_repair, self._write_key_shown = Life(), "", True
        self.problems: list[str] = []
        self.ended: EndedEarly | None = None

    def _home_of(self, found: Examination | None) -> Home:
        return home_of(self._source, self._examiner, found) if found is not None else Home.FREE

    @property
    def _wanted(self) -> Wanted:
        if self.found is not None:
            return Wanted.of(self.found, self._life)
        return Wanted.gone(self._request.key, self._request.layout, self._life)

    def end(self, ended: EndedEarly) -> None:
        """Take note that the look ends early; what was looked at is still assessed."""
        self.ended = ended
        self.problems.append(f"{ended.reason} before the end")
        if self._cluster is not None and self.impact is None:
            self._cluster = msgspec.structs.replace(self._cluster, ended=ended)
            self.assess()

    def examine(self, jobs: Jobs) -> None:
        """Examine what lies beside the value; everything, where it could be deleted or its impact is asked for.

        Raises:
            SourceError: Its impact is asked for, and nothing could be read.
        """
        found, beside, request = self.found, self._beside, self._request
        may_go = found is not None and may_be_deleted(found, self._home)
        if request.shows is Shows.IMPACT:
            self._examine_everything(jobs)
        elif may_go and request.assess and request.shows is Shows.ALL:
            with suppress(SourceError):  # who may not read everything may read what lies beside it
                self._examine_everything(jobs)
        if found is None or beside is None or found.verdict.outcome in _PLAIN_ENOUGH:
            return
        if self._cluster is None:
            ended, self.problems = beside.look(self._source, self._progress)
            if ended is not None:
                self.end(ended)
        if beside.found is None and self.ended is None:
            lost = self.problems or (self._cluster is not None and self._cluster.index.problems)
            self.problems += [] if lost else ["the key went while the others were read: those may be newer"]
            beside.look_at_itself()
        self.found = beside.found or found
        self._home = self._home_of(self.found)

    def _examine_everything(self, jobs: Jobs) -> None:
        self._cluster = index_cluster(
            self._source,
            self._request,
            keep=self._beside.add if self._beside is not None else lambda _found: None,
            plugins=self._plugins,
            progress=self._progress,
            jobs=jobs,
            examiner=self._examiner,
            targets=(self._request.key,),
        )
        self.ended = self._cluster.ended

    def assess(self) -> None:
        """Find out what its loss would set off, where everything was looked at."""
        if self._cluster is not None:
            self.impact = impact_of(self._cluster, self._request.key, self.found, policy=self._request.policy)
            self.problems += self._cluster.index.problems

    def _is_write_key_shown(self, identity: ClusterIdentity) -> bool:
        """Say whether API servers are known to hold today's write key; where that cannot be told, they are not."""
        examiner, request = self._examiner.independent_copy(), self._request
        directory, _ = examiner.layout.locate(request.key)
        try:
            return bool(find_proof(self._source, examiner, directory, request.records, identity))
        except EtcdfixError as exc:
            self.problems.append(f"who holds today's write key could not be told: {exc.message}")
            return False

    def look_for_copies(self, candidates: Mapping[Path, Examiner]) -> None:
        """Look into every place for its copies, and at what was written to it."""
        source, request, examiner = self._source, self._request, self._examiner
        with source.aside(), examiner.without_recording():
            try:
                self._life = life_of(source, examiner, request.key, self._stored)
            except SourceError as exc:
                self.problems.append(f"what is kept of the key could not be read: {exc.message}")
            identity = identify(source, examiner.independent_copy(), request.records.directories)
            named = msgspec.structs.replace(request.places, progress=self._progress)
            places = with_records(named, request.records, identity)
            with open_finders(
                source, examiner, places, uid=self._uid, identity=identity, candidates=candidates
            ) as finders:
                self.copies = copies_of(self._wanted, finders)
                if any(copy.way is Way.SEAL and copy.place is not Place.OBJECT for copy in self.copies):
                    self._write_key_shown = self._is_write_key_shown(identity)
                self._no_repair = next((one.why_not for one in finders if isinstance(one, Bit)), "")
                self.history = history_of(
                    source,
                    examiner,
                    request.key,
                    [one for one in finders if isinstance(one, Log)],
                    self.problems,
                    self._progress,
                    whole=request.shows is Shows.HISTORY,
                )
                self._places = looked_into(finders)
                self.problems += problems_of(finders)

    def report(self, problems: list[str]) -> ExplainReport:
        """Return all that was seen."""
        found, impact, history, request = self.found, self.impact, self.history, self._request
        may_go = found is not None and self._beside is not None and may_be_deleted(found, self._home)
        withheld = self._beside.against_a_change() if may_go and self._beside is not None else ""
        told = self._offers(withheld)
        ways = self._ways_out(told, withheld)
        stakes = Stakes([found] if found is not None else [], past=request.run.of_the_past)
        reasons = list(problems)
        if request.shows is Shows.IMPACT and impact is not None:
            reasons += impact.incomplete_reasons
        if found is not None and found.verdict.outcome is Outcome.UNDETERMINED:
            reasons.append(f"undetermined: {found.verdict.message}")
        return ExplainReport(
            **of_the_value(self._examiner, found, self._beside, self._no_repair) if found is not None else {},
            **report_origin(self._source.describe(), request.configuration, self._uid),
            key=display(request.key),
            key_base64=key_base64(request.key),
            shows=request.shows,
            exists=found is not None,
            deleted_at=history.deleted_at if history is not None else None,
            kept=history.count if history is not None else 0,
            next=first_way(ways),
            remedies=ways,
            places=self._places,
            copies=[shown_of(one) for one in told],
            impact=impact,
            history=history if request.shows is Shows.HISTORY else None,
            deletion_withheld=withheld,
            at_stake=stakes.at_stake,
            do_not_restart=stakes.do_not_restart,
            complete=not reasons,
            incomplete_reasons=[*dict.fromkeys(reasons)],
        )

    def _breaking(self) -> bool:
        return self.impact is not None and self.impact.risk is Risk.CLUSTER_BREAKING

    def _offers(self, withheld: str) -> list[Offer]:
        """Return what may be put back; nothing over the value, where the values beside it speak against that."""
        request, saved = self._request, self._request.places.rescued
        found = offers(
            self.copies, self._wanted, request.run, breaking=self._breaking(),
            rescued=str(saved[0]) if saved else "DIR", write_key_shown=self._write_key_shown,
        )  # fmt: skip
        if not withheld:
            return found
        refused = refuse(Rule.PATTERN, withheld)
        return [
            one
            if one.refusal is not None or one.copy.place in THE_VALUE or one.copy.way is Way.PATCH
            else msgspec.structs.replace(one, refusal=refused, command=NO_COMMAND)
            for one in found
        ]

    def _ways_out(self, told: list[Offer], withheld: str) -> list[Remedy]:
        """Return every way out in one order: copies by their offers, the rest by the advice on the value."""
        found, beside, request = self.found, self._beside, self._request
        readable = found is not None and found.verdict.outcome is Outcome.READABLE
        if readable or (found is None and not told):
            cluster, impact = self._cluster, self.impact
            return ways_without_finding(cluster, request.key, impact) if cluster and impact else []
        around = Surroundings(beside is not None and beside.others_lost, self._home)
        ways = ways_of(self._wanted, told, request.run, breaking=self._breaking(), beside=around)
        return [way for way in ways if way.verb != WayKind.DELETE] if withheld else ways
