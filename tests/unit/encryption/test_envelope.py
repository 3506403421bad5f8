from __future__ import annotations

import pytest

from etcdfix.encryption.envelope import Envelope, parse_envelope, transformer_name


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
