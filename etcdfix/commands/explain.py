"""All that is known of one etcd key: its bytes, every attempt at them, what that rules out, its copies, the ways out.

One pass goes over what is needed: the values of the same resource, as a scan examines them, for what lies beside a
value decides whether the value or its encryption key is wrong. Where the key could be deleted, the pass goes over
everything, for what a deletion would set off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from etcdfix.commands.explaining.history import Kept, history_of
from etcdfix.commands.explaining.impact import impact_of, ways_without_finding
from etcdfix.commands.explaining.value import (
    Beside,
    attempts_on,
    damage_of,
    layout_of,
    look_beside,
    why_no_repair,
)
from etcdfix.copies.bit import Bit
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.finder import LookedInto
from etcdfix.copies.log import Log
from etcdfix.copies.model import THE_VALUE, Copy, Life, Place, Wanted, Way
from etcdfix.copies.revisions import life_of
from etcdfix.copies.search import Places, copies_of, looked_into, open_finders, problems_of
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.examine_jobs import Jobs
from etcdfix.graph.model import Risk
from etcdfix.model import Outcome
from etcdfix.operations.look.index_cluster import ClusterIndex, ClusterIndexRequest, index_cluster
from etcdfix.remediation.backup.rows import with_records
from etcdfix.remediation.identify import identify
from etcdfix.remediation.offers import Offer, Refusal, offers, shown_of, ways_of
from etcdfix.remediation.places import RecordPaths
from etcdfix.report.advice.change import Beside as Surroundings
from etcdfix.report.advice.ways import WayKind, first_way
from etcdfix.report.explain import ExplainReport, NotTheCause, Shows
from etcdfix.report.finding import finding_from
from etcdfix.report.head import stakes_of
from etcdfix.report.history import History
from etcdfix.report.impact import Impact
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin
from etcdfix.rules import Rule
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import NO_COMMAND, Command
from etcdfix.text.safetext import key_base64
from etcdfix.verdicts.deletability import FAILED, Deletability, deletability_of
from etcdfix.verdicts.key_loss import THE_KEY
from etcdfix.verdicts.ruled_out import ruled_out

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_PLAIN_ENOUGH: Final = frozenset({Outcome.READABLE, Outcome.NOT_AN_OBJECT})
"""Of these nothing beside them tells more."""


class ExplainRequest(ClusterIndexRequest, frozen=True, kw_only=True):
    """Everything that decides what is told of a complete etcd key.

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


class KeyLook(msgspec.Struct, frozen=True):
    """What a look at one key came to.

    Attributes:
        report: None where nothing is stored under the key, and nothing is kept of it.
        problems: Why not everything could be read.
        ended: What ended the look early; None where nothing did.
    """

    report: ExplainReport | None
    problems: list[str]
    ended: EndedEarly | None = None


def explain_key(
    source: Source,
    request: ExplainRequest,
    *,
    plugins: KMSPlugins | None = None,
    candidates: Mapping[Path, Examiner] | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
) -> KeyLook:
    """Say all that is known of one key, stored or deleted.

    Raises:
        SourceError: Nothing could be read.
    """
    request = msgspec.structs.replace(request, run=with_what_it_keeps(request.run, source))
    told = _Explained(source, request, plugins, progress)
    told.examine(jobs)
    try:
        if told.ended is None:  # who ended the look does not want to wait for more
            told.look_for_copies(candidates)
    except KeyboardInterrupt as exc:
        told.ended = EndedEarly.of(exc)
        told.problems.append(f"{told.ended.reason} before the end")
    told.problems[:0] = source.problems
    return KeyLook(told.report(), told.problems, told.ended)


class _Explained:
    """One look at one key, step by step."""

    def __init__(
        self, source: Source, request: ExplainRequest, plugins: KMSPlugins | None, progress: Progress
    ) -> None:
        self._source, self._request, self._plugins, self._progress = source, request, plugins, progress
        self._stored = source.get(request.key)
        self._examiner = Examiner.of_cluster(source, request, plugins)
        self._uid = self._examiner.kube_system_uid(source)
        self._found = self._examiner.examine(self._stored) if self._stored is not None else None
        self._beside = Beside(self._examiner, self._found) if self._found is not None else None
        self._cluster: ClusterIndex | None = None
        self._impact: Impact | None = None
        self._copies: list[Copy] = []
        self._wanted: Wanted | None = None
        self._history: History | None = None
        self._places: list[LookedInto] = []
        self._kept = Kept()
        self._no_repair = ""
        self.problems: list[str] = []
        self.ended: EndedEarly | None = None

    def examine(self, jobs: Jobs) -> None:
        """Examine what lies beside the value; everything, where it could be deleted or its impact is asked for.

        Raises:
            SourceError: Its impact is asked for, and nothing could be read.
        """
        found, beside, asked = self._found, self._beside, self._request.shows is Shows.IMPACT
        may_go = found is not None and deletability_of(found) is Deletability.DELETABLE
        whole = asked or (may_go and self._request.assess)
        if whole:
            try:
                self._examine_everything(jobs)
            except SourceError:
                whole = False  # who may not read everything may read what lies beside it
                if asked:
                    raise
        if (
            not whole
            and found is not None
            and beside is not None
            and found.verdict.outcome not in _PLAIN_ENOUGH
        ):
            self.ended, problems = look_beside(
                self._source, self._examiner, beside, found.stored, self._progress
            )
            self.problems += problems
        if beside is not None and beside.found is not None:
            self._found = beside.found

    def _examine_everything(self, jobs: Jobs) -> None:
        beside = self._beside
        cluster = index_cluster(
            self._source,
            self._request,
            keep=beside.add if beside is not None else lambda _found: 0,
            plugins=self._plugins,
            progress=self._progress,
            jobs=jobs,
            examiner=self._examiner,
            targets=(self._request.key,),
        )
        self._cluster, self.ended = cluster, cluster.ended
        found = beside.found if beside is not None else None
        self._impact = impact_of(cluster, self._request.key, found, policy=self._request.policy)
        self.problems += cluster.index.problems

    def look_for_copies(self, candidates: Mapping[Path, Examiner] | None) -> None:
        """Look into every place where the object may be whole, and at what is kept of the key."""
        source, request, examiner = self._source, self._request, self._examiner
        kept_of_plugin = self._plugins.aside() if self._plugins is not None else nullcontext()
        with source.aside(), kept_of_plugin:
            self._kept = Kept.of(source, request.key, self.problems)
            life = self._life()
            found = self._found
            if found is not None:
                self._wanted = Wanted.of(found, life)
            else:
                self._wanted = Wanted.gone(request.key, request.layout, life)
            identity = identify(source, examiner.apart(), request.records.directories)
            places = with_records(
                msgspec.structs.replace(request.places, progress=self._progress), request.records, identity
            )
            with open_finders(
                source, examiner, places, uid=self._uid, identity=identity, candidates=candidates
            ) as finders:
                self._copies = copies_of(self._wanted, finders)
                self._no_repair = next((one.why_not for one in finders if isinstance(one, Bit)), "")
                if request.shows is Shows.HISTORY:
                    logs = [one for one in finders if isinstance(one, Log)]
                    self._history = history_of(
                        source, examiner, request.key, logs, self.problems, self._progress
                    )
                self._places, self.problems = looked_into(finders), [*self.problems, *problems_of(finders)]

    def _life(self) -> Life:
        try:
            return life_of(self._source, self._examiner, self._request.key, self._stored)
        except SourceError as exc:
            self.problems.append(f"what is kept of the key could not be read: {exc.message}")
            return Life()

    def report(self) -> ExplainReport | None:
        """Return what was found out; None where nothing is known of the key."""
        found, request, kept, impact = self._found, self._request, self._kept, self._impact
        if found is None and not kept.count and not self._copies and impact is None:
            return None
        told = self._offers()
        withheld = self._against_deletion()
        ways = self._ways_out(told, withheld)
        stakes = stakes_of([found] if found is not None else [], past=request.run.of_the_past)
        reasons = list(self.problems)
        if request.shows is Shows.IMPACT and impact is not None:
            reasons += impact.incomplete_reasons
        if found is not None and found.verdict.outcome is Outcome.UNDETERMINED:
            reasons.append(f"undetermined: {found.verdict.message}")
        reasons = [*dict.fromkeys(reasons)]
        return ExplainReport(
            **self._value() if found is not None else {},
            **report_origin(self._source.describe(), request.configuration, self._uid),
            key=display(request.key),
            key_base64=key_base64(request.key),
            shows=request.shows,
            exists=found is not None,
            deleted_at=kept.last if found is None and kept.count else None,
            kept=kept.count,
            next=first_way(ways),
            remedies=ways,
            places=self._places,
            copies=[shown_of(one) for one in told],
            impact=impact,
            history=self._history,
            at_stake=stakes.at_stake,
            do_not_restart=stakes.do_not_restart,
            complete=not reasons,
            incomplete_reasons=reasons,
        )

    def _value(self) -> dict[str, Any]:
        """Return the fields that only a stored value has."""
        found, beside, examiner = self._found, self._beside, self._examiner
        assert found is not None and beside is not None  # noqa: PT018 - asked before
        seen = beside.seen
        if seen is None:
            examiner.examine(found.stored)
            seen = examiner.observation(found)
        searched = beside.found is not None
        others = ruled_out(seen, found.verdict, searched=searched) if seen is not None else ()
        offset, field = damage_of(examiner, found)
        fails = found.verdict.outcome in FAILED and not any(one.place is Place.BIT for one in self._copies)
        cause = found.verdict.cause
        return {
            "finding": finding_from(found, ()),
            "deletion_withheld": self._against_deletion(),
            "layout": layout_of(examiner, found),
            "damage_offset": offset,
            "damage_field": field,
            "attempts": attempts_on(examiner, found, seen),
            "ruled_out": [NotTheCause(one.cause.value, one.confidence, one.why) for one in others],
            "no_repair": why_no_repair(found, self._no_repair) if fails else "",
            "siblings": list(beside.siblings()) if searched else [],
            "cause_page": Command(("etcdfix", "explain", cause.value)) if cause is not None else None,
        }

    def _offers(self) -> list[Offer]:
        if self._wanted is None:
            return []
        breaking = self._impact is not None and self._impact.risk is Risk.CLUSTER_BREAKING
        saved = str(self._request.places.rescued[0]) if self._request.places.rescued else "DIR"
        found = offers(self._copies, self._wanted, self._request.run, breaking=breaking, rescued=saved)
        withheld = self._against_deletion()
        return [_withheld(one, withheld) for one in found] if withheld else found

    def _against_deletion(self) -> str:
        """Say why the values beside a value speak against deleting it; "" where they do not."""
        found, beside = self._found, self._beside
        if found is None or beside is None or beside.found is None:
            return ""
        if (
            deletability_of(found) is not Deletability.DELETABLE
            or not beside.counter.doubts_about(found) & THE_KEY
        ):
            return ""
        counts = [beside.counter.of(name) for name in found.encryption_keys]
        failed, opened = (max(each) for each in zip(*((c.failed, c.opened) for c in counts), strict=True))
        return (
            f"{failed} of {failed + opened} values of the resource under its encryption key cannot be read: that "
            "points at the key or the configuration, and a deletion would be refused"
        )

    def _ways_out(self, told: Sequence[Offer], withheld: str) -> list[Remedy]:
        """Return every way out in one order: copies by their offers, the rest by the advice on the value."""
        found, impact = self._found, self._impact
        readable = found is not None and found.verdict.outcome is Outcome.READABLE
        if self._wanted is None or readable or (found is None and not told):
            cluster = self._cluster
            return ways_without_finding(cluster, self._request.key, impact) if cluster and impact else []
        home = found.verdict.belongs_to if found is not None else b""
        lost = self._beside is not None and self._beside.others_lost
        ways = ways_of(
            self._wanted,
            told,
            self._request.run,
            breaking=impact is not None and impact.risk is Risk.CLUSTER_BREAKING,
            beside=Surroundings(lost, home_taken=bool(home) and self._is_there(home)),
        )
        return [way for way in ways if way.verb != WayKind.DELETE] if withheld else ways

    def _is_there(self, key: bytes) -> bool:
        try:
            return self._source.get(key) is not None
        except SourceError:  # nobody knows: what is printed says when it holds
            return False


def _withheld(offer: Offer, why: str) -> Offer:
    """Return an offer as what it is where the present value may not be written over."""
    copy = offer.copy
    if offer.refusal is not None or copy.place in THE_VALUE or copy.way is Way.PATCH:
        return offer
    return msgspec.structs.replace(offer, refusal=Refusal(rule=Rule.PATTERN, why=why), command=NO_COMMAND)
