"""Where it is said that a look would say the same of a value, it does."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.same_look import SameLook
from etcdfix.encryption.transformer import Transformers
from etcdfix.model.model import Look, PeekState
from tests.support.peeking import (
    ETCD_KEY,
    ONE,
    PLAIN,
    SECRETS,
    STRUCTURES,
    THREE,
    TWO,
    every,
    look,
    peeked,
    sealed,
    secret,
    seeded,
)

NAMES = ("key1", "key1:of", "2026-05-12T18:43:18Z")
STARTS = (b"k8s:enc:aesgcm:v1:", b"k8s:enc:aescbc:v1:", b"k8s:enc:secretbox:v1:")


def same(data: bytes, found: Transformers, *, key: bytes = ETCD_KEY) -> SameLook | None:
    envelope = parse_envelope(data, found.names)
    body = envelope.body_offset if envelope else 0
    first = peeked(found, data, key=key, thorough=False)
    return SameLook.of(data, key, body, SECRETS, found, STRUCTURES, first)


def holds(one: SameLook, data: bytes) -> bool:
    return one.of_another(data, ETCD_KEY, look) is not None


def bodies(source: random.Random) -> list[bytes]:
    noise = source.randbytes(source.choice((0, 20, 63, 64, 65, 300, 1200)))
    return [
        noise, b"more:" + noise, b"of:" + noise, "é".encode() + noise, b"\xc3:" + noise,
        source.randbytes(3) + b":" + noise, b"18:43:18Z:" + noise,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "found",
    [every(key1=TWO, key2=THREE), every(lost=TWO), every(**{"key1": TWO, "key1:of": THREE})],
    ids=["named", "missing", "longer"],
)
def test_what_is_said_of_one_is_said_of_the_others(found: Transformers) -> None:
    source = random.Random(5)
    held = 0
    for start in STARTS:
        for name in (*NAMES, "2026-05-12T18"):
            data = start + name.encode() + b":\xff" + source.randbytes(300)
            first = peeked(found, data, thorough=False)
            noise = same(data, found)
            if noise is None:
                assert name == "key1:of"  # of a key that is not configured: it could end elsewhere
                assert name not in found.names
                continue
            assert first.state is PeekState.NOISE
            for _ in range(30):
                for body in bodies(source):
                    for other in (start + name.encode() + b":" + body, start + body):
                        if holds(noise, other):
                            held += 1
                            assert peeked(found, other, thorough=False) == first
    assert held > 500


def test_nothing_is_said_where_the_envelope_alone_does_not_decide() -> None:
    found = every(key1=TWO)
    assert same(b"no envelope" + b"\xff" * 200, found) is None
    assert same(seeded(), found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:more:" + b"\xff" * 200, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 63, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 64, found) is not None


def renamed(provider: str, plaintext: bytes = PLAIN, *, etcd_key: bytes = ETCD_KEY) -> bytes:
    """A value under the first key, whose name was another one when it was written."""
    return sealed(provider, plaintext, etcd_key=etcd_key).replace(b":key1:", b":old:", 1)


def damaged_in_every_byte(value: bytes) -> Iterator[bytes]:
    start = value.index(b":old:") + 5
    for at in range(start, len(value)):
        yield value[:at] + bytes([value[at] ^ 1 << at % 8]) + value[at + 1 :]
    for end in range(start, len(value)):
        yield value[:end]
    yield value + b"\0"
    yield value + bytes(16)


@pytest.mark.parametrize("provider", ["aesgcm", "aescbc", "secretbox"])
def test_of_a_key_that_has_another_name_only_whole_values_look_the_same(provider: str) -> None:
    found = every(key2=TWO, new=ONE, key3=THREE)
    value = renamed(provider)
    first = peeked(found, value, thorough=False)
    assert first.state is PeekState.RIGHT_KEY
    assert not first.named
    one = same(value, found)
    assert one is not None
    assert one.of_another(value, ETCD_KEY, look) == first
    for other in damaged_in_every_byte(value):
        assert one.of_another(other, ETCD_KEY, look) is None or (
            peeked(found, other, thorough=False) == first and other != value
        )


def test_the_etcd_key_that_a_value_belongs_to_is_its_own() -> None:
    found = every(new=ONE)
    one = same(renamed("aescbc"), found)
    assert one is not None
    assert one.of_another(renamed("aescbc"), b"/registry/secrets/shop/other", look) is None
    elsewhere = b"/registry/secrets/shop/db"

    def look_elsewhere(plaintext: bytes) -> Look:
        return look(plaintext)._replace(belongs=(elsewhere,))

    seen = one.of_another(renamed("aescbc"), elsewhere, look_elsewhere)
    assert seen is not None
    assert seen.look is not None
    assert seen.look.belongs == (elsewhere,)


def test_nothing_is_said_of_others_where_the_first_is_not_whole() -> None:
    found = every(new=ONE)
    for provider in ("aesgcm", "aescbc", "secretbox"):
        value = renamed(provider)
        assert same(value, found) is not None
        assert same(value, found, key=b"/registry/secrets/shop/other") is None
        for broken in (
            renamed(provider, PLAIN[:-4]),
            renamed(provider, secret(60)),
            renamed(provider, PLAIN.replace(b"shop", b"shoq")),
            *([value[:-1] + bytes([value[-1] ^ 1])] if provider == "aesgcm" else []),
        ):
            assert peeked(found, broken, thorough=False).state is PeekState.RIGHT_KEY
            assert same(broken, found) is None
