"""Whether members answer over a safe way, are new enough, all there, have room, and raise no alarm."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from etcdfix.model.errors import ConfigurationError, EtcdfixError
from etcdfix.model.side_by_side import run_within
from etcdfix.model.storagekey import display
from etcdfix.remediation.members import AlarmKind, member_list, name_member, read_alarms
from etcdfix.report.doctor import Check, CheckState, fail, ok, unknown, warn
from etcdfix.sources.base import Source
from etcdfix.sources.connection import EtcdConnection, transport_warnings
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import MemberStatus, parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed
from etcdfix.sources.etcd.paging import bounds_of
from etcdfix.sources.etcd.tls import load_tls_material, shown_certificate
from etcdfix.text.commands import Command, compare, etcdctl, save_snapshot
from etcdfix.text.words import counted, fit
from etcdfix.wire.etcd import PERMISSION_READWRITE, PERMISSION_WRITE, ROLE_GET, USER_GET, message

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_EXPIRES_SOON: Final = timedelta(days=30)
_LOGIN_REQUESTS: Final = 6
# Patch of each release from which on Kubernetes recommends it: before, members lost committed changes (etcd 13766).
_FIRST_SAFE: Final = {(3, 4): 22, (3, 5): 6}
_OLDEST: Final = (3, 4)
_VERSION: Final = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:[.+-].*)?")
_DEFAULT_QUOTA_BYTES: Final = 2 << 30
_MOST_USED: Final = 0.8
_MOST_TOLD: Final = 16
_MOST_ROLES: Final = 100
_STATUS: Final = etcdctl("endpoint", "status", "--cluster", "-w", "table")
_ALARMS: Final = {
    AlarmKind.CORRUPT: fail(
        "CORRUPT: its data differs from that of the others",
        "change nothing; find out which member is wrong: docs/runbooks/members-disagree.md",
        etcdctl("endpoint", "hashkv", "--cluster"),
    ),
    AlarmKind.NOSPACE: fail(
        "NOSPACE: etcd takes no write, so etcdfix fix would fail",
        "save a snapshot first, then etcdctl compact, etcdctl defrag, and etcdctl alarm disarm once there is room",
        save_snapshot(),
    ),
    AlarmKind.UNKNOWN: warn("an alarm that is not known here", "ask etcd", etcdctl("alarm", "list")),
}


def told_by(error: EtcdfixError | CallFailed, otherwise: str, state: CheckState = CheckState.FAIL) -> Check:
    """Return a check in the words of an error; ``otherwise`` is the next step where it has no hint."""
    said = error.failure if isinstance(error, CallFailed) else error
    return Check("", state, said.message, said.hint or otherwise)


def ask_endpoints(connection: EtcdConnection) -> list[MemberStatus | EtcdfixError | None]:
    """Ask each endpoint by itself, side by side, what its member says; None where it says nothing in time."""
    seconds = 2 * connection.dial_timeout_seconds + _LOGIN_REQUESTS * connection.command_timeout_seconds + 10
    calls = [partial(_status, replace(connection, endpoints=(text,))) for text in connection.endpoints]
    asked: list[MemberStatus | EtcdfixError | None] = []
    for found in run_within(calls, seconds):
        if isinstance(found, ConfigurationError) or (
            isinstance(found, BaseException) and not isinstance(found, EtcdfixError)
        ):
            raise found
        asked.append(found)
    return asked


def _status(connection: EtcdConnection) -> MemberStatus | None:
    with closing(EtcdClient(connection, on_notice=lambda _notice: None)) as client:
        return next(iter(client.statuses()), None)


def check_reach(endpoint: str, found: MemberStatus | EtcdfixError | None) -> Check:
    """Say whether a member answers at an endpoint."""
    if isinstance(found, EtcdfixError):
        return told_by(found, "see that etcd runs there, and that this is its port for clients")
    if found is None:
        return unknown(f"{endpoint}: no member says in time how it is", "see its log")
    what = f"{endpoint}: member {found.member_id:x} answers"
    if found.errors:
        told = "; ".join(found.errors[:_MOST_TOLD])
        return warn(f"{what}, and complains: {told}", "see the checks members and alarms")
    return ok(what)


def check_tls(connection: EtcdConnection, now: datetime) -> Iterator[Check]:
    """Yield what makes the way to etcd less than safe, and how long each certificate is good for."""
    from cryptography import x509  # noqa: PLC0415 - slow to import, and needed only here

    for warning in transport_warnings(connection):
        yield warn(warning, "give etcd's CA with --cacert, and name endpoints with https://")
    material, limit = load_tls_material(connection), connection.dial_timeout_seconds
    named = [
        parse_endpoint(text, has_tls_material=connection.has_tls_material) for text in connection.endpoints
    ]
    spoken = [endpoint for endpoint in named if endpoint.tls]
    if not spoken:
        yield ok("the connection to etcd has no TLS: there is no certificate to check")
        return
    calls = [partial(shown_certificate, endpoint, material, timeout_seconds=limit) for endpoint in spoken]
    shown: list[tuple[str, object, str]] = [
        (f"--cacert {connection.cacert}", material.roots, "make a new certificate authority"),
        (
            f"--cert {connection.cert}",
            material.certificate,
            "renew it (kubeadm certs renew apiserver-etcd-client)",
        ),
    ]
    shown = [one for one in shown if one[1] is not None]
    # A server that sends byte by byte knows no limit.
    for endpoint, answer in zip(spoken, run_within(calls, 2 * limit + 1), strict=True):
        renew = "renew it, and restart that member (kubeadm certs renew etcd-server)"
        shown.append((f"certificate of the server at {endpoint.text}", answer, renew))
    for what, found, renew in shown:
        if isinstance(found, CallFailed):
            yield told_by(found, "make etcd answer first: see the check reach", CheckState.UNKNOWN)
        elif isinstance(found, BaseException):
            raise found
        elif not isinstance(found, bytes):
            yield unknown(f"{what}: it is not shown in time", "raise --dial-timeout")
        else:
            try:
                certificates = (
                    x509.load_pem_x509_certificates(found)
                    if b"-----BEGIN" in found
                    else [x509.load_der_x509_certificate(found)]
                )
            except ValueError:
                yield unknown(f"{what}: its dates cannot be read", "look at it with openssl x509 -dates")
            else:
                yield _expiry(what, certificates, now, renew)


def _expiry(what: str, certificates: Sequence[Certificate], now: datetime, renew: str) -> Check:
    """Judge a chain by its first to expire, and a bundle of authorities by those that are valid."""
    valid = [one for one in certificates if one.not_valid_before_utc <= now <= one.not_valid_after_utc]
    if what.startswith("--cacert"):
        certificates = valid or certificates
    begins = max(one.not_valid_before_utc for one in certificates)
    ends = min(one.not_valid_after_utc for one in certificates)
    if now < begins:
        return fail(
            f"{what} is not valid before {begins:%Y-%m-%d %H:%M} UTC", "compare the clocks: timedatectl"
        )
    if now > ends:
        return fail(f"{what} has expired on {ends:%Y-%m-%d}", renew)
    told = f"{what} is valid until {ends:%Y-%m-%d}, {counted((ends - now).days, 'day')} from now"
    return warn(told, renew) if ends - now < _EXPIRES_SOON else ok(told)


def check_versions(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield whether the members run an etcd that is new enough, and the same one."""
    versions = sorted({status.version for status in statuses})
    parsed = [
        tuple(int(n or 0) for n in match.groups()) if (match := _VERSION.fullmatch(v)) else ()
        for v in versions
    ]
    told = ", ".join(versions[:_MOST_TOLD]) or "no member says which one it is"
    if any(found and found[:2] < _OLDEST for found in parsed):
        yield fail(
            f"etcd {told}: older than 3.4", "use a newer etcd, or scan a snapshot with --snapshot FILE"
        )
    elif not all(parsed) or not parsed:
        yield unknown(f"etcd {told}: that cannot be read", "see its log")
    elif any(found[2] < _FIRST_SAFE.get((found[0], found[1]), 0) for found in parsed):
        what = f"etcd {told}: members of this release can come to hold different data"
        yield warn(
            what, "upgrade to 3.4.22, 3.5.6 or newer; until then, compare the members: etcdfix compare"
        )
    elif len(versions) > 1:
        yield warn(f"etcd {told}: the members differ", "finish the upgrade before you change anything")
    else:
        yield ok(f"etcd {told}")


def check_leader(statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield that no leader is known, where that is so."""
    lost = [status.endpoint for status in statuses if not status.leader]
    if lost:
        advice = "start the missing members: without a leader etcd answers little and takes no write"
        yield fail(f"no leader is known at {', '.join(lost[:_MOST_TOLD])}", advice, _STATUS)


def check_members(client: EtcdClient, statuses: Sequence[MemberStatus]) -> Iterator[Check]:
    """Yield whether every member that votes is among the endpoints, and which do not vote."""
    known, members = {status.member_id for status in statuses}, member_list(client)
    away = [one for one in members if not one.is_learner and one.member_id not in known]
    for member in away:
        urls = (
            ", ".join(url[:200] for url in member.client_urls[:4]) or "it gives no address, so it may not run"
        )
        what = (
            f"member {name_member(member.name, member.member_id)} votes, and answers at none of the endpoints"
        )
        yield warn(what, f"add it to --endpoints, for a change asks every member that votes: {urls}")
    learners = [member for member in members if member.is_learner]
    for member in learners:
        what = f"member {name_member(member.name, member.member_id)} is a learner: it is not asked before a change"
        promote = etcdctl("member", "promote", f"{member.member_id:x}")
        yield warn(what, "wait until it has caught up, then make it a member that votes", promote)
    if not away:
        yield ok(f"{counted(len(members) - len(learners), 'member')} with a vote, all among the endpoints")


def check_same_data(source: Source) -> Iterator[Check]:
    """Yield that members hold different data, where that is proven."""
    if told := source.members_differ():
        yield fail(
            told, "change nothing, and see in which keys: docs/runbooks/members-disagree.md", compare()
        )


def check_alarms(client: EtcdClient) -> Iterator[Check]:
    """Yield the alarms that are up."""
    alarms = sorted(read_alarms(client), key=lambda alarm: alarm.kind is not AlarmKind.CORRUPT)
    for alarm in alarms:
        check = _ALARMS[alarm.kind]
        yield Check(
            "", check.state, f"member {alarm.label} has raised {check.what}", check.next_step, check.command
        )
    if not alarms:
        yield ok("no alarm is up")


def check_space(status: MemberStatus) -> Check:
    """Say how full a member's database is."""
    size, used, quota = status.db_size_bytes, status.db_size_in_use_bytes, status.db_size_quota_bytes
    limit = (
        f"its quota of {mib(quota)}" if quota > 0 else f"{mib(_DEFAULT_QUOTA_BYTES)}, etcd's default quota"
    )
    what = f"{status.endpoint}: the database has {mib(size)}, {mib(used)} of it in use, of {limit}"
    if size <= _MOST_USED * (quota if quota > 0 else _DEFAULT_QUOTA_BYTES):
        return ok(what)
    advice = "defragment one member after the other: each stops for a while; or raise --quota-backend-bytes"
    return warn(what, advice, _STATUS)


def mib(size: int) -> str:
    """Return a size as people read it."""
    return f"{size / (1 << 20):.1f} MiB"


def check_etcd_user(client: EtcdClient, prefix: bytes) -> Check:
    """Say whether the etcd user may write below the prefix; what it may read, reading shows."""
    user, below = client.connection.user or "", display(prefix)
    shown = fit(user, 100)
    if not client.logged_in:
        what = (
            f"etcd has no authentication enabled: user {shown} is not used, and any client may do everything"
        )
        return warn(what, "leave --user out, or enable authentication")
    try:
        roles = list(client.call(USER_GET, message("AuthUserGetRequest")(name=user)).roles)[:_MOST_ROLES]
        if "root" in roles:
            return ok(f"user {shown} has the role root")
        asked = [client.call(ROLE_GET, message("AuthRoleGetRequest")(role=role)) for role in roles]
    except CallFailed as failed:
        what = f"etcd does not tell what user {shown} may do: {failed.failure.message}"
        return unknown(
            what, "ask etcd as its user root", Command(("etcdctl", "user", "get", "--detail", "--", user))
        )
    start, end = bounds_of(prefix)
    writes = [
        one for role in asked for one in role.perm if one.permType in (PERMISSION_WRITE, PERMISSION_READWRITE)
    ]
    if any(
        (one.key == b"\0" or one.key <= start)
        and (one.range_end == b"\0" or (one.range_end >= end and end != b"\0"))
        for one in writes
    ):
        return ok(f"user {shown} may write what starts with {below}")
    what = f"no permission of user {shown} covers all that starts with {below}: etcd may deny changes"
    words = ("etcdctl", "role", "grant-permission", "--prefix=true", "--", roles[0] if roles else "ROLE")
    return warn(what, "grant it to whoever changes something", Command((*words, "readwrite", below)))
