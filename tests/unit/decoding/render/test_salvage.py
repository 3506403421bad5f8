"""What is left of damaged envelopes and JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.decoding.render.salvage import is_protobuf, salvage_envelope, salvage_json
from etcdfix.testing.protobytes import unknown
from tests.support.secret_message import secret

RAW = secret(b"s1")
STORED = unknown(b"v1", b"Secret", RAW)
START = STORED.index(RAW)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"k8s\x00anything", True),
        (b"k9s\x00\x0a\x00", True),
        (b"\x00\x00s\x00\x0a", True),
        (b"\x00\x00\x00\x00\x0a", False),
        (b"k9s\x00", False),
        (b"", False),
    ],
)
def test_half_a_magic_is_enough(data: bytes, expected: bool) -> None:
    assert is_protobuf(data) is expected


def test_an_envelope_that_was_cut_off() -> None:
    found = salvage_envelope(STORED[:-10])
    assert found == (b"v1", b"Secret", START, len(STORED) - 10, True, False)
    assert salvage_envelope(STORED[:-1]) == (b"v1", b"Secret", START, START + len(RAW), False, False)


def test_a_wrong_length_of_the_object() -> None:
    longer = STORED[: START - 1] + bytes([STORED[START - 1] + 5]) + STORED[START:]
    assert salvage_envelope(longer) == (b"v1", b"Secret", START, START + len(RAW), False, False)


@pytest.mark.parametrize("data", [STORED[:10], b"k8s\x00", b"k8s\x00\x0a\x7f", b"k8s\x00" + b"\xff" * 12])
def test_no_object_in_it(data: bytes) -> None:
    assert salvage_envelope(data) is None


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ('{"a":1,"b":{"c":[1,"x"]}}', '{"a":1,"b":{"c":[1,"x"]}}'),
        ('{"a":1,"b":{"c":[1,"x"', '{"a":1,"b":{"c":[1,"x"]}}'),
        ('{"a":1,"b":{"c":[1,"x', '{"a":1,"b":{"c":[1]}}'),
        ('{"a":1,"b":{"c', '{"a":1,"b":{}}'),
        ('{"a":1,"b":{"c"', '{"a":1,"b":{}}'),
        ('{"a":1,"b":{"c":', '{"a":1,"b":{}}'),
        ('{"a":1,"b":', '{"a":1}'),
        ('{"a":12', "{}"),
        ('{"a":[1,2', '{"a":[1]}'),
        ('{"a":true,"b":fals', '{"a":true}'),
        ('{"a":"x\\', "{}"),
        ('{"a":[[],[{}],{"b"', '{"a":[[],[{}],{}]}'),
        ('{"a":1}x', '{"a":1}'),
        ('{"a":"b" "c":1}', '{"a":"b"}'),
        ('{"a":1x', "{}"),
        ("{", "{}"),
    ],
)
def test_json_up_to_its_damage(text: str, left: str) -> None:
    found = salvage_json(text.encode())
    assert found.value == json.loads(left)
    assert found.whole is (text == left)


def test_json_that_is_too_deep() -> None:
    found = salvage_json(b'{"a":' + b"[" * 20_000)
    assert found.value is not None
    assert not found.whole


@given(st.binary(max_size=80) | st.text('{}[],:"\\ truefalsn0123456789.eE-x').map(str.encode))
def test_any_bytes(data: bytes) -> None:
    for text in (data, b"{" + data, b'{"a":' + data):
        salvage_json(text)
    for value in (data, b"k8s\x00" + data, STORED[:8] + data):
        if is_protobuf(value):
            found = salvage_envelope(value)
            assert found is None or found.start <= found.end <= len(value)
