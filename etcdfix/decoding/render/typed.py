"""Decoded protobuf messages as plain Python values, shaped like the JSON of their Go types.

What JSON shows of a field is decided by its Go type and ``omitempty``; the schema's emission rules say how.
Neither recursion nor the depth of the data matters: what is inside a message is put on a list and filled later.

Format: struct tags of ``k8s.io/api``, and the ``MarshalJSON`` methods of ``apimachinery``: ``meta/v1/time.go``,
``micro_time.go``, ``duration.go``, ``fields_proto.go``, ``api/resource/quantity.go``, ``util/intstr/intstr.go``,
``runtime/extension.go``; ``apiextensions/v1/marshal.go`` (unions).
"""

from __future__ import annotations

import base64
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias

from etcdfix.decoding import quantity
from etcdfix.decoding.protobuf.strict import Node
from etcdfix.decoding.render import fieldorder
from etcdfix.decoding.schema import Field, MessageType, Schema
from etcdfix.golang import gotime
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojsontext import parse_exactly

PARSED: Final = 0
"""Key of a node that already holds its JSON value (no field has this number); see ``fromjson``."""

_Waiting: TypeAlias = list[tuple["_Plan", Node, dict[str, Any]]]
_Convert: TypeAlias = Callable[[Any, _Waiting], Any]

_ABSENT: Final = object()


class Renderer:
    """Renders the messages of one schema.

    Args:
        schema: Of the release assumed.
        only_stored: Leave out what the object does not hold, also where JSON always shows the field: for an
            object of which a part is lost, an empty value would be made up.
    """

    def __init__(self, schema: Schema, *, only_stored: bool = False) -> None:
        self._schema = schema
        self._only_stored = only_stored
        self._plans: dict[str, _Plan] = {}
        self._forms: dict[str, Callable[[Node, _Waiting], Any]] = {
            "time": _time,
            "microtime": _micro_time,
            "duration": _duration,
            "quantity": _quantity,
            "int-or-string": _int_or_string,
            "raw-json": _raw_json,
        }

    def render(self, message: str, node: Node, into: dict[str, Any] | None = None) -> Any:
        """Return what JSON shows of a decoded message; a dict, unless the message has a form of its own.

        Values that the API server could not render either are None: an IntOrString that is neither, raw JSON
        that does not parse, a float that is not finite.

        Raises:
            KeyError: The schema has no such message.
        """
        waiting: _Waiting = []
        special = self._schema.message(message).special
        if special:
            value = self._form(self._schema.message(message))(node, waiting)
        else:
            value = {} if into is None else into
            waiting.append((self._plan(message), node, value))
        while waiting:
            plan, inner, target = waiting.pop()
            plan.fill(inner, target, waiting)
        return value

    def _plan(self, message: str) -> _Plan:
        plan = self._plans.get(message)
        if plan is None:
            plan = self._plans[message] = _Plan()
            # Afterwards, because messages may contain themselves.
            type_ = self._schema.message(message)
            plan.fields = tuple(
                self._field(field, shown_when_absent=self._shown_when_absent(type_, field))
                for field in fieldorder.in_go_order(type_)
            )
        return plan

    def _shown_when_absent(self, type_: MessageType, field: Field) -> bool:
        """Say whether a field that is not stored is shown as empty or null.

        With the schema of all releases, one that only some have is not: upstream's encoder writes every struct
        and scalar that is no pointer, so the release that wrote the object did not know the field.
        """
        if self._only_stored or field.emit not in {"always", "nullable"}:
            return False
        if field.emit == "nullable" or field.label != "optional" or self._schema.kubernetes_minor is not None:
            return True
        since = min(other.since for other in type_.fields)
        until = max(other.until for other in type_.fields)
        return (field.since, field.until) == (since, until)

    def _field(self, field: Field, *, shown_when_absent: bool) -> _FieldPlan:
        if field.json_name == "<inline>":
            return _Inline(field.number, self._plan(field.type))
        type_ = field.value_type if field.label == "map" else field.type
        single = self._single(type_)
        if field.label == "optional":
            absent: _Convert | None = None
            if shown_when_absent:
                absent = _null if field.emit == "nullable" else self._empty(field.type)
            is_message = field.type in self._schema
            return _Single(field, single, absent, omit_empty=not field.emit and not is_message)
        if field.label == "map":
            is_list = type_ in self._schema and self._schema.message(type_).special == "list"
            return _Map(field, _null_when_empty(single) if is_list else single)
        return _Repeated(field, single, shown_when_absent=shown_when_absent)

    def _single(self, type_: str) -> _Convert:
        scalar = _SCALARS.get(type_)
        return scalar if scalar is not None else self._form(self._schema.message(type_))

    def _empty(self, type_: str) -> _Convert:
        if type_ in self._schema:
            return partial(_ignoring_node, self._form(self._schema.message(type_)))
        return partial(_constant, _EMPTY_SCALARS[type_])

    def _form(self, type_: MessageType) -> Callable[[Node, _Waiting], Any]:
        if type_.special == "list":
            return partial(_list, self._single(type_.fields[0].type))
        if type_.special == "union":
            return partial(self._union, type_)
        form = self._forms.get(type_.special)
        if form is not None:
            return form
        return partial(_object, self._plan(type_.full_name))

    def _union(self, type_: MessageType, node: Node, waiting: _Waiting) -> Any:
        """Render the unions of CRD schemas: a schema, or a boolean, or a list of schemas or strings."""
        if PARSED in node:
            return node[PARSED]
        first, second = type_.fields
        if second.label == "repeated" and node.get(second.number):
            convert = self._single(second.type)
            return [convert(item, waiting) for item in node[second.number]]
        schema = first if first.name == "schema" else second
        if schema.number in node:
            return self._single(schema.type)(node[schema.number], waiting)
        return bool(node.get(first.number)) if first.name == "allows" else None


# ------------------------------------------------------------------------------------------------ fields


class _Plan:
    def __init__(self) -> None:
        self.fields: tuple[_FieldPlan, ...] = ()

    def fill(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        for field in self.fields:
            field.show(node, out, waiting)


class _FieldPlan(ABC):
    @abstractmethod
    def show(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        """Add the field to ``out`` where JSON has it."""


class _Inline(_FieldPlan):
    """A message whose fields stand in its parent; no message does so to itself, so this may recurse."""

    def __init__(self, number: int, plan: _Plan) -> None:
        self._number = number
        self._plan = plan

    def show(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        self._plan.fill(node.get(self._number, {}), out, waiting)


class _Single(_FieldPlan):
    def __init__(self, field: Field, convert: _Convert, absent: _Convert | None, *, omit_empty: bool) -> None:
        self._number = field.number
        self._name = field.json_name
        self._convert = convert
        self._omit_empty = omit_empty
        self._omit_null = field.emit == "omitzero"
        self._absent = absent

    def show(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        value = node.get(self._number, _ABSENT)
        if value is _ABSENT:
            if self._absent is not None:
                out[self._name] = self._absent(None, waiting)
            return
        if self._omit_empty and not value:
            return
        shown = self._convert(value, waiting)
        if shown is not None or not self._omit_null:
            out[self._name] = shown


class _Repeated(_FieldPlan):
    def __init__(self, field: Field, convert: _Convert, *, shown_when_absent: bool) -> None:
        self._number = field.number
        self._name = field.json_name
        self._convert = convert
        self._shown_when_absent = shown_when_absent

    def show(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        values = node.get(self._number)
        if values:
            convert = self._convert
            out[self._name] = [convert(value, waiting) for value in values]
        elif self._shown_when_absent:
            out[self._name] = values  # null, or, where the stored JSON had one, an empty list


class _Map(_FieldPlan):
    def __init__(self, field: Field, convert: _Convert) -> None:
        self._number = field.number
        self._name = field.json_name
        self._convert = convert

    def show(self, node: Node, out: dict[str, Any], waiting: _Waiting) -> None:
        entries = node.get(self._number)
        if entries:
            convert = self._convert
            # Go sorts by the keys' bytes.
            out[self._name] = {_text(key): convert(entries[key], waiting) for key in sorted(entries)}


# ------------------------------------------------------------------------------------------------ values


def _text(value: bytes, _: _Waiting | None = None) -> str:
    return value.decode("utf-8", "etcdfix.go-replace")


def _base64(value: bytes, _: _Waiting) -> str:
    return base64.b64encode(value).decode()


def _bool(value: int, _: _Waiting) -> bool:
    return bool(value)


def _int(value: int, _: _Waiting) -> int:
    return value


def _double(value: float, _: _Waiting) -> float | None:
    return value if math.isfinite(value) else None


_SCALARS: Final[dict[str, _Convert]] = {
    "string": _text, "bytes": _base64, "bool": _bool, "int32": _int, "int64": _int, "double": _double,
}  # fmt: skip
_EMPTY_SCALARS: Final[dict[str, Any]] = {
    "string": "", "bytes": None, "bool": False, "int32": 0, "int64": 0, "double": 0.0,
}  # fmt: skip


def _null(_: Any, __: _Waiting) -> None:
    return None


def _constant(value: Any, _: Any, __: _Waiting) -> Any:
    return value


def _ignoring_node(form: Callable[[Node, _Waiting], Any], _: Any, waiting: _Waiting) -> Any:
    return form({}, waiting)


def _null_when_empty(convert: _Convert) -> _Convert:
    """In a map, a list without items is Go's nil slice, and so null; elsewhere it is an empty one."""
    return lambda node, waiting: convert(node, waiting) if node else None


def _object(plan: _Plan, node: Node, waiting: _Waiting) -> dict[str, Any]:
    target: dict[str, Any] = {}
    waiting.append((plan, node, target))
    return target


def _list(convert: _Convert, node: Node, waiting: _Waiting) -> list[Any]:
    return [convert(item, waiting) for item in node.get(1, ())]


def _time(node: Node, _: _Waiting) -> str | None:
    return gotime.format_time(node.get(1, 0)) if node else None


def _micro_time(node: Node, _: _Waiting) -> str | None:
    return gotime.format_micro_time(node.get(1, 0), node.get(2, 0)) if node else None


def _duration(node: Node, _: _Waiting) -> str:
    return gotime.format_duration(node.get(1, 0))


def _quantity(node: Node, _: _Waiting) -> str:
    return quantity.canonical(node[1]) if 1 in node else "0"


def _int_or_string(node: Node, _: _Waiting) -> int | str | None:
    type_ = node.get(1, 0)
    if type_ == 0:
        number: int = node.get(2, 0)
        return number
    return _text(node.get(3, b"")) if type_ == 1 else None


def _raw_json(node: Node, _: _Waiting) -> Any:
    if PARSED in node:
        return node[PARSED]
    raw = node.get(1, b"")
    try:
        return parse_exactly(raw) if raw else None
    except JSONMalformed:
        return None
