"""The parts of the rules; whole files stand in fixtures/configs, and combinations in test_config."""

from __future__ import annotations

import json

import pytest

from etcdfix.encryption.config import decode_rules
from etcdfix.encryption.config_model import KeyedProvider, parse_group_resource, rule_name, socket_path
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
        ("AA=", b""),
        ("AAECA", b""),
        ("AAECAw==AA==", b""),
        ("AAEC=", b""),  # Python's own decoder lets padding through that nothing needs
        ("AAEC\t", b""),
        ("__8=", b""),
        ("\u00e4AEC", b""),
        ("\ud800", b""),
    ],
)
def test_secrets(text: str, decoded: bytes) -> None:
    key = {"aesgcm": {"keys": [{"name": "k", "secret": text}]}}
    rules = [{"resources": ["secrets"], "providers": [key]}]
    document = {"apiVersion": "v1", "kind": "EncryptionConfig", "resources": rules}
    (rule,) = decode_rules(json.dumps(document).encode(), path="f").rules
    (provider,) = rule.providers
    assert isinstance(provider, KeyedProvider)
    assert provider.keys[0].material.expose() == decoded


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("unix:///run/kms.sock", "/run/kms.sock"), ("UNIX:///run/kms.sock", "/run/kms.sock"),
        ("unix:/run/kms.sock", "/run/kms.sock"), ("unix:///@name", "@name"), ("unix:////run//x", "//run//x"),
        ("unix:///run/a%20b", "/run/a b"), ("unix:///run/%ff", "/run/\udcff"), ("unix://host/run", "/run"),
        ("unix://host", ""), ("unix://", ""), ("unix:", ""),
    ],
)  # fmt: skip
def test_endpoints(text: str, path: str) -> None:
    assert socket_path(text) == path


@pytest.mark.parametrize(
    "text",
    [
        "", "/run/kms.sock", "//host/path", "http:///run/kms.sock", "://x", "1unix:x", "unix:///a\x00", "unix:run",
        "unix://a b/x", "unix://u:p@host:80/run", "unix:///%", "unix:///%g0", "unix:///x?y", "unix:///x#z",
    ],
)  # fmt: skip
def test_no_endpoints(text: str) -> None:
    assert socket_path(text) is None
