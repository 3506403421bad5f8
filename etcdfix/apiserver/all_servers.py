"""All API servers of one cluster that can be found, for a longer conversation: each is asked by its own address.

What one server has in its memory, or reads, another may not. So a load balancer's address stands for one of them only,
and those that service ``default/kubernetes`` lists are asked beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from etcdfix.apiserver.authorization import cluster_of
from etcdfix.apiserver.client import (
    Access,
    RefusalReason,
    Server,
    open_access,
    without_user,
)
from etcdfix.apiserver.reach import ONLY_READY, Reached, listed_by, reach
from etcdfix.apiserver.servers import DEFAULT_TIMEOUT_SECONDS, APIAccess
from etcdfix.closing import Closing
from etcdfix.errors import AuthorizationRefused, EtcdfixError, SourceUnreachable
from etcdfix.model import ClusterIdentity
from etcdfix.side_by_side import run_within

_Result = TypeVar("_Result")


class Absent(msgspec.Struct, frozen=True):
    """A server that was found and cannot be asked.

    Attributes:
        server: Its address, as it may be shown.
        why: Part of a sentence.
        denied: It answers, and not to this user.
        unconnected: No connection comes about: it may not run at all. Any other runs, or nobody knows.
    """

    server: str
    why: str
    denied: bool = False
    unconnected: bool = False


class AllServers(Closing):
    """The API servers that can be asked; made by :func:`open_all_servers`, and a context manager.

    Attributes:
        servers: Those of this cluster, in the order in which they were found.
        absent: The others that were found.
        warnings: Why there may be more servers than these, and what could not be compared.
        cluster: Which cluster they are of; unknown where nothing says it.
        request_seconds: What one request may take.
    """

    def __init__(self, access: Access, request_seconds: float) -> None:
        self.servers: list[Server] = []
        self.absent: list[Absent] = []
        self.warnings: list[str] = []
        self.cluster = ClusterIdentity()
        self.request_seconds = request_seconds
        self._access = access

    def close(self) -> None:
        """Send no further request, and close the connections."""
        self._access.close()

    def within(self, call: Callable[[], _Result]) -> _Result | None:
        """Return what one request comes to, None where it took too long or failed in a way that nobody foresaw.

        A server that sends byte by byte knows nothing of the time that a request may take.
        """
        (found,) = run_within([call], self.request_seconds)
        return None if found is None or isinstance(found, BaseException) else found

    def find(self, urls: Sequence[str], cluster: ClusterIdentity, deadline: float) -> None:
        """Come to servers, and to those that the first of them lists.

        Args:
            urls: Of the kubeconfig, and those that were named.
            cluster: Which cluster they must be of; one that is not known is the one of the first that answers.
            deadline: Of :func:`time.monotonic`.

        Raises:
            AuthorizationRefused: One is of another cluster, or nothing would prove who answers.
        """
        self.cluster = cluster if cluster.is_known else self._ask_which(urls, deadline)
        self._reach(urls, deadline)
        if self.servers:
            listed = listed_by(self.servers[0], _left(self.request_seconds, deadline))
            self.warnings.append(listed.warning or ONLY_READY)
            self._reach(listed.urls, deadline)

    def _ask_which(self, urls: Sequence[str], deadline: float) -> ClusterIdentity:
        for url in urls:
            for tls_name in self._access.tls_names(url):
                server = self._access.server(url, tls_name)
                (found,) = run_within([partial(cluster_of, server)], _left(self.request_seconds, deadline))
                if isinstance(found, ClusterIdentity) and found.is_known:
                    return found
        return ClusterIdentity()

    def _reach(self, urls: Sequence[str], deadline: float) -> None:
        known = {*(server.address for server in self.servers), *(each.server for each in self.absent)}
        new = [url for url in dict.fromkeys(urls) if without_user(url) not in known]
        seconds = _left(self.request_seconds, deadline)
        for url, found in zip(
            new,
            run_within([partial(reach, self._access, url, self.cluster) for url in new], seconds),
            strict=True,
        ):
            if isinstance(found, EtcdfixError):
                raise found
            if isinstance(found, Reached):
                self._take(found)
                continue
            why = f"no answer within {seconds:g} s" if found is None else type(found).__name__
            self.absent.append(Absent(without_user(url), why))

    def _take(self, found: Reached) -> None:
        address = found.server.address
        if found.failure is None:
            self.servers.append(found.server)
            self.warnings += [f"{address}: {found.warning}"] if found.warning else []
            return
        denied = found.failure.reason in {RefusalReason.UNAUTHENTICATED, RefusalReason.FORBIDDEN}
        why = found.why_not_reached or found.failure.message
        hint = f"; {found.failure.hint}" if denied and found.failure.hint else ""
        unconnected = found.failure.reason == RefusalReason.UNREACHABLE
        self.absent.append(Absent(address, why + hint, denied, unconnected))


def _left(seconds: float, deadline: float) -> float:
    return max(0.0, min(seconds, deadline - time.monotonic()))


def open_all_servers(
    api: APIAccess,
    cluster: ClusterIdentity,
    *,
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    request_seconds: float = DEFAULT_TIMEOUT_SECONDS / 3,
) -> AllServers:
    """Find all API servers: the kubeconfig's, those that were named, those that service default/kubernetes lists.

    Args:
        api: As whom, and which.
        cluster: Which cluster they must be of; where it is not known, all must be of the one of the first that answers.
        timeout_seconds: For finding them.
        request_seconds: For one request, from then on.

    Raises:
        KubernetesClientMissing: The extra is not installed.
        KubeconfigInvalid: The file cannot be read, or lacks the context.
        AuthorizationRefused: The credentials could not be obtained, or a server is of another cluster.
    """
    deadline = time.monotonic() + timeout_seconds
    access = open_access(
        str(api.kubeconfig), api.context, timeout_seconds=timeout_seconds, request_seconds=request_seconds
    )
    all_servers = AllServers(access, request_seconds)
    try:
        all_servers.find([access.url, *api.servers], cluster, deadline)
    except BaseException:
        all_servers.close()
        raise
    return all_servers


def require_servers(all_servers: AllServers) -> None:
    """Refuse to go on without any API server.

    Raises:
        AuthorizationRefused: None of those that answer lets this user ask.
        SourceUnreachable: None answers.
    """
    if all_servers.servers:
        return
    said = "; ".join(f"{each.server}: {each.why}" for each in all_servers.absent)
    text, hint = f"no API server of this cluster can be asked ({said})", "name another one: --server URL"
    if any(each.denied for each in all_servers.absent):
        raise AuthorizationRefused(text, reason=RefusalReason.FORBIDDEN, hint=hint)
    raise SourceUnreachable(text, hint=hint)
