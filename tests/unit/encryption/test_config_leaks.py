"""No error about a configuration gives away a secret that stands in it, wherever it stands."""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Iterator

import pytest

from etcdfix.encryption.config import parse_configuration
from etcdfix.model.errors import ConfigurationError
from tests.support.thorough import some

CANARY = "Qx7Zk1vPbT9nWs4LrE8dUo2mHy6GcJ5fAi3RtYpVzKw="
YAML = f"""apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc:
      keys:
      - name: key1
        secret: {CANARY}
  - secretbox: {{keys: [{{name: "key2", secret: "{CANARY}"}}]}}
  - kms: {{apiVersion: v2, name: prov, endpoint: 'unix:///run/kms.sock', timeout: 3s}}
"""
JSON = json.dumps(
    {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [
            {
                "resources": ["secrets"],
                "providers": [
                    {"aesgcm": {"keys": [{"name": "key1", "secret": CANARY}]}},
                    {"kms": {"apiVersion": "v2", "name": "prov", "endpoint": "unix:///run/kms.sock"}},
                ],
            }
        ],
    },
    indent=1,
)


def everything_said(error: BaseException) -> str:
    said = ["".join(traceback.format_exception(error))]
    link: BaseException | None = error
    while link is not None:  # contexts as well, which a traceback may suppress
        said += [str(link), repr(link), repr(link.args), getattr(link, "hint", "")]
        link = link.__cause__ or link.__context__
    return "\n".join(said)


def assert_nothing_leaks(raw: bytes) -> bool:
    refused = False
    for minor in (None, 36):
        try:
            said = "\n".join(parse_configuration(raw, path="config.yaml", minor=minor).warnings)
        except ConfigurationError as error:
            said, refused = everything_said(error), True
        # Source lines of this file stand in the traceback, but never with the canary spelled out.
        for start in range(len(CANARY) - 15):
            assert CANARY[start : start + 16] not in said, said
    return refused


PLACES = {
    "api version": ("apiserver.config.k8s.io/v1", CANARY),
    "kind": ("EncryptionConfiguration", CANARY),
    "field name": ("providers:", f"{CANARY}:"),
    "top-level field": ("kind:", f"{CANARY}: 1\nkind:"),
    "key field": ("name: key1", f"name: key1\n        {CANARY}: 5"),
    "resource": ("[secrets]", f"[Secrets{CANARY}]"),
    "resources": ("[secrets]", f"[secrets, '*.', {CANARY}, {CANARY}]"),
    "masked": ("[secrets]", f"['*.']\n  providers: [{{identity: {{}}}}]\n- resources: ['{CANARY.lower()}']"),
    "secret spoiled": (f"secret: {CANARY}", f"secret: {CANARY}x"),
    "secret twice": (f"secret: {CANARY}", f"secret: {CANARY}{CANARY}"),
    "secret as variable": (f"secret: {CANARY}", f"secret: ${{{CANARY}}}"),
    "secret as template": (f"secret: {CANARY}", f"secret: {{{{ {CANARY} }}}} <{CANARY}>"),
    "secret as list": (f"secret: {CANARY}", f"secret: [{CANARY}]"),
    "secret as field": (f"secret: {CANARY}", f"secret: {{{CANARY}: 1}}"),
    "secret as alias": (f"secret: {CANARY}", f"secret: *{CANARY.rstrip('=')}"),
    "secret as own anchor": (f"secret: {CANARY}", f"secret: &{CANARY.rstrip('=')} [*{CANARY.rstrip('=')}]"),
    "secret as tag": (f"secret: {CANARY}", f"secret: !!{CANARY} [x]"),
    "secret as handle": (f"secret: {CANARY}", f"secret: !{CANARY.rstrip('=')}!x y"),
    "secret as integer": (f"secret: {CANARY}", f"secret: !!int {CANARY}"),
    "secret as binary": (f"secret: {CANARY}", f"secret: !!binary {CANARY}x"),
    "secret with escape": (f"secret: {CANARY}", f'secret: "{CANARY}\\q"'),
    "secret not closed": (f"secret: {CANARY}", f"secret: '{CANARY}"),
    "secret with colon": (f"secret: {CANARY}", f"secret: {CANARY}: x"),
    "secret as map key": (f"secret: {CANARY}", f"? [{CANARY}]\n        : x"),
    "secret as duplicate": (f"secret: {CANARY}", f"{CANARY}: 1\n        {CANARY}: 2"),
    "name is missing": ("name: key1", "name: ''"),
    "provider as text": ("  - aescbc:", f"  - {CANARY}\n  - aescbc:"),
    "two members": ("  - secretbox:", "    secretbox:"),
    "kms name": ("name: prov", f"name: '{CANARY}:'"),
    "kms name twice": (
        "  - kms:",
        f"  - kms: {{apiVersion: v2, name: {CANARY}, endpoint: 'unix:///x'}}\n" * 2 + "  - kms:",
    ),
    "kms version": ("apiVersion: v2", f"apiVersion: {CANARY}"),
    "kms endpoint": ("unix:///run/kms.sock", f"http://x/{CANARY}"),
    "kms endpoint scheme": ("unix:///run/kms.sock", f"{CANARY.replace('=', '')}://x"),
    "kms endpoint password": ("unix:///run/kms.sock", f"http://u:{CANARY}@x"),
    "kms endpoint escape": ("unix:///run/kms.sock", f"unix:///%zz{CANARY}"),
    "kms endpoint port": ("unix:///run/kms.sock", f"unix://x:{CANARY}"),
    "kms timeout": ("timeout: 3s", f"timeout: {CANARY}"),
    "kms timeout unit": ("timeout: 3s", f"timeout: '3{CANARY}'"),
    "kms cache size": ("timeout: 3s", f"cachesize: {CANARY}"),
    "directive": ("apiVersion: api", f"%{CANARY} x\n---\napiVersion: api"),
}


@pytest.mark.parametrize("place", PLACES)
def test_yaml(place: str) -> None:
    old, new = PLACES[place]
    assert old in YAML
    assert assert_nothing_leaks(YAML.replace(old, new, 1).encode())


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"kind"', f'"{CANARY}"'),
        ('"secret": ', f'"secret": "{CANARY}", "secret": '),
        (f'"{CANARY}"', CANARY),
        (f'"{CANARY}"', f'"{CANARY}'),
        (f'"{CANARY}"', f'"{CANARY}\\q"'),
        (f'"{CANARY}"', f'["{CANARY}"]'),
        (f'"{CANARY}"', f'{{"{CANARY}": 0}}'),
        (f'"{CANARY}"', f'"{CANARY}" "{CANARY}"'),
        (f'"{CANARY}"', f'"{CANARY}"}}]}}}}]}}]}} "{CANARY}"'),
        (f'"{CANARY}"', f'"{CANARY}", "{CANARY}": 1'),
        ('"prov"', f'"{CANARY}:"'),
    ],
)
def test_json(old: str, new: str) -> None:
    assert old in JSON
    assert assert_nothing_leaks(JSON.replace(old, new, 1).encode())


def test_a_file_that_is_the_secret_alone() -> None:
    assert assert_nothing_leaks(CANARY.encode())
    assert assert_nothing_leaks(base64.b64decode(CANARY))
    assert assert_nothing_leaks(f"kind: {CANARY}".encode())
    assert assert_nothing_leaks(f"apiVersion: v1\nresources: {CANARY}".encode())


def damaged(text: str) -> Iterator[str]:
    for at in range(len(text)):
        yield text[:at]
        yield text[:at] + text[at + 1 :]
        yield text[:at] + '\n:{["&*!|%\t-'[at % 12] + text[at + 1 :]
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        before, after = "".join(lines[:at]), "".join(lines[at + 1 :])
        yield before + after
        yield before + line + line + after
        yield f"{before}  {line}{after}"
        yield before + line.removeprefix("  ") + after


@pytest.mark.parametrize("text", [YAML, JSON], ids=["yaml", "json"])
def test_systematic_damage(text: str) -> None:
    variants = some([*damaged(text)], of=11)
    refused = sum(assert_nothing_leaks(variant.encode()) for variant in variants)
    assert refused > len(variants) // 3
