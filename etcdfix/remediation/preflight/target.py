"""Checks of the etcd key that a change is about: it is there, as expected, alike on every member, and stays."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from etcdfix.errors import RefusedByRule
from etcdfix.model import ClusterIdentity, Outcome, StoredValue
from etcdfix.remediation.backup.file import digest
from etcdfix.remediation.datastore import KeyReading, Landmarks
from etcdfix.remediation.durable import Step
from etcdfix.remediation.preflight.cluster import Acceptances, Cluster, check_cluster
from etcdfix.remediation.preflight.members import (
    AlarmKind,
    LeaseState,
    MemberSurvey,
    read_alarms,
    read_lease,
    survey_members,
)
from etcdfix.remediation.preflight.release import check_release
from etcdfix.rules import Rule, acceptance, refuse
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.storagekey import display
from etcdfix.text.commands import RunOptions, save_snapshot


def require_configuration(cluster: Cluster) -> None:
    """Refuse where nobody said how values are encrypted.

    Raises:
        RefusedByRule: Neither a configuration was given nor that there is none.
    """
    if not cluster.configured and not cluster.no_encryption:
        raise refuse(
            Rule.NO_CONFIGURATION,
            "no encryption configuration was given, so nothing can be proven",
            hint="--encryption-config FILE; where nothing is encrypted at rest: --no-encryption",
        )


def require_write_key(cluster: Cluster) -> None:
    """Refuse where nobody said how API servers encrypt today.

    Raises:
        RefusedByRule: No configuration was given.
    """
    if not cluster.configured:
        raise refuse(
            Rule.NO_CONFIGURATION, "no encryption configuration was given, so today's write key is unknown",
            hint="--encryption-config FILE: the one that the API servers use today",
        )  # fmt: skip


def moved_meanwhile(key: bytes) -> RefusedByRule:
    """Return the refusal of a key that somebody wrote while the checks ran."""
    return refuse(
        Rule.MOVED, f"{display(key)} was changed while it was being examined", hint="examine it again"
    )


def require_there(cluster: Cluster, key: bytes, stored: StoredValue | None) -> StoredValue:
    """Return the record that was read.

    Raises:
        RefusedByRule: There is none; if only others begin like this key, that is said.
    """
    if stored is not None:
        return stored
    below = next(iter(cluster.source.current(key if key.endswith(b"/") else key + b"/")), None)
    if below is not None:
        raise refuse(
            Rule.NOT_ONE_KEY,
            f"{display(key)} is no key but the beginning of others, such as {display(below.key)}",
            hint="name exactly one key, in full",
        )
    raise refuse(Rule.GONE, f"{display(key)} does not exist", hint="see what is there: etcdfix scan")


def check_expectations(stored: StoredValue, accepted: Acceptances) -> None:
    """Hold a record against what the operator expects.

    Raises:
        RefusedByRule: It is another one.
    """
    expected = accepted.expect_mod_revision
    if expected is not None and stored.mod_revision != expected:
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"{display(stored.key)} stands at mod_revision {stored.mod_revision}, not at {expected}",
            hint="examine it again: somebody has written it since",
        )
    found = digest(stored.value)
    if accepted.expect_value_sha256 and accepted.expect_value_sha256 != found:
        raise refuse(
            Rule.EXPECTATION_DIFFERS,
            f"the value of {display(stored.key)} has {found}, not {accepted.expect_value_sha256}",
            hint="examine it again: it is another value",
        )


def _good_copy(cluster: Cluster, survey: MemberSurvey, *, readable_is_fine: bool) -> str:
    """Return how to save the copy that reads of a member that differs; "" where there is none.

    To replace that member, as one does with one that differs, would destroy a good copy.
    """
    for copy in () if readable_is_fine else survey.copies:
        if copy.stored is None or copy.stored == survey.reading.stored:
            continue
        if cluster.examiner.examine(copy.stored).verdict.outcome is Outcome.READABLE:
            there = ("--endpoints", copy.endpoint, *cluster.client.connection.access_options)
            save = save_snapshot("good.db").line(RunOptions(source=there))
            return (
                f"{copy.label} at {copy.endpoint} holds a copy that reads: do not remove, wipe or restart that member; "
                f"save what it holds: {save}"
            )
    return ""


def check_members(
    cluster: Cluster,
    key: bytes,
    reading: KeyReading,
    accepted: Acceptances,
    *,
    readable_is_fine: bool = False,
) -> list[str]:
    """Ask every voting member for its copy of the key; return what to warn of.

    Unless ``readable_is_fine``, a readable copy shows that deletion is no way out.

    Raises:
        RefusedByRule: They differ, one holds a readable copy, one could not be asked, or the key moved meanwhile.
    """
    survey = survey_members(cluster.client, key)
    if survey.reading.stored != reading.stored:
        raise moved_meanwhile(key)
    if survey.differing:
        who = "; ".join(copy.describe() for copy in survey.differing)
        raise refuse(
            Rule.MEMBERS_DISAGREE,
            f"etcd members hold different values for {display(key)}: {who}",
            hint=_good_copy(cluster, survey, readable_is_fine=readable_is_fine)
            or "replace that member (etcdctl member remove, then add it empty) before anything is changed",
        )
    for other in () if readable_is_fine else survey.distinct_values():
        if cluster.examiner.examine(other).verdict.outcome is Outcome.READABLE:
            raise refuse(
                Rule.MEMBERS_DISAGREE,
                f"a member holds a readable copy of {display(key)}",
                hint="replace the member that does not, before anything is changed",
            )
    spared = survey.accepted(accepted.named(Rule.UNCHECKED_MEMBER))
    unchecked = [copy for copy in survey.unchecked if copy not in spared]
    if unchecked:
        who = "; ".join(copy.describe() for copy in unchecked)
        name = unchecked[0].name or f"{unchecked[0].member_id:x}"
        raise refuse(
            Rule.UNCHECKED_MEMBER,
            f"not every member could be asked: {who}",
            hint="start it, name its address in --endpoints, or " + acceptance(Rule.UNCHECKED_MEMBER, name),
        )
    voters, read = len(survey.copies), len(survey.copies) - len(spared)
    if 2 * read <= voters:
        raise refuse(
            Rule.UNCHECKED_MEMBER,
            f"only {read} of {voters} voting members could be asked: no majority, whatever is accepted",
            hint="start the others, or name their addresses in --endpoints",
        )
    warnings = [f"member {copy.label} was not asked, as accepted" for copy in spared]
    unused = set(accepted.named(Rule.UNCHECKED_MEMBER)) - {
        name for copy in spared for name in (copy.name, f"{copy.member_id:x}")
    }
    return warnings + _not_needed(unused)


def _not_needed(names: Iterable[str]) -> list[str]:
    return [
        f"{acceptance(Rule.UNCHECKED_MEMBER, name)} was not needed, or fits no member"
        for name in sorted(names)
    ]


def check_alarms(cluster: Cluster) -> list[str]:
    """Look for etcd's alarms; return what to warn of.

    Raises:
        RefusedByRule: A member says that its data is corrupt.
    """
    warnings = []
    for alarm in read_alarms(cluster.client):
        if alarm.kind is AlarmKind.CORRUPT:
            raise refuse(
                Rule.CORRUPT_ALARM,
                f"member {alarm.label} has raised etcd's CORRUPT alarm",
                hint="replace the member whose data differs before anything is changed",
            )
        consequence = "; an undo would fail until there is room" if alarm.kind is AlarmKind.NOSPACE else ""
        warnings.append(f"member {alarm.label} has raised the alarm {alarm.kind}{consequence}")
    return warnings


def require_alive(cluster: Cluster, stored: StoredValue) -> LeaseState | None:
    """Return the lease of a key that is to keep it, None for none.

    Raises:
        RefusedByRule: It has expired.
        SourceError: etcd could not be asked.
    """
    lease = read_lease(cluster.client, stored.lease) if stored.lease else None
    if lease is not None and not lease.alive:
        raise refuse(
            Rule.GONE,
            f"the lease of {display(stored.key)} has expired: etcd is about to delete the key",
            hint="look again in a moment",
        )
    return lease


class Target(NamedTuple):
    """A value that is to be written anew.

    Attributes:
        landmarks: Of the cluster, read before anything else was.
    """

    landmarks: Landmarks
    reading: KeyReading
    stored: StoredValue


def read_target(cluster: Cluster, key: bytes, accepted: Acceptances, step: Step) -> Target:
    """Read a value that is to be written anew, and hold it against what is expected.

    Raises:
        RefusedByRule: There is none, or it is another one.
        SourceError: etcd could not be asked.
    """
    step("check: landmarks")
    landmarks = cluster.now.landmarks(cluster.examiner.layout, target=key)
    step("check: read the key")
    reading = cluster.now.read_key(key)
    stored = require_there(cluster, key, reading.stored)
    step("check: expectations")
    check_expectations(stored, accepted)
    return Target(landmarks, reading, stored)


def require_space(client: EtcdClient, *, to_delete: bool = False) -> None:
    """Refuse what etcd would refuse while a member has raised the NOSPACE alarm.

    Nothing can be put. A transaction that only deletes is refused too before etcd 3.4.22 and 3.5.7
    (``server/storage/quota.go``, ``Available``); later it is carried out.

    Raises:
        RefusedByRule: etcd would refuse it.
        SourceError: etcd could not be asked.
    """
    old = [status.version for status in client.statuses() if _refuses_deletions(status.version)]
    if to_delete and not old:
        return
    refused = (
        f"etcd {old[0]} refuses every transaction, a deletion too," if to_delete else "it takes no value"
    )
    for alarm in read_alarms(client):
        if alarm.kind is AlarmKind.NOSPACE:
            raise refuse(
                Rule.NO_SPACE,
                f"this etcd is full: member {alarm.label} has raised etcd's NOSPACE alarm, and {refused} until "
                "there is room",
                hint="save a snapshot, for a compaction removes earlier revisions; then etcdctl compact, etcdctl "
                "defrag, and etcdctl alarm disarm",
            )


def _refuses_deletions(version: str) -> bool:
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    numbers = tuple(int(number) for number in found.groups()) if found is not None else ()
    return () < numbers < (3, 4, 22) or (3, 5) <= numbers < (3, 5, 7)


def check_writable(
    cluster: Cluster, target: Target, accepted: Acceptances, backup_directories: Sequence[Path], step: Step
) -> tuple[ClusterIdentity, list[str]]:
    """Check what holds wherever a value is written anew; return which cluster it is, and what to warn of.

    kine has one file, so that there are no members to hold against each other, and no alarms.

    Raises:
        RefusedByRule: Members differ, an alarm is raised, there is no room, or the cluster or its release is unknown.
        SourceError: etcd could not be asked.
    """
    if cluster.is_kine:
        warnings = _not_needed(accepted.named(Rule.UNCHECKED_MEMBER))
    else:
        step("check: members")
        warnings = check_members(cluster, target.stored.key, target.reading, accepted)
        step("check: alarms")
        warnings += check_alarms(cluster)
        require_space(cluster.client)
    step("check: cluster")
    identity = check_cluster(cluster, accepted, backup_directories)
    step("check: release")
    check_release(cluster.source, cluster.examiner, accepted)
    return identity, warnings
