"""Reaches API servers with what a kubeconfig holds: its credentials, its certificate authority, its proxy.

The ``kubernetes`` package reads the kubeconfig, runs its plugins, and prepares TLS and proxies; it is an optional
extra and imported here, when it is needed. The requests themselves are our own, through the connection pool which
that package has prepared: its models would take an answer without a field for an error of ours, and its
logger would write whole answers. Nothing of what the package says in its errors is repeated: it quotes parts of
the file, and the output of plugins, and those hold tokens.

No request is repeated, no redirect is followed, and no server is asked that does not prove by TLS who it is.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import re
import ssl
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from etcdfix.apiserver.errors import AuthorizationRefused, KubeconfigInvalid, KubernetesClientMissing
from etcdfix.apiserver.patience import AGAIN, PASSING
from etcdfix.inputs.inputfile import MAX_SETTINGS_BYTES, read_input
from etcdfix.model.errors import EtcdfixError, why
from etcdfix.model.side_by_side import run_within

_Result = TypeVar("_Result")

LONGEST_ANSWER = 1 << 20
_LONGEST_TEXT = 300
_SERVICE = "kubernetes.default.svc"
_LOOK_AT_IT = "kubectl --kubeconfig FILE get --raw /readyz"


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


class Reply(msgspec.Struct, frozen=True):
    """What a server answered.

    Attributes:
        status: Of HTTP.
        body: As it travelled; None where it is longer than was asked for. Never shown: it may be a Secret.
        retry_after: Seconds after which to ask again, as the server says; None where it says none.
    """

    status: int
    body: bytes | None
    retry_after: int | None = None

    def __repr__(self) -> str:
        return f"Reply({self.status}, {'no' if self.body is None else len(self.body)} bytes)"


class NoReply(msgspec.Struct, frozen=True):
    """Why there is no answer.

    Attributes:
        reason: One word.
        text: Part of a sentence.
        sent: The request may have arrived all the same.
    """

    reason: RefusalReason
    text: str
    sent: bool = True


# What a kubeconfig of the wrong shape, or a broken plugin, makes the package raise. Their texts quote the file, and
# a chained exception would show them too.
_LIBRARY_FAILURES = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)


class Access:
    """What a kubeconfig gives for asking API servers.

    Attributes:
        url: Of the server that it names.
    """

    def __init__(self, configuration: Any, credentials: dict[str, str], request_seconds: float) -> None:
        self._configuration = configuration
        self._credentials = credentials
        self._request_seconds = request_seconds
        self._given_up = threading.Event()
        self._opened: list[Server] = []
        self.url = str(configuration.host).rstrip("/")

    def tls_names(self, url: str) -> tuple[str, ...]:
        """Return as whom a server may prove itself, in the order to try; "" is the host of its address.

        The name that the kubeconfig says holds for every server. Where it says none, a server other than its own may
        have a certificate without its address in it; then the name of service default/kubernetes will do, which stands
        in all of them, or the host of the kubeconfig's server.
        """
        given = str(self._configuration.tls_server_name or "")
        if given or url == self.url:
            return (given,)
        return ("", _SERVICE, urlsplit(self.url).hostname or "")

    def server(self, url: str, tls_name: str = "") -> Server:
        """Return one API server, with this kubeconfig's credentials and certificate authority.

        Raises:
            AuthorizationRefused: Nothing would prove who answers.
        """
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - optional, and slow to import

        address = without_user(url)
        if not url.startswith("https://") or not self._configuration.verify_ssl:
            raise AuthorizationRefused(
                f"nothing proves that {address} is the API server: the kubeconfig asks for no verified TLS",
                reason=RefusalReason.TLS_FAILED,
                hint="give the cluster's certificate-authority in the kubeconfig",
            )
        configuration = copy.copy(self._configuration)
        configuration.host = url
        configuration.tls_server_name = tls_name or None
        found = Server(
            url,
            RESTClientObject(configuration).pool_manager,
            self._credentials,
            request_seconds=self._request_seconds,
            given_up=self._given_up,
        )
        self._opened.append(found)
        return found

    def close(self) -> None:
        """Send no further request, and close the connections. Threads that still wait end by themselves."""
        self._given_up.set()
        for server in self._opened:
            server.close()


class Server:
    """One API server, reached through a pool that the kubernetes package prepared.

    Attributes:
        address: Of the server, as it may be shown.
    """

    def __init__(
        self,
        url: str,
        pool: Any,
        credentials: dict[str, str],
        *,
        request_seconds: float,
        given_up: threading.Event,
    ) -> None:
        import urllib3  # noqa: PLC0415 - comes with the optional package

        self._urllib3 = urllib3
        self._pool = pool
        self._credentials = credentials
        self._request_seconds = request_seconds
        self._given_up = given_up
        self._url = url
        self.address = without_user(url)

    def close(self) -> None:
        """Close the connections that nobody uses."""
        self._pool.clear()

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
        return self._exchange(method, path, body, accept=accept, longest=longest)

    def merge_patch(self, path: str, body: Any, *, longest: int, seconds: float) -> Reply | NoReply:
        """Send one JSON merge patch, once; for :mod:`etcdfix.remediation.patcher` alone."""
        media = "application/merge-patch+json"
        return self._exchange("PATCH", path, body, longest=longest, content_type=media, seconds=seconds)

    def _exchange(
        self,
        method: str,
        path: str,
        body: Any,
        *,
        accept: str = "application/json",
        longest: int,
        content_type: str = "application/json",
        seconds: float | None = None,
    ) -> Reply | NoReply:
        if self._given_up.is_set():
            return NoReply(RefusalReason.TIMED_OUT, "nobody waits for it any more", sent=False)
        limit = self._request_seconds if seconds is None else seconds
        try:
            answer = self._pool.request(
                method,
                self._url + path,
                body=None if body is None else msgspec.json.encode(body),
                headers={"Accept": accept, "Content-Type": content_type, **self._credentials},
                retries=False,
                redirect=False,
                preload_content=False,
                timeout=self._urllib3.Timeout(total=limit),
            )
            try:
                status = int(answer.status)
                wait = str(answer.headers.get("Retry-After", ""))
                found: bytes = answer.read(longest + 1)
            finally:
                answer.close()
        except (self._urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            return self._no_reply(exc, limit)
        # A date may stand there too; API servers write seconds.
        retry_after = int(wait) if re.fullmatch(r"\d{1,6}", wait, re.ASCII) else None
        return Reply(status, found if len(found) <= longest else None, retry_after)

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
            raise _refused_by_status(reply.status, what, hint)
        if reply.body is None:
            raise malformed(what)
        return reply.body

    def _no_reply(self, error: Exception, seconds: float) -> NoReply:
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


def open_access(
    kubeconfig: str, context: str | None, *, timeout_seconds: float, request_seconds: float
) -> Access:
    """Read a kubeconfig, and have its plugins give the credentials.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained, or not in time.
    """
    _require_client()
    _check_readable(kubeconfig)

    def load() -> Access:
        configuration = _load(kubeconfig, context)
        return Access(configuration, _credentials(configuration), request_seconds)

    (found,) = run_within([load], timeout_seconds)
    return require_done(found, timeout_seconds)


def require_done(found: _Result | BaseException | None, seconds: float) -> _Result:
    """Return what a call came to.

    Raises:
        EtcdfixError: What it raised; anything else that it raised, and that it was not done in time, as a refusal.
    """
    if found is None:
        raise AuthorizationRefused(
            f"the API server's answer was not there within {seconds:g} s", reason=RefusalReason.TIMED_OUT
        )
    if isinstance(found, EtcdfixError):
        raise found
    if isinstance(found, BaseException):
        raise AuthorizationRefused(
            f"the API server could not be asked ({type(found).__name__})", reason=RefusalReason.CREDENTIALS
        )
    return found


def decode(found: bytes, type_: type[_Result], what: str) -> _Result:
    """Return an answer as what it should be.

    Raises:
        AuthorizationRefused: It is nothing of the kind.
    """
    try:
        return msgspec.json.decode(found, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
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


def _require_client() -> None:
    try:
        import kubernetes.config  # noqa: F401, PLC0415 - optional, and slow to import
    except ImportError as exc:
        raise KubernetesClientMissing(
            "--kubeconfig needs the Python package kubernetes, which is not installed",
            hint="pip install 'etcdfix[kubernetes]'",
        ) from exc


def _check_readable(kubeconfig: str) -> None:
    if os.pathsep in kubeconfig:
        # The package would take it for a list of files.
        raise KubeconfigInvalid(f"--kubeconfig {kubeconfig}: one file, and no {os.pathsep!r} in its path")
    try:
        read_input(Path(kubeconfig), most_bytes=MAX_SETTINGS_BYTES)
    except OSError as exc:
        raise KubeconfigInvalid(f"--kubeconfig {kubeconfig}: {why(exc).lower()}") from exc


def _load(kubeconfig: str, context: str | None) -> Any:
    import yaml  # noqa: PLC0415 - only for the class of its errors
    from kubernetes import config  # noqa: PLC0415 - optional, and slow to import

    load: Any = config.new_client_from_config
    try:
        with _silent_root_logger():
            return load(config_file=kubeconfig, context=context, persist_config=False).configuration
    except (config.ConfigException, yaml.YAMLError, *_LIBRARY_FAILURES) as exc:
        what = "its current context" if context is None else f"context {context!r}"
        raise KubeconfigInvalid(
            f"--kubeconfig {kubeconfig}: {what}, or the cluster or user that it names, cannot be used "
            f"({type(exc).__name__})",
            hint="kubectl config get-contexts",
        ) from None


def _credentials(configuration: Any) -> dict[str, str]:
    import urllib3  # noqa: PLC0415 - comes with the optional package

    try:
        with _silent_root_logger():
            settings = configuration.auth_settings()
    except (urllib3.exceptions.HTTPError, *_LIBRARY_FAILURES) as exc:
        raise AuthorizationRefused(
            f"the credentials that the kubeconfig names could not be obtained ({type(exc).__name__})",
            reason=RefusalReason.CREDENTIALS,
        ) from None
    return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}


def _refused_by_status(status: int, what: str, forbidden_hint: str) -> AuthorizationRefused:
    if status == 401:
        return AuthorizationRefused(
            f"the API server does not know the kubeconfig's user (401), asked for {what}",
            reason=RefusalReason.UNAUTHENTICATED,
            hint="kubectl --kubeconfig FILE auth whoami",
        )
    if status == 403:
        return AuthorizationRefused(
            f"the API server does not let the kubeconfig's user ask for {what} (403)",
            reason=RefusalReason.FORBIDDEN,
            hint=forbidden_hint,
        )
    return AuthorizationRefused(
        f"the API server answered {status} when it was asked for {what}",
        reason=RefusalReason.SERVER_ERROR,
        hint=AGAIN if status in PASSING else _LOOK_AT_IT,
    )


@contextlib.contextmanager
def _silent_root_logger() -> Iterator[None]:
    """Drop what is logged by the root logger itself meanwhile.

    The kubernetes package reports failing plugins there, with their output; on a root logger without handlers that
    would even install one. Loggers of other names are not touched by a filter on this one.
    """
    root = logging.getLogger()
    silence = logging.NullHandler()
    root.addHandler(silence)
    root.addFilter(_drop)
    try:
        yield
    finally:
        root.removeFilter(_drop)
        root.removeHandler(silence)


def _drop(_record: logging.LogRecord) -> bool:
    return False
