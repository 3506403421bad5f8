"""Several members of one etcd cluster, asked as one.

A request goes to one member; when that fails for a reason that lies in the member or on the way there, the
next one is asked. Every answer's ``cluster_id`` must be the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from etcdfix.sources.connection import EtcdConnection
from etcdfix.sources.errors import ClusterMismatch
from etcdfix.sources.etcd.channel import Answer, ReadOnlyChannel, open_channel
from etcdfix.sources.etcd.endpoints import ClusterMember, Endpoint, MemberStatus, parse_endpoint
from etcdfix.sources.etcd.failures import (
    QUORUM_HINT,
    CallFailed,
    Failure,
    FailureKind,
    classify_cancelled,
)
from etcdfix.sources.etcd.threads import do_in_time, no_threads, require_threads
from etcdfix.sources.etcd.tls import load_tls_material
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
    FailureKind.ENDED,
}


class _Member:
    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.channel: ReadOnlyChannel | None = None
        self.failure: Failure | None = None
        self.status: MemberStatus | None = None
        self.complained = False


@dataclass(slots=True)
class Pending:
    """A request on its way; the fields with a default remember what was tried already.

    The request may hold a password and the token is as good as one, so neither is part of the ``repr``.
    """

    method: ReadMethod
    request: Any = field(repr=False)
    timeout_seconds: float
    member: _Member = field(repr=False)
    answer: Answer | None = field(repr=False, default=None)
    failed: CallFailed | None = None
    token: str | None = field(repr=False, default=None)
    attempts: int = 0
    logged_in: bool = False
    give_up_at: float = 0.0
    asked_at: float = field(default_factory=time.monotonic)

    def cancel(self) -> None:
        """Stop waiting; the answer is not wanted any more."""
        if self.answer is not None:
            self.answer.cancel()


class EtcdClient:
    """Reads from one cluster through its endpoints.

    Whatever asks raises :class:`CallFailed` where nobody could answer, or the answer is no, and ``ClusterMismatch``
    where it comes from another cluster.

    A request waits as long as it was told to, and for more than the command time-out only while its member answers
    what is small. What failed is asked of the next member: until each had its turn where it took too long; until the
    dial and the command time-out are over where nobody could be reached; and after a few requests in a row without
    any answer nobody is asked any more.

    Attributes:
        cluster_id: Of the cluster, 0 while no answer has told it.
        connection: How this client reaches the cluster.
        material: The TLS files, as they were read when this client was made.
    """

    def __init__(self, connection: EtcdConnection, *, on_notice: Callable[[str], None]) -> None:
        """Connect, ask every endpoint for its status, and log in where a user is named.

        Raises:
            ConfigurationError: An endpoint or a TLS file makes no sense.
            SourceUnreachable: No endpoint answered.
            SourceDenied: User or password are wrong.
            ClusterMismatch: The endpoints belong to different clusters.
        """
        self.connection = connection
        self.material = load_tls_material(connection)
        self.cluster_id = 0
        self._on_notice = on_notice
        self._token: str | None = None
        self._lost: Failure | None = None
        self._unanswered = 0
        # How long a member may stay silent: the time for one small answer.
        self._patience_seconds = connection.command_timeout_seconds
        self._members = [
            _Member(parse_endpoint(text, has_tls_material=connection.has_tls_material))
            for text in connection.endpoints
        ]
        self._current = self._members[0]
        try:
            self._open()
        except BaseException as exc:
            self.close()
            if isinstance(exc, CallFailed):
                raise exc.failure.as_error() from exc
            raise

    def ask(self, method: ReadMethod, request: Any, *, timeout_seconds: float) -> Pending:
        """Send a request to the current member and return without waiting; failures show in the answer."""
        pending = Pending(method, request, timeout_seconds, self._current)
        self._send(pending)
        return pending

    def answer(self, pending: Pending) -> tuple[Any, bytes]:
        """Wait for an answer, asking other members where one fails.

        Returns:
            The message, and its bytes.
        """
        while True:
            if self._lost is not None:
                pending.cancel()
                raise CallFailed(self._lost)
            try:
                found, raw = self._wait(pending)
            except CallFailed as failed:
                pending.member = self._next_for(pending, failed.failure)
                self._send(pending)
            else:
                self._unanswered = 0
                # etcd 3.4 tells no ids when it is asked for alarms, nor a proxy of etcd for members: no other cluster.
                listed = [member.ID for member in found.members] if pending.method == MEMBER_LIST else []
                hidden = bool(listed) and not any(listed)
                if found.header.cluster_id or not (hidden or pending.method == ALARM):
                    self._check_cluster(pending.member, found.header.cluster_id)
                return found, raw

    def call(self, method: ReadMethod, request: Any, *, timeout_seconds: float | None = None) -> Any:
        """Ask and wait; without a time-out of its own, the command time-out counts."""
        limit = self.connection.command_timeout_seconds if timeout_seconds is None else timeout_seconds
        found, _ = self.answer(self.ask(method, request, timeout_seconds=limit))
        return found

    def _send(self, pending: Pending) -> None:
        pending.token, pending.answer, pending.failed = self._token, None, None
        if self._lost is None:
            try:
                pending.answer = self._start(
                    pending.member, pending.method, pending.request, pending.timeout_seconds
                )
            except CallFailed as failed:  # the certificate of its member could not be fetched
                pending.failed = failed

    def _wait(self, pending: Pending) -> tuple[Any, bytes]:
        """Wait for an answer; one that takes long is worth waiting for while its member answers what is small."""
        if pending.answer is None:
            assert pending.failed is not None
            raise pending.failed
        small = pending.timeout_seconds <= self._patience_seconds
        while not small and not pending.answer.wait(self._patience_seconds):
            if not self._shows_life(pending.member) and not pending.answer.wait(0):
                pending.cancel()
                raise CallFailed(_silence(pending.member, pending.asked_at))
        try:
            found: tuple[Any, bytes] = pending.answer.result()
        except CallFailed as failed:
            if small and failed.failure.kind is FailureKind.TIMED_OUT:
                raise CallFailed(_silence(pending.member, pending.asked_at)) from failed
            raise
        return found

    def _shows_life(self, member: _Member) -> bool:
        """Ask for very little; a refusal is an answer too."""
        try:
            self._start(member, STATUS, message("StatusRequest")(), self._patience_seconds).result()
        except CallFailed as failed:
            if failed.failure.kind is FailureKind.ENDED:
                self._lost = failed.failure
                raise
            return failed.failure.kind not in {FailureKind.TIMED_OUT, FailureKind.UNREACHABLE}
        return True

    def _next_for(self, pending: Pending, failure: Failure) -> _Member:
        """Return the member to ask next after a failure, or raise it."""
        if failure.kind is FailureKind.ENDED:
            self._lost = failure
        if failure.kind in _FINAL:
            raise CallFailed(failure)
        if failure.kind is FailureKind.TOKEN_REFUSED:
            if pending.logged_in or pending.method == AUTHENTICATE or self.connection.user is None:
                raise CallFailed(failure)
            if pending.token == self._token:
                self.log_in()
            pending.logged_in = True
            return pending.member
        if failure.kind is FailureKind.SILENT:
            return self._after_silence(pending.member, failure)
        now = time.monotonic()
        if not pending.attempts:
            patience = self.connection.dial_timeout_seconds + self.connection.command_timeout_seconds
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
        return following

    def _after_silence(self, member: _Member, failure: Failure) -> _Member:
        self._unanswered += 1
        if self._unanswered >= max(_MOST_UNANSWERED, len(self._members)):
            text = f"{failure.message}, to {self._unanswered} requests in a row"
            self._lost = replace(failure, message=text)
            raise CallFailed(self._lost)
        self._current = self._after(member)
        where = f" at {self._current.endpoint.text}" if len(self._members) > 1 else ""
        self._on_notice(Note(f"{failure.message}, trying again{where}"))
        return self._current

    def watch(self, requests: Iterator[Any], *, timeout_seconds: float) -> Generator[Any, None, None]:
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
                self._unanswered = 0
                self._check_cluster(member, found.header.cluster_id)
                if found.canceled and not found.compact_revision:
                    failure = classify_cancelled(found.cancel_reason, member.endpoint)
                    break
                yield found
                waiting_since = time.monotonic()
        except CallFailed as failed:
            failure, cause = failed.failure, failed
        finally:
            stream.close()
        if failure.kind is FailureKind.SILENT:
            self._after_silence(member, failure)
            failure = replace(failure, kind=FailureKind.UNREACHABLE)
        elif failure.kind is FailureKind.TOKEN_REFUSED:
            self.log_in()
        elif failure.kind is FailureKind.ENDED:
            self._lost = failure
        elif failure.kind is not FailureKind.TIMED_OUT:
            self._current = self._after(member)
        raise CallFailed(failure) from cause

    def log_in(self) -> None:
        """Get a token for the user, if there is one; simple tokens expire after some minutes unused."""
        user, password = self.connection.user, self.connection.password
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
        return self._current.status.version if self._current.status is not None else ""

    def members(self) -> tuple[ClusterMember, ...]:
        """Return the cluster's member list."""
        found = self.call(MEMBER_LIST, message("MemberListRequest")(linearizable=True))
        return tuple(
            ClusterMember(member.ID, member.name, tuple(member.clientURLs), member.isLearner)
            for member in found.members
        )

    def close(self) -> None:
        """End all connections."""
        for member in self._members:
            if member.channel is not None:
                member.channel.close()

    def _open(self) -> None:
        require_threads()
        limit = len(self._members) * self.connection.dial_timeout_seconds + _PREPARING_SECONDS
        if not do_in_time(self._prepare_all, limit):
            raise no_threads("gRPC stands still")
        self._ask_statuses(self._members)
        reachable = [member for member in self._members if member.failure is None]
        if not reachable:
            failures = [member.failure for member in self._members if member.failure is not None]
            text = "; ".join(failure.message for failure in failures)
            several = f"no endpoint answered: {text}" if len(failures) > 1 else text
            raise CallFailed(replace(failures[0], message=several))
        self._current = min(reachable, key=lambda member: bool(member.status and member.status.is_learner))
        if self.connection.user is not None:
            self.log_in()
            self._ask_statuses([member for member in reachable if member.status is None])
        for member in self._members:
            if member.failure is not None:
                self._complain(member, member.failure, "it is left aside")
            elif member.status is not None:
                for error in member.status.errors:
                    self._on_notice(f"{member.endpoint.text}: etcd complains: {error}")

    def _prepare_all(self) -> None:
        for member in self._members:
            try:
                self._channel(member)
            except CallFailed as failed:
                member.failure = failed.failure

    def _ask_statuses(self, members: list[_Member]) -> None:
        limit = self.connection.dial_timeout_seconds
        request = message("StatusRequest")()
        started = [
            (member, self._start(member, STATUS, request, limit))
            for member in members
            if member.failure is None
        ]
        for member, answer in started:
            try:
                found, _ = answer.result()
            except CallFailed as failed:
                if failed.failure.kind is FailureKind.ENDED:
                    raise
                # Newer servers may want a login first; then the member is there all the same.
                if not failed.failure.is_denied:
                    member.failure = failed.failure
            else:
                member.status = MemberStatus.told(member.endpoint, found)
        for member in members:
            if member.status is not None:
                self._check_cluster(member, member.status.cluster_id)

    def _start(self, member: _Member, method: ReadMethod, request: Any, timeout_seconds: float) -> Answer:
        # The old token has no business in a login; it stays ours until a new one is there.
        metadata = () if method == AUTHENTICATE else self._metadata()
        return self._channel(member).start(
            method, request, timeout_seconds=timeout_seconds, metadata=metadata
        )

    def _channel(self, member: _Member) -> ReadOnlyChannel:
        if member.channel is None:
            member.channel = open_channel(member.endpoint, self.material, self.connection)
        return member.channel

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return () if self._token is None else (("token", self._token),)

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
        ids = {status.endpoint: f"{status.cluster_id:x}" for status in self.statuses()}
        if cluster_id:
            ids[member.endpoint.text] = f"{cluster_id:x}"
            listed = ", ".join(f"{endpoint} is {value}" for endpoint, value in ids.items())
            what = f"the endpoints belong to different clusters: {listed}"
        else:
            was = f"{self.cluster_id:x}"
            what = f"{member.endpoint.text}: an answer carries no cluster id, and earlier ones did: {was}"
        raise ClusterMismatch(what, cluster_ids=ids, hint="name the endpoints of one etcd cluster only")


def _silence(member: _Member, asked_at: float) -> Failure:
    seconds = time.monotonic() - asked_at
    return Failure(FailureKind.SILENT, f"{member.endpoint.text}: no answer for {seconds:.1f} s", QUORUM_HINT)
