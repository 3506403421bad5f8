"""msgspec Structs that accept a subset of what Go's JSON decoder accepts, made from the schema on demand.

A successful decode into one of them proves that the API server accepts the value, at C speed; a refusal
proves nothing. So every type here leans to the narrow side: unknown fields are refused (among them might be a
second ``kind`` in other letters), Quantities must be of the common form, timestamps in UTC and on a day that
every month has.
"""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any, Final, Literal

import msgspec

from etcdfix.decoding.kubejson.gotypes import GoType, GoTypes

_TIME: Final = (
    "[0-9]{4}-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    "T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
)
_QUANTITY: Final = r"[+-]?[0-9]+(?:\.[0-9]*)?(?:[numkMGTPE]|[KMGTPE]i)?"
_INT32: Final = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
_INT64: Final = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


def _matching(pattern: str) -> Any:
    return Annotated[str, msgspec.Meta(pattern=rf"\A(?:{pattern})\Z")]


# None stands for absent everywhere; Go takes null for any field.
_SIMPLE: Final[dict[str, Any]] = {
    "string": str | None,
    "bool": bool | None,
    "float": float | None,
    "bytes": bytes | None,
    "time": _matching(_TIME + "Z") | None,
    "microtime": _matching(_TIME + r"\.[0-9]{6}Z") | None,
    # A number with a fraction or an exponent is left to the strict path: Quantity reads its text, not its value.
    "quantity": _matching(_QUANTITY) | int | None,
    "int-or-string": str | _INT32 | None,
    "duration": None,
}
_INTEGERS: Final = {"int32": _INT32 | None, "int64": _INT64 | None}
_NULL: Final = msgspec.Raw(b"null")


class Structs:
    """Makes and keeps the Structs of one schema."""

    def __init__(self, types: GoTypes) -> None:
        self._types = types
        self._structs: dict[str, type[msgspec.Struct]] = {}

    def decoder(self, message: str, api_version: str, kind: str) -> msgspec.json.Decoder[Any]:
        """Return a decoder for objects of one kind; it refuses every other kind and version."""
        fields = self._types.fields(message)
        own = {"apiVersion": Literal[api_version], "kind": Literal[kind]}
        root = _define(message, fields, required=("apiVersion", "kind"))
        self._annotate(root, fields, own)
        return msgspec.json.Decoder(root)

    def _struct(self, message: str) -> type[msgspec.Struct]:
        found = self._structs.get(message)
        if found is None:
            fields = self._types.fields(message)
            # Known before its fields' types are: a schema holds schemas.
            found = self._structs[message] = _define(message, fields)
            self._annotate(found, fields, {})
        return found

    def _annotate(self, struct: type[msgspec.Struct], fields: dict[str, GoType], own: dict[str, Any]) -> None:
        types = {_attribute(name): self._of(type_) for name, type_ in fields.items()}
        struct.__annotations__ = {**types, **own}

    def _of(self, type_: GoType) -> Any:
        form = type_.form
        if form == "struct":
            return self._struct(type_.message) | None
        if form == "int":
            return _INTEGERS[type_.name]
        if form == "slice" and type_.element is not None:
            return list[self._of(type_.element)] | None  # type: ignore[misc]
        if form == "map" and type_.element is not None:
            return dict[str, self._of(type_.element)] | None  # type: ignore[misc]
        if form == "raw-json":
            # In CRDs such JSON is parsed at conversion, so a number may overflow there; Raw does not look.
            return Any if ".apiextensions." in type_.message else msgspec.Raw
        if form == "union":
            return self._union(type_)
        return _SIMPLE[form]

    def _union(self, type_: GoType) -> Any:
        schema = self._struct(type_.message.rpartition(".")[0] + ".JSONSchemaProps")
        if type_.message.endswith("OrBool"):
            return schema | bool | None
        element = str if type_.message.endswith("OrStringArray") else schema
        return schema | list[element | None] | None  # type: ignore[valid-type]


def _define(message: str, fields: dict[str, GoType], required: tuple[str, ...] = ()) -> type[msgspec.Struct]:
    """Make a Struct whose fields have names and defaults, but no types yet."""
    definitions: list[tuple[str, Any] | tuple[str, Any, Any]] = [(name, Any) for name in required]
    for name, type_ in fields.items():
        if name not in required:
            definitions.append((_attribute(name), Any, _NULL if type_.form == "raw-json" else None))
    return msgspec.defstruct(
        message.rpartition(".")[2],
        definitions,
        rename={_attribute(name): name for name in fields},
        forbid_unknown_fields=True,
        gc=False,
    )


def _attribute(name: str) -> str:
    """Return a Python name for a JSON name such as ``$ref`` or ``x-kubernetes-int-or-string``."""
    if name.isidentifier() and not keyword.iskeyword(name):
        return name
    return "field_" + re.sub("[^A-Za-z0-9]", "_", name)
