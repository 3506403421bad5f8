"""The parts of the rules; whole files stand in fixtures/configs, and combinations in test_config."""

from __future__ import annotations

import pytest

from etcdfix.encryption.config_rules import key_bytes, parse_group_resource, rule_name
from etcdfix.model import GroupResource


@pytest.mark.parametrize(
    ("text", "group", "resource"),
    [
        ("secrets", "", "secrets"),
        ("deployments.apps", "apps", "deployments"),
        ("a.b.c", "b.c", "a"),
        ("*.", "", "*"),
        ("*.apps", "apps", "*"),
        ("*.*", "*", "*"),
    ],
)
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
