"""Asks a Kubernetes API server whether its user may do by the API what etcdfix is about to do behind its back.

Whoever holds etcd's credentials can delete anything. With ``--kubeconfig`` a second authority is asked: the API server
of the same cluster (the uid of kube-system must be the one that etcd holds), and its authorizers, for the two
permissions that upstream wants for an unsafe deletion. Only a clear yes to both counts. Everything else refuses, in
words of its own, within a bounded time, and without retries.

The ``kubernetes`` package reads the kubeconfig, runs its plugins, and prepares TLS and proxies; it is an optional
extra and imported here, when it is needed. The requests themselves are our own, through the connection pool which
that package has prepared: its models would take an answer without ``allowed`` for an error of ours, and its
logger would write whole answers. Nothing of what the package says in its errors is repeated: it quotes parts of
the file, and the output of plugins, and those hold tokens.

Format: ``authorization.k8s.io/v1`` SelfSubjectAccessReview, ``authentication.k8s.io/v1`` SelfSubjectReview (served
since Kubernetes 1.28).
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import threading
from collections.abc import Iterator
from enum import StrEnum
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from etcdfix.errors import AuthorizationRefused, EtcdfixError, KubeconfigInvalid, KubernetesClientMissing
from etcdfix.model import GroupResource

UNSAFE_DELETE_VERB = "unsafe-delete-ignore-read-errors"
VERBS = (UNSAFE_DELETE_VERB, "delete")

UNKNOWN_USER = "unknown"

_Answer = TypeVar("_Answer")

DEFAULT_TIMEOUT_SECONDS = 30.0
"""For everything together, plugins of the kubeconfig included; one request may take half of it."""

_LONGEST_ANSWER = 1 << 20
_LONGEST_TEXT = 300

_KUBE_SYSTEM = "/api/v1/namespaces/kube-system"
_ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SUBJECT_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


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


class Authorization(msgspec.Struct, frozen=True, kw_only=True):
    """A clear yes to both questions.

    Attributes:
        user_name: As whom the API server knows the kubeconfig's user; ``unknown`` where it does not say.
        server: Address of the API server.
        kube_system_uid: Of its kube-system namespace, equal to etcd's.
        verbs: What was allowed.
    """

    user_name: str
    server: str
    kube_system_uid: str
    verbs: tuple[str, ...] = VERBS


class _Metadata(msgspec.Struct):
    name: str
    uid: str


class _Namespace(msgspec.Struct):
    kind: str
    metadata: _Metadata


class _Attributes(msgspec.Struct, frozen=True):
    resource: str
    verb: str
    name: str
    group: str = ""
    namespace: str = ""


class _AccessSpec(msgspec.Struct):
    attributes: _Attributes = msgspec.field(name="resourceAttributes")


class _AccessStatus(msgspec.Struct):
    allowed: bool
    denied: bool = False
    reason: str = ""
    evaluation_error: str = msgspec.field(name="evaluationError", default="")


class _AccessReview(msgspec.Struct):
    kind: str
    spec: _AccessSpec
    status: _AccessStatus


class _UserInfo(msgspec.Struct):
    username: str


class _SubjectStatus(msgspec.Struct):
    user_info: _UserInfo = msgspec.field(name="userInfo")


class _SubjectReview(msgspec.Struct):
    status: _SubjectStatus


def authorize(
    kubeconfig: str | Path,
    context: str | None = None,
    *,
    group: str,
    resource: str,
    namespace: str,
    name: str,
    kube_system_uid: str,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> Authorization:
    """Ask the API server for both permissions on exactly one object.

    Args:
        kubeconfig: Path of the file.
        context: Which context of it; None for its current one.
        group: API group, "" for the core group.
        resource: Plural resource.
        namespace: "" for an object without one.
        name: Name of the object.
        kube_system_uid: Uid of the kube-system namespace as etcd holds it.
        timeout_seconds: For everything together.

    Raises:
        ValueError: Resource or name are empty, which would ask about every one.
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: Anything but a clear yes.
    """
    if not resource or not name:
        raise ValueError("resource and name must not be empty")
    if not kube_system_uid:
        raise AuthorizationRefused(
            "etcd holds no uid of kube-system that the API server's could be compared with",
            reason=RefusalReason.OTHER_CLUSTER,
        )
    _require_client()
    attributes = [
        _Attributes(group=group, resource=resource, namespace=namespace, name=name, verb=verb)
        for verb in VERBS
    ]
    inquiry = _Inquiry(str(kubeconfig), context, kube_system_uid, attributes, timeout_seconds / 2)
    # In a thread, because neither a plugin of the kubeconfig nor a server that sends byte by byte knows our limit. This
    # pool's threads are daemons: Python does not wait for one at its end. And what they raise comes back as a
    # value, never as a traceback, which could show what the package quotes.
    pool = ThreadPool(1)
    failures: list[BaseException] = []
    waiting = pool.apply_async(inquiry.ask, error_callback=failures.append)
    pool.close()
    waiting.wait(timeout_seconds)
    if not waiting.ready():
        inquiry.give_up()
        raise AuthorizationRefused(
            f"the API server's answer was not there within {timeout_seconds:g} s",
            reason=RefusalReason.TIMED_OUT,
        )
    for failure in failures:
        if isinstance(failure, EtcdfixError):
            raise failure
        raise AuthorizationRefused(
            f"the API server could not be asked ({type(failure).__name__})", reason=RefusalReason.CREDENTIALS
        )
    return waiting.get()


# What a kubeconfig of the wrong shape, or a broken plugin, makes the package raise. Their texts quote the file, and
# a chained exception would show them too.
_LIBRARY_FAILURES = (OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError)


class _Inquiry:
    """The whole conversation with one API server."""

    def __init__(
        self,
        kubeconfig: str,
        context: str | None,
        kube_system_uid: str,
        attributes: list[_Attributes],
        request_seconds: float,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._kube_system_uid = kube_system_uid
        self._attributes = attributes
        self._request_seconds = request_seconds
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Send no further request: nobody waits for its answer. May be called from another thread."""
        self._given_up.set()

    def ask(self) -> Authorization:
        _check_readable(self._kubeconfig)
        server = _Server(self._load(), request_seconds=self._request_seconds, given_up=self._given_up)
        try:
            self._check_cluster(server)
            user_name = _user_name(server)
            for attributes in self._attributes:
                _check_access(server, attributes)
        finally:
            server.close()
        return Authorization(
            user_name=user_name, server=server.address, kube_system_uid=self._kube_system_uid
        )

    def _load(self) -> Any:
        import yaml  # noqa: PLC0415 - only for the class of its errors
        from kubernetes import config  # noqa: PLC0415 - optional, and slow to import

        load: Any = config.new_client_from_config
        try:
            with _silent_root_logger():
                return load(config_file=self._kubeconfig, context=self._context, persist_config=False)
        except (config.ConfigException, yaml.YAMLError, *_LIBRARY_FAILURES) as exc:
            what = "its current context" if self._context is None else f"context {self._context!r}"
            raise KubeconfigInvalid(
                f"--kubeconfig {self._kubeconfig}: {what}, or the cluster or user that it names, cannot be used "
                f"({type(exc).__name__})",
                hint="kubectl config get-contexts",
            ) from None

    def _check_cluster(self, server: _Server) -> None:
        what = "the API server's kube-system namespace"
        found = _decode(server.request("GET", _KUBE_SYSTEM, what=what), _Namespace, what)
        if found.kind != "Namespace" or found.metadata.name != "kube-system" or not found.metadata.uid:
            raise _malformed(what)
        if found.metadata.uid != self._kube_system_uid:
            raise AuthorizationRefused(
                f"the API server at {server.address} belongs to another cluster: its kube-system has the uid "
                f"{_shorten(found.metadata.uid)}, the one in etcd has {_shorten(self._kube_system_uid)}",
                reason=RefusalReason.OTHER_CLUSTER,
                hint="choose the kubeconfig, or its context, of the cluster that this etcd belongs to",
            )


class _Server:
    """One API server, reached through the pool that the kubernetes package prepared."""

    def __init__(self, client: Any, *, request_seconds: float, given_up: threading.Event) -> None:
        import urllib3  # noqa: PLC0415 - comes with the optional package

        self._urllib3 = urllib3
        self._configuration = client.configuration
        self._pool = client.rest_client.pool_manager
        self._request_seconds = request_seconds
        self._given_up = given_up
        self._url = str(client.configuration.host).rstrip("/")
        self.address = _without_user(self._url)
        if not self._url.startswith("https://") or not client.configuration.verify_ssl:
            raise AuthorizationRefused(
                f"nothing proves that {self.address} is the API server: the kubeconfig asks for no verified TLS",
                reason=RefusalReason.TLS_FAILED,
                hint="give the cluster's certificate-authority in the kubeconfig",
            )

    def close(self) -> None:
        self._pool.clear()

    def request(self, method: str, path: str, body: Any = None, *, what: str) -> bytes:
        """Send one request, once, and return the body of an answer that says 200 or 201.

        Raises:
            AuthorizationRefused: Any other answer, or none.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json", **self._credentials()}
        if self._given_up.is_set():
            # Obtaining the credentials may have been what took so long.
            raise AuthorizationRefused(f"nobody waits for {what} any more", reason=RefusalReason.TIMED_OUT)
        try:
            answer = self._pool.request(
                method,
                self._url + path,
                body=None if body is None else msgspec.json.encode(body),
                headers=headers,
                retries=False,
                redirect=False,
                preload_content=False,
                timeout=self._urllib3.Timeout(total=self._request_seconds),
            )
            try:
                status = int(answer.status)
                found: bytes = answer.read(_LONGEST_ANSWER + 1)
            finally:
                answer.close()
        except (self._urllib3.exceptions.HTTPError, OSError, ValueError) as exc:
            raise self._no_answer(exc, what) from None
        if status not in {200, 201}:
            raise _refused_by_status(status, what)
        if len(found) > _LONGEST_ANSWER:
            raise _malformed(what)
        return found

    def _credentials(self) -> dict[str, str]:
        try:
            with _silent_root_logger():
                settings = self._configuration.auth_settings()
        except (self._urllib3.exceptions.HTTPError, *_LIBRARY_FAILURES) as exc:
            raise AuthorizationRefused(
                f"the credentials that the kubeconfig names could not be obtained ({type(exc).__name__})",
                reason=RefusalReason.CREDENTIALS,
            ) from None
        return {setting["key"]: setting["value"] for setting in settings.values() if setting["value"]}

    def _no_answer(self, error: Exception, what: str) -> AuthorizationRefused:
        errors = self._urllib3.exceptions
        if isinstance(error, errors.SSLError | ssl.SSLError):
            reason, text = RefusalReason.TLS_FAILED, "the TLS connection failed"
        elif isinstance(error, errors.NewConnectionError | errors.ProxyError):
            reason, text = RefusalReason.UNREACHABLE, "no connection comes about"
        elif isinstance(error, errors.TimeoutError | TimeoutError):
            reason, text = RefusalReason.TIMED_OUT, f"no answer within {self._request_seconds:g} s"
        else:
            reason, text = RefusalReason.UNREACHABLE, f"the connection failed ({type(error).__name__})"
        return AuthorizationRefused(
            f"{self.address} was asked for {what}: {text}",
            reason=reason,
            hint="kubectl --kubeconfig FILE get --raw /readyz",
        )


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
        Path(kubeconfig).open("rb").close()
    except OSError as exc:
        reason = (exc.strerror or "cannot be read").lower()
        raise KubeconfigInvalid(f"--kubeconfig {kubeconfig}: {reason}") from exc


def _user_name(server: _Server) -> str:
    what = "the name of its user"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        found = _decode(server.request("POST", _SUBJECT_REVIEW, body, what=what), _SubjectReview, what)
    except AuthorizationRefused:
        # Servers before 1.28 do not serve it; a name is good to have, not a condition.
        return UNKNOWN_USER
    return _shorten(found.status.user_info.username) or UNKNOWN_USER


def _check_access(server: _Server, attributes: _Attributes) -> None:
    what = f"the permission to {attributes.verb} {_object_name(attributes)}"
    asked = {name: value for name, value in msgspec.structs.asdict(attributes).items() if value}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": asked},
    }
    found = _decode(server.request("POST", _ACCESS_REVIEW, body, what=what), _AccessReview, what)
    if found.kind != "SelfSubjectAccessReview" or found.spec.attributes != attributes:
        raise _malformed(what)
    status = found.status
    if status.evaluation_error:
        raise AuthorizationRefused(
            f"the API server is in doubt about {what}: {_shorten(status.evaluation_error)}",
            reason=RefusalReason.EVALUATION_ERROR,
        )
    if not status.allowed or status.denied:
        because = f": {_shorten(status.reason)}" if status.reason else ""
        raise AuthorizationRefused(
            f"the API server denies {what}{because}",
            reason=RefusalReason.DENIED,
            hint=f"kubectl auth can-i {attributes.verb} {GroupResource(attributes.group, attributes.resource)}",
        )


def _object_name(attributes: _Attributes) -> str:
    place = f"{attributes.namespace}/" if attributes.namespace else ""
    return f"{GroupResource(attributes.group, attributes.resource)} {place}{attributes.name}"


def _decode(found: bytes, type_: type[_Answer], what: str) -> _Answer:
    try:
        return msgspec.json.decode(found, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as exc:
        raise _malformed(what) from exc


def _malformed(what: str) -> AuthorizationRefused:
    return AuthorizationRefused(
        f"the API server's answer about {what} is not one that can be understood",
        reason=RefusalReason.MALFORMED_ANSWER,
    )


def _refused_by_status(status: int, what: str) -> AuthorizationRefused:
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
        )
    return AuthorizationRefused(
        f"the API server answered {status} when it was asked for {what}", reason=RefusalReason.SERVER_ERROR
    )


def _without_user(url: str) -> str:
    """Return an address as it may be shown: what stands before an @ may be a password."""
    scheme, separator, rest = url.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


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
