from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError

from etcdfix.testing.protobytes import block, entry
from etcdfix.wire.descriptors import ZERO_OR_ONE, WireField, build_pool

TABLE = {
    "shop.v1.Item": [
        WireField(1, "name", "optional", "string"),
        WireField(2, "size", "optional", "int64"),
        WireField(3, "tags", "repeated", "string"),
        WireField(4, "counts", "repeated", "int32"),
        WireField(5, "flag", "optional", ZERO_OR_ONE),
    ],
    "shop.v1.Order": [
        WireField(1, "item", "optional", "shop.v1.Item"),
        WireField(2, "by_name", "map", "shop.v1.Item", "string"),
        WireField(3, "raw", "map", "bytes", "string"),
        WireField(4, "part_of", "optional", "shop.v1.Order"),
    ],
}


def test_maps_and_recursion() -> None:
    data = entry(2, b"x", block(1, b"tea")) + entry(3, b"k", b"\xff") + block(4, entry(3, b"k", b"v"))
    order: Any = build_pool(TABLE, "shop")["shop.v1.Order"].FromString(data)
    assert order.by_name["x"].name == "tea"
    assert dict(order.raw) == {"k": b"\xff"}
    assert dict(order.part_of.raw) == {"k": b"v"}
    assert order.SerializeToString(deterministic=True) == data


def test_strings_must_be_utf8() -> None:
    classes = build_pool(TABLE, "shop")
    for data in (block(1, block(1, b"\xff")), block(1, block(3, b"\xff")), entry(3, b"\xff", b"")):
        with pytest.raises(DecodeError):
            classes["shop.v1.Order"].FromString(data)
