"""What is wrong in an object that the API server accepts all the same.

Three things that decode and yet are damage: text that is not UTF-8 (served as U+FFFD), raw JSON that is none
(copied into answers unread, which makes them malformed), and an IntOrString that is neither (cannot be
rendered). They are looked for twice: :class:`FastCheck` gives a yes or no for an object parsed by the protobuf
library, :func:`inconsistencies` names each one in an object decoded by the strict walker.

Sources: ``apimachinery/pkg/apis/meta/v1/fields_proto.go`` and ``helpers.go`` (FieldsV1), ``pkg/runtime/extension.go``
(RawExtension), ``pkg/util/intstr/intstr.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from google.protobuf.message import DecodeError as UpbDecodeError

from etcdfix.decoding.errors import ConversionFailed
from etcdfix.decoding.protobuf.strict import Node, Step, render_path
from etcdfix.decoding.quantity import parse_int64, quantity_error
from etcdfix.decoding.schema import Field, MessageType, Schema
from etcdfix.golang.gojson import check_json
from etcdfix.golang.goquote import withheld
from etcdfix.model.model import GroupVersionKind, Inconsistency
from etcdfix.wire.descriptors import ZERO_OR_ONE, MessageClasses, WireField
from etcdfix.wire.varint import read_varint

MAX_INCONSISTENCIES: Final = 20
"""How many are named for one object; a hostile one could hold a million."""

ROLLBACK_ANNOTATION: Final = "deprecated.deployment.rollback.to"
ROLLBACK_VERSIONS: Final = frozenset(
    {GroupVersionKind("apps", "v1", "Deployment"), GroupVersionKind("apps", "v1beta2", "Deployment")}
)
"""Whose conversion reads that annotation."""

# How many values of a kind are remembered as good, up to which size, and how many bytes together: equal ones are
# frequent (managedFields of replicas, "100m"). Emptied when full, so that memory does not grow with the cluster.
_MAX_REMEMBERED: Final = 2048
_MAX_REMEMBERED_SIZE: Final = 8192
_MAX_REMEMBERED_BYTES: Final = 4 << 20

_INT_OR_STRING_TYPES: Final = frozenset({0, 1})
_APIEXTENSIONS: Final = "k8s.io.apiextensions_apiserver."

Check = Callable[[Any], bool]


class _Remembered(set[Any]):
    size = 0

    def remember(self, item: bytes | str) -> None:
        if len(item) <= _MAX_REMEMBERED_SIZE:
            self.size += len(item)
            if len(self) >= _MAX_REMEMBERED or self.size > _MAX_REMEMBERED_BYTES:
                self.clear()
                self.size = len(item)
            self.add(item)


_good_quantities = _Remembered()
_good_json = _Remembered()
_json_skimmer = msgspec.json.Decoder(msgspec.Raw)


def raw_json_fault(raw: bytes) -> str:
    """Say why bytes that stand verbatim in JSON answers are no JSON; "" when they are, or are empty."""
    if not raw:
        return ""
    error = check_json(raw)
    if error is not None:
        return f"{error.message} (byte {error.offset} of {len(raw)})"
    return utf8_fault(raw)


def utf8_fault(text: bytes) -> str:
    """Say where text stops being UTF-8; "" when it does not."""
    try:
        text.decode()
    except UnicodeDecodeError as exc:
        return f"byte {exc.start} of {len(text)} is not UTF-8"
    return ""


def check_rollback(gvk: GroupVersionKind, annotation: bytes) -> None:
    """Check a Deployment's rollback annotation as the conversion of its version does.

    Raises:
        ConversionFailed: It is not empty, and no number; its contents are withheld.

    Format: ``pkg/apis/apps/v1/conversion.go`` (``Convert_v1_Deployment_To_apps_Deployment``).
    """
    if gvk not in ROLLBACK_VERSIONS or not annotation:
        return
    if re.fullmatch(rb"[+-]?[0-9]+", annotation) is None:
        cause = "invalid syntax"
    elif parse_int64(annotation) is None:
        cause = "value out of range"
    else:
        return
    shown = withheld(len(annotation))
    raise ConversionFailed(
        f"failed to parse annotation[{ROLLBACK_ANNOTATION}]={shown} as int64: "
        f"strconv.ParseInt: parsing {shown}: {cause}",
        field_path="metadata.annotations",
        group_version=gvk.api_version,
        kind=gvk.kind,
    )


def inconsistencies(schema: Schema, message: str, node: Node) -> list[Inconsistency]:
    """Name what is wrong in a decoded message, at most :data:`MAX_INCONSISTENCIES`, in field order."""
    found: list[Inconsistency] = []
    for place in _messages(schema, message, node):
        fault = _own_fault(place)
        if fault is not None:
            found.append(fault)
        for step, text, what in _texts(place):
            fault_text = "" if text.isascii() else utf8_fault(text)
            if fault_text:
                found.append(Inconsistency("invalid-utf8", place.path(step), what + fault_text))
        if len(found) >= MAX_INCONSISTENCIES:
            break
    return found[:MAX_INCONSISTENCIES]


def broken_json(schema: Schema, message: str, node: Node) -> tuple[str, str]:
    """Return the first syntax error of a CRD's JSON (defaults, examples, enums) and its path, "" for none.

    These are parsed when a CustomResourceDefinition is converted, so the server refuses the object
    (``apiextensions-apiserver/pkg/apis/apiextensions/v1/conversion.go``, ``Convert_v1_JSON_To_apiextensions_JSON``).
    """
    for place in _messages(schema, message, node):
        if place.type.full_name.startswith(_APIEXTENSIONS) and place.type.special == "raw-json":
            raw = place.node.get(1, b"")
            error = check_json(raw) if raw else None
            if error is not None:
                return error.message, place.path()
    return "", ""


class _Place(NamedTuple):
    type: MessageType
    node: Node
    step: Step | None
    parent: _Place | None

    def path(self, last: Step | None = None) -> str:
        steps = [] if last is None else [last]
        place: _Place | None = self
        while place is not None:
            if place.step is not None:
                steps.append(place.step)
            place = place.parent
        return render_path(reversed(steps))


def _messages(schema: Schema, message: str, node: Node) -> Iterator[_Place]:
    """Yield a message and all messages in it, in field order; a stack of our own: nesting has no limit."""
    waiting = [_Place(schema.message(message), node, None, None)]
    while waiting:
        place = waiting.pop()
        yield place
        inner = []
        for field in place.type.fields:
            type_ = field.value_type or field.type
            value = place.node.get(field.number)
            if value is None or type_ not in schema:
                continue
            items = _items(field, value)
            inner += [_Place(schema.message(type_), item, (field, index), place) for index, item in items]
        waiting.extend(reversed(inner))


def _items(field: Field, value: Any) -> Iterable[tuple[int, Any]]:
    if field.label == "repeated":
        return enumerate(value)
    if field.label == "map":
        return enumerate(value.values())
    return ((-1, value),)


def _texts(place: _Place) -> Iterator[tuple[Step, bytes, str]]:
    for field in place.type.fields:
        value = place.node.get(field.number)
        if value is None:
            continue
        if field.label == "map":
            for index, key in enumerate(value):
                yield (field, index), key, "key: "
        if (field.value_type or field.type) == "string":
            for index, text in _items(field, value):
                yield (field, index), text, ""


def _own_fault(place: _Place) -> Inconsistency | None:
    if place.type.special == "int-or-string":
        kind = place.node.get(1, 0)
        if kind not in _INT_OR_STRING_TYPES:
            return Inconsistency("int-or-string-invalid", place.path(), f"type {kind}", breaks_responses=True)
    elif place.type.special == "raw-json":
        fault = raw_json_fault(place.node.get(1, b""))
        if fault:
            return Inconsistency("raw-json-invalid", place.path(), fault, breaks_responses=True)
    return None


def wire_fields(schema: Schema, message: str) -> list[WireField]:
    """Describe a message for :class:`~etcdfix.wire.descriptors.MessageClasses`.

    The type of an IntOrString is narrowed to what can be rendered, so that the protobuf library sets any
    other value aside as unknown, as whatever has the number of a field that newer releases pass over. A message that
    holds raw JSON is left unread, as bytes: equal ones are frequent, and :class:`FastCheck` reads each of them once.
    """
    type_ = schema.message(message)
    fields = []
    for field in _in_date(schema, type_):
        wire_type = field.value_type or field.type
        if type_.special == "int-or-string" and field.name == "type":
            wire_type = ZERO_OR_ONE
        elif wire_type in schema and schema.message(wire_type).special == "raw-json":
            wire_type = "bytes"
        fields.append(WireField(field.number, field.name, field.label, wire_type, field.key_type))
    return fields


def _in_date(schema: Schema, type_: MessageType) -> list[Field]:
    return [field for field in type_.fields if not schema.is_out_of_date(field, type_)]


def parse_whole(parse: Callable[[bytes], Any], raw: bytes) -> Any | None:
    """Parse a message of which every byte is one that the server wrote so; None where only the strict path can tell.

    What the schema does not know is dropped; so where the bytes come out as they went in, nothing else was there.
    """
    try:
        message = parse(raw)
    except UpbDecodeError:
        return None
    message.DiscardUnknownFields()
    return message if message.SerializeToString(deterministic=True) == raw else None


class _Recursive(Exception):
    """A message type contains itself."""


class FastChecks:
    """Makes the :class:`FastCheck` of each kind: it looks where Quantities and raw JSON can be, and nowhere else.

    Attributes:
        classes: The classes of the messages that are checked, their fields as :func:`wire_fields` has them.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.classes = MessageClasses(partial(wire_fields, schema), "kubernetes")
        self._open: set[str] = set()
        self._done: dict[str, Check | None] = {}
        self._extracts = MessageClasses(self._extract_fields, "extract")

    def make(self, message: str) -> FastCheck | None:
        """Make the check of a kind's message; None for one that contains itself.

        The message must have an ObjectMeta in a field called ``metadata``.
        """
        try:
            fields = _in_date(self._schema, self._schema.message(message))
            body = self._check_fields([field for field in fields if field.name != _METADATA])
        except _Recursive:
            return None
        extract = self._extracts[_BODY + message].FromString if body else None
        return FastCheck(body, extract)

    def _extract_fields(self, message: str) -> list[WireField]:
        body = message.startswith(_BODY)
        message = message.removeprefix(_BODY)
        fields = wire_fields(self._schema, message)
        type_ = self._schema.message(message)
        if type_.special == "quantity":
            return fields
        return [
            wire
            for field, wire in zip(_in_date(self._schema, type_), fields, strict=True)
            if self._matters(field.value_type or field.type) and not (body and field.name == _METADATA)
        ]

    def _matters(self, type_: str) -> bool:
        """Tell whether a field of this type can hold what is to be checked."""
        return type_ in self._schema and self._check(type_) is not None

    def _check(self, name: str) -> Check | None:
        if name in self._done:
            return self._done[name]
        if name in self._open:
            raise _Recursive
        self._open.add(name)
        type_ = self._schema.message(name)
        if type_.special == "quantity":
            made: Check | None = _quantity_is_good
        elif type_.special == "raw-json":
            made = _holds_json
        else:
            made = self._check_fields(_in_date(self._schema, type_))
        self._open.remove(name)
        self._done[name] = made
        return made

    def _check_fields(self, fields: Iterable[Field]) -> Check | None:
        checks = []
        for field in fields:
            type_ = field.value_type or field.type
            inner = self._check(type_) if type_ in self._schema else None
            if inner is not None:
                checks.append(_field_check(field, inner))
        if not checks:
            return None
        return checks[0] if len(checks) == 1 else _all_of(tuple(checks))


class FastCheck:
    """Tells whether a parsed object is free of bad Quantities and raw JSON.

    It says nothing about UTF-8 and IntOrString, which parsing has proven (:func:`wire_fields`).

    To look into every container of every Pod takes ten times longer than to parse it, and nearly all Pods are
    copies of a few templates. So the values in question are drawn out of the bytes by parsing them once
    more, as a message that has no other fields, and only an extract not seen before is looked into.
    """

    def __init__(self, body: Check | None, extract: Callable[[bytes], Any] | None) -> None:
        self._body = body
        self._extract = extract
        self._good = _Remembered()

    def __call__(self, message: Any, metadata: Any, raw: bytes) -> bool:
        """Check a message parsed from ``raw``, the bytes it serializes to, and its ``metadata``."""
        for entry in metadata.managedFields[
            :
        ]:  # a list: protobuf's own iterator ends by an exception, which is slow
            fields = entry.fieldsV1
            if fields not in _good_json and not _holds_json(fields):
                return False
        if self._extract is None or self._body is None:
            return True
        extract = self._extract(raw)
        extract.DiscardUnknownFields()
        values = extract.SerializeToString(deterministic=True)
        if values in self._good:
            return True
        if not self._body(message):
            return False
        self._good.remember(values)
        return True


_BODY: Final = "body."
_METADATA: Final = "metadata"


def _field_check(field: Field, inner: Check) -> Check:
    name = field.name
    if field.label == "repeated":

        def check_elements(message: Any) -> bool:
            return all(map(inner, getattr(message, name)))

        return check_elements
    if field.label == "map":

        def check_values(message: Any) -> bool:
            return all(map(inner, getattr(message, name).values()))

        return check_values

    def check_message(message: Any) -> bool:
        return not message.HasField(name) or inner(getattr(message, name))

    return check_message


def _all_of(checks: tuple[Check, ...]) -> Check:
    def check_all(message: Any) -> bool:
        return all(check(message) for check in checks)

    return check_all


def _quantity_is_good(quantity: Any) -> bool:
    text = quantity.string
    if text in _good_quantities:
        return True
    if not text:
        # An empty message is zero, an empty string is an error.
        return not quantity.HasField("string")
    if quantity_error(text.encode()):
        return False
    _good_quantities.remember(text)
    return True


def _holds_json(message: bytes) -> bool:
    """Say whether the one field of a message, which has number 1, is JSON, and is written as the server writes it."""
    if message in _good_json or not message:
        return True
    try:
        size, start = read_varint(message, 1)
    except ValueError:
        return False
    shortest = start == 2 or message[start - 1] != 0
    if message[0] != 0x0A or not shortest or start + size != len(message) or not _is_json(message[start:]):
        return False
    _good_json.remember(message)
    return True


def _is_json(raw: bytes) -> bool:
    # msgspec accepts less than Go (lone surrogates) and, apart from UTF-8, nothing more.
    if not raw:
        return True
    try:
        _json_skimmer.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return raw.isascii() or not utf8_fault(raw)
