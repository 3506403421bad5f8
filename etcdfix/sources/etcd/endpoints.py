"""Endpoints as etcdctl takes them, and what the members behind them say about themselves.

Source of the rules: etcd 3.6, ``client/v3/internal/endpoint/endpoint.go``: ``https`` and ``unixs`` need TLS,
``http`` drops it, and an endpoint without a scheme, or ``unix``, uses TLS when there is TLS material.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from etcdfix.model.errors import ConfigurationError

_SCHEMES = ("http", "https", "unix", "unixs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One address of etcd.

    Attributes:
        text: As given, for messages.
        target: The same in gRPC's naming (``dns:///``, ``ipv4:``, ``ipv6:``, ``unix:``).
        host: Host name, IP address without brackets, or path of a Unix socket.
        port: TCP port, 0 for a Unix socket.
        tls: Whether TLS is spoken.
    """

    text: str
    target: str
    host: str
    port: int
    tls: bool

    def dial(self, timeout_seconds: float) -> socket.socket:
        """Connect to it, without TLS and past every proxy.

        Raises:
            OSError: That failed.
            ValueError: The host name is none that can be asked for.
        """
        if self.port:
            return socket.create_connection((self.host, self.port), timeout=timeout_seconds)
        plain = socket.socket(socket.AF_UNIX)
        plain.settimeout(timeout_seconds)
        try:
            plain.connect(self.host)
        except OSError:
            plain.close()
            raise
        return plain

    def is_here(self) -> bool:
        """Say whether it is on this machine, as far as that shows without asking anybody for a name."""
        if not self.port:
            return True
        try:
            [(family, kind, _, _, address), *_] = socket.getaddrinfo(
                self.host, 0, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST
            )
        except (OSError, UnicodeError):  # a name, or none
            own = socket.gethostname().lower()
            return self.host.lower().rstrip(".") in {"localhost", own, own.partition(".")[0]}
        try:
            with socket.socket(family, kind) as bound:
                bound.bind(address)
        except OSError:  # an address of another machine
            return False
        return True


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

    @classmethod
    def told(cls, endpoint: Endpoint, found: Any) -> MemberStatus:
        """Return what a ``StatusResponse`` says."""
        return cls(
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


@dataclass(frozen=True, slots=True)
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


def parse_endpoint(text: str, *, has_tls_material: bool) -> Endpoint:
    """Read one endpoint.

    Raises:
        ConfigurationError: It has another scheme, no port, or parts that an endpoint cannot have.
            A user and password in it are not repeated in the message.
    """
    if "@" in text and not text.startswith(("unix:", "unixs:")):
        # Not shown: what stands before the @ may be a password.
        raise ConfigurationError("an endpoint has a user in it", hint="name the user with --user NAME")
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, separator, rest = text.partition(":")
        if scheme not in {"unix", "unixs"} or not separator:
            scheme, rest = "", text
    if scheme and scheme not in _SCHEMES:
        raise ConfigurationError(
            f"endpoint {text!r} has the scheme {scheme!r}", hint="http, https, unix, unixs or just host:port"
        )
    tls = scheme in {"https", "unixs"} or (has_tls_material and scheme != "http")
    if scheme in {"unix", "unixs"}:
        if not rest:
            raise ConfigurationError(f"endpoint {text!r} names no socket")
        return Endpoint(text=text, target=f"unix:{rest}", host=rest, port=0, tls=tls)
    host, port = _split_host_port(rest.rstrip("/"), text)
    return Endpoint(text=text, target=_target(host, port), host=host, port=port, tls=tls)


def _split_host_port(address: str, text: str) -> tuple[str, int]:
    if any(sign in address for sign in "/?# "):
        raise ConfigurationError(
            f"endpoint {text!r} is more than a host and a port", hint="https://HOST:2379"
        )
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        raise ConfigurationError(f"endpoint {text!r} has no port", hint=f"{text.rstrip('/')}:2379")
    if host.startswith("[") and host.endswith("]"):
        host = unquote(host[1:-1])
    elif ":" in host:
        raise ConfigurationError(
            f"endpoint {text!r}: an IPv6 address stands in brackets", hint="for example [::1]:2379"
        )
    if not host:
        raise ConfigurationError(f"endpoint {text!r} has no host")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ConfigurationError(f"endpoint {text!r} has no valid port")
    return host, int(port)


def _target(host: str, port: int) -> str:
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return f"dns:///{host}:{port}"
    # gRPC reads its targets as URIs: the zone of fe80::1%eth0 must be escaped.
    return f"ipv4:{host}:{port}" if version == 4 else f"ipv6:[{host.replace('%', '%25')}]:{port}"
