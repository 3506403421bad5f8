"""What can go wrong with one request, sorted by what to do about it.

gRPC hands over a status code and a text. etcd's own errors are recognised by the texts of
``api/v3rpc/rpctypes/error.go`` (3.4 to 3.6), because several of them share a code. When no connection comes
about, the code is always UNAVAILABLE and the reason stands only in gRPC's text (grpcio 1.66 to 1.85 were
looked at); what we do not recognise there is passed on as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from etcdfix.model.errors import SourceError, SourceUnreachable
from etcdfix.sources.errors import SourceDenied
from etcdfix.sources.etcd.endpoints import Endpoint


class FailureKind(StrEnum):
    """What a failed request means for the next step."""

    UNREACHABLE = "unreachable"  # ask another member, or this one later
    TIMED_OUT = "timed-out"  # ask another member, then ask for less
    SILENT = "silent"  # not even a small request is answered: ask others a few times, then give up
    TOO_LARGE = "too-large"  # ask for less
    TOKEN_REFUSED = "token-refused"  # noqa: S105 - log in again
    DENIED = "denied"  # final
    AUTH_DISABLED = "auth-disabled"  # go on without a user
    COMPACTED = "compacted"  # the revision is gone
    FUTURE_REVISION = "future-revision"  # this member does not have the revision yet
    ENDED = "ended"  # gRPC stands still, or the connection was closed: ask nobody any more


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request.

    Attributes:
        kind: What to do about it.
        message: One sentence without its full stop, endpoint included.
        hint: The next step for a person, or "".
    """

    kind: FailureKind
    message: str
    hint: str = ""

    @property
    def is_denied(self) -> bool:
        """Whether etcd refuses the user."""
        return self.kind in {FailureKind.DENIED, FailureKind.TOKEN_REFUSED}

    def as_error(self) -> SourceError:
        """Return the exception that ends a command with this failure."""
        if self.is_denied:
            return SourceDenied(self.message, hint=self.hint)
        return SourceUnreachable(self.message, hint=self.hint)


class CallFailed(Exception):
    """Carries a failure from the client to its callers; never leaves a source.

    Attributes:
        status: Name of gRPC's code; "" where it said none.
        details: What the other side, or gRPC, says of it.
    """

    def __init__(self, failure: Failure, *, status: str = "", details: str = "") -> None:
        super().__init__(failure.message)
        self.failure, self.status, self.details = failure, status, details


QUORUM_HINT = (
    "a cluster without a leader cannot answer: see etcdctl endpoint status; a copy of member/snap/db can be "
    "scanned with --snapshot"
)
_USER_HINT = "name a user with --user NAME and ETCDCTL_PASSWORD"

# etcd's own texts, without "etcdserver: ".
_ETCD_ERRORS = {
    "mvcc: required revision has been compacted": (FailureKind.COMPACTED, ""),
    "mvcc: required revision is a future revision": (FailureKind.FUTURE_REVISION, ""),
    "invalid auth token": (FailureKind.TOKEN_REFUSED, _USER_HINT),
    "revision of auth store is old": (FailureKind.TOKEN_REFUSED, ""),
    "authentication is not enabled": (FailureKind.AUTH_DISABLED, ""),
    "authentication failed, invalid user ID or password": (
        FailureKind.DENIED,
        "check --user and the password",
    ),
    "permission denied": (
        FailureKind.DENIED,
        "nothing was read; as etcd's root: etcdctl role grant-permission ROLE read --prefix=true /registry/",
    ),
    "user name is empty": (FailureKind.DENIED, _USER_HINT),
    "user name not found": (FailureKind.DENIED, "check --user"),
    "no leader": (FailureKind.UNREACHABLE, QUORUM_HINT),
    "request timed out": (FailureKind.UNREACHABLE, QUORUM_HINT),
}

_CA_HINT = "give etcd's CA with --cacert (kubeadm: /etc/kubernetes/pki/etcd/ca.crt)"
_KUBEADM_RENEWS = "(kubeadm certs renew apiserver-etcd-client)"
_CLIENT_CERTIFICATE_HINT = (
    "give --cert and --key (kubeadm: /etc/kubernetes/pki/apiserver-etcd-client.crt and .key)"
)
_EXPIRED_HINT = (
    "renew it (kubeadm certs renew etcd-server); until then etcdctl --insecure-skip-tls-verify snapshot save "
    "gives a file to scan with --snapshot"
)

# Parts of gRPC's text, in upper case, looked for in this order: any of these signs, message, hint.
_CONNECT_ERRORS = (
    (
        ("CONNECTION REFUSED",),
        "nobody listens there (connection refused)",
        "check that etcd runs there; name another address with --endpoints, or a snapshot with --snapshot",
    ),
    (("NO SUCH FILE OR DIRECTORY",), "there is no such socket", ""),
    (("PERMISSION DENIED",), "may not be opened by this OS user", ""),
    (("NO ROUTE TO HOST",), "no route to that host", ""),
    (("NETWORK IS UNREACHABLE",), "the network is unreachable", ""),
    (
        ("DOMAIN NAME NOT FOUND", "DNS RESOLUTION FAILED", "ERRORS RESOLVING"),
        "that host name is not known",
        "",
    ),
    (
        ("TIMED OUT", "ENDPOINT CLOSING"),
        "no connection in time",
        "raise --dial-timeout if the way there is slow",
    ),
)
_TLS_ERRORS = (
    (("HAS EXPIRED",), "the server's certificate has expired", _EXPIRED_HINT),
    (("NOT YET VALID",), "the server's certificate is not valid yet", "compare the clocks"),
    (
        ("CERTIFICATE_VERIFY_FAILED",),
        "the server's certificate is not signed by a CA that is trusted here",
        _CA_HINT,
    ),
    (
        ("HOSTNAME VERIFICATION", "NOT IN PEER CERTIFICATE"),
        "the server's certificate does not name this host",
        "use a name or address that stands in the certificate",
    ),
    (("WRONG_VERSION_NUMBER",), "that port does not speak TLS", "use http://"),
    (("SECURITY HANDSHAKER",), "the TLS files cannot be used", "check --cacert, --cert and --key"),
)
# How a server says no to a client certificate, or to its absence: TLS 1.2 and 1.3 alerts.
_CLIENT_CERTIFICATE_ALERTS = (
    "ALERT_BAD_CERTIFICATE",
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_UNKNOWN_CA",
    "ALERT_HANDSHAKE_FAILURE",
)
# What a peer that speaks something else looks like: it closes, or answers in another language.
_SPEAKS_SOMETHING_ELSE = (
    "SOCKET CLOSED",
    "CONNECTION RESET",
    "BROKEN PIPE",
    "EXPECTED SETTINGS FRAME",
    "HANDSHAKE READ FAILED",
    "HANDSHAKER SHUTDOWN",
    "STREAM REMOVED",
    # How gRPC puts an alert that comes once it takes the handshake for done (TLS 1.3): etcd 3.4, client certificates.
    "UNWRAP FAILED",
)


def classify(
    code: str,
    details: str,
    endpoint: Endpoint,
    *,
    timeout_seconds: float,
    client_certificate: bytes | None = None,
) -> Failure:
    """Sort a gRPC error; ``client_certificate`` is what is shown to etcd, as PEM."""
    where = endpoint.text
    if details.startswith("etcdserver: "):
        return _from_etcd(details.removeprefix("etcdserver: "), where)
    if code == "DEADLINE_EXCEEDED":
        return Failure(FailureKind.TIMED_OUT, f"{where}: no answer within {timeout_seconds:g} s", QUORUM_HINT)
    if code == "RESOURCE_EXHAUSTED" and "larger than max" in details:
        return Failure(FailureKind.TOO_LARGE, f"{where}: the answer is larger than we take")
    if code == "UNAUTHENTICATED":
        return Failure(FailureKind.TOKEN_REFUSED, f"{where}: etcd refuses our login token", _USER_HINT)
    if code == "PERMISSION_DENIED":
        return Failure(FailureKind.DENIED, f"{where}: permission denied")
    if code == "UNAVAILABLE":
        return _from_connecting(details, endpoint, client_certificate)
    if code in {"UNIMPLEMENTED", "NOT_FOUND"}:
        return Failure(
            FailureKind.UNREACHABLE,
            f"{where}: something answers there, but not etcd v3 ({_shorten(details)})",
            "etcd's client port is 2379 as a rule",
        )
    return Failure(FailureKind.UNREACHABLE, f"{where}: {code}: {_shorten(details)}")


def classify_cancelled(reason: str, endpoint: Endpoint) -> Failure:
    """Sort the reason that etcd gives in a ``WatchResponse`` when it ends a watch of its own accord.

    Permissions and tokens are refused there, not by a status code (``server/etcdserver/api/v3rpc/watch.go``).
    """
    _, found, text = reason.partition("etcdserver: ")
    if found:
        return _from_etcd(text, endpoint.text)
    told = _shorten(reason) or "without a reason"
    return Failure(FailureKind.UNREACHABLE, f"{endpoint.text}: etcd ended the watch: {told}")


def _from_etcd(text: str, where: str) -> Failure:
    text = _shorten(text)
    for start, (kind, hint) in _ETCD_ERRORS.items():
        if text.startswith(start):
            return Failure(kind, f"{where}: etcd says: {text}", hint)
    return Failure(FailureKind.UNREACHABLE, f"{where}: etcd says: {text}")


def _from_connecting(details: str, endpoint: Endpoint, client_certificate: bytes | None) -> Failure:
    where, text = endpoint.text, details.upper()

    def unreachable(message: str, hint: str = "") -> Failure:
        return Failure(FailureKind.UNREACHABLE, f"{where}: {message}", hint)

    for signs, message, hint in (*_CONNECT_ERRORS, *(_TLS_ERRORS if endpoint.tls else ())):
        if any(sign in text for sign in signs):
            return unreachable(message, hint)
    refused = any(sign in text for sign in _CLIENT_CERTIFICATE_ALERTS)
    cut_off = any(sign in text for sign in _SPEAKS_SOMETHING_ELSE)
    if endpoint.tls and (refused or cut_off) and client_certificate is not None:
        not_accepted, renew = (
            "etcd does not accept our client certificate",
            "renew it, and name it with --cert",
        )
        ended = _ended(client_certificate)
        if ended:
            return unreachable(f"{not_accepted}, which expired on {ended}", f"{renew} {_KUBEADM_RENEWS}")
        if refused:
            return unreachable(not_accepted, "check who signed --cert, and from when on it is valid")
    if endpoint.tls and refused:
        return unreachable("etcd wants a client certificate", _CLIENT_CERTIFICATE_HINT)
    if cut_off:
        if endpoint.tls:
            return unreachable(
                "the TLS handshake was cut off",
                "if that port speaks plain HTTP, use http://; if it wants a client certificate, give --cert and --key",
            )
        return unreachable(
            "the connection was closed at once: that port may speak TLS", f"use https://, and {_CA_HINT}"
        )
    return unreachable(_shorten(details))


def _ended(pem: bytes) -> str:
    """Return the day on which the first certificate of a chain expired; "" where none has."""
    from cryptography import x509  # noqa: PLC0415 - slow to import, and needed only here

    try:
        ends = min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem))
    except ValueError:
        return ""
    return f"{ends:%Y-%m-%d}" if ends < datetime.now(UTC) else ""


def _shorten(details: str) -> str:
    last = details.rsplit("last error: ", 1)[-1]
    line = " ".join(last.split())
    return line if len(line) <= 200 else line[:200] + "…"
