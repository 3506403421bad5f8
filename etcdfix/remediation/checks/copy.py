"""The copy that is put back: it is of this cluster and of this object, it is right, and it is still there.

For a backup its audit log speaks, and the history of this etcd. Without a log it is put only where nothing is. A file
that somebody made up has fitting digests too; what it cannot have is the digest that the change printed on the day. So
nothing here says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.copies.model import Sameness
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import Outcome, RepairKind
from etcdfix.model.rules import Rule, acceptance, refuse, unless_accepted
from etcdfix.remediation.audit.record import Record, Result, Verb
from etcdfix.remediation.audit.search import outcomes_of, wrote
from etcdfix.remediation.audit.verify import broken, is_there, trouble_with
from etcdfix.remediation.backup.file import ANOMALY, Backup
from etcdfix.remediation.backup.folder import intent_of
from etcdfix.remediation.errors import AuditLogUnreadable
from etcdfix.remediation.facts import must_be_had
from etcdfix.remediation.same_etcd import Recorded, compare_with_etcd
from etcdfix.report.advice.finding import repair_risks
from etcdfix.text.commands import explain, fix

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

Refusals = Iterator[RefusedByRule]


def other_cluster(present: Present, change: Change) -> Refusals:
    """The copy is from this cluster."""
    copy, standing = change.copy, change.standing
    if change.undoes and standing is not None and standing.other_past:
        yield refuse(
            Rule.OTHER_CLUSTER,
            f"the {copy.where} is of another etcd: {standing.other_past}",
            hint="only a readable value may come from there: "
            + fix(present.key, copy.source, seals=True).line(change.request.run),
        )
    if change.comes_from_here() is False:
        assert copy.cluster is not None  # else it would be from here
        theirs, ours = copy.cluster.describe(), present.identity.describe()
        why = (
            f"the {copy.where} comes from the cluster with {theirs}; this etcd holds the cluster with {ours}"
        )
        yield refuse(Rule.OTHER_CLUSTER, why, hint="name the etcd of that cluster with --endpoints")


_CONFLICTS: Final = {
    "pods": "its node, or a controller, may have replaced it meanwhile",
    "leases.coordination.k8s.io": "whoever holds it now may lose it",
    "endpointslices.discovery.k8s.io": "it may name Pods that are gone",
    "persistentvolumes": "its volume may be bound or deleted meanwhile",
    "persistentvolumeclaims": "its volume may be bound elsewhere meanwhile",
    "services": "its address and ports may be in use elsewhere meanwhile",
}


def other_object(present: Present, change: Change) -> Iterator[RefusedByRule | str]:
    """The copy is not of another object of the same name."""
    copy, resource = change.copy, str(change.chosen.wanted.resource)
    if resource in _CONFLICTS and not change.is_of_the_value:
        yield f"a past state of {resource} may conflict: {_CONFLICTS[resource]}"
    if copy.same_object is Sameness.OTHER:
        why = f"the {copy.where} is of another object than {present.shown}: {copy.proof}"
        yield refuse(Rule.OTHER_OBJECT, why, hint="what it holds can be created anew through the API")


def unknown_uid(present: Present, change: Change) -> Refusals:
    """A uid shows that the copy is of the object at this key."""
    copy = change.copy
    if copy.same_object is Sameness.UNKNOWN and not change.accepts(Rule.UNKNOWN_UID):
        uid = f"the uid {copy.uid}" if copy.uid else "no uid either"
        why = (
            f"nothing that etcd keeps, and no backup, shows that {copy.where} is of the object at "
            f"{present.shown}"
        )
        hint = f"find out whether that had {uid} (owner references to it, logs, other snapshots)"
        yield unless_accepted(Rule.UNKNOWN_UID, why, hint=hint)


def moved(_present: Present, change: Change) -> Refusals:
    """The source bytes at another etcd key do not change before the write."""
    yield from must_be_had(change.other_mark)


def unproven_repair(present: Present, change: Change) -> Refusals:
    """A tag or a fixed rule proves the repair."""
    repair = change.repair
    if repair is None or change.accepts(Rule.UNPROVEN_REPAIR):
        return
    if Rule.UNPROVEN_REPAIR not in repair_risks(present.found, repair):
        return
    comes_out = f"{present.shown}: {repair.words}, and an object of this etcd key comes out; but"
    if repair.kind is RepairKind.NAME:
        why = f"{comes_out} nothing proves that its name is damaged: another key may have it"
        hint = "give the key that wrote it its name back in the configuration"
        yield unless_accepted(Rule.UNPROVEN_REPAIR, why, hint=hint)
    else:
        why = f"{comes_out} AES-CBC has no tag, so nothing proves its contents"
        hint = "an earlier revision, a snapshot or an API server's memory may have it whole"
        yield unless_accepted(Rule.UNPROVEN_REPAIR, why, hint=hint)


def expired_lease(_present: Present, change: Change) -> Refusals:
    """The lease of the value is alive."""
    lease = change.wanted_lease
    if lease and not change.lease_alive and not change.accepts(Rule.EXPIRED_LEASE):
        yield unless_accepted(
            Rule.EXPIRED_LEASE,
            f"the value had the lease {lease & UNSIGNED_LEASE:x}, which has expired: etcd would have deleted it by now",
        )


UNSIGNED_LEASE: Final = 0xFFFFFFFFFFFFFFFF
"""Lease ids are shown without their sign, as etcdctl shows them."""


# -- an undo

BY_ITSELF: Final = (
    f"a backup is undone by itself with {acceptance(Rule.UNLISTED_SOURCE)} and --expect-value-sha256, the digest that "
    "the change printed"
)
_ANOTHER_LOG: Final = f"keep it as it is, and begin a new one with --audit-log; {BY_ITSELF}"


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks for a backup.

    Attributes:
        intent: Of this audit log, that made it; None where the log does not know it.
        other: Why it is of another etcd; "" where nothing says so.
        unseen: What could not be compared, a sentence; "" for nothing.
    """

    backup: Backup
    intent: Record | None
    other: str
    other_past: str
    unseen: str

    @property
    def doubtful(self) -> bool:
        """It is of another etcd, or that could not be compared."""
        return bool(self.other or self.unseen)


def standing_of(backup: Backup, present: Present) -> Standing:
    """Find out what speaks for a backup; raises AuditLogUnreadable or SourceError."""
    log, deleted_at = present.request.record_paths.log_path, 0
    try:
        trouble = trouble_with(log)
        if trouble:
            raise broken(log, trouble, hint=_ANOTHER_LOG)
        intent = intent_of(backup, log) if is_there(log) else None
    except AuditLogUnreadable as exc:
        raise AuditLogUnreadable(exc.message, hint=exc.hint or _ANOTHER_LOG) from exc
    if intent is not None and intent.verb is Verb.DELETE:
        done = (one for one in outcomes_of(log, intent) if one.outcome == Result.DELETED)
        deleted_at = max((int(one.header_revision or 0) for one in done), default=0)
    recorded = Recorded.of_backup(backup.content, deleted_at=deleted_at)
    if backup.content.purpose == ANOMALY:
        # Members may disagree on what was there: then the history of another one says nothing of it.
        recorded = msgspec.structs.replace(Recorded.of_backup(backup.content), mod_revision=0)
    held = compare_with_etcd(present.cluster.now, recorded, present.identity, present.reading)
    other = held.other_id or held.contradiction
    return Standing(
        backup=backup, intent=intent, other=other, other_past=held.contradiction, unseen=held.unseen
    )


def other_cluster_id(_present: Present, change: Change) -> Iterator[RefusedByRule | str]:
    """The backup is from this etcd: its cluster id and its revisions match."""
    standing = change.standing
    if standing is None:
        return
    if standing.unseen:
        yield standing.unseen
    if standing.other and change.accepts(Rule.OTHER_CLUSTER_ID):
        yield f"the backup is of another etcd, as accepted: {standing.other}"
    elif standing.other:
        why = f"the backup {standing.backup.path} is of another etcd: {standing.other}"
        hint = "name its etcd with --endpoints; or if this etcd was made from it, and takes its place"
        yield unless_accepted(Rule.OTHER_CLUSTER_ID, why, hint=hint)


def unlisted_source(present: Present, change: Change) -> Refusals:
    """The audit log lists the backup, or you gave the digest that the change printed."""
    if not change.by_itself:
        return
    copy, log = change.copy, present.request.record_paths.log_path
    if not change.accepts(Rule.UNLISTED_SOURCE):
        why = f"this audit log ({log}) does not list the {copy.where}"
        hint = f"name the log that was used then with --audit-log; {BY_ITSELF}"
        yield unless_accepted(Rule.UNLISTED_SOURCE, why, hint=hint)
    if not change.expected_digest:
        hint = f"{BY_ITSELF}; a value that reads: {_other_way(present, change)}"
        yield refuse(Rule.UNLISTED_SOURCE, f"nothing but the file itself proves the {copy.where}", hint=hint)


def not_an_object(present: Present, change: Change) -> Refusals:
    """The backup is of an API object, or the audit log lists it."""
    if change.by_itself and change.examined.verdict.outcome is Outcome.NOT_AN_OBJECT:
        why = f"the {change.copy.where} is of {present.shown}, which does not hold an API object"
        yield refuse(Rule.NOT_AN_OBJECT, why, hint="name the storage prefix of this cluster: --etcd-prefix")


def present(now: Present, change: Change) -> Refusals:
    """The key holds what the change wrote, or nothing."""
    standing, other_way = change.standing, _other_way(now, change)
    assert standing is not None  # it is an undo
    intent, stored = standing.intent, now.reading.stored
    if intent is not None and intent.is_patch:
        told = f"an API server wrote {now.shown} again: that cannot be undone"
        instead = "the backup keeps the old bytes; change the differences through the API: kubectl edit"
        yield refuse(Rule.PRESENT, told, hint=instead)
    elif stored is not None and intent is None:
        why = f"{now.shown} exists: a backup that no audit log lists can only be put on an empty key"
        yield refuse(Rule.PRESENT, why, hint="name the audit log that lists it with --audit-log")
    elif stored is not None and intent is not None:
        if wrote(now.request.record_paths.log_path, intent, stored):
            return
        text = f"{now.shown} exists, and record {intent.link.sequence} did not write this value"
        hint = f"somebody may have created it again; if it cannot be read: {other_way}"
        if stored.value == change.value:
            text = f"{now.shown} holds what the backup holds already, written at mod_revision {stored.mod_revision}"
            hint = f"there is nothing to undo; look at the value: {explain(now.key).line(change.request.run)}"
        yield refuse(Rule.PRESENT, text, hint=hint)


def _other_way(now: Present, change: Change) -> str:
    return fix(now.key, change.copy.source, seals=True).line(change.request.run)


def speaks_for(now: Present, change: Change) -> str:
    """Return what speaks for a backup that may be undone."""
    standing = change.standing
    assert standing is not None  # it is an undo
    if standing.intent is None:
        named = standing.backup.intent.audit_log
        return f"by itself: its own digests fit, and the one that was given; no record lists it (its log: {named})"
    if now.absent:
        return f"record {standing.intent.link.sequence} of this audit log lists these bytes at this key"
    return f"the current value was written by record {standing.intent.link.sequence} of this audit log"
