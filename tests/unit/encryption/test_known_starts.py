"""What counts as the start of a plaintext, how sure it is, and that noise never does."""

from __future__ import annotations

import random

import pytest

from etcdfix.encryption.known_starts import (
    LEAST_ODDS_BITS,
    START_SIZE,
    START_SIZE_CBC,
    RecognisedStart,
    Structures,
)
from etcdfix.testing.protobytes import block, object_meta, unknown
from tests.support.objects import secret

PAIRS = [
    ("v1", "Pod"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("apps/v1", "Deployment"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
]
STRUCTURES = Structures(PAIRS)
UID = b"99999999-8888-7777-6666-555555555555"
CUSTOM = (
    b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","namespace":"shop","uid":"u"}}\n'
)
CRD = b'{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{}}\n'
YAML = b"apiVersion: v1\nkind: Secret\nmetadata:\n  name: s1\n  namespace: default\n  labels: {}\n"


def stored(api_version: bytes, kind: bytes, name: bytes = b"web", namespace: bytes = b"shop") -> bytes:
    return unknown(api_version, kind, block(1, object_meta(name, namespace, UID)))


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def flipped(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def seen(data: bytes) -> RecognisedStart:
    found = STRUCTURES.recognise(data[:START_SIZE])
    assert found is not None
    assert found.bits >= LEAST_ODDS_BITS
    return found


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (stored(b"v1", b"Pod"), "protobuf"),
        (secret(), "protobuf"),
        (stored(b"admissionregistration.k8s.io/v1", b"ValidatingWebhookConfiguration"), "protobuf"),
        (CUSTOM, "json"),
        (CRD, "json"),
        (b'{"apiVersion":"v1"', "json"),
        (b'{"metadata":{"name":"w","namespace":"shop"},"kind":"Widget","apiVersion":"v1"}', "json"),
        (YAML, "yaml"),
        (b"k8s:enc:aescbc:v1:key1:", "encrypted"),
        (b"k8s:enc:kms:v2:prov:", "encrypted"),
        (b"\xd9\xd9\xf7\xa4\x44kind\x46Widget\x44spec\xa0", "cbor"),
        (b"\xd9\xd9\xf7\xbf\x64kind\x66Widget", "cbor"),
        (b"\xd9\xd9\xf7\xa2\x4aapiVersion\x42v1", "cbor"),
        (b"\xd9\xd9\xf7\xa2\x48metadata\xa1", "cbor"),
        (b"\xd9\xd9\xf7\xa2\x44spec\xa1", "cbor"),
    ],
)
def test_starts_that_api_servers_write(data: bytes, encoding: str) -> None:
    assert seen(data)[::2] == (encoding, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"k8s\x00",
        b"k8s\x00\n\x09\n\x02v1\x12\x03Po",  # 15 bytes of a header: 120 bits are too few for protobuf
        stored(b"example.com/v1", b"Widget"),  # a kind that nobody registers
        b"\xd9\xd9\xf7\xa1\x44kind\x80",
        b"\xd9\xd9\xf7\xa1\x44kink\x46Widget",
        b'{"name":"w"}' + b"\x00" * 60,
        b"a printable text that starts like nothing that an API server ever writes, only longer",
        b'"quoted": \xff' + bytes(64),
    ],
)
def test_starts_that_nobody_writes(data: bytes) -> None:
    assert STRUCTURES.recognise(data) is None


def test_a_header_may_have_eight_wrong_bits_and_no_more() -> None:
    header = stored(b"v1", b"Secret")
    bits = [3, 17, 40, 60, 77, 90, 100, 140]
    assert seen(flipped(header, *bits)) == seen(header)._replace(wrong_bits=8)
    assert STRUCTURES.recognise(flipped(header, *bits, 141)) is None


def blocks(data: bytes) -> RecognisedStart | None:
    return STRUCTURES.recognise_blocks(data[:START_SIZE_CBC])


@pytest.mark.parametrize("name", [b"w", b"web-5d4b7c9f6d-x2x7k", b"a" * 253])
@pytest.mark.parametrize(
    "kind", [(b"v1", b"Pod"), (b"apps/v1", b"Deployment"), tuple(t.encode() for t in PAIRS[4])]
)
def test_a_garbled_first_block_of_protobuf(kind: tuple[bytes, bytes], name: bytes) -> None:
    data = stored(*kind, name)
    for garbled in (16, 32):  # the block after a damaged one has wrong bits too
        found = blocks(noise(garbled) + data[garbled:])
        assert found is not None
        assert found.encoding == "protobuf"
        assert found.bits > 2 * LEAST_ODDS_BITS
    assert blocks(noise(64 + len(name)) + data[64 + len(name) :]) is None


@pytest.mark.parametrize(
    ("start", "encoding"),
    [
        (stored(b"admissionregistration.k8s.io/v1", b"ValidatingWebhookConfiguration"), "protobuf"),
        (b'{"apiVersion":"stable.example.com/v1","kind":"Widget","metadata":{}}', "json"),
    ],
)
def test_one_later_block_of_a_start_is_enough(start: bytes, encoding: str) -> None:
    known = Structures(PAIRS, [("stable.example.com/v1", "Widget")])
    for first in (16, 32):
        alone = noise(first) + start[first : first + 16] + noise(200)
        assert known.recognise_blocks(alone) is not None
        found = known.recognise_blocks(flipped(alone, *range(first * 8, first * 8 + 8)))
        assert found is not None
        assert (found.encoding, found.wrong_bits, found.behind) == (encoding, 8, True)
        assert found.bits > LEAST_ODDS_BITS
        assert known.recognise_blocks(flipped(alone, *range(first * 8, first * 8 + 9))) is None
        # It counts in its own place only.
        assert known.recognise_blocks(noise(first + 16) + start[first : first + 16] + noise(200)) is None
    assert known.recognise_blocks(noise(20)) is None


def test_a_garbled_first_block_of_json() -> None:
    for damaged in (noise(16) + CUSTOM[16:], noise(16) + flipped(CUSTOM, 135)[16:], noise(32) + CUSTOM[32:]):
        found = blocks(damaged)
        assert found is not None
        assert found.encoding == "json"
        assert found.bits >= LEAST_ODDS_BITS
    assert blocks(noise(16) + CUSTOM[16:79]) is None
    assert blocks(noise(32) + b"only text, no members" * 5) is None


def test_a_start_without_a_wrong_bit_is_found_as_if_all_were_compared() -> None:
    structures, slow = Structures(PAIRS, [("v1", "Pod")]), Structures(PAIRS, [("v1", "Pod")])
    slow._texts = []
    texts = [text for literals in structures._by_head.values() for text, _, _ in literals]
    tails = (b"", noise(200), texts[0])
    for data in [text[:cut] + tail for text in texts for tail in tails for cut in (len(text), 16, 40)]:
        assert structures.recognise(data) == slow.recognise(data)
        assert structures.recognise_blocks(data) == slow.recognise_blocks(data)


def test_what_is_called_noise_at_once_is_recognised_by_nobody() -> None:
    source = random.Random(8)
    texts = [text for literals in STRUCTURES._by_head.values() for text, _, _ in literals]
    tails = (
        b"", b'{"kind":"' + b"x" * 300, b"name: " + b"x" * 300,
        b"\xd9\xd9\xf7\xa2\x44kind\x43Pod" + bytes(300),
    )  # fmt: skip
    called = 0
    for data in (*texts, *tails[1:], *(source.randbytes(64) for _ in range(300))):
        for flips in (0, 1, 8, 9, 20):
            whole = bytearray(data + source.randbytes(START_SIZE))
            for _ in range(flips):
                whole[source.randrange(4)] ^= 1 << source.randrange(8)
            if STRUCTURES.is_noise(bytes(whole[:64])):
                called += 1
                assert STRUCTURES.recognise(bytes(whole)) is None
    assert called > 1_000
