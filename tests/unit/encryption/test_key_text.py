from __future__ import annotations

import base64
import hashlib

import pytest

from etcdfix.encryption.keyring import may_hold_key, shown
from etcdfix.golang.goquote import go_quote, withheld


@pytest.mark.parametrize(
    "text",
    [
        "secrets",
        "customresourcedefinitions.apiextensions.k8s.io",
        "apiserver.config.k8s.io/v1beta1",
        "EncryptionConfigurations",
        "customResourceDefinitions.apiextensions.k8s.io",
        "unix:///run/kms/kms1.sock",
        "ALL-CAPITALS-WITH-DASHES-AND-LENGTH",
        "",
    ],
)
def test_what_people_write_is_shown(text: str) -> None:
    assert not may_hold_key(text)
    assert shown(text) == go_quote(text)
    assert shown(text, quote="") == text


KEYS = [hashlib.sha256(bytes([n])).digest()[:size] for n in range(8) for size in (16, 24, 32)]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key[:4].hex())
@pytest.mark.parametrize(
    "write",
    [
        lambda key: base64.b64encode(key).decode(),
        lambda key: base64.b64encode(key).decode().rstrip("="),
        lambda key: base64.urlsafe_b64encode(key).decode(),
        lambda key: key.hex(),
        lambda key: key.hex().upper(),
        lambda key: f"name: {base64.b64encode(key).decode()}",
        lambda key: base64.b64encode(key).decode()[:9] + " " + base64.b64encode(key).decode()[9:],
    ],
)
def test_what_could_be_a_key_is_withheld(key: bytes, write: object) -> None:
    assert callable(write)
    text = write(key)
    assert may_hold_key(text)
    assert shown(text) == shown(text, quote="") == withheld(text)
