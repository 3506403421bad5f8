"""Properties of looking without a tag: a wrong key never looks right, and whatever is undone really opens."""

from __future__ import annotations

import base64
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.encryption.cipher import Flip
from etcdfix.encryption.config import ProviderType
from etcdfix.encryption.providers import cipher_of
from etcdfix.encryption.transformer import Transformers
from etcdfix.model import PeekState, Undone
from tests.support.peeking import (
    ETCD_KEY,
    NONCE12,
    ONE,
    SECRETS,
    STRUCTURES,
    peeked,
    sealed,
    secret,
    transformers,
)

LOCAL = ("aescbc", "aesgcm", "secretbox")
_WORDS = re.compile(r"bit (\d) of byte (\d+) of the (\w+)")

plaintexts = st.sampled_from(
    [
        secret(),
        secret(2000),
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"u"}}\n',
        b'{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s1","namespace":"default"}}\n',
        b"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s1\n  namespace: default\n  labels: {}\n",
        b"\xd9\xd9\xf7\xa4\x44kind\x46Widget\x44spec\xa0\x48metadata\xa0\x4aapiVersion\x4eexample.com/v1",
    ]
)


def configured(*keys: bytes) -> Transformers:
    listed = ", ".join(f"{{name: key1, secret: {base64.b64encode(key).decode()}}}" for key in keys)
    providers = ", ".join(f"{{{provider}: {{keys: [{listed}]}}}}" for provider in LOCAL)
    return transformers(f"- {{resources: [secrets], providers: [{providers}]}}\n")


RIGHT = configured(ONE)


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes, bytes]:
    provider, plaintext = draw(st.sampled_from(LOCAL)), draw(plaintexts)
    value = sealed(provider, plaintext)
    start = value.index(NONCE12)
    match draw(st.sampled_from(["bit", "byte", "cut", "text", "insert", "none"])):
        case "bit":
            at = draw(st.integers(start, len(value) - 1))
            value = value[:at] + bytes([value[at] ^ 1 << draw(st.integers(0, 7))]) + value[at + 1 :]
        case "byte":
            at = draw(st.integers(start, len(value) - 1))
            value = value[:at] + draw(st.binary(min_size=1, max_size=20)) + value[at + 1 :]
        case "cut":
            value = value[: draw(st.integers(start, len(value)))]
        case "text":
            value = value.replace(b"\n", b"\r\n")
        case "insert":
            at = draw(st.integers(start, len(value)))
            value = value[:at] + draw(st.binary(max_size=40)) + value[at:]
    return provider, plaintext, value


@given(damaged(), st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=3))
def test_a_wrong_key_never_looks_right(case: tuple[str, bytes, bytes], keys: list[bytes]) -> None:
    _, _, value = case
    others = [key for key in keys if key != ONE]
    if others:
        assert peeked(configured(*others), value).state is not PeekState.RIGHT_KEY


@given(damaged())
def test_whatever_is_undone_opens(case: tuple[str, bytes, bytes]) -> None:
    provider, plaintext, value = case
    found = peeked(RIGHT, value)
    if found.undone is None:
        return
    start = len(f"k8s:enc:{provider}:v1:key1:")
    head, body = value[:start], value[start:]
    if found.undone.what is Undone.TEXT_MODE:
        body = body.replace(b"\r\n", b"\n")
    else:
        match = _WORDS.fullmatch(found.undone.detail)
        assert match is not None
        parts = {
            "aesgcm": {"nonce": 0, "ciphertext": 12, "tag": len(body) - 16},
            "secretbox": {"nonce": 0, "tag": 24, "ciphertext": 40},
        }[provider]
        body = Flip(match[3], int(match[2]), int(match[1]), parts[match[3]]).turned(body)
    opened = RIGHT.for_resource(SECRETS).from_storage(head + body, ETCD_KEY)
    assert opened.data == plaintext


@given(damaged())
def test_one_flipped_bit_behind_the_start_is_found(case: tuple[str, bytes, bytes]) -> None:
    provider, plaintext, value = case
    whole = sealed(provider, plaintext)
    if provider == "aescbc" or len(value) != len(whole):
        return
    wrong = (int.from_bytes(value) ^ int.from_bytes(whole)).bit_count()
    found = peeked(RIGHT, value)
    if wrong == 1:
        assert found.state is PeekState.RIGHT_KEY
        assert found.undone is not None
    elif wrong == 0:
        assert found.opens


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_can_be_looked_at(tail: bytes, thorough: bool) -> None:
    for provider in LOCAL:
        found = peeked(RIGHT, f"k8s:enc:{provider}:v1:".encode() + tail, thorough=thorough)
        assert found.state is not PeekState.RIGHT_KEY


@pytest.mark.parametrize("provider", LOCAL)
def test_thousands_of_wrong_keys(provider: str) -> None:
    source = random.Random(5)
    value = sealed(provider)
    body = value[value.index(NONCE12) :]
    for _ in range(5_000):
        cipher = cipher_of(ProviderType(provider), source.randbytes(32))
        start = cipher.start(body)
        assert STRUCTURES.recognise_blocks(start) is None
        assert STRUCTURES.recognise(start) is None
