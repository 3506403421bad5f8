from __future__ import annotations

import pytest

from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import FailureKind, classify, classify_cancelled

PLAIN = parse_endpoint("http://etcd:2379", has_tls_material=False)
SECURE = parse_endpoint("https://etcd:2379", has_tls_material=False)

K = FailureKind

# code, etcd's text, kind
FROM_ETCD = [
    ("OUT_OF_RANGE", "mvcc: required revision has been compacted", K.COMPACTED),
    ("OUT_OF_RANGE", "mvcc: required revision is a future revision", K.FUTURE_REVISION),
    ("UNAUTHENTICATED", "invalid auth token", K.TOKEN_REFUSED),
    ("INVALID_ARGUMENT", "revision of auth store is old", K.TOKEN_REFUSED),
    ("FAILED_PRECONDITION", "authentication is not enabled", K.AUTH_DISABLED),
    ("INVALID_ARGUMENT", "authentication failed, invalid user ID or password", K.DENIED),
    ("PERMISSION_DENIED", "permission denied", K.DENIED),
    ("INVALID_ARGUMENT", "user name is empty", K.DENIED),
    ("FAILED_PRECONDITION", "user name not found", K.DENIED),
    ("UNAVAILABLE", "no leader", K.UNREACHABLE),
    ("UNAVAILABLE", "request timed out", K.UNREACHABLE),
    ("UNAVAILABLE", "rpc not supported for learner", K.UNREACHABLE),
]


@pytest.mark.parametrize(("code", "text", "kind"), FROM_ETCD)
def test_etcds_own_errors(code: str, text: str, kind: FailureKind) -> None:
    found = classify(code, f"etcdserver: {text}", PLAIN, timeout_seconds=5)
    assert found.kind is kind
    assert found.message == f"http://etcd:2379: etcd says: {text}"


# code, text, kind, part of the message
FROM_GRPC = [
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", K.TIMED_OUT, "no answer within 2.5 s"),
    (
        "RESOURCE_EXHAUSTED",
        "CLIENT: Received message larger than max (9 vs. 4)",
        K.TOO_LARGE,
        "larger than we take",
    ),
    ("UNAUTHENTICATED", "who are you", K.TOKEN_REFUSED, "login token"),
    ("PERMISSION_DENIED", "no", K.DENIED, "permission denied"),
    ("UNIMPLEMENTED", "unknown service", K.UNREACHABLE, "not etcd v3 (unknown service)"),
    ("INTERNAL", "Exception deserializing response!", K.UNREACHABLE, "INTERNAL: Exception"),
    ("CANCELLED", "", K.UNREACHABLE, "CANCELLED: "),
]


@pytest.mark.parametrize(("code", "details", "kind", "expected"), FROM_GRPC)
def test_grpcs_codes(code: str, details: str, kind: FailureKind, expected: str) -> None:
    found = classify(code, details, PLAIN, timeout_seconds=2.5)
    assert found.kind is kind
    assert found.message.startswith("http://etcd:2379: ")
    assert expected in found.message


LAST = "failed to connect to all addresses; last error: "

# The texts are grpcio's.
CONNECTING = [
    ("UNKNOWN: ipv4:127.0.0.1:1: Failed to connect: Connection refused (111)", "nobody listens there"),
    ("UNKNOWN: unix:/run/x: No such file or directory", "there is no such socket"),
    ("UNKNOWN: unix:/run/x: Permission denied", "may not be opened"),
    ("UNKNOWN: No route to host", "no route to that host"),
    ("UNKNOWN: Network is unreachable", "the network is unreachable"),
    ("UNAVAILABLE: dns:///nowhere:1: Domain name not found", "that host name is not known"),
    ("DNS resolution failed for nowhere:1", "that host name is not known"),
    ("errors resolving dns:///nowhere:1", "that host name is not known"),
    ("UNKNOWN: connection attempt timed out before receiving SETTINGS frame", "no connection in time"),
    ("UNAVAILABLE: endpoint closing", "no connection in time"),
]


@pytest.mark.parametrize("endpoint", [PLAIN, SECURE], ids=["plain", "tls"])
@pytest.mark.parametrize(("details", "expected"), CONNECTING)
def test_no_connection(details: str, expected: str, endpoint: Endpoint) -> None:
    found = classify("UNAVAILABLE", LAST + details, endpoint, timeout_seconds=2)
    assert found.kind is K.UNREACHABLE
    assert expected in found.message


# Text, part of the message, part of the hint.
HANDSHAKES = [
    ("CERTIFICATE_VERIFY_FAILED: certificate has expired", "has expired", "snapshot save"),
    ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", "is not valid yet", "clocks"),
    ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "not signed by a CA", "--cacert"),
    ("Hostname Verification Check failed.", "does not name this host", "certificate"),
    ("Peer name etcd is not in peer certificate", "does not name this host", "certificate"),
    ("SSL_ERROR_SSL: error:100000f7:WRONG_VERSION_NUMBER", "does not speak TLS", "http://"),
    ("Security handshaker creation failed", "TLS files cannot be used", "--cacert"),
    ("SSLV3_ALERT_BAD_CERTIFICATE", "wants a client certificate", "--cert and --key"),
    ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "wants a client certificate", "--cert and --key"),
    ("Socket closed", "handshake was cut off", "http://"),
    ("Unwrap failed (TSI_DATA_CORRUPTED)", "handshake was cut off", "--cert and --key"),
    ("recvmsg:Connection reset by peer", "handshake was cut off", "--cert and --key"),
]


@pytest.mark.parametrize(("details", "message", "hint"), HANDSHAKES)
def test_no_handshake(details: str, message: str, hint: str) -> None:
    found = classify("UNAVAILABLE", LAST + details, SECURE, timeout_seconds=2)
    assert found.kind is K.UNREACHABLE
    assert message in found.message
    assert hint in found.hint


def test_a_client_certificate_that_was_shown_and_refused() -> None:
    found = classify(
        "UNAVAILABLE", LAST + "TLSV1_ALERT_UNKNOWN_CA", SECURE, timeout_seconds=2, has_client_certificate=True
    )
    assert "does not accept our client certificate" in found.message


@pytest.mark.parametrize("details", ["Socket closed", "Connection reset by peer", "EXPECTED SETTINGS FRAME"])
def test_plain_text_to_something_else(details: str) -> None:
    found = classify("UNAVAILABLE", LAST + details, PLAIN, timeout_seconds=2)
    assert "may speak TLS" in found.message
    assert "https://" in found.hint


def test_what_is_not_recognised_is_passed_on_on_one_line() -> None:
    found = classify("UNAVAILABLE", f"a; last error: odd\n  {'x' * 300}", PLAIN, timeout_seconds=2)
    assert found.message == f"http://etcd:2379: odd {'x' * 196}…"
    told = classify("UNKNOWN", f"etcdserver: odd\n{'x' * 300}", PLAIN, timeout_seconds=2)
    assert told.message == f"http://etcd:2379: etcd says: odd {'x' * 196}…"


@pytest.mark.parametrize(
    ("reason", "kind", "expected"),
    [
        (
            "rpc error: code = PermissionDenied desc = etcdserver: permission denied",
            K.DENIED,
            "permission denied",
        ),
        ("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token", K.TOKEN_REFUSED, "token"),
        ("etcdserver: no leader", K.UNREACHABLE, "no leader"),
        ("something else", K.UNREACHABLE, "ended the watch: something else"),
        ("", K.UNREACHABLE, "without a reason"),
    ],
)
def test_why_a_watch_was_ended(reason: str, kind: FailureKind, expected: str) -> None:
    found = classify_cancelled(reason, PLAIN)
    assert found.kind is kind
    assert expected in found.message
