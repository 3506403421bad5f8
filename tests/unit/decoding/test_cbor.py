"""CBOR in Kubernetes' profile: what comes out, what is refused."""

from __future__ import annotations

import cbor2
import pytest

from etcdfix.decoding.cbor import MAX_DEPTH, decode_map
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.errors import CBORMalformed

RULES = "not CBOR by the rules of Kubernetes"
WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "labels": {}},
    "spec": {"sizes": [1, -2, 2.5, True, False, None, 1 << 62], "text": "é"},
}


def both_strings(value: object) -> object:
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
    ("data", "message", "offset"),
    [
        ("", RULES, 0),
        ("a1", RULES, 1),
        ("a16161", RULES, 3),
        ("a1616119", RULES, 4),
        ("a16161c1", RULES, 4),
        ("6261", RULES, 2),
        ("bf6161", RULES, 3),
        ("7f6161", RULES, 3),
        ("a0a0", "something follows the object", 1),
        ("a1616100ff", "something follows the object", 4),
        ("ff", RULES, 1),
        ("bf6161ff", RULES, 4),
        ("1c", RULES, 1),
        ("df", RULES, 1),
        ("f818", RULES, 2),
        ("5f6161ff", RULES, 2),
        ("7f7f6161ffff", RULES, 2),
        ("5bffffffffffffffff", RULES, 9),
        ("9bffffffffffffffff", RULES, 9),
        ("ba00200001", RULES, 5),
        ("a16161f97e00", "holds a number that is not finite", None),
        ("a16161fb7ff0000000000000", "holds a number that is not finite", None),
        ("80", "the CBOR is no map", 0),
        ("d9ffff05", "the CBOR is no map", 0),
        ("a2616101616102", RULES, 7),
        ("a16162a2616101416102", "a map has a key twice, as text and as bytes, or too many keys", None),
        ("a10102", RULES, 2),
        ("a16161a1a000", RULES, 5),
        ("a161611bffffffffffffffff", "holds an integer of more than 64 bits", None),
        ("a161613bffffffffffffffff", "holds an integer of more than 64 bits", None),
        ("a16161c24101", RULES, 6),
        ("a16161f7", "holds what JSON cannot hold", None),
        ("a16161f8ff", "holds what JSON cannot hold", None),
        ("a1616161ff", RULES, 5),
        ("a16161c06161", RULES, 6),
        ("a16161c1fb7e37e43c8800759c", RULES, 13),
        ("a16161c1f5", RULES, 5),
        ("a2616161ff6162f7", RULES, 5),
    ],
)
def test_refusals(data: str, message: str, offset: int | None) -> None:
    for prefix in (b"", CBOR_TAG):
        with pytest.raises(CBORMalformed) as caught:
            decode_map(prefix + bytes.fromhex(data))
        assert caught.value.message == message
        assert caught.value.offset == (None if offset is None else len(prefix) + offset)


def nested(levels: int) -> bytes:
    return b"\xa1\x61a" + b"\x81" * (levels - 1) + b"\x00"


def test_depth_ends_at_ten_thousand() -> None:
    value = decode_map(nested(MAX_DEPTH))["a"]
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == 0
    for data in (nested(MAX_DEPTH + 1), b"\xa1\x61a" + b"\xc6" * 10_002 + b"\x00", b"\x81" * 1_000_000):
        with pytest.raises(CBORMalformed) as caught:
            decode_map(data)
        assert caught.value.message == RULES


def test_the_number_of_pairs_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("etcdfix.decoding.cbor.MAX_MAP_PAIRS", 2)
    assert decode_map(bytes.fromhex("bf610000610100ff")) == {"\0": 0, "\1": 0}
    with pytest.raises(CBORMalformed, match="too many keys"):
        decode_map(bytes.fromhex("bf610000610100610200ff"))
