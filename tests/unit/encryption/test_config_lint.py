"""What lint says of a configuration: each check, its level and line, and never a key."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from etcdfix.encryption.config import decode_rules, place_of
from etcdfix.encryption.config_file import STRICT
from etcdfix.encryption.config_lint import LintFinding, LintLevel, lint
from etcdfix.model.errors import ConfigurationError
from tests.support.objects import IDENTITY, configuration_of_rules, provider

REPOSITORY = Path(__file__).parents[3]
GOOD, OTHER = (bytes(31 * n * n + k * 7 + n & 0xFF for n in range(32)) for k in (3, 5))
EVERYTHING = ("*.*",)


def lint_raw(raw: bytes, mode: int | None = 0o100600) -> list[LintFinding]:
    return list(lint(raw, decode_rules(raw, path="f"), mode=mode))


def found(
    *providers: dict[str, Any], resources: tuple[str, ...] = EVERYTHING, mode: int = 0o100600
) -> dict[str, LintFinding]:
    return {one.check: one for one in lint_raw(configuration_of_rules((resources, providers)), mode)}


def kms(**fields: Any) -> dict[str, Any]:
    return {"kms": {"name": "p", "endpoint": "unix:///kms.sock", **fields}}


@pytest.mark.parametrize(
    ("key", "check"),
    [
        (b"secret is secure", "example-key"),
        (b"abcdefghijklmnopqrstuvwxyz123456", "example-key"),
        (bytes(range(32)), "example-key"),
        (bytes(32), "weak-key"),
        (b"\x07" * 16, "weak-key"),
        (bytes(range(40, 72)), "weak-key"),
        (b"correct horse battery staple 123", "weak-key"),
        (GOOD[:16] * 2, "weak-key"),
        (b"\x01\xf0\x33\x99" * 3 + b"\xf0\x01\x99\x33", "weak-key"),
        (GOOD[:16], "short-key"),
        (GOOD[:24], "short-key"),
    ],
)
def test_keys_that_can_be_guessed_or_are_short(key: bytes, check: str) -> None:
    told = found(provider("aesgcm", k=key), IDENTITY)
    assert check in told
    assert {"example-key", "weak-key", "short-key"} & set(told) == {check}
    assert (told[check].level is LintLevel.ADVICE) == (check == "short-key")


def test_identity_first_and_missing() -> None:
    first = found(IDENTITY, provider("secretbox", k=GOOD))["identity-first"]
    assert (first.level, place_of(first.path)) == (LintLevel.WARNING, "resources[0].providers[0]")
    assert "identity-first" in found(IDENTITY)
    missing = found(provider("secretbox", k=GOOD))["identity-missing"]
    assert missing.level is LintLevel.ADVICE
    assert "identity-missing" not in found(provider("secretbox", k=GOOD), IDENTITY)


def test_what_is_not_covered() -> None:
    raw = configuration_of_rules((("configmaps",), (kms(apiVersion="v2"), IDENTITY)))
    told = [(one.level, one.message.split(" ")[0]) for one in lint_raw(raw) if one.check == "not-covered"]
    assert told == [(LintLevel.WARNING, "secrets"), (LintLevel.ADVICE, "no")]
    raw = configuration_of_rules((("secrets", "widgets.example.com"), (kms(apiVersion="v2"), IDENTITY)))
    told = [(one.level, one.message.split(" ")[0]) for one in lint_raw(raw) if one.check == "not-covered"]
    assert told == [(LintLevel.ADVICE, "configmaps")]
    raw = configuration_of_rules((("*.",), (kms(apiVersion="v2"), IDENTITY)))
    assert [one.level for one in lint_raw(raw)] == [LintLevel.ADVICE]


def test_two_keys_of_one_name_and_two_names_of_one_key() -> None:
    same = found({"aescbc": {"keys": [*_keys(a=GOOD), *_keys(a=OTHER)]}}, IDENTITY)
    assert same["same-name-other-bytes"].level is LintLevel.WARNING
    assert "noise" in same["same-name-other-bytes"].message
    gcm = found({"aesgcm": {"keys": [*_keys(a=GOOD), *_keys(a=OTHER)]}}, IDENTITY)
    assert "noise" not in gcm["same-name-other-bytes"].message
    rules = configuration_of_rules(
        (("secrets",), (provider("aesgcm", a=GOOD),)), (("configmaps",), (provider("aesgcm", a=OTHER),))
    )
    (elsewhere,) = [one for one in lint_raw(rules) if one.check == "same-name-other-bytes"]
    assert elsewhere.level is LintLevel.ADVICE
    renamed = found(provider("aesgcm", a=GOOD, b=GOOD), IDENTITY)["repeated-key"]
    assert (renamed.level, place_of(renamed.path)) == (
        LintLevel.WARNING,
        "resources[0].providers[0].aesgcm.keys[1].secret",
    )
    twice = found({"aesgcm": {"keys": [*_keys(a=GOOD), *_keys(a=GOOD)]}}, IDENTITY)["repeated-key"]
    assert twice.level is LintLevel.ADVICE
    shared = configuration_of_rules(
        (("secrets",), (provider("aesgcm", a=GOOD),)), (("configmaps",), (provider("aesgcm", a=GOOD),))
    )
    assert not [one for one in lint_raw(shared) if one.check == "repeated-key"]


def _keys(**keys: bytes) -> list[dict[str, str]]:
    return [{"name": name, "secret": base64.b64encode(key).decode()} for name, key in keys.items()]


def test_a_rule_of_its_own_takes_a_resource_from_the_wildcard() -> None:
    raw = configuration_of_rules(
        (("secrets",), (kms(apiVersion="v2"), IDENTITY)),
        (("*.",), (provider("aesgcm", k=GOOD), IDENTITY)),
        (("*.*",), (provider("secretbox", s=GOOD), IDENTITY)),
    )
    told = [one for one in lint_raw(raw) if one.check == "narrower-rule"]
    assert [place_of(one.path) for one in told] == ["resources[0].resources[0]", "resources[1].resources[0]"]
    assert "aesgcm/k" in told[0].message
    assert "secretbox/s" in told[1].message
    same = configuration_of_rules(
        (("secrets",), (kms(apiVersion="v2"), provider("aesgcm", k=GOOD))),
        (("*.",), (provider("aesgcm", k=GOOD),)),
    )
    assert not [one for one in lint_raw(same) if one.check == "narrower-rule"]


@pytest.mark.parametrize(
    ("mode", "told"), [(0o100600, False), (0o100400, False), (0o100640, True), (0o100604, True)]
)
def test_who_may_read_the_file(mode: int, told: bool) -> None:
    assert ("file-mode" in found(kms(apiVersion="v2"), IDENTITY, mode=mode)) == told


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "fixtures/configs/invalid").glob("*.*")), ids=lambda path: path.stem
)
def test_what_api_servers_refuse_is_an_error_or_cannot_be_read(path: Path) -> None:
    if path.name == "MANIFEST.toml":
        return
    raw = path.read_bytes()
    try:
        decoded = decode_rules(raw, path="f")
    except ConfigurationError:
        return
    told = list(lint(raw, decoded))
    strict = [one.level for one in told if one.check in STRICT]
    assert any(one.check == "refused" for one in told) or strict == [LintLevel.WARNING]
    for secret in _secrets(yaml.safe_load(raw)):
        assert secret not in json.dumps([[one.message, one.next_step, place_of(one.path)] for one in told])


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "fixtures/configs/valid").glob("*.*")), ids=lambda path: path.stem
)
def test_what_api_servers_take_has_no_error(path: Path) -> None:
    if path.name == "MANIFEST.toml":
        return
    raw = path.read_bytes()
    assert all(one.level is not LintLevel.ERROR for one in lint_raw(raw))


def _secrets(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        own = [
            value
            for key, value in tree.items()
            if key == "secret" and isinstance(value, str) and len(value) > 8
        ]
        return own + [one for value in tree.values() for one in _secrets(value)]
    return [one for value in tree for one in _secrets(value)] if isinstance(tree, list) else []


def test_a_key_that_was_typed_as_a_name_is_not_shown() -> None:
    key = "Qx7Zk1vPbT9nWs4LrE8dUo2mHy6GcJ5fAi3RtYpVzKw="
    broad = {"aescbc": {"keys": [{"name": key, "secret": "AAAAAAAAAAAAAAAAAAAAAA=="}]}}
    raw = configuration_of_rules((("secrets", key), (provider("aescbc", k=bytes(16)),)), (("*.",), (broad,)))
    told = json.dumps([[one.message, one.next_step, place_of(one.path)] for one in lint_raw(raw)])
    assert "narrower-rule" in {one.check for one in lint_raw(raw)}
    assert key[:12] not in told
