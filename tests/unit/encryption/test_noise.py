"""Where it is said that a look would say the same of a value, it does."""

from __future__ import annotations

import random

import pytest

from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.noise import SameNoise
from etcdfix.encryption.transformer import Transformers
from etcdfix.model import PeekState
from tests.support.peeking import (
    ONE,
    SECRETS,
    STRUCTURES,
    THREE,
    TWO,
    peeked,
    sealed,
    seeded,
    transformers,
)
from tests.unit.encryption.test_peek import keys, rule

NAMES = ("key1", "key1:of", "2026-05-12T18:43:18Z")
STARTS = (b"k8s:enc:aesgcm:v1:", b"k8s:enc:aescbc:v1:", b"k8s:enc:secretbox:v1:")


def under(**named: bytes) -> Transformers:
    every = keys(**named)
    return transformers(rule("secrets", aesgcm=every, aescbc=every, secretbox=every))


def same(data: bytes, found: Transformers) -> SameNoise | None:
    envelope = parse_envelope(data, found.names)
    return SameNoise.of(data, envelope.body_offset if envelope else 0, SECRETS, found, STRUCTURES)


def bodies(source: random.Random) -> list[bytes]:
    noise = source.randbytes(source.choice((0, 20, 63, 64, 65, 300, 1200)))
    return [
        noise,
        b"more:" + noise,
        b"of:" + noise,
        "é".encode() + noise,
        b"\xc3:" + noise,
        source.randbytes(3) + b":" + noise,
        b"18:43:18Z:" + noise,
    ]


@pytest.mark.parametrize(
    "found",
    [under(key1=TWO, key2=THREE), under(lost=TWO), under(**{"key1": TWO, "key1:of": THREE})],
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
                        if noise.holds(other):
                            held += 1
                            assert peeked(found, other, thorough=False) == first
    assert held > 500


@pytest.mark.parametrize("provider", ["aesgcm", "aescbc", "secretbox"])
def test_a_value_whose_key_is_there_is_none_of_them(provider: str) -> None:
    found = under(key1=TWO, key2=ONE)
    noise = same(f"k8s:enc:{provider}:v1:key1:".encode() + b"\xff" * 200, found)
    assert noise is not None
    assert not noise.holds(sealed(provider))
    start = f"k8s:enc:{provider}:v1:key1:".encode()
    assert any(noise.holds(start + bytes([255, number]) * 160) for number in range(8))


def test_nothing_is_said_where_the_envelope_alone_does_not_decide() -> None:
    found = under(key1=TWO)
    assert same(b"no envelope" + b"\xff" * 200, found) is None
    assert same(seeded(), found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:more:" + b"\xff" * 200, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 63, found) is None
    assert same(b"k8s:enc:aesgcm:v1:key1:" + b"\xff" * 64, found) is not None
