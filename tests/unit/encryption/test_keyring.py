from __future__ import annotations

import base64
import copy
import hashlib
import pickle

import msgspec
import pytest

from etcdfix.encryption.keyring import KeyMaterial, fingerprint, may_hold_key, shown
from etcdfix.golang.goquote import go_quote, withheld

KEY = bytes(range(32))


def test_fingerprint_is_pinned() -> None:
    # Fingerprints stand in saved reports and are compared with them: the form must not change.
    digest = hashlib.sha256(b"etcdfix key fingerprint v1\x00" + KEY).hexdigest()
    assert fingerprint(KEY) == f"fp:{digest[:16]}" == "fp:5f0f05922f5c7613"


@pytest.mark.parametrize(
    "show", [repr, str, "{}".format, lambda key: f"{key!r:>80}", lambda key: repr([key])]
)
def test_it_shows_its_fingerprint_alone(show: object) -> None:
    assert callable(show)
    text = show(KeyMaterial(KEY))
    assert fingerprint(KEY) in text
    assert repr(KEY) not in text
    assert "\\x01" not in text


@pytest.mark.parametrize(
    "leave",
    [pickle.dumps, copy.copy, copy.deepcopy, lambda key: key.__getstate__(), lambda key: key.__reduce__()],
)
def test_it_is_not_serialised(leave: object) -> None:
    assert callable(leave)
    with pytest.raises(TypeError) as caught:
        leave(KeyMaterial(KEY))
    assert "\\x01" not in str(caught.value)


def test_it_has_no_dict_and_no_json() -> None:
    with pytest.raises(TypeError):
        vars(KeyMaterial(KEY))
    with pytest.raises(TypeError):
        msgspec.json.encode(KeyMaterial(KEY))


@pytest.mark.parametrize(
    "text",
    [
        "secrets", "customresourcedefinitions.apiextensions.k8s.io", "apiserver.config.k8s.io/v1beta1",
        "EncryptionConfigurations", "customResourceDefinitions.apiextensions.k8s.io",
        "unix:///run/kms/kms1.sock", "ALL-CAPITALS-WITH-DASHES-AND-LENGTH", "",
    ],
)  # fmt: skip
def test_what_people_write_is_shown(text: str) -> None:
    assert not may_hold_key(text)
    assert shown(text) == go_quote(text)
    assert shown(text, quote="") == text


KEYS = [hashlib.sha256(bytes([n])).digest()[:size] for n in range(2) for size in (16, 24, 32)]


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
