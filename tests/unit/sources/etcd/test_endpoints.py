from __future__ import annotations

import socket
from typing import Any

import pytest

from etcdfix.errors import ConfigurationError
from etcdfix.sources.etcd.endpoints import parse_endpoint

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
        ("127.0.0.1:2379", True),
        ("0.0.0.0:2379", True),
        ("localhost:2379", True),
        ("unix:///run/etcd.sock", True),
        ("http://NODE-1:2379", True),
        ("node-1.example.com:2379", True),
        ("192.0.2.1:2379", False),
        ("https://[2001:db8::1]:2379", False),
        ("[fe80::1%25nowhere]:2379", False),
        ("unixhost.example:2379", False),
        ("localhost.example.com:2379", False),
        ("node-1.example.org:2379", False),
        (f"{'a' * 70}.example:2379", False),
        ("a..b:2379", False),
    ],
)
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
