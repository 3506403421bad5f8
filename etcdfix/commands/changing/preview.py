"""What a person reads before a change, at most 30 lines; one preview for all changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.copies.model import Copy, Freshness, Sameness
from etcdfix.graph.model import Action, Assessment
from etcdfix.model.model import ClusterIdentity, Outcome, RepairKind, RepairProof
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import display
from etcdfix.remediation.change import Change
from etcdfix.remediation.checks.copy import UNSIGNED_LEASE, speaks_for
from etcdfix.remediation.cluster import Cluster
from etcdfix.remediation.memory.held import HeldObject
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.change import Fact, preview_of
from etcdfix.report.document import Document, Step
from etcdfix.report.tally import Stakes
from etcdfix.text.commands import RunOptions, explain
from etcdfix.text.words import counted, fit

WARNINGS: Final = (
    "A deletion may break the cluster, and your vendor may not support it.",
    "It skips finalizers and graceful ends. The garbage collector may delete what it owned; watches restart.",
)
"""KEP-3926, in meaning."""

_GONE: Final = "Dependents that the garbage collector has deleted do not come back with their owner."
_MOST_NAMED: Final = 3
_LONGEST: Final = 180
_CANDIDATE: Final = "an object of this etcd key comes out, and nothing proves its contents"
_PROVEN: Final = {
    RepairProof.TAG: "the value opens, and its tag authenticates it",
    RepairProof.DECODES: "an unencrypted object of this etcd key decodes whole; no bit was guessed",
    RepairProof.NONE: "NONE: AES-CBC has no tag. An object comes out. ITS CONTENTS MAY BE WRONG, as accepted",
}
_OF_THE_NAME: Final = (
    "NONE that the name is damaged. ANOTHER KEY MAY HAVE THAT NAME, as accepted; a tag does not cover it"
)
_SAID: Final = {
    Answer.READS_IT: "reads it",
    Answer.NOT_FOUND: "finds no such object",
    Answer.READ_ERROR: "cannot read it either",
    Answer.EMPTY: "makes an empty object of it",
    Answer.DENIED: "may not be asked",
    Answer.NO_ANSWER: "gave no answer",
}


def change_preview(change: Change, run: RunOptions) -> Document:
    """Return what a change does, what speaks for it and against it, and what would be less destructive."""
    present = change.present
    return preview_of(
        f"To {change.verb.purpose}: {present.shown}",
        stakes=_stakes(change),
        facts=[*_facts(change)],
        sets_off=[*_sets_off(change)],
        instead=_less_destructive(change, run) if change.deletes else [],
        warnings=change.warnings,
        kept=[*_kept(change)],
    )


def _stakes(change: Change) -> list[str]:
    if change.undoes or change.held is not None:
        return []
    stakes = Stakes([] if change.present.absent else [change.present.found]).lines()
    if change.goes and change.present.protected:
        stakes.append(f"CLUSTER-BREAKING, as accepted: {change.present.protected}.")
    return stakes[:_MOST_NAMED]


def _less_destructive(change: Change, run: RunOptions) -> list[Step]:
    present = change.present
    found, repair = present.found, present.unproven_repair
    shown = found if repair is None else msgspec.structs.replace(found, repair=repair)
    every = ways_at_hand(shown, run, present.readable, breaking=bool(present.protected))
    ways = [way for way in every if way.verb != WayKind.DELETE]
    # A configuration that is kept in this etcd ends the loss: it is told beside the best way out.
    recovers = ("encryption", "recover")
    named = [way for number, way in enumerate(ways) if not number or way.command.words[1:3] == recovers]
    left = len(ways) - len(named)
    more = f"{counted(left, 'more way')} out, and " if left else ""
    depends = Step(f"See {more}what depends on it", explain(present.key, "--impact"))
    return [*(Step(way.action, way.command) for way in named), depends]


def _facts(change: Change) -> Iterator[Fact]:
    present = change.present
    found = change.examined if present.absent else present.found
    where = f" in namespace {found.namespace}" if found.namespace else ""
    yield "Object", f"{found.directory.group_resource} {found.name}{where}"
    yield from _now(change)
    if change.held is not None:
        yield from _from_memory(change.held)
    elif not change.deletes:
        yield from _put(change)
    elif present.unproven_repair is not None:
        yield "May repair", f"{present.unproven_repair.words}: {_CANDIDATE}"
    if change.deletes:
        yield from _under(change)
    keys = f", {counted(present.alike.keys, 'key')}" if change.deletes else ""
    yield from cluster_facts(present.cluster, present.identity, keys)
    yield from _servers(present.servers)
    yield "Accepted", ", ".join(change.accepted.as_flags())


def _now(change: Change) -> Iterator[Fact]:
    present, stored = change.present, change.present.reading.stored
    if stored is None:
        yield "Now", "nothing is there"
        return
    lease, verdict = "", present.found.verdict
    if present.lease is not None:
        left = f"{present.lease.remaining_seconds} s left" if present.lease.alive else "expired"
        lease = f", lease {present.lease.lease:x}, {left}"
    revisions = f"mod_revision {stored.mod_revision}, create_revision {stored.create_revision}"
    yield "Stored", f"{len(stored.value)} bytes, {revisions}, version {stored.version}{lease}"
    said = f"{verdict.outcome}, {verdict.cause} ({verdict.confidence})" if verdict.cause else verdict.outcome
    if change.deletes and verdict.outcome is Outcome.UNDETERMINED:
        doubt = "the value may be whole; only your declaration deletes it"
        said = f"NOT PROVEN ({verdict.cause}): {doubt}"
    yield "Verdict", f"{said}: {fit(verdict.message, _LONGEST)}"


def _put(change: Change) -> Iterator[Fact]:
    """Yield which copy is put back, why that one, and what it is."""
    copy, then = change.copy, change.examined
    if change.undoes:
        yield "From", copy.where
        yield "Source", speaks_for(change.present, change)
    else:
        others = change.chosen.others
        chosen = "as you named it" if others is None else f"the best of {others + 1} copies"
        yield "From", f"{copy.where}, {chosen}"
        yield "Proof", _proof(copy)
        yield "Doubt", copy.doubt
    was = f", written at mod_revision {copy.mod_revision}" if copy.mod_revision else ""
    what = fit(then.verdict.message, _LONGEST)
    if then.verdict.outcome is Outcome.READABLE:
        kind = f"{then.gvk.api_version} {then.gvk.kind} " if then.gvk is not None else ""
        what = f"{kind}{f'{then.namespace}/{then.name}'.lstrip('/')}"
    yield "Then", f"{then.verdict.outcome}: {what}, {len(change.value or b'')} bytes{was}"
    if change.lease:
        yield "Lease", f"{change.lease & UNSIGNED_LEASE:x} is kept"
    elif copy.lease:
        yield "Lease", "is left out, as accepted"
    if copy.freshness is Freshness.OLDER:
        later = counted(copy.later_writes, "later write") if copy.later_writes else "what was written later"
        yield "Lost", f"{later} of the object"
    elif copy.freshness is Freshness.UNKNOWN and not (change.is_of_the_value or change.undoes):
        yield "Lost", "nothing tells whether the object was written after this copy"
    if change.sealed is not None:
        plain = change.sealed.transformer == IDENTITY
        yield "Written with", "no encryption" if plain else change.sealed.transformer
        if change.proof:
            yield "Write key", f"API servers write so too: {display(change.proof)} is stored under it"
        elif not change.present.cluster.no_encryption:
            yield "Write key", "nothing shows that API servers hold it, as accepted"


def _proof(copy: Copy) -> str:
    if copy.same_object is not Sameness.SAME:
        return "NONE: perhaps of ANOTHER OBJECT that had this name, as accepted"
    if copy.repair is None:
        return copy.proof
    return _OF_THE_NAME if copy.repair.kind is RepairKind.NAME else _PROVEN[copy.repair.proof]


def _from_memory(held: HeldObject) -> Iterator[Fact]:
    chosen, resource = held.chosen, held.found.directory.group_resource
    by, says = f"{chosen.holders[0].server.address}, in its memory, as last written", ""
    if chosen.ended:
        holders = ", ".join(holder.server.address for holder in chosen.holders)
        by = f"no server gives it from memory any more; these may hold it: {holders}"
        says = f", as {chosen.uid_from} says"
    yield "Held by", by
    yield "uid", f"{chosen.uid}{says}"
    unread = f"etcdfix cannot read {counted(held.kind.unread, 'value')} of {resource}"
    yield "Rescued", f"{held.rescued}: {unread}; what API servers hold of them is saved"


def _under(change: Change) -> Iterator[Fact]:
    for name, counts in change.present.alike.counts.items():
        undetermined = f", {counts.undetermined} undetermined" if counts.undetermined else ""
        damaged = f", {counts.damaged} of them proven damaged" if counts.damaged else ""
        rule = f" of {name.rule}" if name.rule else ""
        key = f" ({name.key})" if name.key else ""
        under = f"{name.transformer or 'no envelope that is known'}{rule}{key}"
        numbers = f"{counts.opened} open, {counts.failed} fail{damaged}{undetermined} (this one included)"
        yield "Under", f"{under}: {numbers}"
        if change.needs_declaration and counts.opened:
            opened = counted(counts.opened, "value")
            yield "Warning", f"{opened} OPEN under this key: make sure that you mean this one"


def cluster_facts(cluster: Cluster, identity: ClusterIdentity, keys: str = "") -> Iterator[Fact]:
    """Yield which cluster it is, and who says so."""
    accepted = "" if identity.is_known else " (accepted)"
    yield "Cluster", f"{identity.describe()}{accepted}{keys}, at {', '.join(cluster.where)}"
    # What an option of this command says needs no telling; what a file or a variable says does.
    yield "Named by", "; ".join(origin for origin in cluster.origins if ": --" not in origin)
    if cluster.no_encryption:
        yield "Encryption", "none at rest, as you say (--no-encryption)"


def _servers(servers: ServerAnswers) -> Iterator[Fact]:
    allowed, gate = servers.authorization, "the etcd credentials are the only gate"
    if allowed is not None:
        yield "Allowed by", f"{allowed.server}, for {allowed.user_name}"
    elif servers.answers:
        yield "Allowed by", f"nobody: no API server answered, as accepted; {gate}"
    else:
        yield "Allowed by", f"nobody was asked: without --kubeconfig {gate}"
    for each in servers.answers:
        yield "API server", f"{each.server} {_SAID[each.answer]}{f': {each.detail}' if each.detail else ''}"
    yield from (("Warning", warning) for warning in servers.warnings)


def _sets_off(change: Change) -> Iterator[Fact]:
    if change.deletes:
        yield from _losses(change.present.assessment, change.present.protected)
        yield "", " ".join(WARNINGS)
    elif change.held is not None:
        yield "", " ".join(_of_a_patch(change.held, dry_run=change.request.dry_run))
    elif not change.undoes and not change.is_of_the_value:
        yield "", _GONE


def _of_a_patch(held: HeldObject, *, dry_run: bool) -> Iterator[str]:
    yield "It is one merge PATCH with uid and resourceVersion that sets an annotation. Nothing is deleted."
    yield "Do not restart an API server before everything of the kind is written anew."
    if dry_run and held.chosen.ended:
        yield "Whether a server still holds it is known only when it is asked to write it."
    if dry_run:
        yield "Whether admission lets it through is known only then: dryRun=All fails for such an object."


def _losses(found: Assessment | None, said: str) -> Iterator[Fact]:
    if found is None:
        return
    worse = " or worse" if found.may_be_worse and found.risk != "cluster-breaking" else ""
    reasons = "; ".join(reason.text for reason in found.reasons[:_MOST_NAMED])
    incomplete = any(reason.code == "incomplete" for reason in found.reasons)
    unseen = "; objects that etcdfix cannot read may depend on it too" if incomplete else ""
    if reasons != said:
        yield "Risk", f"{found.risk}{worse}: {reasons or 'etcdfix knows no reference to it'}{unseen}"
    users = list(dict.fromkeys(f"{user.object.resource} {user.object.name}" for user in found.users))
    if users:
        more = f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
        yield "Used by", f"{counted(len(users), 'object')}: {', '.join(users[:_MOST_NAMED])}{more}"
    yield "Runs on", found.node
    goes = found.dependents.counts[Action.CASCADE_DELETED]
    if goes:
        kinds = ", ".join(f"{number} {name}" for name, number in found.dependents.deleted_by_resource.items())
        yield "Collected", f"the garbage collector deletes {counted(goes, 'dependent')}: {kinds}"
    caught_up = len(found.dependents.caught_up)
    if caught_up:
        late = counted(caught_up, "object")
        yield "Catches up", f"with {late} that the garbage collector could not judge before"
    untold = (one for one in found.finalizers if one.leaks and f"finalizer {one.name} is" not in reasons)
    leaks = [f"{one.name} ({one.consequence})" for one in untold]
    yield "Left behind", "; ".join(leaks[:_MOST_NAMED])


def _kept(change: Change) -> Iterator[Fact]:
    paths = change.request.record_paths
    log = f"audit log {paths.log_path}"
    if change.present.absent:
        yield "Recorded", log
        return
    # Nobody could read the old value that an API server replaces, so nobody puts it back.
    undo = "" if change.held is not None else "; etcdfix undo BACKUP puts it back"
    yield "Recorded", f"backup in {', '.join(map(str, paths.directories))}, {log}{undo}"
