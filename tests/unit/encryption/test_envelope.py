"""Where the parts of an encrypted value lie: whole, cut anywhere, damaged anywhere, and never anything secret."""

from __future__ import annotations

import pytest

from etcdfix.encryption.envelope import Envelope, parse_envelope, transformer_name
from etcdfix.encryption.layout import envelope_layout
from etcdfix.model.model import ValuePart
from tests.support.objects import KEY_1, aescbc, aesgcm, secret

KEY = "/registry/secrets/shop/web"
GCM = aesgcm(secret(), KEY)
CBC = aescbc(secret())
SECRETBOX = b"k8s:enc:secretbox:v1:sb:" + bytes(range(1, 25)) + bytes(range(16, 32)) + b"sealed"
KMS1 = b"k8s:enc:kms:v1:prov:" + b"\x00\x03abc" + bytes(range(1, 13)) + b"sealed" + bytes(range(16, 32))
SEALED = bytes(range(1, 33)) + bytes(range(1, 13)) + b"sealed" + bytes(range(16, 32))


def field(number: int, value: bytes) -> bytes:
    return bytes([number << 3 | 2, len(value)]) + value


def kms2(*parts: bytes) -> bytes:
    return b"k8s:enc:kms:v2:prov:" + b"".join(parts)


KMS2 = kms2(
    field(1, SEALED), field(2, b"key-7"), field(3, b"wrapped"), field(4, b"\x0a\x01a\x12\x01b"), b"\x28\x01"
)


def names(value: bytes, *known: str) -> list[tuple[str, int]]:
    return [(part.name, part.length) for part in envelope_layout(value, known)]


def test_aescbc() -> None:
    assert envelope_layout(CBC) == [
        ValuePart(0, 8, "prefix", "k8s:enc:"),
        ValuePart(8, 7, "provider", "aescbc"),
        ValuePart(15, 3, "version", "v1"),
        ValuePart(18, 5, "key name", "key1"),
        ValuePart(23, 16, "initialisation vector"),
        ValuePart(39, len(CBC) - 39, "ciphertext"),
    ]


def test_aesgcm_and_secretbox_have_their_tags_where_they_are() -> None:
    assert names(GCM)[4:] == [("nonce", 12), ("ciphertext", len(GCM) - 23 - 28), ("tag", 16)]
    assert names(SECRETBOX)[4:] == [("nonce", 24), ("tag", 16), ("ciphertext", 6)]


def test_kms_v1() -> None:
    assert names(KMS1)[3:] == [
        ("provider name", 5), ("length", 2), ("wrapped data key", 3), ("nonce", 12), ("ciphertext", 6), ("tag", 16),
    ]  # fmt: skip
    assert envelope_layout(KMS1[:21])[-1].detail == "the length of the wrapped data key runs past the end"


def test_kms_v2() -> None:
    assert names(KMS2)[4:] == [
        ("encrypted data", 2), ("info", 32), ("nonce", 12), ("ciphertext", 6), ("tag", 16), ("key id", 7),
        ("wrapped data key", 9), ("annotation", 8), ("type of the data key", 2),
    ]  # fmt: skip
    told = {part.name: part.detail for part in envelope_layout(KMS2)}
    assert told["key id"].startswith("5 bytes, sha256:")
    assert told["type of the data key"].startswith("1: a seed")


@pytest.mark.parametrize(
    ("body", "name", "detail"),
    [
        (b"\x28\x07", "type of the data key", "not known"),
        (b"\x28\x00", "type of the data key", "0: it is the key itself"),
        (b"\x48\x01", "field 9", ""),
        (b"\x4a\x01x", "field 9", "1 bytes"),
        (b"\xff", "unknown", "no whole field of the message begins here"),
        (b"\x12\x7fkey", "unknown", "no whole field of the message begins here"),
        (b"\x15\x01key\x28\x00", "type of the data key", "0: it is the key itself"),
        (b"\x0a\x01x", "body", "ends early: at least 28 bytes are needed"),
    ],
)
def test_kms_v2_that_is_not_as_it_should_be(body: bytes, name: str, detail: str) -> None:
    assert envelope_layout(kms2(body))[-1][2:] == (name, detail)


def test_the_names_of_keys_are_as_long_as_they_are() -> None:
    value = b"k8s:enc:aesgcm:v1:a:b:" + bytes(range(1, 41))
    assert envelope_layout(value, ["a:b"])[3][1:] == (4, "key name", "a:b")
    assert "it may be longer" in envelope_layout(value)[3].detail
    long = b"k8s:enc:aesgcm:v1:" + b"n" * 900 + b":" + bytes(40)
    assert len(envelope_layout(long)[3].detail) == 254
    assert envelope_layout(b"k8s:enc:aesgcm:v1:\x1b[2J:" + bytes(40))[3].detail == "%1B[2J"


@pytest.mark.parametrize(
    "whole", [CBC, GCM, SECRETBOX, KMS1, KMS2], ids=["cbc", "gcm", "secretbox", "kms1", "kms2"]
)
def test_parts_follow_one_another_without_gaps_wherever_a_value_is_cut_or_damaged(whole: bytes) -> None:
    cut = [whole[:size] for size in range(8, len(whole))]
    flipped = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(8, len(whole))]
    for value in (*cut, *flipped):
        at = 0
        for part in envelope_layout(value):
            assert part.offset == at
            at += part.length
        assert at == len(value)


def test_no_bytes_of_key_or_ciphertext_are_shown() -> None:
    for value in (CBC, GCM, KMS2):
        told = " ".join(part.detail for part in envelope_layout(value))
        assert value[-16:].hex() not in told
        assert KEY_1.hex() not in told
        assert "wrapped" not in told


@pytest.mark.parametrize(
    ("data", "envelope", "known"),
    [
        (b"k8s:enc:aescbc:v1:key1:body", Envelope("aescbc", "v1", "key1", 23), True),
        (b"k8s:enc:kms:v2:prov:", Envelope("kms", "v2", "prov", 20), True),
        (b"k8s:enc:aesgcm:v1:a:b:body", Envelope("aesgcm", "v1", "a", 20, name_may_go_on=True), True),
        (b"k8s:enc:aesgcm:v1:\xff\xc3\xa4:x", Envelope("aesgcm", "v1", "\udcff\u00e4", 22), True),
        (b"k8s:enc:aescbc:v9:key1:body", Envelope("aescbc", "v9", "key1", 23), False),
        (b"k8s:enc:rot13:v1:key1:body", Envelope("rot13", "v1", "key1", 22), False),
        (b"k8s:enc:aescbc:v1:key1", Envelope("aescbc", "v1", "", 18), False),
        (b"k8s:enc:aescbc:v1::body", Envelope("aescbc", "v1", "", 18), False),
        (b"k8s:enc:aescbc:v1:", Envelope("aescbc", "v1", "", 18), False),
        (b"k8s:enc:aescbc:v1", Envelope("aescbc", "", "", 15), False),
        (b"k8s:enc:aescbc:V1:key1:", Envelope("aescbc", "", "", 15), False),
        (b"k8s:enc:aescbc", Envelope("", "", "", 8), False),
        (b"k8s:enc:\xe1escbc:v1:key1:", Envelope("", "", "", 8), False),
        (b"k8s:enc:" + b"a" * 33 + b":v1:x:", Envelope("", "", "", 8), False),
        (b"k8s:enc:", Envelope("", "", "", 8), False),
        (b"k8s:enc:aescbc:v1:" + b"n" * 1024 + b":", Envelope("aescbc", "v1", "n" * 1024, 1043), True),
        (b"k8s:enc:aescbc:v1:" + b"n" * 1025 + b":", Envelope("aescbc", "v1", "", 18), False),
    ],
)
def test_envelopes(data: bytes, envelope: Envelope, known: bool) -> None:
    assert parse_envelope(data) == envelope
    assert envelope.known is known


@pytest.mark.parametrize(
    "name",
    [
        "aescbckey-2026-05-12T18:43:18+02:00", "aescbckey-2026-05-12T18:43:18Z",
        "secretboxkey-2026-05-12T18:43:18.123456789-11:30", "2026-05-12T18:43:18z",
    ],
)  # fmt: skip
def test_a_name_that_ends_in_a_time_is_whole(name: str) -> None:
    """k3s and RKE2 name what they rotate to like this; no configuration is needed to see its end."""
    data = b"k8s:enc:aescbc:v1:" + name.encode() + b":" + bytes(48)
    assert parse_envelope(data) == Envelope("aescbc", "v1", name, 19 + len(name))
    assert parse_envelope(data, [name.partition(":")[0]]) == Envelope(
        "aescbc", "v1", name.partition(":")[0], 19 + len(name.partition(":")[0]), name_may_go_on=True
    )


@pytest.mark.parametrize(
    "rest",
    [
        "aescbckey-2026-05-12T18:43",
        "aescbckey-2026-05-12T18:43:18+02:00",  # and no colon behind it
        "aescbckey-2026-05-12T18:43:18+0200:",
        "aescbckey-2026-05-12 18:43:18+02:00:",
        "aescbckey-2026-55-12T18:43:18+02:00:",
        "6-05-12T18:43:18Z:",
    ],
)
def test_what_is_no_time_ends_at_the_first_colon_and_may_go_on(rest: str) -> None:
    found = parse_envelope(b"k8s:enc:aescbc:v1:" + rest.encode() + b"\xff:\xff" + bytes(40))
    assert found is not None
    assert found.name == rest.partition(":")[0]
    assert found.name_may_go_on is (rest.count(":") > 1)


@pytest.mark.parametrize(
    "data", [b"", b"k8s:enc", b"k8s\x00\n", b"{}", b" k8s:enc:aescbc:v1:k:", b"K8s:enc:aescbc:v1:k:"]
)
def test_plaintext_has_none(data: bytes) -> None:
    assert parse_envelope(data) is None


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("aescbc", "v1", "key1"), "aescbc/v1/key1"),
        (("kms", "v2", "two words"), "kms/v2/two words"),
        (("kms", "v1", "a:b"), "kms/v1/a:b"),
        (("aescbc", "v1", "a/b%c"), "aescbc/v1/a%2Fb%25c"),
        (("aescbc", "v1", "a\n\u202e\udcff\u00e4"), "aescbc/v1/a%0A%E2%80%AE%FF\u00e4"),
        (("aescbc", "v1", ""), "aescbc/v1"),
        (("aescbc", "", ""), "aescbc"),
        (("identity", "", ""), "identity"),
        (("", "", ""), "unknown"),
    ],
)
def test_transformer_names(parts: tuple[str, str, str], name: str) -> None:
    assert transformer_name(*parts) == name
    assert Envelope(*parts, 0).transformer == name
