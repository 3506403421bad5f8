"""Which copy is put back: the one that a person names, or the best that is proven and that no rule refuses.

Only a person brings back what somebody deleted, and only a person chooses between copies that nothing but their
contents tells apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from etcdfix.copies.finder import Finder, Named
from etcdfix.copies.log import Log
from etcdfix.copies.model import Copy, Place, Sameness, Wanted, examined_copy
from etcdfix.copies.object import ObjectFile
from etcdfix.copies.rank import alike, ranked
from etcdfix.copies.search import Places, copies_of, open_finders, problems_of
from etcdfix.copies.value import Bit
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Confidence, Outcome
from etcdfix.model.rules import MEANINGS, Rule, refuse, unless_accepted
from etcdfix.model.storagekey import display
from etcdfix.remediation.backup.file import Backup, read_backup
from etcdfix.remediation.backup.folder import UNKNOWN_TO_THE_LOG, with_records
from etcdfix.remediation.change import Change, ChangeRequest, Chosen
from etcdfix.remediation.checks.copy import Standing, standing_of
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.offers import Offer, best_of, offers
from etcdfix.remediation.present import Present
from etcdfix.remediation.uids import life_at
from etcdfix.text.commands import RunOptions, explain

_OUTSIDE: Final = frozenset({Place.SNAPSHOT, Place.LOG, Place.OBJECT})
_ONE_FILE: Final = frozenset({Place.SNAPSHOT, Place.BACKUP, Place.OBJECT, Place.CANDIDATE})
_MOST_TOLD: Final = 3


class FixRequest(ChangeRequest, frozen=True, kw_only=True):
    """One copy to put back."""

    key: bytes
    named: Named | None = None
    other: bytes = b""
    places: Places = msgspec.field(default_factory=Places)


def choose(change: Change, request: FixRequest, candidates: Mapping[Path, Examiner]) -> Chosen:
    """Return the copy that is put back.

    ``candidates`` examine under each candidate configuration that is named.
    Raises RefusedByRule, OtherHistory or SourceError.
    """
    present, named, standing = change.present, request.named, None
    cluster, found = present.cluster, None if present.absent else present.found
    with ExitStack() as stack:
        kept = stack.enter_context(cluster.kept(present.reading.revision))
        life = life_at(present, kept)
        wanted = Wanted.gone(present.key, cluster.examiner.layout, life)
        wanted = Wanted.of(found, life) if found is not None else wanted
        places = request.places
        if named is not None:
            others = (request.other,) if named.place is Place.KEY else ()
            places = msgspec.structs.replace(places, named=(named,), only=True, others=others, moved=None)
        else:
            places = with_records(places, request.record_paths, present.identity)
        finders = stack.enter_context(
            open_finders(
                kept,
                cluster.examiner,
                places,
                uid=present.identity.uid or None,
                identity=present.identity,
                candidates=candidates,
            )
        )
        copies = copies_of(wanted, finders)
        if named is not None and named.place is Place.BACKUP:
            copy, standing = of_backup(present, read_backup(named.path.absolute()))
            copies = ranked([copy], wanted)
        found_offers = offers(copies, wanted, request.run)
        if named is not None:
            offer, number = _named(wanted, named, found_offers, finders, request.run), None
        else:
            offer, number = best_choice(change, request, wanted, found_offers, finders), len(found_offers) - 1
            if offer.copy.place is Place.BACKUP:
                _, standing = of_backup(present, read_backup(Path(offer.copy.source.partition(":")[2])))
    copy = _with_contents(offer, wanted, cluster)
    return Chosen(copy, wanted, number, standing, request.other if copy.place is Place.KEY else b"")


def _with_contents(offer: Offer, wanted: Wanted, cluster: Cluster) -> Copy:
    """Read a file that rescue saved: it is listed without its contents."""
    copy = offer.copy
    if copy.place is not Place.OBJECT or copy.plaintext is not None:
        return copy
    path = Path(copy.source.partition(":")[2])
    (again,) = ranked(ObjectFile(path, cluster.examiner).find(wanted), wanted)
    if not again.reads:
        raise refuse(Rule.OBJECT_FILE, again.message, hint=f"another copy: {offer.save.line(RunOptions())}")
    return again


def of_backup(present: Present, backup: Backup) -> tuple[Copy, Standing]:
    """Return what a backup holds, and what speaks for it; raises RefusedByRule, AuditLogUnreadable or SourceError."""
    content, path = backup.content, backup.path
    if content.key_base64 != present.key:
        why = f"backup {path} is of {display(content.key_base64)}, not of {present.shown}"
        raise refuse(Rule.NOT_ONE_KEY, why, hint="name the key that it is of")
    standing = standing_of(backup, present)
    examined = present.cluster.examiner.independent_copy().examine(content.stored)
    copy = examined_copy(examined, Place.BACKUP, f"backup {path}", f"backup:{path}")
    history = Sameness.UNKNOWN if standing.doubtful else Sameness.SAME
    doubt = "" if standing.intent is not None else UNKNOWN_TO_THE_LOG
    copy = msgspec.structs.replace(
        copy, history=history, cluster=content.cluster.named, doubt=doubt, listed=not doubt
    )
    return copy, standing


def _named(
    wanted: Wanted, named: Named, found: Sequence[Offer], finders: Sequence[Finder], run: RunOptions
) -> Offer:
    key, look = display(wanted.key), explain(wanted.key).line(run)
    hint = f"see every copy and every way out: {look}"
    found = [one for one in found if _is_named(one.copy, named)]
    if not found:
        raise _nothing(wanted, named, finders, hint)
    offer = found[0]
    copy, refusal = offer.copy, offer.refusal
    if refusal is not None:
        raise refuse(Rule(refusal.rule), f"{key}: {copy.where}: {refusal.message}", hint=refusal.hint or hint)
    perhaps = [one.copy for one in found if one.refusal is None and _may_be_later(one.copy, copy)]
    if not named.entry and perhaps:
        why = f"it is not certain that etcd applied {perhaps[0].where}: {perhaps[0].doubt}"
        instead = f"compare them; then --from {perhaps[0].source}, or --from {copy.source}"
        raise refuse(Rule.LOGGED_ONLY, why, hint=instead)
    return offer


def _may_be_later(one: Copy, chosen: Copy) -> bool:
    """Say whether a write that etcd did not certainly apply would come after the chosen one."""
    if one.log is None or chosen.log is None or one.sure is Confidence.CERTAIN:
        return False
    return one.log.entry > chosen.log.entry or (one is chosen and one.sure is Confidence.POSSIBLE)


def _is_named(copy: Copy, named: Named) -> bool:
    """Say whether a copy is of the place that is named; of a file, of that very one."""
    of_the_file = copy.source == f"{named.place}:{named.path}" or named.place not in _ONE_FILE
    return copy.place is named.place and of_the_file


def _nothing(wanted: Wanted, named: Named, finders: Sequence[Finder], hint: str) -> RefusedByRule:
    key = display(wanted.key)
    if named.place is Place.CANDIDATE and wanted.found is not None and wanted.found.opened:
        text = f"today's configuration opens {key} ({wanted.found.verdict.message})"
        return refuse(Rule.READABLE, text, hint=hint)
    for finder in finders:
        if isinstance(finder, Log):
            finder.require()
    other = [place.detail for finder in finders for place in finder.looked if place.history is Sameness.OTHER]
    if other:
        return refuse(Rule.OTHER_CLUSTER, f"{named} is of another cluster or history: {other[0]}", hint=hint)
    why = "; ".join(problems_of(finders))
    for finder in finders:
        if isinstance(finder, Log):
            why = finder.why_not or why
        if isinstance(finder, Bit) and wanted.found is not None:
            verdict = wanted.found.verdict
            if finder.ambiguous:
                return refuse(Rule.SEVERAL_REPAIRS, f"{key}: {finder.why_not}", hint=hint)
            if verdict.outcome is Outcome.UNDETERMINED:
                text = f"nothing is proven against {key}: {verdict.message}"
                return refuse(Rule.UNDETERMINED, text, hint=f"the plugin may answer later; {hint}")
            return refuse(Rule.NOT_REPAIRABLE, f"{key} ({verdict.cause}): {finder.why_not}", hint=hint)
    return refuse(Rule.GONE, f"{named} holds no copy of {key}{f': {why}' if why else ''}", hint=hint)


def best_choice(
    change: Change, request: FixRequest, wanted: Wanted, found: Sequence[Offer], finders: Sequence[Finder]
) -> Offer:
    """Return the best copy that is proven, and that no rule refuses; raises RefusedByRule."""
    key, run, accepted = display(wanted.key), request.run, change.accepted
    if wanted.found is None:
        told = f"{key} does not exist: what somebody deleted comes back only where --from names the copy"
        way = _ways(found, run) or "no copy was found; --in names where else to look"
        raise refuse(Rule.GONE, told, hint=way)
    best = best_of(found, accepted.words)
    if best is None:
        needed = (rule for one in found if one.proven for rule in one.needs)
        missing = next((rule for rule in needed if not accepted.accepts(rule)), None)
        hint = _ways(found, run) or explain(wanted.key).line(run)
        if missing is not None:
            why = f"the copy needs your word: {MEANINGS[missing]}"
            if missing is Rule.NEWER_THAN_KNOWN:
                why = "etcdfix cannot tell whether a newer release wrote this value"
            raise unless_accepted(missing, f"{key}: {why}")
        refusal = found[0].refusal if found and all(one.refusal for one in found) else None
        if refusal is not None and refusal.rule == Rule.UNDETERMINED:
            raise refuse(
                Rule.UNDETERMINED, f"{key}: {found[0].copy.where}: {refusal.message}", hint=refusal.hint
            )
        problems = f" ({'; '.join(problems_of(finders))})" if problems_of(finders) else ""
        why = "no copy is proven enough to be put back without --from" if found else "no copy was found"
        raise refuse(Rule.NOT_REPAIRABLE, f"{key}: {why}{problems}", hint=hint)
    equal = [one for one in found if one is not best and one.proven and alike(one.copy, best.copy)]
    if equal:
        raise refuse(
            Rule.SEVERAL_COPIES,
            f"{key}: {best.copy.where} and {equal[0].copy.where} are equally good, and differ",
            hint=_ways([best, *equal], run),
        )
    if best.copy.place in _OUTSIDE and not accepted.accepts(Rule.UNLISTED_SOURCE):
        text = f"{key}: the best copy is {best.copy.where}, which is not in this audit log or this etcd"
        instead = f"look at what it holds, or name it: {best.command.line(run)}"
        raise unless_accepted(Rule.UNLISTED_SOURCE, text, hint=instead)
    return best


def _ways(found: Sequence[Offer], run: RunOptions) -> str:
    lines = (one.command.line(run) for one in found if one.refusal is None)
    return "; ".join([line for line in lines if line][:_MOST_TOLD])
