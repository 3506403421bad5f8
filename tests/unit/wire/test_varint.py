from __future__ import annotations

import pytest

from etcdfix.wire.varint import VarintCut, VarintTooLong, read_varint
from tests.support.bbolt_writer import varint


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16383, 16384, 2**28 - 1, 2**28, 2**63 - 1, 2**64 - 1])
def test_varint_round_trip(number: int) -> None:
    assert read_varint(varint(number) + b"x", 0) == (number, len(varint(number)))


def test_varint_drops_bits_beyond_64_like_go() -> None:
    assert read_varint(b"\xff" * 9 + b"\x7f", 0) == (2**64 - 1, 10)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 5])
def test_cut_varint(data: bytes) -> None:
    with pytest.raises(VarintCut, match="cut inside a varint"):
        read_varint(data, 0)


def test_endless_varint() -> None:
    with pytest.raises(VarintTooLong, match="more than ten bytes"):
        read_varint(b"\xff" * 100, 0)


def test_what_ends_before_the_data_is_cut() -> None:
    with pytest.raises(VarintCut):
        read_varint(b"\x80\x01", 0, 1)
