"""Tables of message fields become protobuf classes, in a descriptor pool of their own.

Nothing is generated ahead and nothing is registered in protobuf's default pool, so other packages' copies of
the same messages do not clash with ours. A class is made when somebody asks for it, together with the
messages it needs that do not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

_Descriptor = descriptor_pb2.DescriptorProto
_FieldProto = descriptor_pb2.FieldDescriptorProto
_Features = descriptor_pb2.FeatureSet

_SCALARS = {
    "bool": _FieldProto.TYPE_BOOL,
    "bytes": _FieldProto.TYPE_BYTES,
    "double": _FieldProto.TYPE_DOUBLE,
    "int32": _FieldProto.TYPE_INT32,
    "int64": _FieldProto.TYPE_INT64,
    "string": _FieldProto.TYPE_STRING,
    "uint32": _FieldProto.TYPE_UINT32,
    "uint64": _FieldProto.TYPE_UINT64,
}
_ENUM_NAME = "ZeroOrOne"


ZERO_OR_ONE = "zero_or_one"
"""Type of a varint that is 0 or 1; with any other value the field counts as unknown to the message."""


class ReadMethod(NamedTuple):
    """A gRPC method that changes nothing.

    Attributes:
        path: Full name, as HTTP/2 sends it.
        request: Name of the request message.
        response: Name of the response message.
    """

    path: str
    request: str
    response: str


class WireField(NamedTuple):
    """One field of a message.

    Attributes:
        number: Field number.
        name: Field name, which becomes the attribute's name.
        label: ``optional``, ``repeated`` or ``map``.
        type: A scalar type of protobuf (``string``, ``int64`` …), :data:`ZERO_OR_ONE`, or a message's name; of
            a map, the type of its values.
        key_type: Scalar type of a map's keys, else "".
    """

    number: int
    name: str
    label: str
    type: str
    key_type: str = ""


_LEAVES = frozenset({*_SCALARS, ZERO_OR_ONE})


class MessageClasses:
    """Protobuf classes by message name, made on first use.

    All messages follow proto2's rules: every scalar knows whether it was present, repeated scalars are not
    packed, and, beyond proto2, a string that is not UTF-8 makes parsing fail.
    """

    def __init__(self, fields_of: Callable[[str], Sequence[WireField]], package: str) -> None:
        """Prepare classes; ``fields_of`` gives a message's fields and raises KeyError for unknown names.

        Message names may hold dots; inside the pool they become underscores, below ``package``.
        """
        self._fields_of = fields_of
        self._package = package
        self._pool = descriptor_pool.DescriptorPool()
        self._file_of: dict[str, str] = {}
        self._classes: dict[str, type[Message]] = {}

    def __getitem__(self, name: str) -> type[Message]:
        """Return the class of a message.

        Raises:
            KeyError: There is no such message.
        """
        found = self._classes.get(name)
        if found is None:
            if name not in self._file_of:
                self._add_with_dependencies(name)
            descriptor = self._pool.FindMessageTypeByName(self._qualified(name))
            found = self._classes[name] = message_factory.GetMessageClass(descriptor)
        return found

    def _qualified(self, name: str) -> str:
        return f"{self._package}.{_flat(name)}"

    def _add_with_dependencies(self, name: str) -> None:
        # One file per request, holding what is new: protobuf wants files without import cycles, and a
        # closure over everything reachable never leaves half of a cycle behind.
        file = descriptor_pb2.FileDescriptorProto(
            name=f"{self._package}/{len(self._file_of)}.proto",
            package=self._package,
            syntax="editions",
            edition=descriptor_pb2.EDITION_2023,
        )
        features = file.options.features
        features.field_presence = _Features.EXPLICIT
        features.repeated_field_encoding = _Features.EXPANDED
        features.utf8_validation = _Features.VERIFY
        features.enum_type = _Features.CLOSED
        new: dict[str, Sequence[WireField]] = {}
        imports = set()
        waiting = [name]
        while waiting:
            current = waiting.pop()
            if current in new:
                continue
            if current in self._file_of:
                imports.add(self._file_of[current])
                continue
            fields = new[current] = self._fields_of(current)
            waiting += [field.type for field in fields if field.type not in _LEAVES]
        for message, fields in new.items():
            self._describe(file.message_type.add(), message, fields)
        file.dependency.extend(sorted(imports))
        self._pool.AddSerializedFile(file.SerializeToString())
        self._file_of.update(dict.fromkeys(new, file.name))

    def _describe(self, target: _Descriptor, message: str, fields: Sequence[WireField]) -> None:
        target.name = _flat(message)
        if any(field.type == ZERO_OR_ONE for field in fields):
            enum = target.enum_type.add(name=_ENUM_NAME)
            enum.value.add(name="ZERO", number=0)
            enum.value.add(name="ONE", number=1)
        for field in fields:
            proto = target.field.add(name=field.name, number=field.number, label=_FieldProto.LABEL_OPTIONAL)
            if field.label != "optional":
                proto.label = _FieldProto.LABEL_REPEATED
            if field.label == "map":
                entry = target.nested_type.add(name=_entry_name(field.name))
                entry.options.map_entry = True
                self._set_type(
                    entry.field.add(name="key", number=1, label=proto.LABEL_OPTIONAL), field.key_type
                )
                self._set_type(
                    entry.field.add(name="value", number=2, label=proto.LABEL_OPTIONAL), field.type
                )
                proto.type = _FieldProto.TYPE_MESSAGE
                proto.type_name = f".{self._qualified(message)}.{entry.name}"
            else:
                self._set_type(proto, field.type)
                if field.type == ZERO_OR_ONE:
                    proto.type = _FieldProto.TYPE_ENUM
                    proto.type_name = f".{self._qualified(message)}.{_ENUM_NAME}"

    def _set_type(self, proto: _FieldProto, type_: str) -> None:
        scalar = _SCALARS.get(type_)
        if scalar is None:
            proto.type = _FieldProto.TYPE_MESSAGE
            proto.type_name = f".{self._qualified(type_)}"
        else:
            proto.type = scalar


def build_pool(messages: Mapping[str, Sequence[WireField]], package: str) -> MessageClasses:
    """Return the classes of a fixed set of messages."""
    return MessageClasses(messages.__getitem__, package)


def parse_table(text: str) -> dict[str, Sequence[WireField]]:
    """Read a table of messages: on each line a name, a colon, then number, name and type of each field.

    ``*`` marks a repeated field, ``string>bytes`` a map.
    """
    table: dict[str, Sequence[WireField]] = {}
    for line in text.strip().splitlines():
        name, _, fields = line.partition(":")
        table[name] = [_parse_field(field) for field in fields.split(",") if field.strip()]
    return table


def _parse_field(text: str) -> WireField:
    number, name, type_ = text.split()
    if ">" in type_:
        key_type, _, value_type = type_.partition(">")
        return WireField(int(number), name, "map", value_type, key_type)
    label = "repeated" if type_.startswith("*") else "optional"
    return WireField(int(number), name, label, type_.lstrip("*"))


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _entry_name(field_name: str) -> str:
    """Return the name that protoc gives to a map field's entry type (checked by the pool)."""
    return "".join(part[:1].upper() + part[1:] for part in field_name.split("_")) + "Entry"
