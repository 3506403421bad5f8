"""All that is known of one etcd key: its bytes, every attempt at them, what that rules out, its copies, the ways out.

One pass goes over what is needed: the values of the same resource, as a scan examines them, for what lies beside a
value decides whether the value or its encryption key is wrong. Where the key could be deleted, the pass goes over
everything, for what a deletion would set off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from etcdfix.commands.explaining.impact import ways_without_finding
from etcdfix.commands.explaining.look import ExplainRequest, KeyLook
from etcdfix.commands.explaining.value import attempts_on, layout_of
from etcdfix.copies.bootstrap import with_what_it_keeps
from etcdfix.copies.model import THE_VALUE, Way
from etcdfix.errors import EndedEarly, SourceError
from etcdfix.examine import Examiner
from etcdfix.examine_all import Progress, no_progress
from etcdfix.examine_jobs import Jobs
from etcdfix.graph.model import Risk
from etcdfix.model import Outcome
from etcdfix.remediation.offers import Offer, Refusal, offers, shown_of, ways_of
from etcdfix.report.advice.change import Beside as Surroundings
from etcdfix.report.advice.ways import WayKind, first_way
from etcdfix.report.explain import ExplainReport, NotTheCause, Shows
from etcdfix.report.finding import finding_from
from etcdfix.report.model import Remedy
from etcdfix.report.origin import report_origin
from etcdfix.report.tally import Stakes
from etcdfix.rules import Rule
from etcdfix.sources.base import Source
from etcdfix.storagekey import display
from etcdfix.text.commands import NO_COMMAND
from etcdfix.text.safetext import key_base64
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import Deletability, deletability_of
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.key_loss import THE_KEY
from etcdfix.verdicts.ruled_out import ruled_out

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

__all__ = ["ExplainRequest", "Explained", "explain_key"]

_WHOLE: Final = frozenset(
    {Cause.VALUE_MOVED, Cause.STORAGE_PREFIX_CHANGED, Cause.ASSOCIATED_DATA_UNKNOWN, Cause.KEY_RENAMED}
)
"""The bytes of these are whole: nothing is wrong with them that could be put right."""


class Explained(NamedTuple):
    """What a look at one key came to.

    Attributes:
        report: None where nothing is stored under the key, and nothing is kept of it.
        problems: Why not everything could be read.
        ended: What ended the look early; None where nothing did.
    """

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
    look = KeyLook(source, request, plugins, progress)
    look.examine(jobs)
    look.go_on(candidates)
    problems = [*dict.fromkeys([*source.problems, *look.problems])]
    history = look.history
    known = look.copies or (history is not None and (history.count or history.writes))
    if look.found is None and look.impact is None and not known:
        return Explained(None, problems, look.ended)
    return Explained(_report(source, request, look, problems), problems, look.ended)


def _report(source: Source, request: ExplainRequest, look: KeyLook, problems: list[str]) -> ExplainReport:
    found, impact, history = look.found, look.impact, look.history
    withheld = _against_deletion(look)
    told = _offers(request, look, withheld)
    ways = _ways_out(source, request, look, told, withheld)
    stakes = Stakes([found] if found is not None else [], past=request.run.of_the_past)
    reasons = list(problems)
    if request.shows is Shows.IMPACT and impact is not None:
        reasons += impact.incomplete_reasons
    if found is not None and found.verdict.outcome is Outcome.UNDETERMINED:
        reasons.append(f"undetermined: {found.verdict.message}")
    return ExplainReport(
        **_of_the_value(look, found) if found is not None else {},
        **report_origin(source.describe(), request.configuration, look.uid),
        key=display(request.key),
        key_base64=key_base64(request.key),
        shows=request.shows,
        exists=found is not None,
        deleted_at=history.deleted_at if history is not None else None,
        kept=history.count if history is not None else 0,
        next=first_way(ways),
        remedies=ways,
        places=look.places,
        copies=[shown_of(one) for one in told],
        impact=impact,
        history=history if request.shows is Shows.HISTORY else None,
        deletion_withheld=withheld,
        at_stake=stakes.at_stake,
        do_not_restart=stakes.do_not_restart,
        complete=not reasons,
        incomplete_reasons=[*dict.fromkeys(reasons)],
    )


def _of_the_value(look: KeyLook, found: Examination) -> dict[str, Any]:
    """Return the fields that only a stored value has."""
    beside, examiner = look.beside, look.examiner
    seen = beside.seen if beside is not None else None
    if seen is None:
        examiner.examine(found.stored)
        seen = examiner.observation(found)
    searched = beside is not None and beside.found is not None
    others = ruled_out(seen, found.verdict, searched=searched) if seen is not None else ()
    return {
        "finding": finding_from(found, ()),
        "layout": layout_of(examiner, found),
        "attempts": attempts_on(examiner, found, seen),
        "ruled_out": [NotTheCause(one.cause.value, one.confidence, one.why) for one in others],
        "no_repair": look.no_repair if found.verdict.cause not in _WHOLE else "",
        "siblings": list(beside.siblings()) if beside is not None and searched else [],
    }


def _against_deletion(look: KeyLook) -> str:
    """Say why the values beside a value speak against deleting it; "" where they do not."""
    found, beside = look.found, look.beside
    if found is None or beside is None or beside.found is None:
        return ""
    doubtful = beside.counter.doubts_about(found) & THE_KEY
    if deletability_of(found) is not Deletability.DELETABLE or not doubtful:
        return ""
    counts = [beside.counter.of(name) for name in found.encryption_keys]
    failed, opened = (max(each) for each in zip(*((c.failed, c.opened) for c in counts), strict=True))
    return (
        f"{failed} of {failed + opened} values of the resource under its encryption key cannot be read: that points at "
        "the key or the configuration, and a deletion would be refused"
    )


def _offers(request: ExplainRequest, look: KeyLook, withheld: str) -> list[Offer]:
    saved = str(request.places.rescued[0]) if request.places.rescued else "DIR"
    found = offers(look.copies, look.wanted, request.run, breaking=_breaking(look), rescued=saved)
    return [_withheld(one, withheld) for one in found] if withheld else found


def _withheld(offer: Offer, why: str) -> Offer:
    """Return an offer as what it is where the present value may not be written over."""
    copy = offer.copy
    if offer.refusal is not None or copy.place in THE_VALUE or copy.way is Way.PATCH:
        return offer
    return msgspec.structs.replace(offer, refusal=Refusal(rule=Rule.PATTERN, why=why), command=NO_COMMAND)


def _breaking(look: KeyLook) -> bool:
    return look.impact is not None and look.impact.risk is Risk.CLUSTER_BREAKING


def _ways_out(
    source: Source, request: ExplainRequest, look: KeyLook, told: Sequence[Offer], withheld: str
) -> list[Remedy]:
    """Return every way out in one order: copies by their offers, the rest by the advice on the value."""
    found, beside = look.found, look.beside
    readable = found is not None and found.verdict.outcome is Outcome.READABLE
    if readable or (found is None and not told):
        cluster, impact = look.cluster, look.impact
        return ways_without_finding(cluster, request.key, impact) if cluster and impact else []
    home = found.verdict.belongs_to if found is not None else b""
    around = Surroundings(
        beside is not None and beside.others_lost, home_taken=bool(home) and _is_there(source, home)
    )
    ways = ways_of(look.wanted, told, request.run, breaking=_breaking(look), beside=around)
    return [way for way in ways if way.verb != WayKind.DELETE] if withheld else ways


def _is_there(source: Source, key: bytes) -> bool:
    try:
        return source.get(key) is not None
    except SourceError:  # nobody knows: what is printed says when it holds
        return False
