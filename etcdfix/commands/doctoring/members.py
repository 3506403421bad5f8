"""The members of the cluster: are they there, of one cluster, new enough, with a leader, without alarms, with room?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from etcdfix.commands.doctoring.check import fail, ok, told_by, unknown, warn
from etcdfix.errors import ConfigurationError, EtcdfixError, SourceUnreachable
from etcdfix.remediation.preflight.members import AlarmKind, name_member, read_alarms
from etcdfix.report.doctor import Check, State
from etcdfix.side_by_side import run_within
from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.etcd.client import ClusterMember, EtcdClient, MemberStatus
from etcdfix.text.commands import etcdctl, save_snapshot
from etcdfix.text.words import counted

OLDEST: Final = (3, 4)
"""The oldest etcd that etcdfix is tested with."""

_FIRST_RECOMMENDED: Final = {(3, 4): 22, (3, 5): 6}
"""Patch of each release from which on Kubernetes recommends it."""
_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:[.+-].*)?")
_DEFAULT_QUOTA_BYTES: Final = 2 << 30
_MOST_USED: Final = 0.8
_MOST_TOLD: Final = 16
_MOST_URLS: Final = 4
_LOOK: Final = "see that etcd runs there, and that this is its port for clients"
_STATUS: Final = etcdctl("endpoint", "status", "--cluster", "-w", "table")
_LOGGING_IN: Final = 6
"""Requests of one login, repeated as the client repeats them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One endpoint, asked by itself: what the member there says, or why it was not reached."""

    endpoint: str
    status: MemberStatus | None = None
    error: EtcdfixError | None = None


def ask_endpoints(connection: EtcdConnection) -> list[Asked]:
    """Ask each endpoint by itself, side by side and for a bounded time.

    Raises:
        ConfigurationError: An endpoint or a TLS file makes no sense.
    """
    seconds = 2 * connection.dial_timeout_seconds + _LOGGING_IN * connection.command_timeout_seconds + 10
    calls = [partial(_ask, replace(connection, endpoints=(text,))) for text in connection.endpoints]
    asked = []
    for text, found in zip(connection.endpoints, run_within(calls, seconds), strict=True):
        if isinstance(found, BaseException) and not isinstance(found, EtcdfixError):
            raise found
        if isinstance(found, ConfigurationError):
            raise found
        if found is None:
            found = SourceUnreachable(f"{text}: no answer within {seconds:g} s", hint="")
        asked.append(found if isinstance(found, Asked) else Asked(endpoint=text, error=found))
    return asked


def _ask(connection: EtcdConnection) -> Asked:
    (text,) = connection.endpoints
    with closing(EtcdClient(connection, on_notice=lambda _notice: None)) as client:
        return Asked(endpoint=text, status=next(iter(client.statuses()), None))


def check_reach(asked: Sequence[Asked]) -> Iterator[Check]:
    """Yield, for each endpoint, whether a member answers there."""
    for one in asked:
        if one.error is not None:
            yield told_by("reach", State.FAIL, one.error, otherwise=_LOOK)
        elif one.status is None:
            what = f"{one.endpoint}: a member answers, and does not say how it is"
            yield unknown("reach", what, "see its log")
        elif one.status.errors:
            told = "; ".join(one.status.errors[:_MOST_TOLD])
            what = f"{one.endpoint}: member {one.status.member_id:x} answers, and complains: {told}"
            yield warn("reach", what, "see what is said of members and alarms")
        else:
            yield ok("reach", f"{one.endpoint}: member {one.status.member_id:x} answers")


def check_one_cluster(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield that the endpoints belong to different clusters, where they do."""
    ids = {status.endpoint: f"{status.cluster_id:x}" for status in statuses}
    if len(set(ids.values())) > 1:
        told = ", ".join(f"{endpoint} is {found}" for endpoint, found in ids.items())
        what = f"the endpoints belong to different clusters: {told}"
        yield fail("cluster", what, "name the endpoints of one cluster only")


def check_versions(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield whether the members run an etcd that is new enough, and the same one."""
    versions = sorted({status.version for status in statuses})
    if not versions:
        yield unknown("version", "no member says which etcd it is", "see its log")
        return
    read = {version: _VERSION.fullmatch(version) for version in versions}
    old = [v for v, match in read.items() if match and (int(match[1]), int(match[2])) < OLDEST]
    odd = [version or "none" for version, match in read.items() if not match]
    differing = [v for v, match in read.items() if match and _may_differ(match)]
    if differing:
        yield warn(
            "version",
            f"etcd {_few(differing)}: members of this release can come to hold different data",
            "upgrade to 3.4.22, 3.5.6 or newer; until then, compare the members (etcd's data_corruption guide)",
        )
    if old:
        advice = f"use etcd {OLDEST[0]}.{OLDEST[1]} or newer, or scan a snapshot with --snapshot FILE"
        yield fail("version", f"etcd {_few(old)} is older than etcdfix knows", advice)
    elif odd:
        yield unknown("version", f"a member gives a version that cannot be read: {_few(odd)}", "see its log")
    elif len(versions) > 1:
        what = f"the members run different versions of etcd: {_few(versions)}"
        yield warn("version", what, "finish the upgrade before you change anything")
    elif not differing:
        yield ok("version", f"etcd {versions[0]}")


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:_MOST_TOLD])


def _may_differ(version: re.Match[str]) -> bool:
    """Say whether a release has one of the faults by which members lost committed changes (etcd issue 13766 and later).

    The oldest ones that Kubernetes recommends are 3.4.22 and 3.5.6.
    """
    major, minor, patch = (int(number or 0) for number in version.groups())
    return patch < _FIRST_RECOMMENDED.get((major, minor), 0)


def check_leader(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield that no leader is known, where that is so."""
    lost = [status.endpoint for status in statuses if not status.leader]
    if lost:
        advice = "start the missing members: without a leader etcd answers little and takes no write"
        yield fail("members", f"no leader is known at {_few(lost)}", advice, _STATUS)


def check_members(client: EtcdClient, statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield whether every member that votes is among the endpoints."""
    known = {status.member_id for status in statuses}
    members = client.members()
    voting = [member for member in members if not member.is_learner]
    missing = [member for member in voting if member.member_id not in known]
    for member in missing:
        what = f"member {_label(member)} votes, and answers at none of the endpoints"
        advice = f"add it to --endpoints, for a change asks every member that votes: {_urls(member)}"
        yield warn("members", what, advice)
    if not missing:
        yield ok("members", f"{counted(len(voting), 'member')} with a vote, all among the endpoints")
    learners = [member for member in members if member.is_learner]
    for member in learners:
        what = (
            f"member {_label(member)} is a learner: it has no vote, and its copy is not asked before a change"
        )
        promote = etcdctl("member", "promote", f"{member.member_id:x}")
        yield warn("learner", what, "wait until it has caught up, then make it a member that votes", promote)
    if not learners:
        yield ok("learner", "no member is a learner")


def check_alarms(client: EtcdClient) -> Iterator[Check]:
    """Yield the alarms that are up."""
    alarms = sorted(read_alarms(client), key=lambda alarm: alarm.kind is not AlarmKind.CORRUPT)
    for alarm in alarms:
        if alarm.kind is AlarmKind.CORRUPT:
            yield fail(
                "alarms",
                f"member {alarm.label} has raised CORRUPT: its data differs from that of the others",
                "change nothing; find out which member is wrong: docs/runbooks/members-disagree.md",
                etcdctl("endpoint", "hashkv", "--cluster"),
            )
        elif alarm.kind is AlarmKind.NOSPACE:
            yield fail(
                "alarms",
                f"member {alarm.label} has raised NOSPACE: etcd takes no write, and before 3.4.22 and 3.5.7 no "
                "deletion in a transaction: etcdfix fix would fail",
                "save a snapshot first, for a compaction removes earlier revisions; then etcdctl compact, etcdctl "
                "defrag, and etcdctl alarm disarm once there is room",
                save_snapshot(),
            )
        else:
            what = f"member {alarm.label} has raised an alarm that is not known here"
            yield warn("alarms", what, "ask etcd which one it is", etcdctl("alarm", "list"))
    if not alarms:
        yield ok("alarms", "no alarm is up")


def check_space(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield how full each member's database is."""
    for status in statuses:
        quota = status.db_size_quota_bytes
        limit = f"its quota of {mib(quota)}"
        if quota <= 0:
            quota = _DEFAULT_QUOTA_BYTES
            limit = f"{mib(quota)}, etcd's default quota; yours may be larger"
        size, used = status.db_size_bytes, status.db_size_in_use_bytes
        what = f"{status.endpoint}: the database has {mib(size)}, {mib(used)} of it in use, of {limit}"
        if size <= _MOST_USED * quota:
            yield ok("space", what)
            continue
        yield warn(
            "space",
            what,
            f"make room: a defragmentation gives back {mib(max(0, size - used))} and stops that member for a while, so "
            "defragment one after the other; or raise --quota-backend-bytes",
            _STATUS,
        )


def mib(size: int) -> str:
    """Return a size as people read it."""
    return f"{size / (1 << 20):.1f} MiB"


def _label(member: ClusterMember) -> str:
    return name_member(member.name, member.member_id)


def _urls(member: ClusterMember) -> str:
    if not member.client_urls:
        return "it gives no address for clients, so it may not have started"
    more = ", …" if len(member.client_urls) > _MOST_URLS else ""
    return ", ".join(url[:200] for url in member.client_urls[:_MOST_URLS]) + more
