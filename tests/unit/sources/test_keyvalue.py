from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.model import StoredValue
from etcdfix.sources.keyvalue import key_and_mod_revision, parse_as_written, parse_key_value
from tests.support.bbolt_writer import key_value

KEY = b"/registry/secrets/shop/db"


CASES = [
    StoredValue(KEY, b"value", 5, 3, 2, 0),
    StoredValue(KEY, b"v" * 127, 127, 127, 127, 0),
    StoredValue(KEY, b"v" * 128, 128, 128, 128, 7),
    StoredValue(KEY, b"v" * 16384, 16384, 16383, 16384, 2**62 + 5),
    StoredValue(KEY, b"v" * 2_097_152, 2**21, 2**21, 2**21 + 9, 0),
    StoredValue(KEY, b"v", 2**28, 2**28 - 1, 1, 0),
    StoredValue(KEY, b"v", 2**28 + 7, 2**35, 2**40, 2**63 - 1),
    StoredValue(b"k" * 127, b"v", 2, 2, 1, 1),
    StoredValue(b"k" * 128, b"v", 2, 2, 1, 0),
    StoredValue(b"k" * 16383, b"v", 2, 2, 1, 0),
    StoredValue(b"k" * 16384, b"v", 2, 2, 1, 0),
    StoredValue(KEY, b"", 2, 2, 1, 0),
    StoredValue(KEY, b"", 0, 0, 0, 0),
]


def encoded(stored: StoredValue) -> bytes:
    return key_value(
        stored.key,
        stored.value,
        mod=stored.mod_revision,
        create=stored.create_revision,
        version=stored.version,
        lease=stored.lease,
    )


@pytest.mark.parametrize("stored", CASES)
def test_both_readers_agree_with_the_writer(stored: StoredValue) -> None:
    data = encoded(stored)

    assert parse_key_value(data) == stored
    assert parse_as_written(b"before" + data + b"behind", 6, 6 + len(data)) in (stored, None)


@given(st.integers(0, 2**22), st.integers(0, 2**36), st.integers(0, 2**63 - 1), st.integers(0, 90), st.data())
def test_the_short_way_says_what_the_careful_one_does_or_nothing(
    version: int, mod: int, lease: int, cut: int, data: st.DataObject
) -> None:
    """Also of a record that is cut, whatever follows it, and of one with a wrong byte."""
    raw = bytearray(encoded(StoredValue(KEY, b"value", mod, mod // 2, version, lease)))
    if data.draw(st.booleans()):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    size = max(len(raw) - cut, 0)
    try:
        careful = parse_key_value(bytes(raw[:size]))
    except ValueError:
        careful = None
    for image in (bytes(raw), bytes(raw[:size]), bytes(raw[:size]) + b"\x30\x80\x01" * 9):
        assert parse_as_written(image, 0, size) in {careful, None}


def test_any_field_order_and_unknown_fields() -> None:
    data = b"".join(
        [
            b"\x30\x07",  # lease
            b"\x2a\x01v",
            b"\x7a\x02??",  # field 15, bytes
            b"\x20\x02",
            b"\x79" + bytes(8),  # field 15, fixed64
            b"\x7d" + bytes(4),  # field 15, fixed32
            b"\x78\xff\x01",  # field 15, varint
            b"\x18\x05\x10\x03",
            b"\x0a\x03old",
            b"\x0a\x03key",  # the last one counts
        ]
    )

    assert parse_key_value(data) == StoredValue(b"key", b"v", 5, 3, 2, 7)
    assert parse_as_written(data, 0, len(data)) is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x0a", "cut inside a varint at byte 1"),
        (b"\x0a\x05abc", "field 1 at byte 0 needs 5 bytes, 3 are left"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "needs 18446744073709551615 bytes, 0 are left"),
        (b"\x08\x01", "wire type 0 for field 1 at byte 0, expected 2"),
        (b"\x0a\x01k\x12\x01x", "wire type 2 for field 2 at byte 3, expected 0"),
        (b"\x00\x00", "illegal tag 0 at byte 0"),
        (b"\xfa\xff\xff\xff\x7f\x00", "illegal tag"),
        (b"\x7b", "wire type 3 for field 15"),
        (b"\x79\x00", "field 15 at byte 0 needs 8 bytes, 1 are left"),
        (b"\x7d\x00", "field 15 at byte 0 needs 4 bytes, 1 are left"),
    ],
)
def test_malformed_records_say_what_and_where(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_key_value(data)
    assert parse_as_written(data, 0, len(data)) is None


def test_key_of_a_record_whose_rest_is_damaged() -> None:
    data = key_value(KEY, b"value", mod=300, create=2, version=1)

    assert key_and_mod_revision(data) == (KEY, 300)
    assert key_and_mod_revision(data[:-1]) == (KEY, 0)
    for damaged in (data[:20], b"\xff" + data, b"\x0a"):
        with pytest.raises(ValueError):
            key_and_mod_revision(damaged)
    with pytest.raises(ValueError, match="no key"):
        key_and_mod_revision(b"\x18\x05")
