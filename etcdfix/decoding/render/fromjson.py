"""Stored JSON of a built-in as the same nodes that protobuf decodes to, so that both are rendered alike.

What the API server makes of such a value on its way through the Go struct then comes by itself: unknown fields
are gone, Quantities are canonical, times are UTC, fields without ``omitempty`` are there.

Format: ``sigs.k8s.io/json`` into the structs of ``k8s.io/api``; see :mod:`etcdfix.decoding.kubejson.strict` for what
is refused. Here whatever does not fit its type is left out and counted.
"""

from __future__ import annotations

import base64
from typing import Any, Final, NamedTuple

from etcdfix.decoding import quantity
from etcdfix.decoding.protobuf.strict import Node
from etcdfix.decoding.render.typed import PARSED
from etcdfix.decoding.schema import Field, MessageType, Schema
from etcdfix.golang import gobase64, gotime
from etcdfix.golang.gojsontext import number_text

_INT_BITS: Final = {"int32": 31, "int64": 63}
_MISFIT: Final = object()


class FromJSON(NamedTuple):
    """A JSON object as a node.

    Attributes:
        node: The fields that the message has.
        misfits: How many values were left out because their type was wrong.
    """

    node: Node
    misfits: int


def node_from_json(schema: Schema, message: str, value: dict[str, Any]) -> FromJSON:
    """Turn a parsed JSON object into a node of ``message``.

    Raises:
        KeyError: The schema has no such message.
    """
    conversion = _Conversion(schema)
    node: Node = {}
    conversion.waiting.append((schema.message(message), value, node))
    while conversion.waiting:
        conversion.fill(*conversion.waiting.pop())
    return FromJSON(node, conversion.misfits)


class _Conversion:
    """One object under way; what is inside a message waits its turn, so depth costs no stack."""

    def __init__(self, schema: Schema) -> None:
        self.misfits = 0
        self.waiting: list[tuple[MessageType, dict[str, Any], Node]] = []
        self._schema = schema

    def fill(self, type_: MessageType, value: dict[str, Any], node: Node) -> None:
        for field in type_.fields:
            if field.json_name == "<inline>":
                self.fill(self._schema.message(field.type), value, node.setdefault(field.number, {}))
                continue
            stored = value.get(field.json_name)
            if stored is None:
                continue
            converted = self._field(field, stored)
            if converted is _MISFIT:
                self.misfits += 1
            else:
                node[field.number] = converted

    def _field(self, field: Field, value: Any) -> Any:
        if field.label == "repeated":
            return self._items(field.type, value)
        if field.label == "optional":
            return self._value(field.type, value)
        if not isinstance(value, dict):
            return _MISFIT
        entries: dict[bytes, Any] = {}
        for key, item in value.items():
            converted = self._element(field.value_type, item)
            if converted is not _MISFIT:
                entries[key.encode()] = converted
        return entries

    def _items(self, type_: str, value: Any) -> Any:
        if not isinstance(value, list):
            return _MISFIT
        items = [self._element(type_, item) for item in value]
        return [item for item in items if item is not _MISFIT]

    def _element(self, type_: str, value: Any) -> Any:
        """Convert an item of a list or map, where null stands for the type's empty value."""
        if value is None:
            return {} if type_ in self._schema else _EMPTY[type_]
        converted = self._value(type_, value)
        self.misfits += converted is _MISFIT
        return converted

    def _value(self, type_: str, value: Any) -> Any:
        if type_ in self._schema:
            return self._message(self._schema.message(type_), value)
        if type_ == "string":
            return value.encode() if isinstance(value, str) else _MISFIT
        if type_ == "bytes":
            return _bytes(value)
        if type_ == "bool":
            return value if isinstance(value, bool) else _MISFIT
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return _MISFIT
        if type_ == "double":
            return float(value)
        return value if _fits(value, _INT_BITS[type_]) else _MISFIT

    def _message(self, type_: MessageType, value: Any) -> Any:
        special = type_.special
        if special in {"raw-json", "union"}:
            return {PARSED: value}
        if special == "list":
            items = self._items(type_.fields[0].type, value)
            return items if items is _MISFIT else {1: items}
        if special == "quantity":
            return _quantity(value)
        if special in _LAYOUTS:
            parsed = gotime.parse(value, _LAYOUTS[special]) if isinstance(value, str) else None
            return _MISFIT if parsed is None else {1: parsed[0], 2: parsed[1]}
        if special == "int-or-string":
            return _int_or_string(value)
        if special or not isinstance(value, dict):
            return _MISFIT  # durations: no stored type has one
        node: Node = {}
        self.waiting.append((type_, value, node))
        return node


_LAYOUTS: Final = {"time": gotime.RFC3339, "microtime": gotime.RFC3339_MICRO}
_EMPTY: Final[dict[str, Any]] = {
    "string": b"",
    "bytes": b"",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "double": 0.0,
}


def _fits(value: float, bits: int) -> bool:
    return isinstance(value, int) and -(1 << bits) <= value < 1 << bits


def _bytes(value: Any) -> Any:
    if isinstance(value, list) and all(_fits(item, 8) and item >= 0 for item in value):
        return bytes(value)
    if not isinstance(value, str) or gobase64.illegal_byte(value.encode()) is not None:
        return _MISFIT
    return base64.b64decode(value)


def _quantity(value: Any) -> Any:
    if isinstance(value, str):
        text = value.strip().encode()
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        text = number_text(value).encode()
    else:
        return _MISFIT
    return _MISFIT if quantity.quantity_error(text) else {1: text}


def _int_or_string(value: Any) -> Any:
    if isinstance(value, str):
        return {1: 1, 3: value.encode()}
    is_number = isinstance(value, int) and not isinstance(value, bool) and _fits(value, 31)
    return {1: 0, 2: value} if is_number else _MISFIT
