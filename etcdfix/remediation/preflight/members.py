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

import hashlib
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from etcdfix.errors import ClusterMismatch, ConfigurationError, MemberListUnusable, RevisionCompacted
from etcdfix.model import StoredValue
from etcdfix.side_by_side import run_within
from etcdfix.sources.etcd.channel import ReadOnlyChannel, RpcError, open_channel, settle
from etcdfix.sources.etcd.client import ClusterMember, EtcdClient
from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import CallFailed, FailureKind, classify
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import ALARM, LEASE_TIME_TO_LIVE, RANGE, alarm_query, message

DEFAULT_PATIENCE_SECONDS = 3.0
"""How long a member that lags behind may take to catch up."""

# etcd advises against more than seven members; a list far beyond that is no member list.
_MOST_MEMBERS = 64
_MOST_URLS_OF_A_MEMBER = 8
_LONGEST_NAME = 100
_MOST_AT_ONCE = 16

_ROUNDS = 3
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 0.5

# etcdserverpb.AlarmType
_NOSPACE, _CORRUPT = 1, 2


class CopyState(StrEnum):
    """What is known about one member's copy."""

    PRESENT = "present"
    ABSENT = "absent"
    UNCHECKED = "unchecked"


class Agreement(StrEnum):
    """What the copies together say."""

    AGREE = "agree"
    DISAGREE = "disagree"
    UNCHECKED = "unchecked"


class AlarmKind(StrEnum):
    """An alarm of etcd; ``unknown`` for one that a later release added."""

    NOSPACE = "NOSPACE"
    CORRUPT = "CORRUPT"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyReading:
    """A linearizable read of one key; stored bytes are left out of the ``repr``."""

    stored: StoredValue | None = field(repr=False)
    revision: int
    cluster_id: int
    member_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCopy:
    """What one voting member holds for the key; stored bytes are left out of the ``repr``.

    Attributes:
        name: Its name in the member list; empty while it has not started.
        revision: The member's own revision when it answered, 0 when it did not.
        endpoint: Address at which it answered, or "".
        reason: Why it is unchecked, one clause per address that was tried; else "".
    """

    member_id: int
    name: str
    state: CopyState
    stored: StoredValue | None = field(default=None, repr=False)
    value_sha256: str = ""
    revision: int = 0
    endpoint: str = ""
    reason: str = ""

    @property
    def label(self) -> str:
        """Name and id as they stand in messages: ``member-0 (8e9e05c52164694d)``."""
        return name_member(self.name, self.member_id)

    def describe(self) -> str:
        """Say what it holds, in one clause that begins with its label."""
        if self.state is CopyState.UNCHECKED:
            return f"{self.label}: not checked: {self.reason}"
        if self.stored is None:
            return f"{self.label}: has no such key at revision {self.revision}"
        lease = f", lease {self.stored.lease:x}" if self.stored.lease else ""
        return (
            f"{self.label}: mod_revision {self.stored.mod_revision}, version {self.stored.version}, "
            f"{len(self.stored.value)} bytes, sha256:{self.value_sha256}{lease}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSurvey:
    """The copies of one key on all voting members.

    Attributes:
        reading: The linearizable read that the copies are held against.
        copies: One per voting member, in the order of the member list.
        learners: Labels of the members without a vote, which were not asked.
    """

    key: bytes
    reading: KeyReading
    copies: tuple[MemberCopy, ...]
    learners: tuple[str, ...]

    def distinct_values(self) -> tuple[StoredValue, ...]:
        """Return one record for each different value that is stored anywhere, so that each can be examined."""
        records = [self.reading.stored, *(copy.stored for copy in self.copies)]
        return tuple({record.value: record for record in reversed(records) if record is not None}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the copies together say.

    Attributes:
        agreement: ``disagree`` wins over ``unchecked``.
        differing: The members that hold something else than most; all that answered where there is no majority.
    """

    agreement: Agreement
    differing: tuple[MemberCopy, ...] = ()
    unchecked: tuple[MemberCopy, ...] = ()
    accepted: tuple[MemberCopy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveAlarm:
    """One alarm that is up.

    Attributes:
        name: That member's name, "" where the member list does not know it.
    """

    kind: AlarmKind
    member_id: int
    name: str

    @property
    def label(self) -> str:
        """Name and id of the member, as in messages."""
        return name_member(self.name, self.member_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseState:
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


def call_etcd(client: EtcdClient, method: ReadMethod, request: Any) -> Any:
    """Ask whichever member answers, and wait.

    Raises:
        SourceError: Nobody could answer, or the answer is no.
    """
    try:
        return client.call(method, request)
    except CallFailed as failed:
        raise failed.failure.as_error() from failed


def read_key(client: EtcdClient, key: bytes) -> KeyReading:
    """Read one key linearizably.

    Raises:
        SourceError: Nobody could answer, or the answer is no.
    """
    return key_reading(call_etcd(client, RANGE, message("RangeRequest")(key=key)))


def read_at(client: EtcdClient, key: bytes, revision: int) -> StoredValue | None:
    """Read one key as it stood at a revision.

    Raises:
        RevisionCompacted: etcd does not keep that any more.
        SourceError: Nobody could answer, or the answer is no.
    """
    try:
        found = client.call(RANGE, message("RangeRequest")(key=key, revision=revision))
    except CallFailed as failed:
        if failed.failure.kind is FailureKind.COMPACTED:
            raise RevisionCompacted(failed.failure.message, revision=revision) from failed
        raise failed.failure.as_error() from failed
    return stored_value(found.kvs[0]) if found.kvs else None


def key_reading(found: Any) -> KeyReading:
    """Turn the answer to a linearizable Range over one key into a reading."""
    return KeyReading(
        stored=stored_value(found.kvs[0]) if found.kvs else None,
        revision=found.header.revision,
        cluster_id=found.header.cluster_id,
        member_id=found.header.member_id,
    )


def stored_value(record: Any) -> StoredValue:
    """Turn a KeyValue message into the package's own value."""
    return StoredValue(
        key=record.key,
        value=record.value,
        mod_revision=record.mod_revision,
        create_revision=record.create_revision,
        version=record.version,
        lease=record.lease,
    )


def survey_members(
    client: EtcdClient, key: bytes, *, patience_seconds: float = DEFAULT_PATIENCE_SECONDS
) -> MemberSurvey:
    """Read a key on every voting member.

    Members are asked one after the other in time, however close: a key that is being written meanwhile looks
    different on them. So a difference is looked at again, from a new linearizable read on, while writes come in.

    ``patience_seconds`` is how long a member that lags behind may take to catch up.

    Raises:
        SourceError: No member could be asked at all, or the answer is no.
        ClusterMismatch: An answer comes from another cluster.
        MemberListUnusable: The member list cannot be true.
    """
    for _ in range(_ROUNDS - 1):
        survey = _survey_once(client, key, patience_seconds)
        moving = any(copy.revision > survey.reading.revision for copy in survey.copies)
        if not moving or judge_copies(survey).agreement is not Agreement.DISAGREE:
            return survey
    return _survey_once(client, key, patience_seconds)


def judge_copies(survey: MemberSurvey, *, accepted: Collection[str] = ()) -> Judgement:
    """Say whether the members agree.

    ``accepted`` names members, or their ids in hex, that may stay unchecked. This never lifts a disagreement;
    a name that fits more than one unchecked member fits none.
    """
    checked = [copy for copy in survey.copies if copy.state is not CopyState.UNCHECKED]
    unasked = [copy for copy in survey.copies if copy.state is CopyState.UNCHECKED]
    named = tuple(copy for copy in unasked if _is_accepted(copy, unasked, accepted))
    unchecked = tuple(copy for copy in unasked if copy not in named)
    differing = _differing(survey.reading, checked)
    if differing:
        agreement = Agreement.DISAGREE
    elif unchecked:
        agreement = Agreement.UNCHECKED
    else:
        agreement = Agreement.AGREE
    return Judgement(agreement=agreement, differing=differing, unchecked=unchecked, accepted=named)


def read_alarms(client: EtcdClient) -> tuple[ActiveAlarm, ...]:
    """Return the alarms that are up, in etcd's order.

    Raises:
        SourceError: Nobody could answer, or the answer is no.
    """
    found = call_etcd(client, ALARM, alarm_query())
    if not found.alarms:
        return ()
    names = {member.member_id: member.name for member in _member_list(client)}
    return tuple(
        ActiveAlarm(
            kind={_NOSPACE: AlarmKind.NOSPACE, _CORRUPT: AlarmKind.CORRUPT}.get(
                alarm.alarm, AlarmKind.UNKNOWN
            ),
            member_id=alarm.memberID,
            name=names.get(alarm.memberID, ""),
        )
        for alarm in found.alarms
    )


def read_lease(client: EtcdClient, lease: int) -> LeaseState:
    """Ask what is left of a lease.

    Raises:
        ValueError: 0 is no lease.
        SourceError: Nobody could answer, or the answer is no.

    Format:
        etcd answers with a TTL of -1 for a lease that it does not know (``server/etcdserver/api/v3rpc/lease.go``).
    """
    if not lease:
        raise ValueError("0 is no lease")
    found = call_etcd(client, LEASE_TIME_TO_LIVE, message("LeaseTimeToLiveRequest")(ID=lease))
    return LeaseState(
        lease=lease,
        alive=found.TTL > 0,
        remaining_seconds=max(0, found.TTL),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    endpoint: Endpoint
    member_id: int = 0
    revision: int = 0
    stored: StoredValue | None = field(default=None, repr=False)
    failure: str = ""


def _survey_once(client: EtcdClient, key: bytes, patience_seconds: float) -> MemberSurvey:
    reading = read_key(client, key)
    members = _member_list(client)
    voting = [member for member in members if not member.is_learner]
    if not voting or len(members) > _MOST_MEMBERS or len({m.member_id for m in members}) < len(members):
        raise MemberListUnusable(
            f"etcd's member list cannot be true: {len(members)} members, {len(voting)} of them with a vote",
            hint="etcdctl member list",
        )
    try:
        metadata = client.fresh_login()
    except CallFailed as failed:
        raise failed.failure.as_error() from failed
    asking = _Asking(client, key, reading.revision, metadata, patience_seconds)
    given = client.endpoints()
    answers = asking.ask_all(given)
    found = {asked.member_id: asked for asked in answers if not asked.failure}
    # Why a member is unchecked; of no account for one that was found.
    reasons: dict[int, list[str]] = {member.member_id: [] for member in voting}
    # An endpoint that fails now may have told earlier whose it is.
    owners = {status.endpoint: status.member_id for status in client.statuses()}
    for asked in answers:
        whose = asked.member_id or owners.get(asked.endpoint.text, 0)
        if whose in reasons:
            reasons[whose].append(asked.failure)
    # One that answered and lags behind would do the same at another address.
    answered = {asked.member_id for asked in answers}
    unreached = [member for member in voting if member.member_id not in answered]
    asked_already = {asked.endpoint.target: asked for asked in answers}
    advertised: list[tuple[ClusterMember, Endpoint]] = []
    for member in unreached:
        for url in member.client_urls[:_MOST_URLS_OF_A_MEMBER]:
            endpoint = _advertised_endpoint(url, client, given)
            if isinstance(endpoint, str):
                reasons[member.member_id].append(endpoint)
            elif endpoint.target in asked_already:
                reasons[member.member_id].append(_why_not(asked_already[endpoint.target]))
            else:
                advertised.append((member, endpoint))
    again = asking.ask_all([endpoint for _, endpoint in advertised])
    for (member, _), asked in zip(advertised, again, strict=True):
        if asked.member_id == member.member_id and not asked.failure:
            found[member.member_id] = asked
        else:
            reasons[member.member_id].append(_why_not(asked))
    return MemberSurvey(
        key=key,
        reading=reading,
        copies=tuple(
            _copy_of(member, found.get(member.member_id), reasons[member.member_id]) for member in voting
        ),
        learners=tuple(name_member(member.name, member.member_id) for member in members if member.is_learner),
    )


class _Asking:
    def __init__(
        self,
        client: EtcdClient,
        key: bytes,
        floor: int,
        metadata: tuple[tuple[str, str], ...],
        patience_seconds: float,
    ) -> None:
        self._client = client
        self._request = message("RangeRequest")(key=key, serializable=True)
        self._floor = floor
        self._metadata = metadata
        self._patience_seconds = patience_seconds

    def ask_all(self, endpoints: Sequence[Endpoint]) -> list[_Asked]:
        """Return an answer or a failure for each address, in order."""
        answers: list[_Asked] = []
        calls = [partial(self._ask, endpoint) for endpoint in endpoints]
        for asked in run_within(calls, None, most=_MOST_AT_ONCE):
            if isinstance(asked, BaseException):
                raise asked
            assert asked is not None  # each was waited for
            answers.append(asked)
        return answers

    def _ask(self, endpoint: Endpoint) -> _Asked:
        try:
            channel = open_channel(endpoint, self._client.material, self._client.connection)
        except CallFailed as failed:
            return _Asked(endpoint=endpoint, failure=failed.failure.message)
        try:
            return self._until_caught_up(endpoint, channel)
        finally:
            channel.close()

    def _until_caught_up(self, endpoint: Endpoint, channel: ReadOnlyChannel) -> _Asked:
        give_up_at = time.monotonic() + self._patience_seconds
        pause = _FIRST_PAUSE_SECONDS
        while True:
            asked, may_change = self._ask_once(endpoint, channel)
            if not may_change or time.monotonic() >= give_up_at:
                return asked
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _ask_once(self, endpoint: Endpoint, channel: ReadOnlyChannel) -> tuple[_Asked, bool]:
        limit = self._client.connection.command_timeout_seconds
        try:
            future = channel.start(RANGE, self._request, timeout_seconds=limit, metadata=self._metadata)
            found, _size = settle(future, endpoint, limit)
        except CallFailed as failed:
            return _Asked(endpoint=endpoint, failure=failed.failure.message), False
        except RpcError as exc:
            failure = classify(
                exc.status,
                exc.details,
                endpoint,
                timeout_seconds=limit,
                has_client_certificate=self._client.material.certificate is not None,
            )
            # A member that lags may not have heard of our new token yet.
            waiting = failure.kind is FailureKind.TOKEN_REFUSED and bool(self._metadata)
            return _Asked(endpoint=endpoint, failure=failure.message), waiting
        header = found.header
        if header.cluster_id != self._client.cluster_id:
            _refuse_cluster(self._client, endpoint, header.cluster_id)
        if header.revision < self._floor:
            behind = f"{endpoint.text}: lags behind, at revision {header.revision} instead of {self._floor}"
            return _Asked(endpoint=endpoint, member_id=header.member_id, failure=behind), True
        answer = _Asked(
            endpoint=endpoint,
            member_id=header.member_id,
            revision=header.revision,
            stored=stored_value(found.kvs[0]) if found.kvs else None,
        )
        return answer, False


def _member_list(client: EtcdClient) -> tuple[ClusterMember, ...]:
    try:
        return client.members()
    except CallFailed as failed:
        raise failed.failure.as_error() from failed


def _advertised_endpoint(url: str, client: EtcdClient, given: Sequence[Endpoint]) -> Endpoint | str:
    try:
        endpoint = parse_endpoint(url, has_tls_material=client.connection.has_tls_material)
    except ConfigurationError as exc:
        return f"a client URL that it advertises cannot be used: {exc.message}"
    if not endpoint.tls and all(known.tls for known in given):
        # Nothing would prove who answers there, and a login token would travel unencrypted.
        return f"{endpoint.text}: advertised without TLS, while --endpoints speak TLS"
    return endpoint


def _why_not(asked: _Asked) -> str:
    return asked.failure or f"{asked.endpoint.text}: member {asked.member_id:x} answers there"


def _copy_of(member: ClusterMember, asked: _Asked | None, reasons: Sequence[str]) -> MemberCopy:
    if asked is None:
        reason = "; ".join(dict.fromkeys(reasons)) or "it advertises no client URL"
        return MemberCopy(
            member_id=member.member_id, name=member.name, state=CopyState.UNCHECKED, reason=reason
        )
    stored = asked.stored
    return MemberCopy(
        member_id=member.member_id,
        name=member.name,
        state=CopyState.ABSENT if stored is None else CopyState.PRESENT,
        stored=stored,
        value_sha256="" if stored is None else hashlib.sha256(stored.value).hexdigest(),
        revision=asked.revision,
        endpoint=asked.endpoint.text,
    )


def _differing(reading: KeyReading, checked: Sequence[MemberCopy]) -> tuple[MemberCopy, ...]:
    # All that a record says counts: members that differ in create_revision or version alone would already take
    # different branches of one transaction.
    groups: dict[StoredValue | None, list[MemberCopy]] = {}
    for copy in checked:
        groups.setdefault(copy.stored, []).append(copy)
    if not groups or (len(groups) == 1 and reading.stored in groups):
        return ()
    largest = max(groups.values(), key=len)
    others = [copy for copy in checked if copy not in largest]
    return tuple(others if 2 * len(largest) > len(checked) and others else checked)


def _is_accepted(copy: MemberCopy, unasked: Sequence[MemberCopy], accepted: Collection[str]) -> bool:
    if f"{copy.member_id:x}" in accepted:
        return True
    same_name = [other for other in unasked if other.name == copy.name]
    return bool(copy.name) and copy.name in accepted and len(same_name) == 1


def _refuse_cluster(client: EtcdClient, endpoint: Endpoint, cluster_id: int) -> None:
    ids = {known.text: f"{client.cluster_id:x}" for known in client.endpoints()}
    ids[endpoint.text] = f"{cluster_id:x}"
    raise ClusterMismatch(
        f"{endpoint.text} belongs to cluster {cluster_id:x}, not to {client.cluster_id:x}",
        cluster_ids=ids,
        hint="name an endpoint of every member with --endpoints",
    )
