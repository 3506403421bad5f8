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
from typing import Final, NamedTuple

import msgspec

from etcdfix.decoding.consistency import MAX_INCONSISTENCIES, ROLLBACK_ANNOTATION, utf8_fault
from etcdfix.decoding.kubejson.gotypes import STRING, GoType, GoTypes
from etcdfix.decoding.quantity import quantity_error
from etcdfix.golang import gobase64, gojson, gotime
from etcdfix.golang.gojson import Token
from etcdfix.golang.trampoline import Steps, run
from etcdfix.model import Inconsistency

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


class Fault(NamedTuple):
    """Why an object does not unmarshal.

    Attributes:
        message: Go's error; data of the object is withheld.
        offset: Where the offending value starts.
        field_path: Path to it, list indexes included, map keys as their position.
    """

    message: str
    offset: int
    field_path: str


class Unmarshalled(msgspec.Struct):
    """What came of one document.

    Attributes:
        fault: Why it failed, or None.
        identity: ``name``, ``namespace`` and ``uid`` of the root's metadata, unescaped bytes.
        rollback_annotation: The root's ``deprecated.deployment.rollback.to``, b"" where absent.
        inconsistencies: Strings and raw JSON that are not UTF-8.
        unknown_count: Fields that the struct does not have; Go skips them.
        unknown: The first of them, as paths.
        json_overflow: First number inside a CRD's JSON values (defaults, enums) that no float64 holds.
    """

    fault: Fault | None = None
    identity: dict[str, bytes] = msgspec.field(default_factory=dict)
    rollback_annotation: bytes = b""
    inconsistencies: list[Inconsistency] = msgspec.field(default_factory=list)
    unknown_count: int = 0
    unknown: list[str] = msgspec.field(default_factory=list)
    json_overflow: str = ""


def unmarshal(types: GoTypes, data: bytes, tokens: list[Token], message: str) -> Unmarshalled:
    """Unmarshal a valid document into a kind's struct.

    Args:
        types: Types of the assumed release.
        data: The document; its syntax is known to be valid.
        tokens: Its tokens.
        message: Full name of the kind's message.
    """
    return _Unmarshal(types, data, tokens).into(types.struct(message), types.fields(message))


def unmarshal_internal(
    types: GoTypes, data: bytes, tokens: list[Token], go_type: str, metadata: str
) -> Unmarshalled:
    """Unmarshal into an internal struct, whose fields have no JSON names.

    Only what is embedded has them: TypeMeta and ObjectMeta, so ``name`` stands at the root. (Go would also
    match untagged fields by their Go names, ``Spec``; those are not known here.)
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


class _Unmarshal:
    """One call of ``json.Unmarshal`` (``decodeState``)."""

    def __init__(self, types: GoTypes, data: bytes, tokens: list[Token]) -> None:
        self._types = types
        self._data = data
        self._tokens = tokens
        self._valid_utf8 = not utf8_fault(data)
        self._result = Unmarshalled()
        self._struct = ""
        self._names: list[str] = []
        self._path: list[str] = []
        self._at = 0
        # First error noted by this call; inside a nested call, by that one.
        self._noted: _GoError | None = None
        # Struct and names around the outermost nested call: errors from inside get them when they come out.
        self._frozen: tuple[str, str] | None = None

    def into(self, type_: GoType, fields: dict[str, GoType]) -> Unmarshalled:
        result = self._result
        try:
            if self._tokens[0].kind == "{":
                run(self._object(0, type_.name.rpartition(".")[2], fields))
            elif self._tokens[0].kind != "n":
                self._wrong(self._tokens[0], type_)
        except _GoError as error:
            result.fault = self._fault(error)
        return result

    # -- errors

    def _fault(self, error: _GoError) -> Fault:
        offset, path = error.place or (self._at, ".".join(self._path))
        if not error.value:
            return Fault(error.type_name, offset, path)
        struct, names = self._frozen or (self._struct, ".".join(self._names))
        target = f"Go struct field {struct}.{names}" if names else "Go value"
        message = f"json: cannot unmarshal {error.value} into {target} of type {error.type_name}"
        return Fault(message, offset, path)

    def _note(self, error: _GoError, token: Token) -> None:
        if self._noted is None:
            self._noted = error
            error.place = (token.start, ".".join(self._path))
            if self._frozen is None:
                self._result.fault = self._fault(error)

    def _wrong(self, token: Token, type_: GoType) -> None:
        self._note(_GoError(type_.name, _KIND_WORDS[token.kind]), token)

    # -- values

    def _value(self, index: int, type_: GoType) -> Steps:
        token = self._tokens[index]
        self._at = token.start
        form = type_.form
        if token.kind == "n" and form != "duration":
            return  # null leaves everything as it is; the types with a method of their own agree
        if form == "struct" and token.kind == "{":
            fields = self._types.fields(type_.message)
            yield self._object(index, self._types.go_name(type_.message), fields)
        elif form == "slice" and token.kind == "[" and type_.element is not None:
            yield self._elements(index, type_.element)
        elif form == "map" and token.kind == "{" and type_.element is not None:
            yield self._entries(index, type_.element)
        elif form == "bytes" and token.kind == "[":
            yield self._elements(index, _UINT8)
        elif form == "union":
            yield self._union(index, type_)
        elif form == "raw-json":
            self._raw(index, type_)
        else:
            self._scalar(token, type_)

    def _object(self, index: int, struct: str, fields: dict[str, GoType]) -> Steps:
        tokens = self._tokens
        end = tokens[index].next
        outer, depth = self._struct, len(self._names)
        index += 1
        while index < end:
            key = gojson.string_text(self._data, tokens[index])
            value = index + 1
            type_ = fields.get(key)
            if type_ is None:
                self._unknown(key)
            else:
                self._struct = struct
                self._names.append(key)
                self._path.append(key)
                yield self._value(value, type_)
                self._path.pop()
                del self._names[depth:]
                self._struct = outer
            index = tokens[value].next

    def _elements(self, index: int, element: GoType) -> Steps:
        end = self._tokens[index].next
        name = self._path[-1]
        position = 0
        index += 1
        while index < end:
            self._path[-1] = f"{name}[{position}]"
            yield self._value(index, element)
            position += 1
            index = self._tokens[index].next
        self._path[-1] = name

    def _entries(self, index: int, element: GoType) -> Steps:
        end = self._tokens[index].next
        name = self._path[-1]
        is_annotations = self._names == ["metadata", "annotations"]
        position = 0
        index += 1
        while index < end:
            key = self._tokens[index]
            self._path[-1] = f"{name}[{position}]"
            self._check_utf8(key, "key: ")
            value = self._tokens[index + 1]
            if is_annotations and value.kind == '"':
                self._annotation(key, value)
            yield self._value(index + 1, element)
            position += 1
            index = value.next
        self._path[-1] = name

    def _annotation(self, key: Token, value: Token) -> None:
        if gojson.string_text(self._data, key) == ROLLBACK_ANNOTATION:
            self._result.rollback_annotation = gojson.string_bytes(self._data, value)

    def _unknown(self, key: str) -> None:
        result = self._result
        result.unknown_count += 1
        if len(result.unknown) < _MAX_NAMED:
            shown = key if _PLAIN_NAME.fullmatch(key) else "(a name that no field has)"
            result.unknown.append(".".join([*self._path, shown]))

    # -- scalars and the types with an UnmarshalJSON of their own

    def _scalar(self, token: Token, type_: GoType) -> None:
        form = type_.form
        if form == "string" and token.kind == '"':
            self._check_utf8(token, "")
            if self._names[:-1] == ["metadata"] and self._names[-1] in _IDENTITY:
                self._result.identity[self._names[-1]] = gojson.string_bytes(self._data, token)
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

    def _text(self, token: Token) -> str:
        return self._data[token.start : token.end].decode()

    def _string(self, token: Token) -> str:
        """Read a string, as the inner ``json.Unmarshal(b, &str)`` of the time types does."""
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

    def _union(self, index: int, type_: GoType) -> Steps:
        """Decode the unions of CRD schemas: a schema, or a boolean, or a list of schemas or strings."""
        token = self._tokens[index]
        schema = self._types.struct(type_.message.rpartition(".")[0] + ".JSONSchemaProps")
        if token.kind == "{":
            yield self._nested(index, schema)
        elif type_.message.endswith("OrBool"):
            if token.kind not in "tf":
                raise _GoError("boolean or JSON schema expected")
        elif token.kind == "[":
            is_strings = type_.message.endswith("OrStringArray")
            yield self._nested(index, GoType("slice", "", element=STRING if is_strings else schema))

    def _nested(self, index: int, type_: GoType) -> Steps:
        """Run a ``json.Unmarshal`` inside an ``UnmarshalJSON``: its first note ends the outer call.

        The outer call then replaces struct and path of a type error by its own.
        """
        outer_noted, outer_frozen = self._noted, self._frozen
        self._noted = None
        if outer_frozen is None:
            self._frozen = (self._struct, ".".join(self._names))
        yield self._value(index, type_)
        if self._noted is not None:
            raise self._noted
        self._noted, self._frozen = outer_noted, outer_frozen

    # -- UTF-8

    def _check_utf8(self, token: Token, what: str) -> None:
        if self._valid_utf8:
            return
        fault = utf8_fault(gojson.string_bytes(self._data, token))
        if fault:
            self._inconsistent("invalid-utf8", what + fault)

    def _inconsistent(self, cause: str, detail: str, *, breaks_responses: bool = False) -> None:
        if len(self._result.inconsistencies) < MAX_INCONSISTENCIES:
            path = ".".join(self._path)
            self._result.inconsistencies.append(Inconsistency(cause, path, detail, breaks_responses))


_IDENTITY: Final = frozenset({"name", "namespace", "uid"})
_APIEXTENSIONS: Final = "k8s.io.apiextensions_apiserver."
# What Go's unicode.IsSpace calls white space; Python's own list also has the separators 0x1C to 0x1F.
_GO_SPACE: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)


def _duration_error(text: str) -> str:
    """Return why ``time.ParseDuration`` refuses a text; no stored built-in has a Duration today."""
    if gotime.parse_duration(text) is not None:
        return ""
    return f'time: invalid duration "<{len(text.encode())} bytes withheld>"'
