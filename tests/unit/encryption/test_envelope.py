from __future__ import annotations

import pytest

from etcdfix.encryption.envelope import Envelope, parse_envelope, percent_encode, transformer_name


@pytest.mark.parametrize(
    ("data", "envelope", "known"),
    [
        (b"k8s:enc:aescbc:v1:key1:body", Envelope("aescbc", "v1", "key1", 23), True),
        (b"k8s:enc:kms:v2:prov:", Envelope("kms", "v2", "prov", 20), True),
        (b"k8s:enc:aesgcm:v1:a:b:body", Envelope("aesgcm", "v1", "a", 20), True),
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
    "data", [b"", b"k8s:enc", b"k8s\x00\n", b"{}", b" k8s:enc:aescbc:v1:k:", b"K8s:enc:aescbc:v1:k:"]
)
def test_plaintext_has_none(data: bytes) -> None:
    assert parse_envelope(data) is None


def test_the_longest_known_name_wins() -> None:
    data = b"k8s:enc:aescbc:v1:a:b:c:body"
    assert parse_envelope(data, ["a", "a:b", "b"]) == Envelope("aescbc", "v1", "a:b", 22)
    assert parse_envelope(data, {"x", "a:b:c:body"}) == Envelope("aescbc", "v1", "a", 20)


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


def test_different_names_stay_different() -> None:
    assert len({percent_encode(name) for name in ("a/b", "a%2Fb", "a%2fb", "a%252Fb")}) == 4
