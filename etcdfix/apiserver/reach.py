"""Comes to an API server: which there are, under which name each proves who it is, and that it is of this cluster.

Format: ``v1`` Endpoints.
"""

from __future__ import annotations

import ipaddress
from typing import Final

import msgspec

from etcdfix.apiserver.authorization import check_cluster
from etcdfix.apiserver.client import Access, NoReply, RefusalReason, Server
from etcdfix.apiserver.objects import NOT_UNDERSTOOD
from etcdfix.errors import AuthorizationRefused
from etcdfix.model import ClusterIdentity
from etcdfix.side_by_side import run_within

ONLY_READY: Final = (
    "service default/kubernetes lists only API servers that got ready, and one port for all of them: name others with "
    "--server URL"
)

NOT_REACHED: Final = {
    RefusalReason.UNREACHABLE.value: "no connection comes about, or it breaks off",
    RefusalReason.TIMED_OUT.value: "it does not answer in time",
    RefusalReason.TLS_FAILED.value: "the TLS connection failed: nothing proves who answers",
}
"""These mean that the server could not be talked to at all, so that the next request would fare no better."""

_ENDPOINTS = "/api/v1/namespaces/default/endpoints/kubernetes"
_MOST_LISTED = 16


class Reached(msgspec.Struct, frozen=True):
    """One API server that was come to, or not.

    Attributes:
        server: The connection.
        failure: Why it did not show that it is of this cluster; None where it did.
        warning: Why it could not be compared which cluster it is of; "" where it was.
    """

    server: Server
    failure: AuthorizationRefused | None
    warning: str = ""

    @property
    def why_not_reached(self) -> str:
        """Why it could not be talked to at all, "" where it could."""
        if self.failure is None:
            return ""
        if self.failure.reason == RefusalReason.TLS_FAILED and self.failure.detail:
            return f"{self.failure.detail}: nothing proves who answers"
        return NOT_REACHED.get(self.failure.reason, "")


def reach(access: Access, url: str, cluster: ClusterIdentity) -> Reached:
    """Connect to a server under the first of its names that its certificate bears out, and see of which cluster it is.

    Raises:
        AuthorizationRefused: It is of another cluster, or nothing would prove who answers.
    """
    for tls_name in access.tls_names(url):
        server = access.server(url, tls_name)
        failure, warning = _identity_of(server, cluster)
        if failure is None or failure.reason != RefusalReason.TLS_FAILED:
            break
    return Reached(server, failure, warning)


def _identity_of(server: Server, cluster: ClusterIdentity) -> tuple[AuthorizationRefused | None, str]:
    """Return why a server did not show that it is of this cluster, None where it did; and a warning about that."""
    try:
        return None, check_cluster(server, cluster)
    except AuthorizationRefused as exc:
        if exc.reason == RefusalReason.OTHER_CLUSTER:
            raise
        return exc, ""


class Listed(msgspec.Struct, frozen=True):
    """What service default/kubernetes lists.

    Attributes:
        urls: Addresses.
        warning: Why there may be more; "" where nothing says so.
    """

    urls: tuple[str, ...] = ()
    warning: str = ""


def listed_by(server: Server, seconds: float) -> Listed:
    """Return the addresses that service default/kubernetes lists, as a server of this cluster says."""
    (reply,) = run_within([lambda: server.send("GET", _ENDPOINTS)], seconds)
    why = "there was no answer in time"
    if isinstance(reply, NoReply):
        why = reply.text
    elif reply is not None and not isinstance(reply, BaseException):
        urls = addresses_of(reply.body) if reply.status == 200 else None
        if urls is not None:
            many = f"service default/kubernetes lists {len(urls)} API servers; the first {_MOST_LISTED} were asked"
            return Listed(tuple(urls[:_MOST_LISTED]), many if len(urls) > _MOST_LISTED else "")
        why = f"the answer to that was {reply.status}"
        if reply.status == 200:
            why = "that answer could not be understood"
    return Listed(warning=f"which API servers service default/kubernetes lists is not known: {why}")


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


def addresses_of(body: bytes | None) -> list[str] | None:
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
    except (*NOT_UNDERSTOOD, ValueError):
        return None


def _host(ip: str) -> str:
    address = ipaddress.ip_address(ip)
    return f"[{address}]" if address.version == 6 else str(address)
