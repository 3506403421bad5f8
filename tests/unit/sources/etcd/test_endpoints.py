from __future__ import annotations

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
    ("HTTPS://etcd:2379", "has the scheme 'HTTPS'"),
    ("etcd", "has no port"),
    ("https://etcd", "has no port"),
    ("[::1]", "has no port"),
    ("::1:2379", "stands in brackets"),
    ("[::1:2379", "stands in brackets"),
    (":2379", "has no host"),
    ("https://[]:2379", "has no host"),
    ("etcd:", "no valid port"),
    ("etcd:0", "no valid port"),
    ("etcd:65536", "no valid port"),
    ("etcd:-1", "no valid port"),
    ("etcd:٢", "no valid port"),
    ("etcd:²", "no valid port"),
    ("https://etcd:2379/v3", "more than a host and a port"),
    ("etcd:2379?x", "more than a host and a port"),
    ("etcd:2379#x", "more than a host and a port"),
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
