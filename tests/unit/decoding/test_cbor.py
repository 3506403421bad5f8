"""CBOR in Kubernetes' profile: what comes out, what is refused, and in which words."""

from __future__ import annotations

import cbor2
import pytest

from etcdfix.decoding.cbor import MAX_DEPTH, decode_map
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.errors import CBORMalformed

UNDETERMINED = "unable to determine group/version/kind: "
OVERFLOW = "cbor: cannot unmarshal {} integer into Go value of type int64 ({} overflows Go's int64)"
WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "labels": {}},
    "spec": {"sizes": [1, -2, 2.5, True, False, None, 1 << 62], "text": "é"},
}


def both_strings(value: object) -> object:
    """The same with byte strings for text, as the API server writes it."""
    if isinstance(value, dict):
        return {both_strings(key): both_strings(item) for key, item in value.items()}
    if isinstance(value, list):
        return [both_strings(item) for item in value]
    return value.encode() if isinstance(value, str) else value


@pytest.mark.parametrize("written", [WIDGET, both_strings(WIDGET)])
@pytest.mark.parametrize("prefix", [b"", CBOR_TAG])
def test_text_may_stand_in_either_kind_of_string(written: object, prefix: bytes) -> None:
    assert decode_map(prefix + cbor2.dumps(written)) == WIDGET


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("a0", {}),
        ("f6", {}),
        ("bf6161019f0203ff6162bf6163f5ffff", None),
        ("bf6161019f0203ff", None),
        ("a161619f0203ff", {"a": [2, 3]}),
        ("bf6161bf6162f5ffff", {"a": {"b": True}}),
        ("a161617f61616162ff", {"a": "ab"}),
        ("a161615f41614162ff", {"a": "ab"}),
        ("a16161d9d9f7a0", {"a": {}}),
        ("a16161d81ca16162d81d00", {"a": {"b": 0}}),
        ("a16161c074323031332d30332d32315432303a30343a30305a", {"a": "2013-03-21T20:04:00Z"}),
        ("a16161c11a514b67b0", {"a": "2013-03-21T20:04:00Z"}),
        ("a16161c1d864fb41d452d9ec200000", {"a": "2013-03-21T20:04:00.500000Z"}),
        ("a161618101", {"a": [1]}),
        ("a16161d9ffff82f4f90000", {"a": [False, 0.0]}),
        ("a1416141ff", {"a": "\udcff"}),
        ("a16161d9ffff41ff", {"a": "\udcff"}),
        ("bf6161d9ffff81019f0203ff", None),
        ("a16161d9ffff9f0203ff", {"a": [2, 3]}),
        ("a16161d9ffff5f41614162ff", {"a": "ab"}),
        ("a16161d9ffff3863", {"a": -100}),
    ],
)
def test_odd_but_acceptable_items(data: str, value: object) -> None:
    if value is None:
        with pytest.raises(CBORMalformed):
            decode_map(bytes.fromhex(data))
    else:
        assert decode_map(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "message"),
    [
        # not well-formed: kind and apiVersion cannot be found out either
        ("", UNDETERMINED + "EOF"),
        ("a1", UNDETERMINED + "unexpected EOF"),
        ("a16161", UNDETERMINED + "unexpected EOF"),
        ("a1616119", UNDETERMINED + "unexpected EOF"),
        ("a16161c1", UNDETERMINED + "unexpected EOF"),
        ("6261", UNDETERMINED + "unexpected EOF"),
        ("bf6161", UNDETERMINED + "unexpected EOF"),
        ("7f6161", UNDETERMINED + "unexpected EOF"),
        ("a0a0", UNDETERMINED + "cbor: 1 bytes of extraneous data starting at index 1"),
        ("a1616100ff", UNDETERMINED + "cbor: 1 bytes of extraneous data starting at index 4"),
        ("ff", UNDETERMINED + 'cbor: unexpected "break" code'),
        ("bf6161ff", UNDETERMINED + 'cbor: unexpected "break" code'),
        ("1c", UNDETERMINED + "cbor: invalid additional information 28 for type positive integer"),
        ("df", UNDETERMINED + "cbor: invalid additional information 31 for type tag"),
        ("f818", UNDETERMINED + "cbor: invalid simple value 24 for type primitives"),
        (
            "5f6161ff",
            UNDETERMINED + "cbor: wrong element type UTF-8 text string for indefinite-length byte string",
        ),
        (
            "7f7f6161ffff",
            UNDETERMINED + "cbor: indefinite-length UTF-8 text string chunk is not definite-length",
        ),
        (
            "5bffffffffffffffff",
            UNDETERMINED
            + "cbor: byte string length 18446744073709551615 is too large, causing integer overflow",
        ),
        (
            "9bffffffffffffffff",
            UNDETERMINED
            + "cbor: array length 18446744073709551615 is too large, it would cause integer overflow",
        ),
        (
            "ba00200001",
            UNDETERMINED + "cbor: exceeded max number of key-value pairs 2097152 for CBOR map",
        ),
        (
            "a16161f97e00",
            UNDETERMINED
            + "cbor: data item of cbor type primitives is not accepted by protocol: floating-point NaN",
        ),
        (
            "a16161fb7ff0000000000000",
            UNDETERMINED
            + "cbor: data item of cbor type primitives is not accepted by protocol: floating-point infinity",
        ),
        # well-formed, but no map
        (
            "80",
            UNDETERMINED + "cbor: cannot unmarshal array into Go value of type v1.TypeMeta "
            "(cannot decode CBOR array to struct without toarray option)",
        ),
        (
            "d9ffff05",
            UNDETERMINED + "cbor: cannot unmarshal positive integer into Go value of type v1.TypeMeta",
        ),
        # values
        (
            "a26161016161 02".replace(" ", ""),
            UNDETERMINED + "cbor: found duplicate map key <1 bytes withheld> at map element index 1",
        ),
        ("a16162a2616101416102", "cbor: found duplicate map key <1 bytes withheld> at map element index 1"),
        ("a10102", "cbor: cannot unmarshal positive integer into Go value of type string"),
        ("a16161a1a000", "cbor: cannot unmarshal map into Go value of type string"),
        (
            "a161611bffffffffffffffff",
            OVERFLOW.format("positive", "18446744073709551615"),
        ),
        (
            "a161613bffffffffffffffff",
            OVERFLOW.format("negative", "-18446744073709551616"),
        ),
        ("a16161c24101", "cbor: data item of cbor type tag is not accepted by protocol: bignum"),
        (
            "a16161f7",
            "cbor: data item of cbor type primitives is not accepted by protocol: simple value 23 is not recognized",
        ),
        (
            "a16161f8ff",
            "cbor: data item of cbor type primitives is not accepted by protocol: simple value 255 is not recognized",
        ),
        ("a1616161ff", "cbor: invalid UTF-8 string"),
        ("a16161c06161", "cbor: cannot set <value withheld> for time.Time"),
        ("a16161c1fb7e37e43c8800759c", "cbor: time out of range"),
        ("a16161c1f5", "cbor: cannot set <value withheld> for time.Time"),
        # the first of several
        ("a2616161ff6162f7", "cbor: invalid UTF-8 string"),
    ],
)
def test_refusals(data: str, message: str) -> None:
    for prefix in (b"", CBOR_TAG):
        stored = prefix + bytes.fromhex(data)
        with pytest.raises(CBORMalformed) as caught:
            decode_map(stored)
        assert caught.value.message == message
        assert caught.value.offset is not None
        assert len(prefix) <= caught.value.offset <= len(stored)


def nested(levels: int) -> bytes:
    return b"\xa1\x61a" + b"\x81" * (levels - 1) + b"\x00"


def test_depth_ends_at_ten_thousand() -> None:
    value = decode_map(nested(MAX_DEPTH))["a"]
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == 0
    too_deep = f"{UNDETERMINED}cbor: exceeded max nested level {MAX_DEPTH}"
    for data in (nested(MAX_DEPTH + 1), b"\xa1\x61a" + b"\xc6" * 10_002 + b"\x00", b"\x81" * 1_000_000):
        with pytest.raises(CBORMalformed) as caught:
            decode_map(data)
        assert caught.value.message == too_deep


def test_every_truncation_is_malformed() -> None:
    data = CBOR_TAG + cbor2.dumps(both_strings(WIDGET))
    for length in range(len(CBOR_TAG), len(data)):
        with pytest.raises(CBORMalformed):
            decode_map(data[:length])


def test_more_pairs_than_allowed_are_refused_even_when_they_are_there() -> None:
    pairs = 3
    data = b"\xbf" + b"".join(b"\x61" + bytes([97 + n]) + b"\x00" for n in range(pairs)) + b"\xff"
    assert len(decode_map(data)) == pairs


def test_the_limit_of_pairs_holds_for_maps_of_unknown_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.decoding.cbor.MAX_MAP_PAIRS", 2)
    with pytest.raises(CBORMalformed, match="exceeded max number of key-value pairs 2 for CBOR map"):
        decode_map(bytes.fromhex("bf610000610100610200ff"))
