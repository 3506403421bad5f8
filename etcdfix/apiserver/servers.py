"""Asks every API server whether it reads the object that etcdfix cannot read.

A configuration may be wrong in ways that nothing in etcd shows. An API server that reads the object is the proof: then
the configuration given here is wrong or old, and nothing may be changed on its word. Each server holds a configuration
of its own, so each is asked: the one of the kubeconfig, those that were named beside it, and those that service
``default/kubernetes`` lists. Only a server that proves by TLS who it is, and by the uid of its kube-system that it
belongs to this cluster, counts as an answer. And one that answers is asked for permission too.

Answers are never shown: what a server reads may be a Secret.

Format: ``meta.k8s.io/v1`` PartialObjectMetadata, ``v1`` Endpoints and Status, APIGroup of discovery.
"""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from etcdfix.apiserver.authorization import Authorization, authorize, check_cluster
from etcdfix.apiserver.client import (
    Access,
    NoReply,
    RefusalReason,
    Server,
    open_access,
    require_done,
    run_within,
    without_user,
)
from etcdfix.errors import AuthorizationRefused, ConfigurationError, EtcdfixError
from etcdfix.model import ClusterIdentity, GroupResource
from etcdfix.rules import Rule, refuse
from etcdfix.storagekey import api_path

DEFAULT_TIMEOUT_SECONDS = 30.0
"""For everything together, plugins of the kubeconfig included; one request may take a third of it."""

_ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
_METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
# Servers that know no PartialObjectMetadata send the whole object: as JSON some 1.4 times of what etcd takes.
_LONGEST_OBJECT = 8 << 20
_MOST_LISTED = 16

# These mean that the server could not be talked to at all, so that the next request would fare no better.
_NOT_REACHED = {
    RefusalReason.UNREACHABLE.value: "no connection comes about, or it breaks off",
    RefusalReason.TIMED_OUT.value: "it does not answer in time",
    RefusalReason.TLS_FAILED.value: "the TLS connection failed: nothing proves who answers",
}


class Answer(StrEnum):
    """What one API server said of the object."""

    READS_IT = "reads-it"
    NOT_FOUND = "not-found"
    READ_ERROR = "read-error"
    EMPTY = "empty"
    DENIED = "denied"
    NO_ANSWER = "no-answer"


class ServerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of one API server.

    Attributes:
        server: Its address, as it may be shown.
        answer: In one word.
        detail: Why, or what exactly; "" where the word says it all.
    """

    server: str
    answer: Answer
    detail: str = ""


class ServerAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What the API servers said.

    Attributes:
        answers: One for each that was asked, in the order in which they were found.
        warnings: Why there may be more servers than these, one sentence each.
        authorization: A clear yes to what is about to happen; None where no server answered, or none was asked.
    """

    answers: tuple[ServerAnswer, ...] = ()
    warnings: tuple[str, ...] = ()
    authorization: Authorization | None = None


class APIAccess(msgspec.Struct, frozen=True):
    """Which API servers to ask, and as whom.

    Attributes:
        kubeconfig: Path of the file.
        context: Which context of it; None for its current one.
        servers: Addresses of further servers, from :func:`parse_server_url`.
    """

    kubeconfig: Path
    context: str | None = None
    servers: tuple[str, ...] = ()


def parse_server_url(text: str) -> str:
    """Return the address of an API server as it was given, without a slash at its end.

    Raises:
        ConfigurationError: It is no ``https://HOST[:PORT][/PATH]``.
    """
    try:
        parts = urlsplit(text)
        fits = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits or "@" in text or "?" in text or "#" in text or " " in text or not text.isprintable():
        raise ConfigurationError(
            f"--server {without_user(text)}: not the address of an API server",
            hint="--server https://HOST:PORT, without a user, a query or a fragment",
        )
    return text.rstrip("/")


def ask_servers(
    kubeconfig: str | Path,
    context: str | None,
    extra_servers: Sequence[str] = (),
    *,
    group: str,
    version: str,
    resource: str,
    namespace: str,
    name: str,
    cluster: ClusterIdentity,
    held: bool = True,
    readable_is_fine: bool = False,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
) -> ServerAnswers:
    """Ask each API server for an object, and one of them for the permission to delete it.

    Args:
        kubeconfig: Path of the file.
        context: Which context of it; None for its current one.
        extra_servers: Addresses of further servers, asked with the same credentials and certificate authority.
        group: API group, "" for the core group.
        version: API version, "" where it is not known.
        resource: Plural resource.
        namespace: "" for an object without one.
        name: Name of the object.
        cluster: Which cluster etcd holds.
        held: etcd holds the object, so that a server which finds none reads something else.
        readable_is_fine: The change does not rest on the object being unreadable.
        timeout_seconds: For everything together.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        RefusedByRule: A server reads the object.
        AuthorizationRefused: A server is of another cluster, does not say of which it is, or says no.
    """
    if not cluster.is_known:
        raise AuthorizationRefused(
            "nothing in etcd names the cluster, so nothing can be compared with the API server's",
            reason=RefusalReason.OTHER_CLUSTER,
        )
    request_seconds = timeout_seconds / 3
    deadline = time.monotonic() + timeout_seconds
    access = open_access(
        str(kubeconfig), context, timeout_seconds=timeout_seconds, request_seconds=request_seconds
    )
    thing = _Object(group, version, resource, namespace, name)
    try:
        found = _Inquiry(access, thing, cluster, deadline, request_seconds, held=held)
        found.ask([access.url, *extra_servers])
        found.ask(found.listed())
        if not readable_is_fine:
            found.refuse_readable()
        authorization = None
        server = found.spokesman()
        if server is not None:
            (said,) = run_within([lambda: _authorize(server, thing, cluster)], found.left())
            authorization = require_done(said, timeout_seconds)
    finally:
        access.close()
    return ServerAnswers(
        answers=tuple(asked.answer for asked in found.asked),
        warnings=tuple(found.warnings),
        authorization=authorization,
    )


class _Object(msgspec.Struct, frozen=True):
    """What the servers are asked for; the words of :func:`ask_servers`."""

    group: str
    version: str
    resource: str
    namespace: str
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{GroupResource(self.group, self.resource)} {place}{self.name}"


class _Said(msgspec.Struct, frozen=True):
    answer: Answer
    detail: str = ""


class _Asked(msgspec.Struct, frozen=True):
    """One server that was asked.

    Attributes:
        answer: What it said.
        server: The connection, where it showed that it is of this cluster, or nothing could show it.
        doubt: Why its answer counts as none, although it gave one.
        warning: Why it could not be compared which cluster it is of; "" where it was.
    """

    answer: ServerAnswer
    server: Server | None = None
    doubt: AuthorizationRefused | None = None
    warning: str = ""

    @property
    def counts(self) -> bool:
        """It is a server of this cluster, and it looked for the object."""
        return self.server is not None and self.answer.answer not in {Answer.DENIED, Answer.NO_ANSWER}


class _Metadata(msgspec.Struct):
    name: str = ""
    uid: str = ""


class _Found(msgspec.Struct):
    kind: str
    metadata: _Metadata


class _Details(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    kind: str
    details: _Details = msgspec.field(default_factory=_Details)


class _Version(msgspec.Struct):
    version: str


class _APIGroup(msgspec.Struct):
    kind: str
    versions: list[_Version]
    preferred: _Version | None = msgspec.field(name="preferredVersion", default=None)


class _Address(msgspec.Struct):
    ip: str


class _Port(msgspec.Struct):
    port: int


class _Subset(msgspec.Struct):
    addresses: list[_Address] = []
    ports: list[_Port] = []


class _Endpoints(msgspec.Struct):
    kind: str
    subsets: list[_Subset] = []


_NOT_UNDERSTOOD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _Inquiry:
    """The conversation with all servers; what each said stands in ``asked``, and what else to know in ``warnings``."""

    def __init__(
        self,
        access: Access,
        thing: _Object,
        cluster: ClusterIdentity,
        deadline: float,
        request_seconds: float,
        *,
        held: bool,
    ) -> None:
        self.asked: list[_Asked] = []
        self.warnings: list[str] = []
        self._access = access
        self._thing = thing
        self._cluster = cluster
        self._deadline = deadline
        self._request_seconds = request_seconds
        self._held = held

    def left(self) -> float:
        """Return how many seconds are left."""
        return max(0.0, self._deadline - time.monotonic())

    def ask(self, urls: Sequence[str]) -> None:
        """Ask servers side by side: one that does not answer keeps no other waiting.

        Raises:
            AuthorizationRefused: One belongs to another cluster, or nothing would prove who answers.
        """
        known = {asked.answer.server for asked in self.asked}
        new = [url for url in dict.fromkeys(urls) if without_user(url) not in known]
        seconds = min(self._request_seconds, self.left())
        found = run_within([partial(self._ask, url) for url in new], seconds)
        for url, said in zip(new, found, strict=True):
            if isinstance(said, EtcdfixError):
                raise said
            if isinstance(said, _Asked):
                self.asked.append(said)
                continue
            why = f"no answer within {seconds:g} s" if said is None else type(said).__name__
            answer = ServerAnswer(server=without_user(url), answer=Answer.NO_ANSWER, detail=why)
            self.asked.append(_Asked(answer))

    def listed(self) -> list[str]:
        """Return the addresses that service default/kubernetes lists, as a server of this cluster says."""
        server = next((asked.server for asked in self.asked if asked.server is not None), None)
        if server is None:
            return []
        (reply,) = run_within(
            [lambda: server.send("GET", _ENDPOINTS)], min(self._request_seconds, self.left())
        )
        why = "there was no answer in time"
        if isinstance(reply, NoReply):
            why = reply.text
        elif reply is not None and not isinstance(reply, BaseException):
            urls = _addresses(reply.body) if reply.status == 200 else None
            if urls is not None:
                if len(urls) > _MOST_LISTED:
                    self.warnings.append(
                        f"service default/kubernetes lists {len(urls)} API servers; the first {_MOST_LISTED} were asked"
                    )
                return urls[:_MOST_LISTED]
            why = f"the answer to that was {reply.status}"
            if reply.status == 200:
                why = "that answer could not be understood"
        self.warnings.append(f"which API servers service default/kubernetes lists is not known: {why}")
        return []

    def refuse_readable(self) -> None:
        """Refuse where a server reads the object."""
        for asked in self.asked:
            if asked.answer.answer is Answer.READS_IT:
                detail = f" ({asked.answer.detail})" if asked.answer.detail else ""
                raise refuse(
                    Rule.CONFIGURATION_WRONG,
                    f"the API server at {asked.answer.server} reads {self._thing}{detail}: the configuration given "
                    "here is wrong or old, or this is not that server's etcd",
                    hint="compare with that server's --encryption-provider-config, --etcd-servers and --etcd-prefix",
                )

    def spokesman(self) -> Server | None:
        """Return the first server whose answer counts, None where none answered.

        Raises:
            AuthorizationRefused: Servers answered, and none of them showed that it is of this cluster.
        """
        for asked in sorted(
            self.asked, key=lambda asked: asked.warning != ""
        ):  # those that were compared first
            if asked.counts:
                return asked.server
        for asked in self.asked:
            if asked.doubt is not None:
                raise asked.doubt
        return None

    def _ask(self, url: str) -> _Asked:
        for tls_name in self._access.tls_names(url):
            server = self._access.server(url, tls_name)
            failure, warning = _identity_of(server, self._cluster)
            if failure is None or failure.reason != RefusalReason.TLS_FAILED:
                break
        if failure is not None and failure.reason in _NOT_REACHED:
            return _Asked(_answer(server, Answer.NO_ANSWER, _NOT_REACHED[failure.reason]))
        said = _look_for(server, self._thing, certain=failure is None)
        if failure is None and self._held and said == _Said(Answer.NOT_FOUND):
            said = _Said(Answer.NOT_FOUND, "though etcd holds it: it reads another etcd, or another prefix")
            elsewhere = AuthorizationRefused(
                f"the API server at {server.address} finds no {self._thing}, {said.detail}",
                reason=RefusalReason.OTHER_CLUSTER,
                hint="compare with that server's --etcd-servers and --etcd-prefix",
            )
            return _Asked(_answer(server, said.answer, said.detail), doubt=elsewhere)
        answer = _answer(server, said.answer, "; ".join(filter(None, (said.detail, warning))))
        if failure is None:
            return _Asked(answer, server, warning=warning)
        if said.answer in {Answer.READS_IT, Answer.DENIED, Answer.NO_ANSWER}:
            return _Asked(answer)
        denied = failure.reason in {RefusalReason.UNAUTHENTICATED, RefusalReason.FORBIDDEN}
        word = Answer.DENIED if denied else Answer.NO_ANSWER
        return _Asked(_answer(server, word, str(failure)), doubt=failure)


def _authorize(server: Server, thing: _Object, cluster: ClusterIdentity) -> Authorization:
    return authorize(
        server,
        group=thing.group,
        resource=thing.resource,
        namespace=thing.namespace,
        name=thing.name,
        cluster=cluster,
    )


def _identity_of(server: Server, cluster: ClusterIdentity) -> tuple[AuthorizationRefused | None, str]:
    """Return why a server did not show that it is of this cluster, None where it did; and a warning about that.

    Raises:
        AuthorizationRefused: It is of another.
    """
    try:
        return None, check_cluster(server, cluster)
    except AuthorizationRefused as exc:
        if exc.reason == RefusalReason.OTHER_CLUSTER:
            raise
        return exc, ""


def _answer(server: Server, answer: Answer, detail: str) -> ServerAnswer:
    return ServerAnswer(server=server.address, answer=answer, detail=detail)


def _look_for(server: Server, thing: _Object, *, certain: bool) -> _Said:
    """Ask a server for the object, in as many versions as it takes.

    A version may fail to be converted to, and one may not be served; another one of the same object may still be read.

    Args:
        server: To ask.
        thing: The object.
        certain: The server is one of this cluster, so that whatever it says at 200 comes from an API server.
    """
    if not api_path(thing.group, thing.version or "v1", thing.resource, thing.namespace, thing.name):
        return _Said(Answer.NOT_FOUND, "no request can name it")
    failed = None
    if thing.version:
        said = _look_in(server, thing, thing.version, certain=certain)
        if said is not None and said.answer is not Answer.READ_ERROR:
            return said
        failed = said
    others = _other_versions(server, thing)
    if isinstance(others, _Said):
        return failed or others
    for version in others:
        said = _look_in(server, thing, version, certain=certain)
        if said is not None and said.answer is not Answer.READ_ERROR:
            return said
        failed = failed or said
    return failed or _Said(
        Answer.NOT_FOUND, f"it does not serve {GroupResource(thing.group, thing.resource)}"
    )


def _look_in(server: Server, thing: _Object, version: str, *, certain: bool) -> _Said | None:
    """Ask a server for the object in one version; None where it does not serve that."""
    path = api_path(thing.group, version, thing.resource, thing.namespace, thing.name)
    # Without a resourceVersion: the server reads it from etcd, not from its memory.
    reply = server.send("GET", path, accept=_METADATA_ONLY, longest=_LONGEST_OBJECT)
    if isinstance(reply, NoReply):
        return _Said(Answer.NO_ANSWER, reply.text)
    if reply.status == 200:
        return _judge_found(reply.body, certain=certain)
    if reply.status == 404:
        return _Said(Answer.NOT_FOUND) if _names(reply.body, thing.name) else None
    if reply.status == 401:
        return _Said(Answer.DENIED, "it does not know the kubeconfig's user (401)")
    if reply.status == 403:
        return _Said(Answer.DENIED, "it does not let the kubeconfig's user get the object (403)")
    if reply.status == 500:
        return _Said(Answer.READ_ERROR)
    return _Said(Answer.NO_ANSWER, f"it answered {reply.status}")


def _judge_found(body: bytes | None, *, certain: bool) -> _Said:
    """Say what an answer at 200 holds."""
    try:
        found = msgspec.json.decode(body or b"", type=_Found)
    except _NOT_UNDERSTOOD:
        detail = "it answered 200, and the answer cannot be understood"
        return _Said(Answer.READS_IT if certain else Answer.NO_ANSWER, detail)
    # Of a value that holds nothing, an API server makes an object that has neither.
    return _Said(Answer.READS_IT if found.metadata.name or found.metadata.uid else Answer.EMPTY)


def _names(body: bytes | None, name: str) -> bool:
    """Say whether a Status at 404 is about the object, and not about a path that is not served."""
    try:
        found = msgspec.json.decode(body or b"", type=_Status)
    except _NOT_UNDERSTOOD:
        return False
    return found.kind == "Status" and found.details.name == name


def _other_versions(server: Server, thing: _Object) -> tuple[str, ...] | _Said:
    """Return the versions of the object's group that a server serves, but the one that was asked for; or why not."""
    if not thing.group:
        return () if thing.version else ("v1",)  # the core group has no other
    reply = server.send("GET", api_path(thing.group, "v1", "x", "", None).removesuffix("/v1/x"))
    if isinstance(reply, NoReply):
        return _Said(Answer.NO_ANSWER, reply.text)
    if reply.status == 404:
        return ()
    if reply.status != 200:
        return _Said(Answer.NO_ANSWER, f"asked which versions it serves, it answered {reply.status}")
    try:
        found = msgspec.json.decode(reply.body or b"", type=_APIGroup)
    except _NOT_UNDERSTOOD:
        return _Said(Answer.NO_ANSWER, "which versions it serves could not be understood")
    preferred = [found.preferred.version] if found.preferred is not None else []
    served = dict.fromkeys([*preferred, *(version.version for version in found.versions)])
    return tuple(
        version
        for version in served
        if version != thing.version and api_path(thing.group, version, thing.resource, "", thing.name)
    )


def _addresses(body: bytes | None) -> list[str] | None:
    """Return the addresses that Endpoints list; None where they are none."""
    try:
        found = msgspec.json.decode(body or b"", type=_Endpoints)
        if found.kind != "Endpoints":
            return None
        return [
            f"https://{_host(address.ip)}:{port.port}"
            for subset in found.subsets
            for address in subset.addresses
            for port in subset.ports
        ]
    except (*_NOT_UNDERSTOOD, ValueError):
        return None


def _host(ip: str) -> str:
    address = ipaddress.ip_address(ip)
    return f"[{address}]" if address.version == 6 else str(address)
