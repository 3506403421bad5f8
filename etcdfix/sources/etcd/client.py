"""Several members of one etcd cluster, asked as one.

A request goes to one member; when that fails for a reason that lies in the member or on the way there, the
next one is asked. Every answer's ``cluster_id`` must be the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import ClusterMismatch
from etcdfix.sources.etcd.channel import (
    Answer,
    FutureCancelledError,
    FutureTimeoutError,
    ReadOnlyChannel,
    RpcError,
    open_channel,
    settle,
)
from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import (
    QUORUM_HINT,
    CallFailed,
    Failure,
    FailureKind,
    classify,
    classify_cancelled,
)
from etcdfix.sources.etcd.threads import do_in_time, no_threads, require_threads, stands_still
from etcdfix.sources.etcd.tls import TLSMaterial, load_tls_material
from etcdfix.text.notes import Note
from etcdfix.wire.descriptors import ReadMethod
from etcdfix.wire.etcd import ALARM, AUTHENTICATE, MEMBER_LIST, STATUS, WATCH, message

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0

# Beside the dial time-out, within which certificates may be fetched; making a channel takes no time.
_PREPARING_SECONDS = 5.0

# So many requests in a row may stay without an answer, and more only so that every member has its turn.
_MOST_UNANSWERED = 3

# These do not depend on who is asked.
_FINAL = {
    FailureKind.DENIED,
    FailureKind.AUTH_DISABLED,
    FailureKind.COMPACTED,
    FailureKind.TOO_LARGE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """What one member says about itself (``Maintenance/Status``).

    Attributes:
        revision: Newest revision that this member has applied.
        leader: Member id of the leader, 0 when it knows none.
        is_learner: Whether it only follows, and cannot be read from.
        errors: Alarms and complaints, in etcd's words.
        db_size_in_use_bytes: What of that file holds data; the rest a defragmentation would give back.
        db_size_quota_bytes: How large that file may become; 0 where the member does not say, before etcd 3.6.
    """

    endpoint: str
    cluster_id: int
    member_id: int
    version: str
    revision: int
    leader: int
    is_learner: bool
    db_size_bytes: int
    errors: tuple[str, ...]
    db_size_in_use_bytes: int
    db_size_quota_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMember:
    """One entry of the member list (``Cluster/MemberList``).

    Attributes:
        name: Empty while it has not started.
        client_urls: Where it says that clients reach it.
    """

    member_id: int
    name: str
    client_urls: tuple[str, ...]
    is_learner: bool


class _Member:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.channel: ReadOnlyChannel | None = None
        self.failure: Failure | None = None
        self.status: MemberStatus | None = None
        self.complained = False


class _NeverSent:
    """Stands for the answer to a request for which no connection could even be prepared."""

    def __init__(self, failed: CallFailed) -> None:
        self._failed = failed

    def result(self, timeout: float | None = None) -> NoReturn:  # noqa: ARG002 - as that of an answer
        raise self._failed

    def done(self) -> bool:
        return True

    def cancel(self) -> None:
        return


@dataclass(slots=True)
class Pending:
    """A request on its way; the fields with a default remember what was tried already.

    The request may hold a password and the token is as good as one, so neither is part of the ``repr``.
    """

    method: ReadMethod
    request: Any = field(repr=False)
    timeout_seconds: float
    member: _Member = field(repr=False)
    future: Answer | _NeverSent = field(repr=False)
    token: str | None = field(repr=False)
    attempts: int = 0
    logged_in: bool = False
    give_up_at: float = 0.0
    unanswered: int = 0
    asked_at: float = field(default_factory=time.monotonic)

    def cancel(self) -> None:
        """Stop waiting; the answer is not wanted any more."""
        self.future.cancel()


class EtcdClient:
    """Reads from one cluster through its endpoints.

    Whatever asks raises :class:`CallFailed` where nobody could answer, or the answer is no, and ``ClusterMismatch``
    where it comes from another cluster.

    Attributes:
        cluster_id: Of the cluster, 0 while no answer has told it.
    """

    def __init__(self, connection: EtcdConnection, *, on_notice: Callable[[str], None]) -> None:
        """Connect, ask every endpoint for its status, and log in where a user is named.

        Raises:
            ConfigurationError: An endpoint or a TLS file makes no sense.
            SourceUnreachable: No endpoint answered.
            SourceDenied: User or password are wrong.
            ClusterMismatch: The endpoints belong to different clusters.
        """
        self._connection = connection
        self._on_notice = on_notice
        self._token: str | None = None
        self._lost: Failure | None = None
        self.cluster_id = 0
        self._material = load_tls_material(connection)
        self._members = [
            _Member(parse_endpoint(text, has_tls_material=connection.has_tls_material))
            for text in connection.endpoints
        ]
        self._current = self._members[0]
        try:
            self._open()
        except CallFailed as failed:
            self.close()
            raise failed.failure.as_error() from failed
        except BaseException:
            self.close()
            raise

    def ask(self, method: ReadMethod, request: Any, *, timeout_seconds: float) -> Pending:
        """Send a request to the current member and return without waiting; failures show in the answer."""
        member = self._current
        try:
            future = (
                self._start(member, method, request, timeout_seconds)
                if self._lost is None
                else _NeverSent(CallFailed(self._lost))
            )
        except CallFailed as failed:
            future = _NeverSent(failed)
        return Pending(method, request, timeout_seconds, member, future, self._token)

    def answer(self, pending: Pending) -> tuple[Any, bytes]:
        """Wait for an answer, asking other members where one fails.

        Returns:
            The message, and its bytes.
        """
        if self._lost is not None:
            pending.cancel()
            raise CallFailed(self._lost)
        while True:
            try:
                found, raw = self._result(pending)
            except RpcError as exc:
                failure = self._classify(exc, pending.member, pending.timeout_seconds)
                if (
                    failure.kind is FailureKind.TIMED_OUT
                    and pending.timeout_seconds <= self._patience_seconds
                ):
                    failure = replace(failure, kind=FailureKind.SILENT)
                pending = self._again(pending, failure)
            except CallFailed as failed:
                pending = self._again(pending, failed.failure)
            except FutureCancelledError as exc:
                raise CallFailed(Failure(FailureKind.UNREACHABLE, "the connection was closed")) from exc
            else:
                # etcd 3.4 tells no ids when it is asked for alarms: that says nothing of which cluster it is.
                if found.header.cluster_id or pending.method != ALARM:
                    self._check_cluster(pending.member, found.header.cluster_id)
                return found, raw

    @property
    def _patience_seconds(self) -> float:
        """How long a member may stay silent: the time for one small answer."""
        return self._connection.command_timeout_seconds

    def _result(self, pending: Pending) -> tuple[Any, bytes]:
        """Wait for an answer; one that takes long is worth waiting for while its member answers what is small."""
        if pending.timeout_seconds <= self._patience_seconds:
            found: tuple[Any, bytes] = self._settle(pending.future, pending.member, pending.timeout_seconds)
            return found
        while True:
            try:
                found = pending.future.result(timeout=self._patience_seconds)
            except FutureTimeoutError:
                if not self._shows_life(pending.member) and not pending.future.done():
                    pending.cancel()
                    raise CallFailed(_silence(pending.member, pending.asked_at)) from None
            else:
                return found

    def _shows_life(self, member: _Member) -> bool:
        """Ask for very little; a refusal is an answer too."""
        limit = self._patience_seconds
        try:
            self._settle(self._start(member, STATUS, message("StatusRequest")(), limit), member, limit)
        except RpcError as exc:
            kind = self._classify(exc, member, limit).kind
            return kind not in {FailureKind.TIMED_OUT, FailureKind.UNREACHABLE}
        except CallFailed:
            if self._lost is not None:
                raise
            return False
        return True

    def _settle(self, future: Any, member: _Member, timeout_seconds: float) -> Any:
        """Do as :func:`settle`; where gRPC stands still, nobody is asked any more."""
        try:
            return settle(future, member.endpoint, timeout_seconds)
        except CallFailed as failed:
            self._lost = failed.failure
            raise

    def call(self, method: ReadMethod, request: Any, *, timeout_seconds: float | None = None) -> Any:
        """Ask and wait; without a time-out of its own, the command time-out counts."""
        limit = self._connection.command_timeout_seconds if timeout_seconds is None else timeout_seconds
        found, _ = self.answer(self.ask(method, request, timeout_seconds=limit))
        return found

    def watch(
        self,
        requests: Iterator[Any],
        *,
        timeout_seconds: float,
        on_quiet: Callable[[], object] = bool,
    ) -> Generator[Any, None, None]:
        """Open a watch stream at the current member and yield its answers; close the generator to end it.

        A cancellation because of compaction is an answer like others; a watch never ends by itself.

        Raises:
            CallFailed: The stream broke or was refused; the next call goes to another member, or shows a new
                token.
            ClusterMismatch: An answer comes from another cluster.
        """
        member, waiting_since = self._current, time.monotonic()

        def on_silence() -> None:
            if not self._shows_life(member):
                raise CallFailed(_silence(member, waiting_since))
            on_quiet()

        stream = self._channel(member).stream(
            WATCH,
            requests,
            timeout_seconds=timeout_seconds,
            patience_seconds=self._patience_seconds,
            on_silence=on_silence,
            metadata=self._metadata(),
        )
        failure = Failure(FailureKind.UNREACHABLE, f"{member.endpoint.text}: the watch ended early")
        cause: Exception | None = None
        try:
            for found in stream:
                self._check_cluster(member, found.header.cluster_id)
                if found.canceled and not found.compact_revision:
                    failure = classify_cancelled(found.cancel_reason, member.endpoint)
                    break
                yield found
                waiting_since = time.monotonic()
        except CallFailed as failed:
            failure, cause = failed.failure, failed
        except RpcError as exc:
            failure, cause = self._classify(exc, member, timeout_seconds), exc
        except FutureTimeoutError as exc:
            failure, cause = stands_still(member.endpoint.text), exc
            self._lost = failure
        finally:
            stream.close()
        if failure is self._lost:
            raise CallFailed(failure) from cause
        if failure.kind is FailureKind.SILENT:
            self._current, _ = self._next_alive(member, waiting_since, 0)
            failure = replace(failure, kind=FailureKind.UNREACHABLE)
        elif failure.kind is FailureKind.TOKEN_REFUSED:
            self.log_in()
        elif failure.kind is not FailureKind.TIMED_OUT:
            self._current = self._after(member)
        raise CallFailed(failure) from cause

    def log_in(self) -> None:
        """Get a token for the user, if there is one; simple tokens expire after some minutes unused."""
        user, password = self._connection.user, self._connection.password
        if user is None:
            return
        request = message("AuthenticateRequest")(name=user, password=password or "")
        try:
            self._token = self.call(AUTHENTICATE, request).token
        except CallFailed as failed:
            if failed.failure.kind is not FailureKind.AUTH_DISABLED:
                raise
            self._token = None
            self._on_notice(Note(f"etcd has no authentication enabled: user {user!r} is not used"))

    @property
    def logged_in(self) -> bool:
        """Whether etcd has given a token for the user: it does not where it has no authentication enabled."""
        return self._token is not None

    @property
    def connection(self) -> EtcdConnection:
        """How this client reaches the cluster."""
        return self._connection

    @property
    def material(self) -> TLSMaterial:
        """The TLS files, as they were read when this client was made."""
        return self._material

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the endpoints as given, beginning with the one that is being asked."""
        first = self._members.index(self._current)
        return tuple(member.endpoint for member in self._members[first:] + self._members[:first])

    def fresh_login(self) -> tuple[tuple[str, str], ...]:
        """Log in anew where a user is named, and return the metadata that goes with a request.

        For requests that go out on a channel of their own: a member forgets a simple token after some minutes
        in which that member did not see it, whatever was asked of the others.
        """
        self.log_in()
        return self._metadata()

    def statuses(self) -> tuple[MemberStatus, ...]:
        """Return what the reachable members said about themselves when the connection was opened."""
        return tuple(member.status for member in self._members if member.status is not None)

    def current_version(self) -> str:
        """Return the version of the member that is being asked, "" where it did not say."""
        status = self._current.status
        return status.version if status is not None else ""

    def members(self) -> tuple[ClusterMember, ...]:
        """Return the cluster's member list."""
        found = self.call(MEMBER_LIST, message("MemberListRequest")(linearizable=True))
        return tuple(
            ClusterMember(
                member_id=member.ID,
                name=member.name,
                client_urls=tuple(member.clientURLs),
                is_learner=member.isLearner,
            )
            for member in found.members
        )

    def close(self) -> None:
        """End all connections."""
        for member in self._members:
            if member.channel is not None:
                member.channel.close()

    def _open(self) -> None:
        require_threads()
        if not do_in_time(self._prepare_all, self._connection.dial_timeout_seconds + _PREPARING_SECONDS):
            raise no_threads("gRPC stands still")
        self._ask_statuses(self._members)
        reachable = [member for member in self._members if member.failure is None]
        if not reachable:
            self._nobody_answered()
        self._current = min(reachable, key=_is_learner)
        if self._connection.user is not None:
            self.log_in()
            self._ask_statuses([member for member in reachable if member.status is None])
        for member in self._members:
            if member.failure is not None:
                self._complain(member, member.failure, "it is left aside")
            elif member.status is not None:
                for error in member.status.errors:
                    self._on_notice(f"{member.endpoint.text}: etcd complains: {error}")

    def _prepare_all(self) -> None:
        # In parallel, so that dead endpoints cost one dial time-out together, not one each.
        threads = [
            threading.Thread(target=self._prepare, args=(member,), daemon=True) for member in self._members
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _prepare(self, member: _Member) -> None:
        try:
            member.channel = open_channel(member.endpoint, self._material, self._connection)
        except CallFailed as failed:
            member.failure = failed.failure

    def _ask_statuses(self, members: list[_Member]) -> None:
        limit = self._connection.dial_timeout_seconds
        request = message("StatusRequest")()
        started = [
            (member, self._start(member, STATUS, request, limit))
            for member in members
            if member.failure is None
        ]
        for member, future in started:
            try:
                found, _ = self._settle(future, member, limit)
            except RpcError as exc:
                failure = self._classify(exc, member, limit)
                # Newer servers may want a login first; then the member is there all the same.
                if failure.kind not in {FailureKind.DENIED, FailureKind.TOKEN_REFUSED}:
                    member.failure = failure
            else:
                member.status = _member_status(member.endpoint, found)
        for member in members:
            if member.status is not None:
                self._check_cluster(member, member.status.cluster_id)

    def _nobody_answered(self) -> NoReturn:
        failures = [member.failure for member in self._members if member.failure is not None]
        if len(failures) == 1:
            raise CallFailed(failures[0])
        text = "; ".join(failure.message for failure in failures)
        raise CallFailed(Failure(FailureKind.UNREACHABLE, f"no endpoint answered: {text}", failures[0].hint))

    def _start(self, member: _Member, method: ReadMethod, request: Any, timeout_seconds: float) -> Answer:
        # The old token has no business in a login; it stays ours until a new one is there.
        metadata = () if method == AUTHENTICATE else self._metadata()
        return self._channel(member).start(
            method, request, timeout_seconds=timeout_seconds, metadata=metadata
        )

    def _channel(self, member: _Member) -> ReadOnlyChannel:
        if member.channel is None:
            member.channel = open_channel(member.endpoint, self._material, self._connection)
        return member.channel

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._token is None else (("token", self._token),)

    def _classify(self, error: RpcError, member: _Member, timeout_seconds: float) -> Failure:
        return classify(
            error.status,
            error.details,
            member.endpoint,
            timeout_seconds=timeout_seconds,
            has_client_certificate=self._material.certificate is not None,
        )

    def _again(self, pending: Pending, failure: Failure) -> Pending:
        if failure.kind in _FINAL or failure is self._lost:
            raise CallFailed(failure)
        if failure.kind is FailureKind.TOKEN_REFUSED:
            if pending.logged_in or pending.method == AUTHENTICATE or self._connection.user is None:
                raise CallFailed(failure)
            if pending.token == self._token:
                self.log_in()
            pending.logged_in = True
            return self._send_again(pending, pending.member)
        if failure.kind is FailureKind.SILENT:
            return self._after_silence(pending)
        now = time.monotonic()
        if not pending.attempts:
            patience = self._connection.dial_timeout_seconds + self._connection.command_timeout_seconds
            pending.give_up_at = now + patience
        pending.attempts += 1
        rounds, rest = divmod(pending.attempts, len(self._members))
        if not rest:
            # Everyone had a turn. Asking for less helps against time-outs, waiting does not.
            if failure.kind is FailureKind.TIMED_OUT or now >= pending.give_up_at:
                raise CallFailed(failure)
            time.sleep(min(_FIRST_PAUSE_SECONDS * 2**rounds, _LONGEST_PAUSE_SECONDS))
        following = self._after(pending.member)
        if following is not pending.member:
            self._complain(pending.member, failure, f"asking {following.endpoint.text} instead")
            self._current = following
        return self._send_again(pending, following)

    def _after_silence(self, pending: Pending) -> Pending:
        self._current, pending.unanswered = self._next_alive(
            pending.member, pending.asked_at, pending.unanswered
        )
        return self._send_again(pending, self._current)

    def _next_alive(self, member: _Member, asked_at: float, unanswered: int) -> tuple[_Member, int]:
        while True:
            unanswered += 1
            failure = _silence(member, asked_at)
            if unanswered >= max(_MOST_UNANSWERED, len(self._members)):
                self._lost = replace(failure, message=f"{failure.message}, to {unanswered} requests in a row")
                raise CallFailed(self._lost)
            member = self._after(member)
            where = f" at {member.endpoint.text}" if len(self._members) > 1 else ""
            self._on_notice(Note(f"{failure.message}, trying again{where}"))
            if self._shows_life(member):
                return member, unanswered

    def _send_again(self, pending: Pending, member: _Member) -> Pending:
        try:
            pending.future = self._start(member, pending.method, pending.request, pending.timeout_seconds)
        except CallFailed as failed:
            # Its certificate could not be fetched: as good as any other failure of that member.
            pending.member = member
            return self._again(pending, failed.failure)
        pending.member, pending.token = member, self._token
        return pending

    def _after(self, member: _Member) -> _Member:
        return self._members[(self._members.index(member) + 1) % len(self._members)]

    def _complain(self, member: _Member, failure: Failure, consequence: str) -> None:
        if not member.complained:
            member.complained = True
            self._on_notice(Note(f"{failure.message}; {consequence}"))

    def _check_cluster(self, member: _Member, cluster_id: int) -> None:
        if self.cluster_id in {0, cluster_id}:
            self.cluster_id = cluster_id
            return
        ids = {
            known.endpoint.text: f"{known.status.cluster_id:x}"
            for known in self._members
            if known.status is not None
        }
        if not cluster_id:
            raise ClusterMismatch(
                f"{member.endpoint.text}: an answer carries no cluster id, and earlier ones did: {self.cluster_id:x}",
                cluster_ids=ids,
                hint="name the endpoints of one etcd cluster only",
            )
        ids[member.endpoint.text] = f"{cluster_id:x}"
        listed = ", ".join(f"{endpoint} is {value}" for endpoint, value in ids.items())
        raise ClusterMismatch(
            f"the endpoints belong to different clusters: {listed}",
            cluster_ids=ids,
            hint="name the endpoints of one cluster only",
        )


def _silence(member: _Member, asked_at: float) -> Failure:
    seconds = time.monotonic() - asked_at
    return Failure(FailureKind.SILENT, f"{member.endpoint.text}: no answer for {seconds:.1f} s", QUORUM_HINT)


def _is_learner(member: _Member) -> bool:
    return member.status is not None and member.status.is_learner


def _member_status(endpoint: Endpoint, found: Any) -> MemberStatus:
    return MemberStatus(
        endpoint=endpoint.text,
        cluster_id=found.header.cluster_id,
        member_id=found.header.member_id,
        version=found.version,
        revision=found.header.revision,
        leader=found.leader,
        is_learner=found.isLearner,
        db_size_bytes=found.dbSize,
        errors=tuple(found.errors),
        db_size_in_use_bytes=found.dbSizeInUse,
        db_size_quota_bytes=found.dbSizeQuota,
    )
