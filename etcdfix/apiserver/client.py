"""One API server: how a request is sent to it, how long an answer may take, and when it is asked again.

The requests are our own, through a connection pool that the ``kubernetes`` package prepared (see
:mod:`etcdfix.apiserver.kubeconfig`). No redirect is followed, and no server is asked that does not prove by TLS who
it is. Only :meth:`Server.ask` repeats a request.
"""

from __future__ import annotations

import re
import ssl
import threading
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import msgspec

from etcdfix.model.errors import RemediationRefused
from etcdfix.model.side_by_side import run_within

_Result = TypeVar("_Result")

LONGEST_ANSWER: Final = 1 << 20
REQUEST_SECONDS: Final = 10.0
"""For one request, but one that changes something."""
NOT_UNDERSTOOD: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding an answer raises that is not what it should be."""
AGAIN: Final = "run the same again in a moment"
"""What to do after a passing answer."""

_PASSING: Final = frozenset({408, 429, 502, 503, 504})
_MOST_WAITS: Final = 5
_LONGEST_WAIT_SECONDS: Final = 60
"""For all pauses of one request together: an outcome may wait for it."""
_LONGEST_TEXT: Final = 300
_GRACE_SECONDS: Final = 0.25
_LOOK_AT_IT: Final = "kubectl --kubeconfig FILE get --raw /readyz"


class RefusalReason(StrEnum):
    """Why an authorization was not given."""

    DENIED = "denied"
    EVALUATION_ERROR = "evaluation-error"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    SERVER_ERROR = "server-error"
    TIMED_OUT = "timed-out"
    UNREACHABLE = "unreachable"
    TLS_FAILED = "tls-failed"
    MALFORMED_ANSWER = "malformed-answer"
    OTHER_CLUSTER = "other-cluster"
    CREDENTIALS = "credentials"


@dataclass(eq=False, repr=False, kw_only=True)
class AuthorizationRefused(RemediationRefused):
    """Raised when the API server did not clearly say yes.

    Attributes:
        reason: A :class:`RefusalReason`.
        detail: Why there was no answer, part of a sentence; "" where there was one.
    """

    code = "authorization-refused"
    reason: str
    detail: str = ""


class _Details(msgspec.Struct):
    name: str = ""


class Status(msgspec.Struct):
    """``meta/v1`` Status, as far as it tells one refusal from another; its message may quote an object."""

    kind: str
    details: _Details = msgspec.field(default_factory=_Details)
    code: int = 0
    message: str = ""
    reason: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """The answer of a server.

    Attributes:
        status: The HTTP status.
        body: The raw body; None where it is longer than was asked for. Never shown: it may be a Secret.
        retry_after: Seconds after which to ask again, as the server says; None where it says none.
    """

    status: int
    body: bytes | None
    retry_after: int | None = None

    def __repr__(self) -> str:
        return f"Reply({self.status}, {'no' if self.body is None else len(self.body)} bytes)"

    def status_object(self) -> Status | None:
        """Return the body where it is a Status, else None."""
        try:
            found = msgspec.json.decode(self.body or b"", type=Status)
        except NOT_UNDERSTOOD:
            return None
        return found if found.kind == "Status" else None

    @property
    def is_passing(self) -> bool:
        """The server, or a proxy before it, is busy: the answer says nothing of what was asked for.

        An API server that is busy says 429 in plain text. A 429 with a Status says that its memory is lost.
        """
        return self.status in _PASSING and (self.status != 429 or self.status_object() is None)


class NoReply(msgspec.Struct, frozen=True):
    """Why there is no answer.

    Attributes:
        reason: The kind of failure.
        text: Part of a sentence.
        sent: The request may have arrived all the same.
    """

    reason: RefusalReason
    text: str
    sent: bool = True


class Pace:
    """Lets requests pass at an even pace: ten a second, unless another number is given."""

    def __init__(self, per_second: float = 10.0) -> None:
        self._gap = 1 / per_second
        self._next = monotonic()

    def wait(self) -> None:
        """Return when the next request may be sent."""
        now = monotonic()
        if now < self._next:
            sleep(self._next - now)
        self._next = max(now, self._next) + self._gap


class Server:
    """One API server, reached through a pool that the kubernetes package prepared.

    Attributes:
        address: Its address as it may be shown.
        requests: How many requests :meth:`ask` has sent.
    """

    def __init__(
        self,
        url: str,
        pool: Any,
        credentials: dict[str, str],
        *,
        given_up: threading.Event,
        pace: Pace | None = None,
    ) -> None:
        import urllib3  # noqa: PLC0415 - comes with the optional package

        self._urllib3 = urllib3
        self._pool = pool
        self._credentials = credentials
        self._given_up = given_up
        self._pace = pace
        self._url = url
        self.address = without_user(url)
        self.requests = 0

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._pool.clear()

    def ask(
        self, path: str, *, accept: str = "application/json", longest: int = LONGEST_ANSWER
    ) -> Reply | NoReply:
        """Send a ``GET``, and send it again after a while where the server is only busy."""
        waits, left = 0, _LONGEST_WAIT_SECONDS
        while True:
            if self._pace is not None:
                self._pace.wait()
            self.requests += 1
            reply = self.send("GET", path, accept=accept, longest=longest)
            if isinstance(reply, NoReply) or not reply.is_passing or waits == _MOST_WAITS or left <= 0:
                return reply
            waits += 1
            pause = min(max(reply.retry_after or 0, 1), left)
            left -= pause
            sleep(pause)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "application/json",
        longest: int = LONGEST_ANSWER,
    ) -> Reply | NoReply:
        """Send one request that asks, once: ``GET``, or ``POST`` for a review, which is answered and not kept.

        At most ``longest`` bytes of an answer are read.

        Raises:
            ValueError: Any other method.
        """
        if method not in {"GET", "POST"}:
            raise ValueError(method)
        return self._exchange(method, path, body, accept, "application/json", longest, REQUEST_SECONDS)

    def merge_patch(self, path: str, body: Any, *, longest: int, seconds: float) -> Reply | NoReply:
        """Send one JSON merge patch, once; for :mod:`etcdfix.remediation.patcher` alone."""
        media = "application/merge-patch+json"
        return self._exchange("PATCH", path, body, "application/json", media, longest, seconds)

    def _exchange(
        self, method: str, path: str, body: Any, accept: str, media: str, longest: int, seconds: float
    ) -> Reply | NoReply:
        if self._given_up.is_set():
            return NoReply(RefusalReason.TIMED_OUT, "nobody waits for it any more", sent=False)

        def exchange() -> Reply:
            answer = self._pool.request(
                method,
                self._url + path,
                body=None if body is None else msgspec.json.encode(body),
                headers={"Accept": accept, "Content-Type": media, **self._credentials},
                retries=False,
                redirect=False,
                preload_content=False,
                timeout=self._urllib3.Timeout(total=seconds),
            )
            try:
                wait = str(answer.headers.get("Retry-After", ""))
                found: bytes = answer.read(longest + 1)
            finally:
                answer.close()
            # A date may stand there too; API servers write seconds.
            retry_after = int(wait) if re.fullmatch(r"\d{1,6}", wait, re.ASCII) else None
            return Reply(int(answer.status), found if len(found) <= longest else None, retry_after)

        # The time-out of the pool starts anew with each byte that a server sends.
        (found,) = run_within([exchange], seconds + _GRACE_SECONDS)
        if isinstance(found, Reply):
            return found
        if found is None:
            return NoReply(RefusalReason.TIMED_OUT, f"no answer within {seconds:g} s")
        return self._no_reply(found, seconds)

    def require(self, reply: Reply | NoReply, *, what: str, hint: str = "") -> bytes:
        """Return the body of an answer that says 200 or 201.

        Raises:
            AuthorizationRefused: It is any other answer, or none.
        """
        if isinstance(reply, NoReply):
            raise AuthorizationRefused(
                f"{self.address} was asked for {what}: {reply.text}",
                reason=reply.reason,
                hint=_LOOK_AT_IT,
                detail=reply.text,
            )
        if reply.status not in {200, 201}:
            raise _refused_by_status(reply, what, hint)
        if reply.body is None:
            raise malformed(what)
        return reply.body

    def _no_reply(self, error: BaseException, seconds: float) -> NoReply:
        errors = self._urllib3.exceptions
        if isinstance(error, errors.SSLError | ssl.SSLError):
            # A certificate is looked at before the request is sent; a connection that breaks off may come after it.
            refused = [
                each for each in (error, *error.args) if isinstance(each, ssl.SSLCertVerificationError)
            ]
            because = f" ({refused[0].verify_message})" if refused else ""
            return NoReply(RefusalReason.TLS_FAILED, f"the TLS connection failed{because}", sent=not refused)
        if isinstance(error, errors.NewConnectionError | errors.ProxyError):
            return NoReply(RefusalReason.UNREACHABLE, "no connection comes about", sent=False)
        if isinstance(error, errors.TimeoutError | TimeoutError):
            connected = not isinstance(error, errors.ConnectTimeoutError)
            return NoReply(RefusalReason.TIMED_OUT, f"no answer within {seconds:g} s", sent=connected)
        return NoReply(RefusalReason.UNREACHABLE, f"the connection failed ({type(error).__name__})")


def decode(found: bytes, type_: type[_Result], what: str) -> _Result:
    """Return an answer as what it should be.

    Raises:
        AuthorizationRefused: It is nothing of the kind.
    """
    try:
        return msgspec.json.decode(found, type=type_)
    except NOT_UNDERSTOOD as exc:
        raise malformed(what) from exc


def malformed(what: str) -> AuthorizationRefused:
    """Return the refusal for an answer that is none."""
    return AuthorizationRefused(
        f"the API server's answer about {what} is not one that can be understood",
        reason=RefusalReason.MALFORMED_ANSWER,
    )


def without_user(url: str) -> str:
    """Return an address as it may be shown: what stands before an @ may be a password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def shorten(text: str) -> str:
    """Return a text of somebody else's at a length that can be shown."""
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _refused_by_status(reply: Reply, what: str, forbidden_hint: str) -> AuthorizationRefused:
    if reply.status == 401:
        return AuthorizationRefused(
            f"the API server does not know the kubeconfig's user (401), asked for {what}",
            reason=RefusalReason.UNAUTHENTICATED,
            hint="kubectl --kubeconfig FILE auth whoami",
        )
    if reply.status == 403:
        return AuthorizationRefused(
            f"the API server does not let the kubeconfig's user ask for {what} (403)",
            reason=RefusalReason.FORBIDDEN,
            hint=forbidden_hint,
        )
    return AuthorizationRefused(
        f"the API server answered {reply.status} when it was asked for {what}",
        reason=RefusalReason.SERVER_ERROR,
        hint=AGAIN if reply.status in _PASSING else _LOOK_AT_IT,
    )
