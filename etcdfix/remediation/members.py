"""What every member of the cluster itself holds for one key, which alarms are up, what is left of a lease.

A linearizable read tells what the cluster agreed on; whether each member *stores* that is another question, and
the one to ask before a deletion: members that disagree are a fault of etcd, and a copy that can still be read on one
of them would be lost. So every voting member is asked for its own copy, by a serializable Range, and its
``member_id`` in the header of the answer is the proof of who answered. That is why it does not matter under which
address a member was found: the endpoints of the command line go first, then, for members that none of them reached, the
client URLs which the member list advertises. Those are often names that mean something only inside the cluster.

A serializable read may be behind. A member counts as checked once its revision is not below that of the
linearizable read; one that does not get there in time is unchecked, never "different".
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from etcdfix.model.errors import ConfigurationError
from etcdfix.model.model import StoredValue, digest_of
from etcdfix.model.side_by_side import run_within
from etcdfix.remediation.datastore import EtcdNow, KeyReading, call_etcd
from etcdfix.remediation.errors import MemberListUnusable
from etcdfix.sources.errors import ClusterMismatch
from etcdfix.sources.etcd.channel import ReadOnlyChannel, open_channel
from etcdfix.sources.etcd.client import EtcdClient
from etcdfix.sources.etcd.endpoints import ClusterMember, Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed, FailureKind
from etcdfix.sources.keyvalue import stored_of
from etcdfix.wire.etcd import ALARM, LEASE_TIME_TO_LIVE, RANGE, alarm_query, message

PATIENCE_SECONDS = 3.0
"""How long a member that lags behind may take to catch up."""

# etcd advises against more than seven members; a list far beyond that is no member list.
_MOST_MEMBERS = 64
_MOST_URLS_OF_A_MEMBER = 8
_LONGEST_NAME = 100
_MOST_AT_ONCE = 16

_ROUNDS = 3
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5


class MemberCopy(msgspec.Struct, frozen=True, kw_only=True):
    """What one voting member holds for the key.

    Attributes:
        stored: None where it has no such key, or was not asked.
        revision: The member's own revision when it answered.
        reason: Why it is unchecked, one clause per address that was tried; "" for one that is checked.
    """

    member_id: int = 0
    name: str = ""
    stored: StoredValue | None = None
    revision: int = 0
    endpoint: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """Name and id as they stand in messages: ``member-0 (8e9e05c52164694d)``."""
        return name_member(self.name, self.member_id)

    def describe(self) -> str:
        """Say what it holds, in one clause that begins with its label."""
        if self.reason:
            return f"{self.label}: not checked: {self.reason}"
        if self.stored is None:
            return f"{self.label}: has no such key at revision {self.revision}"
        lease = f", lease {self.stored.lease:x}" if self.stored.lease else ""
        return (
            f"{self.label}: mod_revision {self.stored.mod_revision}, version {self.stored.version}, "
            f"{len(self.stored.value)} bytes, {digest_of(self.stored.value)}{lease}"
        )


class MemberSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of one key on all voting members, and what they say together."""

    reading: KeyReading
    copies: tuple[MemberCopy, ...]
    learners: tuple[str, ...] = ()

    @property
    def unchecked(self) -> tuple[MemberCopy, ...]:
        """The members that could not be asked."""
        return tuple(copy for copy in self.copies if copy.reason)

    @property
    def differing(self) -> tuple[MemberCopy, ...]:
        """The members that hold something else than most; all that answered where there is no majority."""
        # All that a record says counts: members that differ in create_revision or version alone would already take
        # different branches of one transaction.
        checked = [copy for copy in self.copies if not copy.reason]
        groups: dict[StoredValue | None, list[MemberCopy]] = {}
        for copy in checked:
            groups.setdefault(copy.stored, []).append(copy)
        if not groups or (len(groups) == 1 and self.reading.stored in groups):
            return ()
        largest = max(groups.values(), key=len)
        others = [copy for copy in checked if copy not in largest]
        return tuple(others if 2 * len(largest) > len(checked) and others else checked)

    def accepted(self, names: Collection[str]) -> tuple[MemberCopy, ...]:
        """Return the unchecked members that are named, or whose id in hex is; a name of two of them names neither."""
        bearing = [copy.name for copy in self.unchecked]
        return tuple(
            copy
            for copy in self.unchecked
            if f"{copy.member_id:x}" in names
            or (copy.name and copy.name in names and bearing.count(copy.name) == 1)
        )

    def distinct_values(self) -> tuple[StoredValue, ...]:
        """Return one record for each different value that is stored anywhere, so that each can be examined."""
        records = [self.reading.stored, *(copy.stored for copy in self.copies)]
        return tuple({record.value: record for record in reversed(records) if record is not None}.values())


class AlarmKind(StrEnum):
    """An alarm of etcd; ``unknown`` for one that a later release added."""

    NOSPACE = "NOSPACE"
    CORRUPT = "CORRUPT"
    UNKNOWN = "unknown"


_ALARMS = {1: AlarmKind.NOSPACE, 2: AlarmKind.CORRUPT}  # etcdserverpb.AlarmType


class ActiveAlarm(msgspec.Struct, frozen=True):
    """One alarm that is up; the label names the member that raised it."""

    kind: AlarmKind
    label: str


class LeaseState(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a lease."""

    lease: int
    alive: bool
    remaining_seconds: int


def name_member(name: str, member_id: int) -> str:
    """Return name and id as they stand in messages; an id alone where there is no name."""
    if not name:
        return f"{member_id:x}"
    short = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return f"{short} ({member_id:x})"


def survey_members(
    client: EtcdClient, key: bytes, *, patience_seconds: float = PATIENCE_SECONDS
) -> MemberSurvey:
    """Read a key on every voting member.

    Members are asked one after the other in time, however close: a key that is being written meanwhile looks
    different on them. So a difference is looked at again, from a new linearizable read on, while writes come in.
    Raises SourceError, ClusterMismatch or MemberListUnusable.
    """
    for _ in range(_ROUNDS - 1):
        survey = _survey_once(client, key, patience_seconds)
        moving = any(copy.revision > survey.reading.revision for copy in survey.copies)
        if not moving or not survey.differing:
            return survey
    return _survey_once(client, key, patience_seconds)


def read_alarms(client: EtcdClient) -> tuple[ActiveAlarm, ...]:
    """Return the alarms that are up, in etcd's order; raises SourceError."""
    found = call_etcd(client, ALARM, alarm_query()).alarms
    names = {member.member_id: member.name for member in member_list(client)} if found else {}
    return tuple(
        ActiveAlarm(
            _ALARMS.get(each.alarm, AlarmKind.UNKNOWN),
            name_member(names.get(each.memberID, ""), each.memberID),
        )
        for each in found
    )


def read_lease(client: EtcdClient, lease: int) -> LeaseState:
    """Ask what is left of a lease, which is not 0.

    Raises SourceError.

    Format:
        etcd answers with a TTL of -1 for a lease that it does not know (``server/etcdserver/api/v3rpc/lease.go``).
    """
    ttl = call_etcd(client, LEASE_TIME_TO_LIVE, message("LeaseTimeToLiveRequest")(ID=lease)).TTL
    return LeaseState(lease=lease, alive=ttl > 0, remaining_seconds=max(0, ttl))


def _survey_once(client: EtcdClient, key: bytes, patience_seconds: float) -> MemberSurvey:
    reading = EtcdNow(client).read_key(key)
    members = member_list(client)
    voting = [member for member in members if not member.is_learner]
    if not voting or len(members) > _MOST_MEMBERS or len({m.member_id for m in members}) < len(members):
        why = f"etcd's member list cannot be true: {len(members)} members, {len(voting)} of them with a vote"
        raise MemberListUnusable(why, hint="etcdctl member list")
    asking, given = _Asking(client, key, reading.revision, patience_seconds), client.endpoints()
    answers = asking.ask_all(given)
    found = {copy.member_id: copy for copy in answers if not copy.reason}
    reasons: defaultdict[int, list[str]] = defaultdict(list)
    # An endpoint that fails now may have told earlier whose it is.
    owners = {status.endpoint: status.member_id for status in client.statuses()}
    for copy in answers:
        reasons[copy.member_id or owners.get(copy.endpoint, 0)].append(copy.reason)
    tried = {endpoint.target: copy for endpoint, copy in zip(given, answers, strict=True)}
    # One that answered and lags behind would do the same at another address.
    answered = {copy.member_id for copy in answers}
    advertised: list[tuple[int, Endpoint]] = []
    for member in (member for member in voting if member.member_id not in answered):
        for url in member.client_urls[:_MOST_URLS_OF_A_MEMBER]:
            endpoint = _advertised_endpoint(url, client, given)
            if isinstance(endpoint, str):
                reasons[member.member_id].append(endpoint)
            elif endpoint.target in tried:
                reasons[member.member_id].append(_why_not(tried[endpoint.target]))
            else:
                advertised.append((member.member_id, endpoint))
    again = asking.ask_all([endpoint for _, endpoint in advertised])
    for (member_id, _), copy in zip(advertised, again, strict=True):
        if copy.member_id == member_id and not copy.reason:
            found[member_id] = copy
        else:
            reasons[member_id].append(_why_not(copy))
    copies = []
    for member in voting:
        reason = "; ".join(dict.fromkeys(reasons[member.member_id])) or "it advertises no client URL"
        missing = MemberCopy(member_id=member.member_id, reason=reason)
        copies.append(msgspec.structs.replace(found.get(member.member_id, missing), name=member.name))
    learners = (name_member(member.name, member.member_id) for member in members if member.is_learner)
    return MemberSurvey(reading=reading, copies=tuple(copies), learners=tuple(learners))


class _Asking:
    def __init__(self, client: EtcdClient, key: bytes, floor: int, patience_seconds: float) -> None:
        self._client, self._floor, self._patience_seconds = client, floor, patience_seconds
        self._request = message("RangeRequest")(key=key, serializable=True)
        try:
            self._metadata = client.fresh_login()
        except CallFailed as failed:
            raise failed.failure.as_error() from failed

    def ask_all(self, endpoints: Sequence[Endpoint]) -> list[MemberCopy]:
        """Return a nameless copy, or the reason why there is none, for each address in order."""
        answers: list[MemberCopy] = []
        calls = [partial(self._ask, endpoint) for endpoint in endpoints]
        for asked in run_within(calls, None, most=_MOST_AT_ONCE):
            if isinstance(asked, BaseException):
                raise asked
            assert asked is not None  # each was waited for
            answers.append(asked)
        return answers

    def _ask(self, endpoint: Endpoint) -> MemberCopy:
        try:
            channel = open_channel(endpoint, self._client.material, self._client.connection)
        except CallFailed as failed:
            return MemberCopy(endpoint=endpoint.text, reason=failed.failure.message)
        give_up_at, pause = time.monotonic() + self._patience_seconds, _FIRST_PAUSE_SECONDS
        try:
            while True:
                asked, may_change = self._ask_once(endpoint, channel)
                if not may_change or time.monotonic() >= give_up_at:
                    return asked
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        finally:
            channel.close()

    def _ask_once(self, endpoint: Endpoint, channel: ReadOnlyChannel) -> tuple[MemberCopy, bool]:
        client, limit = self._client, self._client.connection.command_timeout_seconds
        try:
            answer = channel.start(RANGE, self._request, timeout_seconds=limit, metadata=self._metadata)
            found, _size = answer.result()
        except CallFailed as failed:
            # A member that lags may not have heard of our new token yet.
            waiting = failed.failure.kind is FailureKind.TOKEN_REFUSED and bool(self._metadata)
            return MemberCopy(endpoint=endpoint.text, reason=failed.failure.message), waiting
        header = found.header
        if header.cluster_id != client.cluster_id:
            ids = {known.text: f"{client.cluster_id:x}" for known in client.endpoints()}
            raise ClusterMismatch(
                f"{endpoint.text} belongs to cluster {header.cluster_id:x}, not to {client.cluster_id:x}",
                cluster_ids={**ids, endpoint.text: f"{header.cluster_id:x}"},
                hint="name an endpoint of every member with --endpoints",
            )
        copy = MemberCopy(member_id=header.member_id, revision=header.revision, endpoint=endpoint.text)
        if header.revision < self._floor:
            behind = f"{endpoint.text}: lags behind, at revision {header.revision} instead of {self._floor}"
            return msgspec.structs.replace(copy, reason=behind), True
        return msgspec.structs.replace(copy, stored=stored_of(found.kvs[0]) if found.kvs else None), False


def member_list(client: EtcdClient) -> tuple[ClusterMember, ...]:
    """Return all members; raises SourceError, or MemberListUnusable where a proxy of etcd hides them."""
    try:
        members = client.members()
    except CallFailed as failed:
        raise failed.failure.as_error() from failed
    if not all(member.member_id for member in members):
        raise MemberListUnusable(
            f"{client.endpoints()[0].text} is no member of etcd: etcd grpc-proxy answers there, and hides the members. "
            "Before a change, each member is asked what it holds",
            hint="name the members themselves with --endpoints: the proxy has them as its --endpoints, each member as "
            "its --advertise-client-urls",
        )
    return members


def _advertised_endpoint(url: str, client: EtcdClient, given: Sequence[Endpoint]) -> Endpoint | str:
    try:
        endpoint = parse_endpoint(url, has_tls_material=client.connection.has_tls_material)
    except ConfigurationError as exc:
        return f"a client URL that it advertises cannot be used: {exc.message}"
    if not endpoint.tls and all(known.tls for known in given):
        # Nothing would prove who answers there, and a login token would travel unencrypted.
        return f"{endpoint.text}: advertised without TLS, while --endpoints speak TLS"
    return endpoint


def _why_not(copy: MemberCopy) -> str:
    return copy.reason or f"{copy.endpoint}: member {copy.member_id:x} answers there"
