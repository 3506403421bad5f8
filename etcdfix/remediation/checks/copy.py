"""Checks of the copy that is put back: it is of this cluster and of this object, it reads, and it is still there."""

from __future__ import annotations

from typing import Final

from etcdfix.copies.model import Place, Sameness, digest_of
from etcdfix.maybe_newer import NOT_THE_OBJECT
from etcdfix.model import Repair, RepairKind
from etcdfix.remediation.checks.situation import Situation
from etcdfix.remediation.datastore import Landmark
from etcdfix.remediation.preflight.noencryption import check_no_encryption
from etcdfix.report.advice.change import repair_risks
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.storagekey import display
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.examination import Examination
from etcdfix.verdicts.protected import protected_reason


def of_this_cluster(one: Situation) -> None:
    """The copy is of this cluster, and the operator's word about encryption holds."""
    copy = one.copy
    same = True if copy.cluster is None else one.identity.is_same(copy.cluster)
    if copy.cluster is not None and same is False:
        raise refuse(
            Rule.OTHER_CLUSTER,
            f"the {copy.where} comes from the cluster with {copy.cluster.describe()}; this etcd holds the cluster with "
            f"{one.identity.describe()}",
            hint="name the etcd of that cluster with --endpoints",
        )
    if same is None and not one.request.accepted.accepts(Rule.UNKNOWN_CLUSTER):
        raise refuse(
            Rule.UNKNOWN_CLUSTER,
            f"the {copy.where} does not say which cluster it comes from, in a way that can be compared here",
            hint=f"if you are sure that it is this one: {acceptance(Rule.UNKNOWN_CLUSTER)}",
        )
    if copy.stored is not None:
        check_no_encryption(one.cluster, copy.stored)


def of_this_object(one: Situation) -> None:
    """The copy is of the object at the key, or of the last one there."""
    copy = one.copy
    if copy.same_object is Sameness.OTHER:
        raise refuse(
            Rule.OTHER_OBJECT,
            f"the {copy.where} is of another object than the one at {one.shown}, or there last: {copy.proof}",
            hint="what it holds can be created anew through the API",
        )
    if copy.same_object is Sameness.UNKNOWN and not one.request.accepted.accepts(Rule.UNKNOWN_UID):
        raise refuse(
            Rule.UNKNOWN_UID,
            f"nothing that etcd keeps, and no backup, shows that the value of {copy.where} is of the object that is at "
            f"{one.shown}, or was there last",
            hint=f"find out whether that had {f'the uid {copy.uid}' if copy.uid else 'no uid either'} (owner "
            f"references to it, logs, other snapshots); if it had: {acceptance(Rule.UNKNOWN_UID)}",
        )


def still_there(one: Situation) -> None:
    """Where the bytes stand at another etcd key, they stay there as they are until they are written."""
    if one.copy.place is not Place.KEY:
        return
    assert one.copy.stored is not None  # those bytes
    other = one.other_key
    there = one.cluster.now.read_key(other).stored
    if there is None or digest_of(there.value) != one.copy.value_sha256:
        raise refuse(
            Rule.MOVED, f"{display(other)} was changed while it was being examined", hint="look again"
        )
    one.rests_on = Landmark(other, there.create_revision, there.mod_revision)


def nothing_protected_from_a_file(one: Situation) -> None:
    """What the cluster depends on is not created from a file that may have been edited, unless that is accepted."""
    reason = one.wanted.protected
    if one.copy.place is Place.OBJECT and reason and not one.request.accepted.accepts(Rule.CLUSTER_BREAKING):
        raise refuse(
            Rule.CLUSTER_BREAKING,
            f"{reason}; a file that may have been edited would be put in place of it",
            hint=f"if that is understood: {acceptance(Rule.CLUSTER_BREAKING)}",
        )


def proven_repair(one: Situation) -> None:
    """What nothing proves is accepted; of what the cluster depends on, that as well."""
    repair, found, accepted = one.copy.repair, one.found, one.request.accepted
    assert repair is not None  # a bit was put right
    for risk in repair_risks(found, repair):
        if accepted.accepts(risk):
            continue
        why, hint = _unproven(risk, repair, found)
        shown = "" if risk is Rule.CLUSTER_BREAKING else f"{one.shown}: "
        raise refuse(risk, f"{shown}{why}", hint=f"{hint}if that is understood: {acceptance(risk)}")


def _unproven(risk: Rule, repair: Repair, found: Examination) -> tuple[str, str]:
    if risk is Rule.CLUSTER_BREAKING:
        protected = protected_reason(found.directory.group_resource, found.namespace)
        return f"{protected}; wrong bytes in {display(found.stored.key)} may break the cluster", ""
    comes_out = f"{repair.words}, and an object of this etcd key comes out; but"
    if risk is Rule.NEWER_THAN_KNOWN:
        return (
            f"{comes_out} a newer API server may have written the value as it is",
            "find out whether one of the cluster is newer than this etcdfix knows; ",
        )
    if repair.kind is RepairKind.NAME:
        return (
            f"{comes_out} nothing proves that its name is damaged: another key may have that name, or this one had it",
            "give the key that wrote it its name back in the configuration; ",
        )
    return (
        f"{comes_out} AES-CBC has no tag, so nothing proves that its contents are those that were written",
        "an earlier revision, a snapshot or an API server's memory may have it whole; ",
    )


_COLONS: Final = 5
_MAGIC_SIZE: Final = 4


class SameStart:
    """Looks for other values that begin as one does whose prefix or first bytes would be put back.

    A name that is one bit off may be the name of a key that somebody gave another name: then others have it too, and
    the configuration alone cures all of them. And first bytes that another object of the resource has as well are those
    of an encoding that is newer than this tool.
    """

    def __init__(self, key: bytes, value: bytes) -> None:
        self._key, self._value = key, value
        self._prefix = b":".join(value.split(b":", _COLONS)[:_COLONS]) + b":"
        self._failing: bytes | None = None
        self._same_magic: bytes | None = None

    def see(self, found: Examination) -> None:
        """Look at one value."""
        value, key = found.stored.value, found.stored.key
        if key == self._key:
            return
        if value.startswith(self._prefix) and not found.opened:
            self._failing = self._failing or key
        if found.verdict.cause is Cause.MAGIC_DAMAGED and value[:_MAGIC_SIZE] == self._value[:_MAGIC_SIZE]:
            self._same_magic = self._same_magic or key

    def check(self, repair: Repair) -> None:
        """Refuse where another value begins in the same way, and does not read either.

        Raises:
            RefusedByRule: One does.
        """
        shown = display(self._key)
        if repair.kind is RepairKind.MAGIC and self._same_magic is not None:
            raise refuse(
                Rule.FAILS_LIKE_OTHERS,
                f"{shown} begins with the same four bytes as {display(self._same_magic)}, which does not read either: "
                f"that may be a newer encoding, and then it is {NOT_THE_OBJECT}",
                hint="use an etcdfix that knows the cluster's release",
            )
        if self._failing is not None and repair.kind in {RepairKind.PREFIX, RepairKind.NAME}:
            raise refuse(
                Rule.CURABLE_BY_CONFIGURATION,
                f"{shown} begins like {display(self._failing)}, which does not open either: that is the name of an "
                "encryption key, not a damaged prefix",
                hint="give the key that wrote them its name back in the configuration",
            )
