"""What a person reads before a change: what it does to which object, what speaks for it and against it.

At most about 30 lines, for somebody who is tired: the object first, then what was checked, then what it means.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from etcdfix.apiserver.objects import Answer
from etcdfix.apiserver.servers import ServerAnswers
from etcdfix.copies.model import THE_VALUE, Freshness, Sameness
from etcdfix.graph.model import Action, Assessment, Stops
from etcdfix.model import ClusterIdentity, Outcome, RepairKind, RepairProof
from etcdfix.remediation.checks.situation import UNSIGNED_LEASE, Situation
from etcdfix.remediation.memory.held import Held
from etcdfix.remediation.offers import ways_at_hand
from etcdfix.remediation.preflight.cluster import Cluster, peek_lines
from etcdfix.remediation.preflight.deletion import Preflight
from etcdfix.report.advice.ways import WayKind
from etcdfix.report.document import (
    Document,
    Facts,
    Prose,
    Section,
    State,
    Status,
    Step,
    Steps,
)
from etcdfix.report.tally import Stakes
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions, explain
from etcdfix.text.words import counted
from etcdfix.verdicts.deletability import IDENTITY
from etcdfix.verdicts.examination import Examination

WARNINGS: Final = (
    "The deletion may break the cluster if other objects depend on this one, and your vendor may not support it.",
    "Finalizers do not run: volumes and load balancers outside of the cluster stay behind.",
    "Nothing ends gracefully: the containers of a Pod run until its kubelet notices.",
    "The garbage collector may delete everything that the object owned.",
    "API servers restart the watch of this resource, and clients list it again.",
)
"""KEP-3926, in meaning."""
_MOST_WAYS: Final = 2
_MOST_NAMED: Final = 3
_CANDIDATE: Final = {
    RepairProof.TAG: "the value then opens, and its tag authenticates it",
    RepairProof.DECODES: "the object then decodes",
    RepairProof.NONE: "an object of this etcd key comes out, and nothing proves its contents",
}
_PROVEN: Final = {
    RepairProof.TAG: "the value opens, and its tag authenticates it",
    RepairProof.DECODES: "an unencrypted object of this etcd key decodes whole; no bit was searched for",
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

Fact = tuple[str, str]


def preview_of(headline: str, facts: Iterator[Fact], *more: Section, stakes: Sequence[str] = ()) -> Document:
    """Return a preview: what will be done, what was found out, and what it means."""
    return Document(
        status=Status(State.WOULD_DO, headline), stakes=stakes, sections=[Facts(facts=[*facts]), *more]
    )


def deletion_preview(cluster: Cluster, checked: Preflight, run: RunOptions) -> Document:
    """Return what was found out, what a deletion means, and what would be less destructive."""
    found = checked.found
    if checked.candidate is not None:
        found = msgspec.structs.replace(found, repair=checked.candidate)
    every = ways_at_hand(found, run, checked.readable, breaking=bool(checked.protected))
    ways = [way for way in every if way.verb != WayKind.DELETE]
    stakes = Stakes([checked.found]).lines()
    if checked.protected:
        stakes.append(f"CLUSTER-BREAKING, as accepted: {checked.protected}.")
    steps = [Step(way.action, way.command) for way in ways[:_MOST_WAYS]]
    if len(ways) > _MOST_WAYS:
        steps.append(Step(f"etcdfix explain shows {counted(len(ways) - _MOST_WAYS, 'more way')} out"))
    if checked.assessment is not None:
        steps.append(Step("See everything that depends on it", explain(checked.stored.key, "--impact")))
    return preview_of(
        f"To delete: {display(checked.stored.key)}",
        _deletion(cluster, checked),
        Steps(title="Less destructive", steps=steps),
        Prose(title="What a deletion means", paragraphs=[" ".join(WARNINGS)]),
        stakes=stakes,
    )


def _deletion(cluster: Cluster, checked: Preflight) -> Iterator[Fact]:
    found, verdict, stored = checked.found, checked.found.verdict, checked.stored
    yield object_fact(found)
    revisions = f"mod_revision {stored.mod_revision}, create_revision {stored.create_revision}"
    lease = ""
    if checked.lease is not None:
        left = f"{checked.lease.remaining_seconds} s left" if checked.lease.alive else "expired"
        lease = f", lease {checked.lease.lease:x}, {left}"
    yield "Stored", f"{len(stored.value)} bytes, {revisions}, version {stored.version}{lease}"
    if verdict.outcome is Outcome.UNDETERMINED:
        doubt = "the value may be whole; only your declaration deletes it"
        yield "Verdict", f"NOT PROVEN ({verdict.cause}): {doubt}. {verdict.message}"
    else:
        yield "Verdict", f"{verdict.outcome}, {verdict.cause} ({verdict.confidence}): {verdict.message}"
    yield "Servers say", verdict.upstream_message
    if checked.candidate is not None:
        yield "May repair", f"{checked.candidate.words}: {_CANDIDATE[checked.candidate.proof]}"
    yield from cluster_facts(cluster, checked.identity, f", {counted(checked.alike.keys, 'key')}")
    yield from _pattern(checked)
    yield from server_facts(checked.servers)
    if checked.accepted:
        yield "Accepted", ", ".join(checked.accepted)
    yield from warning_facts(checked.warnings)
    if checked.assessment is not None:
        yield from _losses(checked.assessment)


def _losses(found: Assessment) -> Iterator[Fact]:
    worse = " or worse" if found.may_be_worse and found.risk != "cluster-breaking" else ""
    reasons = "; ".join(reason.text for reason in found.reasons[:_MOST_NAMED])
    yield "Risk", f"{found.risk}{worse}: {reasons or 'etcdfix knows no reference to it'}"
    users = list(dict.fromkeys(f"{user.object.resource} {user.object.name}" for user in found.users))
    if users:
        more = f" and {len(users) - _MOST_NAMED} more" if len(users) > _MOST_NAMED else ""
        yield "Used by", f"{counted(len(users), 'object')}: {', '.join(users[:_MOST_NAMED])}{more}"
    stopped = {user.object.key for user in found.users if user.stops == Stops.YES}
    if stopped:
        yield "Stops", f"{counted(len(stopped), 'object')} cannot go on without it"
    yield "Runs on", found.node
    goes = found.collection.counts[Action.CASCADE_DELETED]
    if goes:
        kinds = ", ".join(f"{number} {name}" for name, number in found.collection.deleted_by_resource.items())
        yield "Collected", f"the garbage collector deletes {counted(goes, 'dependent')}: {kinds}"
    caught_up = len(found.collection.caught_up)
    if caught_up:
        yield (
            "Catches up",
            f"with {counted(caught_up, 'object')} that the garbage collector could not judge before",
        )
    leaks = [f"{one.name} ({one.consequence})" for one in found.finalizers if one.leaks]
    if leaks:
        yield "Left behind", "; ".join(leaks[:_MOST_NAMED])
    if found.problems:
        yield "Not seen", "objects that etcdfix cannot read may depend on it too"


def object_fact(found: Examination, more: str = "") -> Fact:
    """Return which object it is."""
    where = f" in namespace {found.namespace}" if found.namespace else ""
    return "Object", f"{found.directory.group_resource} {found.name}{where}{more}"


def now_fact(found: Examination) -> Fact:
    """Return the verdict on the present value."""
    return "Now", f"{found.verdict.outcome}, {found.verdict.cause}: {found.verdict.message}"


def warning_facts(warnings: Sequence[str]) -> Iterator[Fact]:
    """Return each warning once."""
    return (("Warning", warning) for warning in dict.fromkeys(warnings))


def cluster_facts(cluster: Cluster, identity: ClusterIdentity, keys: str = "") -> Iterator[Fact]:
    """Yield which cluster it is, and who says so."""
    accepted = "" if identity.is_known else " (accepted)"
    yield "Cluster", f"{identity.describe()}{accepted}{keys}, at {', '.join(cluster.where)}"
    yield "Named by", "; ".join(cluster.origins)
    if cluster.no_encryption:
        yield "Encryption", "none at rest, as you say (--no-encryption)"


def server_facts(servers: ServerAnswers) -> Iterator[Fact]:
    """Yield who allows the change, and what each API server said of the object."""
    allowed = servers.authorization
    gate = "the etcd credentials are the only gate"
    if allowed is not None:
        yield "Allowed by", f"{allowed.server}, for {allowed.user_name}"
    elif servers.answers:
        yield "Allowed by", f"nobody: no API server answered, as accepted; {gate}"
    else:
        yield "Allowed by", f"nobody was asked: without --kubeconfig {gate}"
    for asked in servers.answers:
        yield (
            "API server",
            f"{asked.server} {_SAID[asked.answer]}{f': {asked.detail}' if asked.detail else ''}",
        )
    yield from warning_facts(servers.warnings)


def _pattern(checked: Preflight) -> Iterator[Fact]:
    for name, counts in checked.alike.counts.items():
        undetermined = f", {counts.undetermined} undetermined" if counts.undetermined else ""
        damaged = f", {counts.damaged} of them proven damaged" if counts.damaged else ""
        rule = f" of {name.rule}" if name.rule else ""
        key = f" ({name.key})" if name.key else ""
        yield (
            "Under",
            (
                f"{name.transformer or 'no envelope that is known'}{rule}{key}: {counts.opened} open, "
                f"{counts.failed} fail{damaged}{undetermined} (this one included)"
            ),
        )
        if checked.declared_lost and counts.opened:
            opened = counted(counts.opened, "value")
            yield "Warning", f"{opened} OPEN under this key: make sure that you mean this one"
    if checked.declared_lost:
        yield "Declared", "the key is lost for ever"
    yield from (("Proof", line) for line in peek_lines(checked.found))


def fix_preview(one: Situation, others: int | None) -> Document:
    """Return which copy will be put back and why that one, and what makes room.

    Args:
        one: What was found out.
        others: How many other copies there are; None where a person named this one.
    """
    copy = one.copy
    chosen = "as you named it" if others is None else f"the best of {others + 1} copies"
    paragraphs = []
    if copy.place not in THE_VALUE:
        paragraphs = ["Dependents that the garbage collector has deleted do not come back with their owner."]
    stakes = [] if one.wanted.found is None else Stakes([one.wanted.found]).lines()
    if isinstance(one.replaced, Preflight) and one.replaced.protected:
        again = "Users of the object see this earlier state again."
        stakes.append(f"CLUSTER-BREAKING, as accepted: {one.replaced.protected}. {again}")
    return preview_of(
        f"To fix: {one.shown}", _fix(one, chosen), Prose(paragraphs=paragraphs), stakes=stakes[:_MOST_NAMED]
    )


def undo_preview(one: Situation, why: str) -> Document:
    """Return what will be put back, and what speaks for it."""

    def facts() -> Iterator[Fact]:
        yield "From", one.copy.where
        yield "Source", why
        yield from _written(one)
        yield from _surroundings(one)

    return preview_of(f"To undo: {one.shown}", facts())


def _fix(one: Situation, chosen: str) -> Iterator[Fact]:
    copy, found = one.copy, one.wanted.found
    yield object_fact(one.found)
    if found is not None:
        yield now_fact(found)
    yield "From", f"{copy.where}, {chosen}"
    if copy.same_object is Sameness.SAME:
        named = copy.repair is not None and copy.repair.kind is RepairKind.NAME
        proof = (
            _OF_THE_NAME if named else _PROVEN[copy.repair.proof] if copy.repair is not None else copy.proof
        )
        yield "Proof", proof
    else:
        yield "Proof", "NONE: perhaps of ANOTHER OBJECT that had this name, as accepted"
    yield "Doubt", copy.doubt
    yield from _written(one)
    if copy.freshness is Freshness.OLDER:
        later = counted(copy.later_writes, "later write") if copy.later_writes else "what was written later"
        yield "Lost", f"{later} of the object"
    elif copy.freshness is Freshness.UNKNOWN and copy.place not in THE_VALUE:
        yield "Lost", "nothing tells whether the object was written after this copy"
    if one.sealed is not None:
        how = "no encryption" if one.sealed.transformer == IDENTITY else one.sealed.transformer
        yield "Written with", how
        proof = f"API servers write so too: {display(one.proof)} is stored under it" if one.proof else ""
        unproven = (
            "" if one.cluster.no_encryption else "nothing shows that API servers hold that key, as accepted"
        )
        yield "Write key", proof or unproven
    yield from _surroundings(one)


def memory_preview(cluster: Cluster, held: Held, unread: int, rescued: str, *, dry_run: bool) -> Document:
    """Return what an API server will write anew, from its memory or what may be left of it."""
    found, resource = held.found, held.found.directory.group_resource
    holders = ", ".join(holder.server.address for holder in held.holders)

    def facts() -> Iterator[Fact]:
        says = f" as {held.uid_from} says" if held.ended else ""
        yield object_fact(found, f", uid {held.uid}{says}")
        yield now_fact(found)
        yield "Stored", f"mod_revision {held.mod_revision}"
        if held.ended:
            yield "Held by", f"no server gives it from memory any more; these may hold it: {holders}"
        else:
            yield "Held by", f"{held.holders[0].server.address}, in its memory, as last written"
        yield from cluster_facts(cluster, held.identity)
        yield from server_facts(held.servers)
        also = f"etcdfix cannot read {counted(unread, 'value')} of {resource}"
        yield "Rescued", f"{rescued}: {also}; what API servers hold of them is saved"
        yield from warning_facts(held.warnings)

    means = [
        "It is one merge PATCH with uid and resourceVersion that sets an annotation. Nothing is deleted.",
        "Do not restart an API server before everything of the kind is written anew.",
    ]
    if held.ended and dry_run:
        means.append("Whether a server still holds it is known only when it is asked to write it.")
    if dry_run:
        means.append(
            "An API server's own dry run (dryRun=All) fails for such an object, so whether admission lets the change "
            "through is known only when it is made."
        )
    return preview_of(f"To fix: {display(held.key)}", facts(), Prose(paragraphs=means))


def _written(one: Situation) -> Iterator[Fact]:
    copy, then = one.copy, one.examined
    was = f", written at mod_revision {copy.mod_revision}" if copy.mod_revision else ""
    if one.value is not None:
        yield "Value", f"{len(one.value)} bytes{was}"
    if then is not None:
        readable = then.verdict.outcome is Outcome.READABLE
        kind = f"{then.gvk.api_version} {then.gvk.kind} " if then.gvk is not None else ""
        name = f"{then.namespace}/{then.name}".lstrip("/")
        yield (
            "Then",
            f"{then.verdict.outcome}{f': {kind}{name}' if readable else f': {then.verdict.message}'}",
        )


def _surroundings(one: Situation) -> Iterator[Fact]:
    present, replaced = one.present, one.replaced
    yield from cluster_facts(one.cluster, one.identity)
    yield from server_facts(one.servers)
    if one.lease:
        yield "Lease", f"{one.lease & UNSIGNED_LEASE:x} is kept"
    elif one.copy.lease:
        yield "Lease", "is left out, as accepted"
    there = "nothing"
    if present is not None and replaced is not None:
        verdict = replaced.found.verdict
        said = f"{verdict.outcome}, {verdict.cause}" if verdict.cause is not None else verdict.outcome
        there = f"{len(present.value)} bytes at mod_revision {present.mod_revision}, {said}; backed up first"
    yield "There now", there
    yield from warning_facts(one.warnings)
