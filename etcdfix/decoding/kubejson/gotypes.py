"""The Go structs behind Kubernetes' JSON: which field decodes into which type, and how Go prints that type.

Derived from the wire schema, with three things that the wire does not show: fields of an embedded struct stand
in its parent, kinds carry ``kind`` and ``apiVersion``, and some strings have a type of their own. Of the
latter only those of the metadata are known here; all others print as ``string`` where Go says, for example,
``v1.PodPhase``. That concerns the wording of one error, never a verdict.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec

from etcdfix.decoding.schema import Field, MessageType, Schema, kind_rows

_GO_SCALARS: Final = {
    "string": "string", "bytes": "[]uint8", "bool": "bool", "int32": "int32", "int64": "int64", "double": "float64",
}  # fmt: skip
_FORMS: Final = {"double": "float", "int32": "int", "int64": "int"}
_QUANTITY: Final = "k8s.io.apimachinery.pkg.api.resource.Quantity"
_CORE: Final = "k8s.io.api.core.v1."
_NAMED: Final = {
    "ObjectMeta.uid": "types.UID",
    "OwnerReference.uid": "types.UID",
    "ObjectReference.uid": "types.UID",
    "ManagedFieldsEntry.operation": "v1.ManagedFieldsOperationType",
}


class GoType(msgspec.Struct, frozen=True):
    """One Go type as ``encoding/json`` meets it; pointers are left out, as errors leave them out.

    Attributes:
        form: ``string``, ``bool``, ``int``, ``float``, ``bytes``, ``struct``, ``slice``, ``map``, or a special
            form of the schema (``time``, ``microtime``, ``duration``, ``quantity``, ``int-or-string``,
            ``raw-json``, ``union``), each with its own ``UnmarshalJSON``.
        name: As Go prints it (``[]v1.Container``).
        message: Full message name of structs and special forms, else "".
        element: Type of a slice's or map's elements.
    """

    form: str
    name: str
    message: str = ""
    element: GoType | None = None


STRING: Final = GoType("string", "string")


class GoTypes:
    """Go types of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, dict[str, GoType]] = {}
        self._structs: dict[str, GoType] = {}

    def struct(self, message: str) -> GoType:
        """Return the type of a message."""
        found = self._structs.get(message)
        if found is None:
            found = self._structs[message] = self._of_message(self._schema.message(message))
        return found

    def fields(self, message: str) -> dict[str, GoType]:
        """Return a struct's JSON fields, embedded structs' fields and TypeMeta included."""
        found = self._fields.get(message)
        if found is None:
            found = {"kind": STRING, "apiVersion": STRING} if message in self._kinds else {}
            type_ = self._schema.message(message)
            for field in type_.fields:
                if field.json_name == "<inline>":
                    found.update(self.fields(field.type))
                elif not field.json_name.startswith("<"):
                    found[field.json_name] = self._of_field(type_, field)
            self._fields[message] = found
        return found

    def go_name(self, message: str) -> str:
        """Return a struct's name without its package."""
        return self._schema.message(message).go_name

    @cached_property
    def _kinds(self) -> frozenset[str]:
        return frozenset(row.message for row in kind_rows())

    def _of_message(self, type_: MessageType) -> GoType:
        name = f"{type_.package}.{type_.go_name}"
        if type_.special == "list":
            element = self._of_type(type_.fields[0].type)
            return GoType("slice", name, type_.full_name, element)
        return GoType(type_.special or "struct", name, type_.full_name)

    def _of_type(self, type_: str) -> GoType:
        if type_ in _GO_SCALARS:
            return GoType(_FORMS.get(type_, type_), _GO_SCALARS[type_])
        return self.struct(type_)

    def _of_field(self, holder: MessageType, field: Field) -> GoType:
        if field.label == "map":
            element = self._of_type(field.value_type)
            name = f"map[string]{element.name}"
            if field.value_type == _QUANTITY and holder.full_name.startswith(_CORE):
                name = "v1.ResourceList"
            return GoType("map", name, element=element)
        element = self._of_type(field.type)
        if field.label == "repeated":
            return GoType("slice", f"[]{element.name}", element=element)
        named = _NAMED.get(f"{holder.go_name}.{field.json_name}")
        return element if named is None else GoType("string", named)
