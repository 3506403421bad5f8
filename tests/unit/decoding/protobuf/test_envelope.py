from __future__ import annotations

import pytest

from etcdfix.decoding.protobuf.envelope import is_well_formed, parse_envelope
from etcdfix.decoding.recognise import PROTOBUF_MAGIC
from etcdfix.errors import ProtobufMalformed
from etcdfix.testing.protobytes import block, tag

# The upstream encoder's Secret default/s1 with data a=b.
UPSTREAM_SECRET = bytes.fromhex(
    "6b387300 0a0c0a0276311206536563726574 1225"
    "0a190a02733112001a0764656661756c7422002a0032003800420012060a01611201621a00"
    "1a002200"
)


def refused(data: bytes) -> ProtobufMalformed:
    with pytest.raises(ProtobufMalformed) as caught:
        parse_envelope(data)
    return caught.value


def test_the_last_raw_wins_and_type_meta_merges() -> None:
    data = (
        PROTOBUF_MAGIC
        + block(1, block(1, b"v1"))
        + block(2, b"first")
        + block(1, block(2, b"Pod"))
        + block(2, b"last")
    )
    envelope = parse_envelope(data)
    assert (envelope.api_version, envelope.kind, envelope.raw) == (b"v1", b"Pod", b"last")
    assert data[envelope.raw_offset :] == b"last"


@pytest.mark.parametrize(
    ("data", "message", "offset"),
    [
        (b"", "empty data", 0),
        (b"k8s", "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]", 0),
        (
            b"k8s\x01x",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
            0,
        ),
        (b"k8s\x00", "empty body", 4),
        (b"k8s\x00\x00\x00", "proto: Unknown: illegal tag 0 (wire type 0)", 4),
        (b"k8s\x00\x0a\x01\x0c", "proto: TypeMeta: wiretype end group for non-group", 6),
        (b"k8s\x00\x12\x05ab", "unexpected EOF", 4),
        (b"k8s\x00\x1b", "proto: wrong wireType = 3 for field ContentEncoding", 4),
    ],
)
def test_refusals(data: bytes, message: str, offset: int) -> None:
    error = refused(data)
    assert (error.message, error.offset) == (message, offset)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", True),
        (UPSTREAM_SECRET[20:-4], True),
        (UPSTREAM_SECRET[20:-5], False),
        (b"\x00\x00", False),
        (tag(1 << 29, 0) + b"\x00", False),
        (tag(1, 4), False),
        (tag(1, 3) + tag(1, 4), True),
        (b"\xff" * 12, False),
    ],
)
def test_well_formed(raw: bytes, expected: bool) -> None:
    assert is_well_formed(raw) is expected
