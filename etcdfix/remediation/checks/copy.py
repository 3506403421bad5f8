"""The copy that is put back: it is of this cluster and of this object, it is right, and it is still there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from etcdfix.copies.model import Sameness
from etcdfix.model.errors import RefusedByRule
from etcdfix.model.model import RepairKind
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.remediation.facts import must_be_had
from etcdfix.report.advice.finding import repair_risks
from etcdfix.text.commands import fix

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

Refusals = Iterator[RefusedByRule]


def other_cluster(present: Present, change: Change) -> Refusals:
    """The copy comes from this cluster."""
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


def other_object(present: Present, change: Change) -> Refusals:
    """The copy is not of another object that had the name of this one."""
    copy = change.copy
    if copy.same_object is Sameness.OTHER:
        why = f"the {copy.where} is of another object than {present.shown}: {copy.proof}"
        yield refuse(Rule.OTHER_OBJECT, why, hint="what it holds can be created anew through the API")


def unknown_uid(present: Present, change: Change) -> Refusals:
    """What etcd keeps, or a backup, shows by its uid that the copy is of the object at the key, or there last."""
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
    """Where the bytes stand at another etcd key, they stand there as they were examined until they are written."""
    yield from must_be_had(change.other_mark)


def unproven_repair(present: Present, change: Change) -> Refusals:
    """A tag proves what was put right in the value, or a fixed undo does."""
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
    """The lease that the value is to have is alive: etcd would have deleted it by now."""
    lease = change.wanted_lease
    if lease and not change.lease_alive and not change.accepts(Rule.EXPIRED_LEASE):
        yield unless_accepted(
            Rule.EXPIRED_LEASE,
            f"the value had the lease {lease & UNSIGNED_LEASE:x}, which has expired: etcd would have deleted it by now",
        )


UNSIGNED_LEASE: Final = 0xFFFFFFFFFFFFFFFF
"""Lease ids are shown without their sign, as etcdctl shows them."""
