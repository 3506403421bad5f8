"""``json.Unmarshal`` into Kubernetes' Go structs, error for error.

Go first checks the whole document's syntax, then fills the struct. A value of the wrong type is noted and
skipped; the first note is reported at the end. A type with its own ``UnmarshalJSON`` (Time, Quantity, …) ends
everything at once, so its error wins over notes made before. Both name the innermost struct, the path of JSON
names from the root, without list indexes or map keys, and Go's name of the wanted type.

Format:
    ``sigs.k8s.io/json`` ``internal/golang/encoding/json/decode.go``; ``UnmarshalJSON`` of Kubernetes
    ``apimachinery``: ``meta/v1/time.go``, ``micro_time.go``, ``duration.go``, ``api/resource/quantity.go``,
    ``util/intstr/intstr.go``, ``runtime/extension.go``; ``apiextensions/v1/marshal.go``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from etcdfix.decoding.consistency import MAX_INCONSISTENCIES, ROLLBACK_ANNOTATION, utf8_fault
from etcdfix.decoding.kubejson.gotypes import STRING, GoType, GoTypes
from etcdfix.decoding.quantity import quantity_error
from etcdfix.golang import gobase64, gojson, gotime
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import Token
from etcdfix.model.model import Inconsistency

_KIND_WORDS: Final = {"{": "object", "[": "array", '"': "string", "t": "bool", "f": "bool", "0": "number"}
_INT_BOUNDS: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1), "int64": (-(1 << 63), (1 << 63) - 1), "uint8": (0, 255),
}  # fmt: skip
_INTEGER = re.compile(rb"-?[0-9]{1,20}")
_PLAIN_NAME = re.compile(r"[A-Za-z$][A-Za-z0-9_$-]{0,62}")
_INT32: Final = GoType("int", "int32")
_UINT8: Final = GoType("int", "uint8")
_TIME_LAYOUTS: Final = {"time": gotime.RFC3339, "microtime": gotime.RFC3339_MICRO}
_MAX_NAMED: Final = 10


class Unmarshalled(msgspec.Struct):
    """What came of one document.

    Attributes:
        identity: ``name``, ``namespace`` and ``uid`` of the root's metadata, unescaped bytes.
        rollback_annotation: The root's ``deprecated.deployment.rollback.to``, b"" where absent.
        inconsistencies: Strings and raw JSON that are not UTF-8.
        unknown_count: Fields that the struct does not have; Go skips them.
        unknown: The first of them, as paths.
        json_overflow: First number inside a CRD's JSON values (defaults, enums) that no float64 holds.
    """

    identity: dict[str, bytes] = msgspec.field(default_factory=dict)
    rollback_annotation: bytes = b""
    inconsistencies: list[Inconsistency] = msgspec.field(default_factory=list)
    unknown_count: int = 0
    unknown: list[str] = msgspec.field(default_factory=list)
    json_overflow: str = ""


def unmarshal(types: GoTypes, data: bytes, tokens: list[Token], message: str) -> Unmarshalled:
    """Unmarshal a valid document into a kind's struct.

    Raises:
        JSONMalformed: In Go's words, data of the object withheld. List indexes are part of the path, map keys are
            given by their position.
    """
    return _Unmarshal(types, data, tokens).into(types.struct(message), types.fields(message))


def unmarshal_internal(
    types: GoTypes, data: bytes, tokens: list[Token], go_type: str, metadata: str
) -> Unmarshalled:
    """Unmarshal into an internal struct, whose fields have no JSON names.

    Only what is embedded has them: TypeMeta and ObjectMeta, so ``name`` stands at the root. (Go would also
    match untagged fields by their Go names, ``Spec``; those are not known here.)

    Raises:
        JSONMalformed: As :func:`unmarshal`.
    """
    fields = {"kind": STRING, "apiVersion": STRING, **types.fields(metadata)}
    return _Unmarshal(types, data, tokens).into(GoType("struct", go_type), fields)


class _GoError(Exception):
    """An error as Go makes it: its text, or, for an ``UnmarshalTypeError``, what goes around the place.

    Attributes:
        value: Description of the JSON value (``number 1.5``); "" where the text is final.
        type_name: Wanted Go type, or the final text.
        place: Offset and path of the value, once known.
    """

    def __init__(self, type_name: str, value: str = "") -> None:
        super().__init__()
        self.value = value
        self.type_name = type_name
        self.place: tuple[int, str] | None = None


class _Place(NamedTuple):
    """Where a value stands.

    Attributes:
        outer: Where the object stands that holds it, None for the root.
        name: Its name in that object.
        at: The list indexes and map positions behind the name.
        struct: Go's name of that object's struct.
        nested: Struct and names around the outermost call of ``json.Unmarshal`` inside an ``UnmarshalJSON``. Errors
            from inside get them when they come out. None outside of such calls.
    """

    outer: _Place | None
    name: str = ""
    at: str = ""
    struct: str = ""
    nested: tuple[str, str] | None = None

    def path(self, *, indexes: bool = True) -> str:
        """Return the JSON names from the root."""
        parts = []
        place = self
        while place.outer is not None:
            parts.append(place.name + place.at if indexes else place.name)
            place = place.outer
        return ".".join(reversed(parts))

    def in_metadata(self) -> str:
        """Return the name of a member of the root's metadata, "" elsewhere."""
        outer = self.outer
        inside = outer is not None and outer.name == "metadata" and outer.outer is _ROOT
        return self.name if inside else ""


_ROOT: Final = _Place(None)
_Step: TypeAlias = tuple[_Place, Callable[[], None]]


class _Unmarshal:
    def __init__(self, types: GoTypes, data: bytes, tokens: list[Token]) -> None:
        self._types = types
        self._data = data
        self._tokens = tokens
        self._valid_utf8 = not utf8_fault(data)
        self._result = Unmarshalled()
        # What is still to be done, the next step last: depth costs no stack.
        self._waiting: list[_Step] = []
        self._place = _ROOT
        self._at = 0
        self._first: JSONMalformed | None = None
        # First error noted by this call; inside nested calls the innermost's, last, behind those around it.
        self._noted: list[_GoError | None] = [None]

    def into(self, type_: GoType, fields: dict[str, GoType]) -> Unmarshalled:
        try:
            if self._tokens[0].kind == "{":
                self._object(0, type_.name.rpartition(".")[2], fields)
            elif self._tokens[0].kind != "n":
                self._wrong(self._tokens[0], type_)
            while self._waiting:
                self._place, step = self._waiting.pop()
                step()
        except _GoError as error:
            raise self._malformed(error) from None
        if self._first is not None:
            raise self._first
        return self._result

    # -- errors

    def _malformed(self, error: _GoError) -> JSONMalformed:
        place = self._place
        offset, path = error.place or (self._at, place.path())
        if not error.value:
            return JSONMalformed(error.type_name, offset=offset, field_path=path)
        struct, names = place.nested or (place.struct, place.path(indexes=False))
        target = f"Go struct field {struct}.{names}" if names else "Go value"
        message = f"json: cannot unmarshal {error.value} into {target} of type {error.type_name}"
        return JSONMalformed(message, offset=offset, field_path=path)

    def _note(self, error: _GoError, token: Token) -> None:
        if self._noted[-1] is None:
            self._noted[-1] = error
            error.place = (token.start, self._place.path())
            if self._place.nested is None:
                self._first = self._malformed(error)

    def _wrong(self, token: Token, type_: GoType) -> None:
        self._note(_GoError(type_.name, _KIND_WORDS[token.kind]), token)

    # -- values

    def _value(self, index: int, type_: GoType) -> None:
        token = self._tokens[index]
        self._at = token.start
        form = type_.form
        if token.kind == "n" and form != "duration":
            return  # null leaves everything as it is; the types with a method of their own agree
        if form == "struct" and token.kind == "{":
            self._object(index, self._types.go_name(type_.message), self._types.fields(type_.message))
        elif form == "slice" and token.kind == "[" and type_.element is not None:
            self._elements(index, type_.element)
        elif form == "map" and token.kind == "{" and type_.element is not None:
            self._entries(index, type_.element)
        elif form == "bytes" and token.kind == "[":
            self._elements(index, _UINT8)
        elif form == "union":
            self._union(index, type_)
        elif form == "raw-json":
            self._raw(index, type_)
        else:
            self._scalar(token, type_)

    def _object(self, index: int, struct: str, fields: dict[str, GoType]) -> None:
        place = self._place
        steps: list[_Step] = []
        for key in self._children(index, 2):
            name = gojson.string_text(self._data, self._tokens[key])
            type_ = fields.get(name)
            step = partial(self._unknown, name) if type_ is None else partial(self._value, key + 1, type_)
            steps.append((_Place(place, name, "", struct, place.nested), step))
        self._waiting += reversed(steps)

    def _elements(self, index: int, element: GoType) -> None:
        place = self._place
        self._waiting += reversed(
            [
                (place._replace(at=f"{place.at}[{position}]"), partial(self._value, item, element))
                for position, item in enumerate(self._children(index, 1))
            ]
        )

    def _entries(self, index: int, element: GoType) -> None:
        place = self._place
        steps: list[_Step] = []
        for position, key in enumerate(self._children(index, 2)):
            inner = place._replace(at=f"{place.at}[{position}]")
            steps += [(inner, partial(self._key, key)), (inner, partial(self._value, key + 1, element))]
        self._waiting += reversed(steps)

    def _children(self, index: int, tokens_each: int) -> Iterator[int]:
        """Yield where the items of a list begin, or, with two tokens each, the members of an object."""
        end = self._tokens[index].next
        index += 1
        while index < end:
            yield index
            index = self._tokens[index + tokens_each - 1].next

    def _key(self, index: int) -> None:
        key, value = self._tokens[index], self._tokens[index + 1]
        self._check_utf8(key, "key: ")
        is_annotation = self._place.in_metadata() == "annotations" and value.kind == '"'
        if is_annotation and gojson.string_text(self._data, key) == ROLLBACK_ANNOTATION:
            self._result.rollback_annotation = gojson.string_bytes(self._data, value)

    def _unknown(self, key: str) -> None:
        result = self._result
        result.unknown_count += 1
        if len(result.unknown) < _MAX_NAMED:
            shown = key if _PLAIN_NAME.fullmatch(key) else "(a name that no field has)"
            result.unknown.append(self._place._replace(name=shown).path())

    # -- scalars and the types with an UnmarshalJSON of their own

    def _scalar(self, token: Token, type_: GoType) -> None:
        form = type_.form
        if form == "string" and token.kind == '"':
            self._check_utf8(token, "")
            name = self._place.in_metadata()
            if name in _IDENTITY:
                self._result.identity[name] = gojson.string_bytes(self._data, token)
        elif form == "bool" and token.kind in "tf":
            return
        elif form in ("int", "float") and token.kind == "0":
            if not self._fits(token, type_):
                self._note(_GoError(type_.name, f"number <{token.end - token.start} bytes withheld>"), token)
        elif form == "bytes" and token.kind == '"':
            at = gobase64.illegal_byte(gojson.string_text(self._data, token).encode())
            if at is not None:
                self._note(_GoError(f"illegal base64 data at input byte {at}"), token)
        elif form in _TIME_LAYOUTS:
            self._raise_if(gotime.parse_error(self._string(token), _TIME_LAYOUTS[form]))
        elif form == "quantity":
            self._raise_if(quantity_error(self._quantity_text(token)))
        elif form == "int-or-string":
            self._int_or_string(token)
        elif form == "duration":
            self._raise_if(_duration_error("" if token.kind == "n" else self._string(token)))
        else:
            self._wrong(token, type_)

    def _fits(self, token: Token, type_: GoType) -> bool:
        literal = self._data[token.start : token.end]
        if type_.form == "float":
            return gojson.number(literal) is not None
        lowest, highest = _INT_BOUNDS[type_.name]
        return _INTEGER.fullmatch(literal) is not None and lowest <= int(literal) <= highest

    def _string(self, token: Token) -> str:
        if token.kind != '"':
            raise _GoError("string", _KIND_WORDS[token.kind])
        return gojson.string_text(self._data, token)

    def _quantity_text(self, token: Token) -> bytes:
        """Return what a Quantity parses: the literal without quotes, escapes not resolved, trimmed."""
        raw = self._data[token.start : token.end]
        if token.kind == '"':
            raw = raw[1:-1]
        return raw.decode("utf-8", "surrogateescape").strip(_GO_SPACE).encode("utf-8", "surrogateescape")

    def _int_or_string(self, token: Token) -> None:
        if token.kind == '"':
            self._check_utf8(token, "")
        elif token.kind != "0":
            raise _GoError("int32", _KIND_WORDS[token.kind])
        elif not self._fits(token, _INT32):
            raise _GoError("int32", f"number <{token.end - token.start} bytes withheld>")

    def _raise_if(self, message: str) -> None:
        if message:
            raise _GoError(message)

    def _raw(self, index: int, type_: GoType) -> None:
        token = self._tokens[index]
        if not self._valid_utf8:
            fault = utf8_fault(self._data[token.start : token.end])
            if fault:
                self._inconsistent("raw-json-invalid", fault, breaks_responses=True)
        if type_.message.startswith(_APIEXTENSIONS) and not self._result.json_overflow:
            for inner in self._tokens[index : token.next]:
                literal = self._data[inner.start : inner.end]
                if inner.kind == "0" and gojson.number(literal) is None:
                    self._result.json_overflow = literal.decode()
                    return

    def _union(self, index: int, type_: GoType) -> None:
        """Decode the unions of CRD schemas: a schema, or a boolean, or a list of schemas or strings."""
        token = self._tokens[index]
        schema = self._types.struct(type_.message.rpartition(".")[0] + ".JSONSchemaProps")
        if token.kind == "{":
            self._nested(index, schema)
        elif type_.message.endswith("OrBool"):
            if token.kind not in "tf":
                raise _GoError("boolean or JSON schema expected")
        elif token.kind == "[":
            is_strings = type_.message.endswith("OrStringArray")
            self._nested(index, GoType("slice", "", element=STRING if is_strings else schema))

    def _nested(self, index: int, type_: GoType) -> None:
        """Run a ``json.Unmarshal`` inside an ``UnmarshalJSON``: its first note ends the outer call.

        The outer call then replaces struct and path of a type error by its own.
        """
        place = self._place
        if place.nested is None:
            place = place._replace(nested=(place.struct, place.path(indexes=False)))
        self._noted.append(None)
        self._waiting += [(place, self._end_nested), (place, partial(self._value, index, type_))]

    def _end_nested(self) -> None:
        noted = self._noted.pop()
        if noted is not None:
            raise noted

    # -- UTF-8

    def _check_utf8(self, token: Token, what: str) -> None:
        if self._valid_utf8:
            return
        fault = utf8_fault(gojson.string_bytes(self._data, token))
        if fault:
            self._inconsistent("invalid-utf8", what + fault)

    def _inconsistent(self, cause: str, detail: str, *, breaks_responses: bool = False) -> None:
        if len(self._result.inconsistencies) < MAX_INCONSISTENCIES:
            path = self._place.path()
            self._result.inconsistencies.append(Inconsistency(cause, path, detail, breaks_responses))


_IDENTITY: Final = frozenset({"name", "namespace", "uid"})
_APIEXTENSIONS: Final = "k8s.io.apiextensions_apiserver."
# What Go's unicode.IsSpace calls white space; Python's own list also has the separators 0x1C to 0x1F.
_GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _duration_error(text: str) -> str:
    if gotime.parse_duration(text) is not None:
        return ""
    return f'time: invalid duration "<{len(text.encode())} bytes withheld>"'
