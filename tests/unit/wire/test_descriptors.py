from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError

from etcdfix.testing.protobytes import block, entry, number
from etcdfix.wire.descriptors import ZERO_OR_ONE, MessageClasses, WireField, build_pool

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


def test_a_message_round_trips() -> None:
    classes = build_pool(TABLE, "shop")
    data = block(
        1, block(1, b"tea") + number(2, -1) + block(3, b"a") + block(3, b"b") + number(4, 1) + number(4, 2)
    )

    order: Any = classes["shop.v1.Order"].FromString(data)

    assert order.item.name == "tea"
    assert order.item.size == -1
    assert list(order.item.tags) == ["a", "b"]
    assert order.SerializeToString(deterministic=True) == data


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


def test_zero_or_one() -> None:
    item: Any = build_pool(TABLE, "shop")["shop.v1.Item"]
    for value in (0, 1):
        assert item.FromString(number(5, value)).flag == value
    odd = item.FromString(number(5, 2))
    assert not odd.HasField("flag")
    odd.DiscardUnknownFields()
    assert odd.SerializeToString() == b""


def test_classes_are_made_on_demand_and_once() -> None:
    asked = []

    def fields_of(name: str) -> list[WireField]:
        asked.append(name)
        return TABLE[name]

    classes = MessageClasses(fields_of, "shop")
    assert asked == []
    item = classes["shop.v1.Item"]
    assert asked == ["shop.v1.Item"]
    order: Any = classes["shop.v1.Order"]
    assert asked == ["shop.v1.Item", "shop.v1.Order"]
    assert classes["shop.v1.Item"] is item
    assert type(order().item) is item


def test_pools_do_not_meet() -> None:
    first, second = (build_pool(TABLE, "shop")["shop.v1.Item"] for _ in range(2))
    assert first is not second
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("shop.shop_v1_Item")
