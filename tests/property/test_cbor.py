"""CBOR on any bytes: a map that JSON can hold, or :class:`CBORMalformed`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cbor2
from hypothesis import example, given
from hypothesis import strategies as st

from etcdfix.decoding.cbor import decode_map
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.errors import CBORMalformed
from etcdfix.golang.gojson import loads
from etcdfix.golang.gojsontext import encode_json

TEXT = st.text(max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)  # fmt: skip
MAPS = st.dictionaries(TEXT, VALUES, max_size=4)
HEADS = [
    b"\xa1\x61a", b"\xa2\x61a\x01\x61b", b"\xbf", b"\x9f", b"\x7f", b"\x5f", b"\xff", b"\x61a", b"\x41a", b"\x81",
    b"\xf5", b"\xf6", b"\xf7", b"\xf8\xff", b"\xf9\x3c\x00", b"\xf9\x7e\x00", b"\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00",
    b"\x1b\xff", b"\xc0", b"\xc1", b"\xc2\x41\x01", b"\xd8\x1c", b"\xd8\x1d\x00", b"\xd9\xd9\xf7", b"\xd9\x01\x00",
    b"\x20", b"\x38\x63",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(cbor2.dumps(draw(MAPS)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(data)))
        data[start : start + draw(st.integers(0, 3))] = draw(st.sampled_from(HEADS) | st.binary(max_size=2))
    return bytes(data)


def outcome_of(call: Callable[[], dict[str, Any]]) -> dict[str, Any] | CBORMalformed:
    try:
        return call()
    except CBORMalformed as raised:
        return raised


@given(st.binary(max_size=30) | st.lists(st.sampled_from(HEADS), max_size=8).map(b"".join) | damaged())
@example(b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff")
@example(b"\xbb\x00\x00\x00\x00\x00\x1f\xff\xff" + b"\x00" * 100)
@example(b"\xa1" * 200_000)
def test_any_bytes_give_a_map_or_the_documented_error(data: bytes) -> None:
    outcome = outcome_of(lambda: decode_map(data))
    if isinstance(outcome, CBORMalformed):
        assert outcome.offset is None or 0 <= outcome.offset <= len(data)
    else:
        assert loads(encode_json(outcome)) is not None


@given(MAPS, st.booleans())
def test_maps_survive_a_round_trip(value: dict[str, object], indefinite: bool) -> None:
    data = CBOR_TAG + cbor2.dumps(value, indefinite_containers=indefinite)
    assert decode_map(data) == value


@given(MAPS, st.data())
def test_every_cut_is_malformed(value: dict[str, object], data: st.DataObject) -> None:
    stored = CBOR_TAG + cbor2.dumps(value)
    length = data.draw(st.integers(len(CBOR_TAG), len(stored) - 1))
    assert isinstance(outcome_of(lambda: decode_map(stored[:length])), CBORMalformed)
