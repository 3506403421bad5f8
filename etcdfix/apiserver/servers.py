"""All API servers of one cluster that can be found, for a conversation: each is asked by its own address.

What one server has in its memory, or reads, another may not. So a load balancer's address stands for one of them only,
and those that service ``default/kubernetes`` lists are asked beside it. Only a server that proves by TLS who it is, and
by the uid of its kube-system that it belongs to this cluster, counts as an answer.

Format: ``v1`` Endpoints.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from etcdfix.apiserver.client import (
    NOT_UNDERSTOOD,
    AuthorizationRefused,
    NoReply,
    Pace,
    RefusalReason,
    Server,
    without_user,
)
from etcdfix.apiserver.kubeconfig import Access, APIAccess, open_access
from etcdfix.apiserver.objects import ServerAnswer
from etcdfix.apiserver.permissions import Authorization, check_cluster, cluster_of
from etcdfix.model.closing import Closing
from etcdfix.model.errors import ConfigurationError, EtcdfixError, SourceUnreachable
from etcdfix.model.model import ClusterIdentity
from etcdfix.model.side_by_side import run_within

ONLY_READY: Final = (
    "service default/kubernetes lists only API servers that got ready, and one port for all of them: name others with "
    "--server URL"
)

_NOT_REACHED: Final = {
    RefusalReason.UNREACHABLE.value: "no connection comes about, or it breaks off",
    RefusalReason.TIMED_OUT.value: "it does not answer in time",
    RefusalReason.TLS_FAILED.value: "the TLS connection failed: nothing proves who answers",
}
"""These mean that the server could not be talked to at all, so that the next request would fare no better."""

_ENDPOINTS: Final = "/api/v1/namespaces/default/endpoints/kubernetes"
_MOST_LISTED: Final = 16

_Asked = TypeVar("_Asked")
_Result = TypeVar("_Result")


class ServerAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What the API servers said.

    Attributes:
        answers: One for each that was found; those that could not be asked come last.
        warnings: Why there may be more servers than these, one sentence each.
        authorization: A clear yes to what is about to happen; None where no server answered, or none was asked.
        all_known: A server of the cluster told which others there are, and each of them was asked.
    """

    answers: tuple[ServerAnswer, ...] = ()
    warnings: tuple[str, ...] = ()
    authorization: Authorization | None = None
    all_known: bool = False


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


class Absent(msgspec.Struct, frozen=True):
    """A server that was found and does not count.

    Attributes:
        server: Its address, as it may be shown.
        why: Part of a sentence.
        denied: It answers, and not to this user.
        unproven: The connection to one that answers, and did not show that it is of this cluster.
        failure: Why it did not.
    """

    server: str
    why: str
    denied: bool = False
    unproven: Server | None = None
    failure: AuthorizationRefused | None = None


class AllServers(Closing):
    """The API servers that can be asked; made by :func:`open_all_servers`.

    Attributes:
        servers: Those of this cluster, in the order in which they were found.
        absent: The others that were found.
        uncompared: By address, why it could not be compared which cluster a server is of.
        unlisted: Why there may be more servers than were listed; "" where nothing says so.
        all_known: One of them told which others there are.
        cluster: Which cluster they are of; unknown where nothing says it.
    """

    def __init__(self, access: Access) -> None:
        self.servers: list[Server] = []
        self.absent: list[Absent] = []
        self.uncompared: dict[str, str] = {}
        self.unlisted = ""
        self.all_known = False
        self.cluster = ClusterIdentity()
        self._access = access

    def close(self) -> None:
        """Send no further request, and close the connections."""
        self._access.close()

    @property
    def warnings(self) -> list[str]:
        """Why there may be more servers than these, and what could not be compared."""
        uncompared = [f"{address}: {why}" for address, why in self.uncompared.items()]
        return [*uncompared, self.unlisted or ONLY_READY] if self.servers else []

    def require_any(self) -> None:
        """Refuse to go on without any API server.

        Raises:
            AuthorizationRefused: None of those that answer lets this user ask.
            SourceUnreachable: None answers.
        """
        if self.servers:
            return
        said = "; ".join(f"{each.server}: {each.why}" for each in self.absent)
        text, hint = f"no API server of this cluster can be asked ({said})", "name another one: --server URL"
        if any(each.denied for each in self.absent):
            raise AuthorizationRefused(text, reason=RefusalReason.FORBIDDEN, hint=hint)
        raise SourceUnreachable(text, hint=hint)

    def find(self, urls: Sequence[str], cluster: ClusterIdentity) -> None:
        """Connect to servers, and to those that the first of them lists.

        Args:
            urls: Addresses that were named beside that of the kubeconfig.
            cluster: Which cluster they must be of; one that is not known is the one of the first that answers.

        Raises:
            AuthorizationRefused: One is of another cluster, or nothing would prove who answers.
        """
        urls = [self._access.url, *urls]
        self.cluster = cluster if cluster.is_known else self._ask_which(urls)
        self._reach(urls)
        if self.servers:
            listed, self.unlisted = listed_by(self.servers[0])
            self.all_known = bool(listed) and not self.unlisted
            self._reach(listed)

    def _ask_which(self, urls: Sequence[str]) -> ClusterIdentity:
        for url in urls:
            for tls_name in self._access.tls_names(url):
                server = self._access.server(url, tls_name)
                with suppress(AuthorizationRefused):
                    found = cluster_of(server)
                    if found.is_known:
                        return found
        return ClusterIdentity()

    def _reach(self, urls: Sequence[str]) -> None:
        known = {*(server.address for server in self.servers), *(each.server for each in self.absent)}
        new = [url for url in dict.fromkeys(urls) if without_user(url) not in known]
        for found in side_by_side(new, partial(reach, self._access, self.cluster), Absent):
            if isinstance(found, Absent):
                self.absent.append(found)
            else:
                server, warning = found
                self.servers.append(server)
                if warning:
                    self.uncompared[server.address] = warning


def side_by_side(
    what: Sequence[_Asked], call: Callable[[_Asked], _Result], failed: Callable[[_Asked, str], _Result]
) -> list[_Result]:
    """Make a call for each of some servers or addresses at once; ``failed`` says so where nobody foresaw a failure.

    Raises:
        EtcdfixError: A call raised it.
    """
    results: list[_Result] = []
    for each, found in zip(what, run_within([partial(call, each) for each in what], None), strict=True):
        if isinstance(found, EtcdfixError):
            raise found
        if found is None or isinstance(found, BaseException):
            results.append(failed(each, type(found).__name__))
        else:
            results.append(found)
    return results


def reach(access: Access, cluster: ClusterIdentity, url: str) -> tuple[Server, str] | Absent:
    """Connect to a server under the first of its names that its certificate bears out, and see of which cluster it is.

    Returns:
        The connection, and why it could not be compared which cluster it is of; "" where it was.

    Raises:
        AuthorizationRefused: It is of another cluster, or nothing would prove who answers.
    """
    for tls_name in access.tls_names(url):
        server = access.server(url, tls_name)
        try:
            return server, check_cluster(server, cluster)
        except AuthorizationRefused as exc:
            if exc.reason == RefusalReason.OTHER_CLUSTER:
                raise
            failure = exc
            if failure.reason != RefusalReason.TLS_FAILED:
                break
    why = _NOT_REACHED.get(failure.reason, "")
    if failure.reason == RefusalReason.TLS_FAILED and failure.detail:
        why = f"{failure.detail}: nothing proves who answers"
    denied = failure.reason in {RefusalReason.UNAUTHENTICATED, RefusalReason.FORBIDDEN}
    hint = f"; {failure.hint}" if denied and failure.hint else ""
    return Absent(
        server.address,
        (why or failure.message) + hint,
        denied=denied,
        unproven=None if why else server,
        failure=failure,
    )


def listed_by(server: Server) -> tuple[list[str], str]:
    """Return the addresses that service default/kubernetes lists, and why there may be more, "" for no reason."""
    reply = server.send("GET", _ENDPOINTS)
    if isinstance(reply, NoReply):
        why = reply.text
    elif reply.status != 200:
        why = f"the answer to that was {reply.status}"
    else:
        urls = addresses_of(reply.body)
        if urls is not None:
            many = f"service default/kubernetes lists {len(urls)} API servers; the first {_MOST_LISTED} were asked"
            return urls[:_MOST_LISTED], many if len(urls) > _MOST_LISTED else ""
        why = "that answer could not be understood"
    return [], f"which API servers service default/kubernetes lists is not known: {why}"


def addresses_of(body: bytes | None) -> list[str] | None:
    """Return the addresses that Endpoints list; None where they are none."""
    try:
        found = msgspec.json.decode(body or b"")
        if found["kind"] != "Endpoints":
            return None
        return [
            f"https://{_host(str(address['ip']))}:{int(port['port'])}"
            for subset in found.get("subsets", ())
            for address in subset.get("addresses", ())
            for port in subset.get("ports", ())
        ]
    except (*NOT_UNDERSTOOD, ValueError, TypeError, AttributeError, KeyError):
        return None


def _host(ip: str) -> str:
    address = ipaddress.ip_address(ip)
    return f"[{address}]" if address.version == 6 else str(address)


def open_all_servers(api: APIAccess, cluster: ClusterIdentity, *, pace: Pace | None = None) -> AllServers:
    """Find all API servers: the kubeconfig's, those that were named, those that service default/kubernetes lists.

    Args:
        api: As whom, and which.
        cluster: Which cluster they must be of; where it is not known, all must be of the one of the first that answers.
        pace: That of all requests about objects.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained, or a server is of another cluster.
    """
    all_servers = AllServers(open_access(api, pace=pace))
    try:
        all_servers.find(api.servers, cluster)
    except BaseException:
        all_servers.close()
        raise
    return all_servers
