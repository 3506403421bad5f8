from __future__ import annotations

import socket
from typing import Any

import pytest

from etcdfix.model.errors import ConfigurationError
from etcdfix.sources.etcd.endpoints import Endpoint, parse_endpoint
from etcdfix.sources.etcd.failures import FailureKind, classify, classify_cancelled
from etcdfix.testing.certificates import CertificateAuthority

# text, target, host, port, TLS without material, TLS with material
ENDPOINTS = [
    ("127.0.0.1:2379", "ipv4:127.0.0.1:2379", "127.0.0.1", 2379, False, True),
    ("etcd-0.etcd:2379", "dns:///etcd-0.etcd:2379", "etcd-0.etcd", 2379, False, True),
    ("http://etcd:2379", "dns:///etcd:2379", "etcd", 2379, False, False),
    ("https://etcd:2379", "dns:///etcd:2379", "etcd", 2379, True, True),
    ("https://etcd:2379/", "dns:///etcd:2379", "etcd", 2379, True, True),
    ("[::1]:2379", "ipv6:[::1]:2379", "::1", 2379, False, True),
    ("http://[fe80::1%25eth0]:1", "ipv6:[fe80::1%25eth0]:1", "fe80::1%eth0", 1, False, False),
    ("etcd:65535", "dns:///etcd:65535", "etcd", 65535, False, True),
    ("unix:/run/etcd.sock", "unix:/run/etcd.sock", "/run/etcd.sock", 0, False, True),
    ("unix:///run/etcd.sock", "unix:/run/etcd.sock", "/run/etcd.sock", 0, False, True),
    ("unixs:///run/etcd.sock", "unix:/run/etcd.sock", "/run/etcd.sock", 0, True, True),
    ("unixs:relative:1", "unix:relative:1", "relative:1", 0, True, True),
    ("unix:///run/user@host", "unix:/run/user@host", "/run/user@host", 0, False, True),
]


@pytest.mark.parametrize(("text", "target", "host", "port", "plain", "with_material"), ENDPOINTS)
def test_an_endpoint(text: str, target: str, host: str, port: int, plain: bool, with_material: bool) -> None:
    for has_material, tls in ((False, plain), (True, with_material)):
        found = parse_endpoint(text, has_tls_material=has_material)
        assert (found.text, found.target, found.host, found.port) == (text, target, host, port)
        assert found.tls is tls


REFUSED = [
    ("ftp://etcd:2379", "has the scheme 'ftp'"),
    ("etcd", "has no port"),
    ("[::1]", "has no port"),
    ("::1:2379", "stands in brackets"),
    (":2379", "has no host"),
    ("https://[]:2379", "has no host"),
    ("etcd:", "no valid port"),
    ("etcd:0", "no valid port"),
    ("etcd:65536", "no valid port"),
    ("etcd:٢", "no valid port"),
    ("https://etcd:2379/v3", "more than a host and a port"),
    ("etcd:2379?x", "more than a host and a port"),
    ("et cd:2379", "more than a host and a port"),
    ("unix:", "names no socket"),
    ("unixs://", "names no socket"),
]


@pytest.mark.parametrize(("text", "expected"), REFUSED)
def test_no_endpoint(text: str, expected: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoint(text, has_tls_material=False)
    assert expected in caught.value.message
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    "text", ["https://root:hunter2@etcd:2379", "ftp://root:hunter2@etcd", "root:hunter2@etcd:2379"]
)
def test_a_password_in_an_endpoint_is_not_repeated(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_endpoint(text, has_tls_material=False)
    assert "--user" in caught.value.hint
    assert "hunter2" not in f"{caught.value!r} {caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "here"),
    [
        ("127.0.0.1:2379", True), ("0.0.0.0:2379", True), ("localhost:2379", True),
        ("unix:///run/etcd.sock", True), ("http://NODE-1:2379", True), ("node-1.example.com:2379", True),
        ("192.0.2.1:2379", False), ("https://[2001:db8::1]:2379", False),
        ("[fe80::1%25nowhere]:2379", False), ("unixhost.example:2379", False),
        ("localhost.example.com:2379", False), ("node-1.example.org:2379", False),
        (f"{'a' * 70}.example:2379", False), ("a..b:2379", False),
    ],
)  # fmt: skip
def test_what_is_on_this_machine(text: str, here: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Node-1.example.com")
    assert parse_endpoint(text, has_tls_material=False).is_here() is here


def test_no_name_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """That may take as long as a name server that does not answer."""
    asked = []
    real = socket.getaddrinfo

    def noted(*arguments: Any, **more: Any) -> Any:
        asked.append(more.get("flags", 0))
        return real(*arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", noted)
    assert not parse_endpoint("etcd.example:2379", has_tls_material=False).is_here()
    assert asked == [socket.AI_NUMERICHOST]


PLAIN = parse_endpoint("http://etcd:2379", has_tls_material=False)
SECURE = parse_endpoint("https://etcd:2379", has_tls_material=False)

K = FailureKind
LAST = "failed to connect to all addresses; last error: "


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", K.COMPACTED),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision", K.FUTURE_REVISION),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", K.TOKEN_REFUSED),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", K.TOKEN_REFUSED),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", K.AUTH_DISABLED),
        ("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password", K.DENIED),
        ("UNAVAILABLE", "etcdserver: no leader", K.UNREACHABLE),
        ("UNAVAILABLE", "etcdserver: rpc not supported for learner", K.UNREACHABLE),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", K.TIMED_OUT),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max (9 vs. 4)", K.TOO_LARGE),
        ("UNAUTHENTICATED", "who are you", K.TOKEN_REFUSED),
        ("PERMISSION_DENIED", "no", K.DENIED),
        ("UNIMPLEMENTED", "unknown service", K.UNREACHABLE),
        ("INTERNAL", "Exception deserializing response!", K.UNREACHABLE),
    ],
)
def test_what_a_failure_means_for_the_next_step(code: str, details: str, kind: FailureKind) -> None:
    found = classify(code, details, PLAIN, timeout_seconds=5)
    assert found.kind is kind
    assert found.message.startswith("http://etcd:2379: ")


# The texts are grpcio's; then a part of the message, and of the hint.
@pytest.mark.parametrize(
    ("endpoint", "details", "message", "hint"),
    [
        (PLAIN, "ipv4:127.0.0.1:1: Failed to connect: Connection refused (111)", "nobody listens there", "etcd runs"),
        (SECURE, "errors resolving dns:///nowhere:1", "that host name is not known", ""),
        (SECURE, "connection attempt timed out before receiving SETTINGS frame", "no connection in time", "--dial"),
        (PLAIN, "Socket closed", "may speak TLS", "https://"),
        (PLAIN, "EXPECTED SETTINGS FRAME", "may speak TLS", "https://"),
        (SECURE, "CERTIFICATE_VERIFY_FAILED: certificate has expired", "has expired", "snapshot save"),
        (SECURE, "CERTIFICATE_VERIFY_FAILED: certificate is not yet valid", "is not valid yet", "clocks"),
        (SECURE, "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate", "not signed by", "--cacert"),
        (SECURE, "Hostname Verification Check failed.", "does not name this host", "certificate"),
        (SECURE, "SSL_ERROR_SSL: error:100000f7:WRONG_VERSION_NUMBER", "does not speak TLS", "http://"),
        (SECURE, "TLSV13_ALERT_CERTIFICATE_REQUIRED", "wants a client certificate", "--cert and --key"),
        (SECURE, "Socket closed", "handshake was cut off", "http://"),
        (SECURE, "Unwrap failed (TSI_DATA_CORRUPTED)", "handshake was cut off", "--cert and --key"),
    ],
)  # fmt: skip
def test_why_there_is_no_connection(endpoint: Endpoint, details: str, message: str, hint: str) -> None:
    found = classify("UNAVAILABLE", LAST + details, endpoint, timeout_seconds=2)
    assert found.kind is K.UNREACHABLE
    assert message in found.message
    assert hint in found.hint


@pytest.mark.parametrize(
    ("expired", "details", "told"),
    [
        (False, "TLSV1_ALERT_UNKNOWN_CA", "does not accept our client certificate"),
        (False, "Socket closed", "handshake was cut off"),
        (True, "SSLV3_ALERT_BAD_CERTIFICATE", "does not accept our client certificate, which expired on 20"),
        (True, "Socket closed", "does not accept our client certificate, which expired on 20"),
    ],
)
def test_a_client_certificate_that_was_shown_and_refused(
    authority: CertificateAuthority, expired: bool, details: str, told: str
) -> None:
    shown = authority.issue("refused", expired=expired).cert.read_bytes()
    found = classify("UNAVAILABLE", LAST + details, SECURE, timeout_seconds=2, client_certificate=shown)
    assert told in found.message
    assert ("kubeadm certs renew apiserver-etcd-client" in found.hint) == expired


def test_what_is_not_recognised_is_passed_on_on_one_line() -> None:
    found = classify("UNAVAILABLE", f"a; last error: odd\n  {'x' * 300}", PLAIN, timeout_seconds=2)
    assert found.message == f"http://etcd:2379: odd {'x' * 196}…"
    told = classify("UNKNOWN", f"etcdserver: odd\n{'x' * 300}", PLAIN, timeout_seconds=2)
    assert told.message == f"http://etcd:2379: etcd says: odd {'x' * 196}…"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("rpc error: code = PermissionDenied desc = etcdserver: permission denied", K.DENIED),
        ("rpc error: code = Unauthenticated desc = etcdserver: invalid auth token", K.TOKEN_REFUSED),
        ("something else", K.UNREACHABLE),
        ("", K.UNREACHABLE),
    ],
)
def test_why_a_watch_was_ended(reason: str, kind: FailureKind) -> None:
    assert classify_cancelled(reason, PLAIN).kind is kind
