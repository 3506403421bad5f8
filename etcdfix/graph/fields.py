"""Only the fields that impact analysis looks at, out of objects of any encoding, as plain values.

Rendering whole objects takes a hundred times longer than reading them. So for every kind a *mask* is prepared, and
from it a protobuf class that has nothing but the wanted fields: the protobuf library skips the others while it
parses. What is left becomes the same dictionaries that JSON gives, so that references are looked for in one way.

Format: as in :mod:`etcdfix.decoding.protobuf.codec`; names of fields from the shipped schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

import msgspec
from google.protobuf.message import DecodeError as UpbDecodeError

from etcdfix.decoding.schema import SCALAR_TYPES, Field, Schema
from etcdfix.golang import gojson
from etcdfix.model.errors import DecodeError
from etcdfix.wire.descriptors import MessageClasses, WireField

Mask: TypeAlias = "dict[str, Mask]"
"""JSON names that are wanted, each with what is wanted below it; an empty mask wants everything."""

Plain: TypeAlias = dict[str, Any]
"""An object, or a part of one, as JSON gives it."""

_ENVELOPE: Final = "Envelope"
_MAGIC_BYTES: Final = 4
_RAW_NUMBER: Final = 2
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_any_decoder = msgspec.json.Decoder()

Convert = Callable[[Any], Any]


def mask_of(paths: Iterable[str]) -> Mask:
    """Return the mask that lets the given paths pass; ``[]`` after a list's name is allowed and means nothing."""
    mask: Mask = {}
    for path in paths:
        node = mask
        for name in path.replace("[]", "").split("."):
            node = node.setdefault(name, {})
    return mask


def mapping(value: Any) -> dict[str, Any]:
    """Return a value that is an object; an empty one for anything else."""
    return value if type(value) is dict else {}


def items(value: Any) -> list[Any]:
    """Return a value that is a list; an empty one for anything else."""
    return value if type(value) is list else []


def text(value: Any) -> str:
    """Return a value that is a string; "" for anything else."""
    return value if type(value) is str else ""


def at(plain: Plain, path: str) -> Any:
    """Return what stands at a path of fields; None for nothing."""
    value: Any = plain
    for name in path.split("."):
        value = mapping(value).get(name)
    return value


class ProtobufExtractor:
    """Reads the wanted fields out of protobuf values."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._masked: dict[str, tuple[str, Mask]] = {}
        self._names: dict[tuple[str, int], str] = {}
        self._converters: dict[str, Convert] = {}
        self._classes = MessageClasses(self._wire_fields, "impact")

    def reader(self, message: str, mask: Mask) -> Callable[[bytes], Plain | None]:
        """Return a function from a plaintext, magic included, to its wanted fields.

        It returns None where the protobuf library reads less than the API server does.
        """
        name = self._name(message, mask)
        envelope = f"{_ENVELOPE}_{name}"
        self._masked[envelope] = (name, {})
        parse: Callable[[bytes], Any] = self._classes[envelope].FromString
        convert = self._converter(name)

        def read(data: bytes) -> Plain | None:
            try:
                found: Plain = convert(parse(data[_MAGIC_BYTES:]).raw)
            except UpbDecodeError:
                return None
            return found

        return read

    def _name(self, message: str, mask: Mask) -> str:
        place = (message, id(mask))
        name = self._names.get(place)
        if name is None:
            name = self._names[place] = f"{message}_{len(self._names)}"
            self._masked[name] = (message, mask)
        return name

    def _wire_fields(self, name: str) -> list[WireField]:
        message, mask = self._masked[name]
        if name.startswith(_ENVELOPE):
            return [WireField(_RAW_NUMBER, "raw", "optional", message)]
        return [
            WireField(field.number, field.name, field.label, self._wire_type(field, below), field.key_type)
            for field, below in self._wanted(message, mask)
        ]

    def _wire_type(self, field: Field, below: Mask) -> str:
        type_ = field.value_type or field.type
        return type_ if type_ in SCALAR_TYPES else self._name(type_, below)

    def _wanted(self, message: str, mask: Mask) -> list[tuple[Field, Mask]]:
        type_ = self._schema.message(message)
        wanted = []
        for field in type_.fields:
            inline = field.json_name == "<inline>"
            if not mask or type_.special or inline:
                below = mask
            elif field.json_name in mask:
                below = mask[field.json_name]
            else:
                continue
            if not inline or self._wanted(field.type, below):
                wanted.append((field, below))
        return wanted

    def _converter(self, name: str) -> Convert:
        found = self._converters.get(name)
        if found is not None:
            return found
        message, mask = self._masked[name]
        special = self._schema.message(message).special
        if special in {"time", "microtime"}:
            convert: Convert = _time
        elif special == "raw-json":
            convert = _raw_json
        else:
            convert = self._make_converter(message, mask)
        self._converters[name] = convert
        return convert

    def _make_converter(self, message: str, mask: Mask) -> Convert:
        steps: dict[int, tuple[str, Convert | None]] = {}
        for field, below in self._wanted(message, mask):
            type_ = self._wire_type(field, below)
            inner = None if type_ in SCALAR_TYPES else self._converter(type_)
            how: Convert | None = inner
            if field.label == "map":
                how = dict
            elif field.label == "repeated":
                how = list if inner is None else _repeated(inner)
            steps[field.number] = ("" if field.json_name == "<inline>" else field.json_name, how)

        def convert(value: Any) -> Plain:
            plain: Plain = {}
            for field, item in value.ListFields():
                json_name, how = steps[field.number]
                if how is None:
                    plain[json_name] = item
                elif json_name:
                    plain[json_name] = how(item)
                else:
                    plain.update(how(item))
            return plain

        return convert


def _repeated(inner: Convert) -> Convert:
    # Elements without any wanted field (variables with a plain value) are many, and say nothing.
    return lambda values: [plain for plain in map(inner, values) if plain]


def _time(value: Any) -> str:
    try:
        return (_EPOCH + timedelta(seconds=value.seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return "0001-01-01T00:00:00Z"


def _raw_json(value: Any) -> Any:
    return parse_json(value.raw)


def parse_json(text: bytes) -> Any:
    """Return JSON as plain values; None for what is none."""
    try:
        return _any_decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return gojson.loads(text)
    except DecodeError:
        return None
