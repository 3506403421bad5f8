"""The parts of the rules; whole files stand in fixtures/configs, and combinations in test_config."""

from __future__ import annotations

import pytest

from etcdfix.encryption.config_rules import key_bytes, parse_group_resource, rule_name, socket_path
from etcdfix.model.model import GroupResource


@pytest.mark.parametrize(
    ("text", "group", "resource"),
    [
        ("secrets", "", "secrets"), ("deployments.apps", "apps", "deployments"), ("a.b.c", "b.c", "a"),
        ("*.", "", "*"), ("*.apps", "apps", "*"), ("*.*", "*", "*"),
    ],
)  # fmt: skip
def test_entries_and_their_names(text: str, group: str, resource: str) -> None:
    parsed = parse_group_resource(text)
    assert parsed == GroupResource(group, resource)
    assert rule_name(parsed) == text


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("AAEC", b"\x00\x01\x02"),
        ("A\r\nA=\n=\n", b"\x00"),
        ("AA=", None),
        ("AAECA", None),
        ("AAECAw==AA==", None),
        ("AAEC=", None),  # Python's own decoder lets padding through that nothing needs
        ("AAEC\t", None),
        ("__8=", None),
        ("\u00e4AEC", None),
        ("\ud800", None),
    ],
)
def test_secrets(text: str, decoded: bytes | None) -> None:
    assert key_bytes(text) == decoded


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("unix:///run/kms.sock", "/run/kms.sock"), ("UNIX:///run/kms.sock", "/run/kms.sock"),
        ("unix:/run/kms.sock", "/run/kms.sock"), ("unix:///@name", "@name"),
        ("unix:///run/a%20b?x=%zz#y%20", "/run/a b"), ("unix:///run/%ff", "/run/\udcff"),
        ("unix:////run//x", "//run//x"), ("unix://host/run", "/run"), ("unix://u:p@host:80/run", "/run"),
        ("unix://a:b:80/run", "/run"), ("unix://[::1]:80/x", "/x"), ("unix://host", ""), ("unix://", ""),
        ("unix:", ""), ("unix:run/kms.sock", ""), ("unix:?x", ""),
    ],
)  # fmt: skip
def test_endpoints(text: str, path: str) -> None:
    assert socket_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "/run/kms.sock", "//host/path", "http:///run/kms.sock", "://x", "1unix:x", "unix:///a\x00",
        "unix:///a?\x7f", "unix://a b/x", "unix://a:b/x", "unix://a<@host/x", "unix:///%", "unix:///%g0",
        "unix:///x#%z", "unix://%zz/x",
    ],
)  # fmt: skip
def test_no_endpoints(text: str) -> None:
    assert socket_path(text) is None
