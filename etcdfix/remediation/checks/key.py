"""The etcd key: it stands as expected, and every member, the cluster, its release and the plan agree on it.

A kind that is newer than the release that was named looks like a damaged one. A kubelet is never newer than its API
server, and at most three minors older (Kubernetes' version skew policy).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.model.errors import DecodeError, RefusedByRule
from etcdfix.model.model import Outcome, digest_of
from etcdfix.model.rules import Rule, refuse, unless_accepted
from etcdfix.remediation.cluster import refuse_unknown
from etcdfix.remediation.facts import must_be_had
from etcdfix.remediation.members import AlarmKind
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions, save_snapshot

if TYPE_CHECKING:
    from etcdfix.remediation.change import Change
    from etcdfix.remediation.present import Present

Said = Iterator[RefusedByRule | str]


def no_configuration(present: Present, _change: Change) -> Said:
    """You named the encryption configuration, or --no-encryption."""
    yield from must_be_had(present.configuration)


def gone(present: Present, change: Change) -> Said:
    """The key exists, unless a copy brings it back."""
    if not present.absent:
        if change.is_of_the_value and present.lease is not None and not present.lease.alive:
            why = f"the lease of {present.shown} has expired: etcd is about to delete the key"
            yield refuse(Rule.GONE, why, hint="look again in a moment")
        return
    request = change.request
    if change.takes_what_is_there:
        yield from must_be_had(present.stored)
    elif request.expected is not None:
        instead = "find out who deleted it; only a person brings it back: fix it by itself"
        yield refuse(Rule.GONE, f"{present.shown} was deleted after the plan was made", hint=instead)
    elif change.accepted.expect_mod_revision is not None or change.accepted.expect_value_sha256:
        hint = "leave what is expected of the present value out"
        yield refuse(Rule.GONE, f"{present.shown} does not exist", hint=hint)


def expectation_differs(present: Present, change: Change) -> Said:
    """The value is the one that the command line expects."""
    if change.undoes and change.expected_digest not in {"", change.copy.value_sha256}:
        # The digest of the value is not said: from this file it would prove nothing.
        why = f"the value from the {change.copy.where} does not have the digest {change.expected_digest}"
        hint = "it is another value, or was changed; the digest is the one that the change printed"
        yield refuse(Rule.EXPECTATION_DIFFERS, why, hint=hint)
    if present.absent:
        return
    stored, accepted, found = present.stored, change.accepted, digest_of(present.stored.value)
    if accepted.expect_mod_revision not in {None, stored.mod_revision}:
        text = f"{present.shown} stands at mod_revision {stored.mod_revision}, not at {accepted.expect_mod_revision}"
        yield refuse(Rule.EXPECTATION_DIFFERS, text, hint="examine it again: somebody has written it since")
    if accepted.expect_value_sha256 not in {"", found}:
        why = f"the value of {present.shown} has {found}, not {accepted.expect_value_sha256}"
        yield refuse(Rule.EXPECTATION_DIFFERS, why, hint="examine it again: it is another value")


def plan(present: Present, change: Change) -> Said:
    """The key and the cluster are as the reviewed plan says."""
    expected = change.request.expected
    if expected is None or present.absent:
        return
    yield from expected.against(present.stored, present.identity)
    yield from expected.against_verdict(present.found)


def members_disagree(present: Present, _change: Change) -> Said:
    """All voting members hold the same value, and none a readable copy."""
    if present.cluster.is_kine:
        return
    survey, examiner = present.survey, present.cluster.examiner
    if survey.differing:
        who = "; ".join(copy.describe() for copy in survey.differing)
        yield refuse(
            Rule.MEMBERS_DISAGREE,
            f"etcd members hold different values for {present.shown}: {who}",
            hint=_good_copy(present)
            or "replace that member (etcdctl member remove, then add it empty) before anything is changed",
        )
        return
    readable = not present.absent and present.first.verdict.outcome is Outcome.READABLE
    for other in () if present.may_read or readable else survey.distinct_values():
        if examiner.examine(other).verdict.outcome is Outcome.READABLE:
            why = f"a member holds a readable copy of {present.shown}"
            hint = "replace the member that does not, before anything is changed"
            yield refuse(Rule.MEMBERS_DISAGREE, why, hint=hint)


def _good_copy(present: Present) -> str:
    """Return how to save the copy that reads of a member that differs: to replace it would destroy a good copy."""
    cluster = present.cluster
    for copy in () if present.may_read else present.survey.copies:
        if copy.stored is None or copy.stored == present.survey.reading.stored:
            continue
        if cluster.examiner.examine(copy.stored).verdict.outcome is Outcome.READABLE:
            there = ("--endpoints", copy.endpoint, *cluster.client.connection.access_options)
            save = save_snapshot("good.db").line(RunOptions(source=there))
            return (
                f"{copy.label} at {copy.endpoint} holds a copy that reads: do not remove, wipe or restart that member; "
                f"save what it holds: {save}"
            )
    return ""


def unchecked_member(present: Present, change: Change) -> Said:
    """Every voting member was asked, or a majority."""
    named = change.accepted.named(Rule.UNCHECKED_MEMBER)
    if present.cluster.is_kine:
        return
    survey = present.survey
    spared = survey.accepted(named)
    unchecked = [copy for copy in survey.unchecked if copy not in spared]
    if unchecked:
        first = unchecked[0]
        text = f"not every member could be asked: {'; '.join(copy.describe() for copy in unchecked)}"
        instead = "start it, or name its address in --endpoints"
        yield unless_accepted(
            Rule.UNCHECKED_MEMBER, text, hint=instead, name=first.name or f"{first.member_id:x}"
        )
        return
    voters, read = len(survey.copies), len(survey.copies) - len(spared)
    if 2 * read <= voters:
        why = f"only {read} of {voters} voting members could be asked: no majority, whatever is accepted"
        hint = "start the others, or name their addresses in --endpoints"
        yield refuse(Rule.UNCHECKED_MEMBER, why, hint=hint)
    yield from (f"member {copy.label} was not asked, as accepted" for copy in spared)


def corrupt_alarm(present: Present, _change: Change) -> Said:
    """No member reports a corrupt database."""
    for alarm in () if present.cluster.is_kine else present.alarms:
        if alarm.kind is AlarmKind.CORRUPT:
            why = f"member {alarm.label} has raised etcd's CORRUPT alarm"
            hint = "replace the member whose data differs before anything is changed"
            yield refuse(Rule.CORRUPT_ALARM, why, hint=hint)
        else:
            full = "; an undo would fail until there is room" if alarm.kind is AlarmKind.NOSPACE else ""
            yield f"member {alarm.label} has raised the alarm {alarm.kind}{full}"


def no_space(present: Present, change: Change) -> Said:
    """The database of etcd has space. Full, it cannot delete before 3.4.22 and 3.5.7."""
    cluster = present.cluster
    full = [] if cluster.is_kine else [one for one in present.alarms if one.kind is AlarmKind.NOSPACE]
    if not full:
        return
    refused = "it takes no value"
    if change.deletes:
        # server/storage/quota.go, Available
        old = [status.version for status in cluster.client.statuses() if _refuses_deletions(status.version)]
        if not old:
            return
        refused = f"etcd {old[0]} refuses every transaction, a deletion too,"
    why = (
        f"this etcd is full: member {full[0].label} has raised etcd's NOSPACE alarm, and {refused} until there is "
        "room"
    )
    hint = "save a snapshot first; then etcdctl compact, etcdctl defrag, etcdctl alarm disarm"
    yield refuse(Rule.NO_SPACE, why, hint=hint)


def _refuses_deletions(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(int(number) for number in found.groups()) if found is not None else ()
    return () < numbers < (3, 4, 22) or (3, 5) <= numbers < (3, 5, 7)


def unknown_cluster(present: Present, change: Change) -> Said:
    """The uid of namespace kube-system names the cluster, and that of the copy."""
    accepted = change.accepts(Rule.UNKNOWN_CLUSTER)
    yield from refuse_unknown(present.cluster, present.identity, change.accepted)
    if change.by_itself and not change.comes_from_here():
        text = f"the {change.copy.where} names a cluster, and nothing shows that it is this one"
        instead = "its --audit-log, or the --encryption-config that reads namespace kube-system"
        yield refuse(Rule.UNKNOWN_CLUSTER, text, hint=instead)
    elif change.comes_from_here() is None and not accepted:
        yield unless_accepted(
            Rule.UNKNOWN_CLUSTER,
            f"the {change.copy.where} does not say which cluster it comes from, in a way that can be compared here",
        )


MOST_SKEW: Final = 3
"""A kubelet may be this many minors older than the API servers."""

_KUBELET: Final = re.compile(r"v1\.([0-9]{1,4})(?:[.+-].*)?")


def newest_kubelet(source: Source, examiner: Examiner) -> int | None:
    """Return the minor release of the newest kubelet among the stored Nodes; None where no Node can be read.

    Raises SourceError.
    """
    nodes = (node for _, node in read_nodes(source, examiner) if node is not None)
    # As Go holds it: each of these is there, whatever was stored.
    found = (_KUBELET.fullmatch(node["status"]["nodeInfo"]["kubeletVersion"]) for node in nodes)
    return max((int(match[1]) for match in found if match is not None), default=None)


def read_nodes(source: Source, examiner: Examiner) -> Iterator[tuple[bytes, Any]]:
    """Yield the name of each stored Node, and the object; None where it cannot be read. Raises SourceError."""
    reader, prefix = ObjectReader(examiner.decoder), examiner.layout.path("minions/")
    for stored in source.current(prefix):
        plaintext, node = examiner.plaintext(examiner.examine(stored)), None
        with suppress(DecodeError):
            node = reader.builtin(plaintext, "", "Node").value if plaintext is not None else None
        yield stored.key.removeprefix(prefix), node


def misfit(named: str, newest: int) -> RefusedByRule | None:
    """Return why a release that was named is not the cluster's by its newest kubelet; None where it may be."""
    if newest <= int(named.partition(".")[2]) <= newest + MOST_SKEW:
        return None
    why = (
        f"release {named} was named, and the newest kubelet is 1.{newest}: the API servers are of 1.{newest} to "
        f"1.{newest + MOST_SKEW}"
    )
    hint = "name the release of the API servers with --kubernetes-version"
    return refuse(Rule.RELEASE, why, hint=hint)


def release(present: Present, _change: Change) -> Said:
    """--kubernetes-version is the newest kubelet's release, or at most three minors newer."""
    named, newest = present.cluster.examiner.assumed_release, present.newest_kubelet
    doubt = misfit(named, newest) if named and newest is not None else None
    if doubt is not None:
        yield doubt


def unknown_release(present: Present, change: Change) -> Said:
    """A Node shows the release of --kubernetes-version."""
    cluster = present.cluster
    named = cluster.examiner.assumed_release
    if named and present.newest_kubelet is None and not change.accepts(Rule.UNKNOWN_RELEASE):
        why = f"no Node can be read, so nothing shows that the API servers are of release {named}"
        yield unless_accepted(Rule.UNKNOWN_RELEASE, f"{why}, as {cluster.release_source} says")
