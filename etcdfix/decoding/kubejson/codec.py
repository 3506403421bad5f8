"""Built-ins stored as JSON: the API server's verdict, its message, and what is wrong inside.

There are two paths. The fast one decodes into a msgspec Struct that accepts less than Go does
(:mod:`etcdfix.decoding.kubejson.fast`); success proves that the API server accepts the value. Everything else,
healthy or not, takes the strict path: Go's scanner, kind and apiVersion, then Go's struct decoder
(:mod:`etcdfix.decoding.kubejson.strict`), which alone makes error messages.

Format:
    Kubernetes ``apimachinery/pkg/runtime/serializer/json/json.go`` (``Decode``), ``meta.go`` (``Interpret``),
    ``pkg/runtime/serializer/versioning/versioning.go`` (convert), ``pkg/runtime/error.go``.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.decoding.consistency import ROLLBACK_ANNOTATION, ROLLBACK_VERSIONS, check_rollback, utf8_fault
from etcdfix.decoding.errors import ConversionFailed, KindUnknown
from etcdfix.decoding.kubejson.fast import Structs
from etcdfix.decoding.kubejson.gotypes import GoTypes
from etcdfix.decoding.kubejson.strict import Unmarshalled, unmarshal, unmarshal_internal
from etcdfix.decoding.registry import INTERNAL_VERSION, RegisteredKind, Registry
from etcdfix.decoding.schema import Schema
from etcdfix.golang import gojson
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import Token
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency

SNIFFING: Final = "couldn't get version/kind; json parse error: "
_SNIFFED_STRUCT: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_OBJECT_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_WORDS: Final = {"[": "array", '"': "string", "t": "bool", "f": "bool", "0": "number", "{": "object"}

# encoding/json finds a field by its letters in any case, and Unicode folds two more signs onto k and s.
_KIND = re.compile("[kK\u212a][iI][nN][dD]")
_API_VERSION = re.compile("[aA][pP][iI][vV][eE][rR][sS\u017f][iI][oO][nN]")

# Escapes that could spell letters of a field name or a Quantity; those that Go itself writes (< > &) cannot.
_SPELLING_ESCAPE = re.compile(rb"\\u00(?!3[cCeE]|26)")


class _Head(msgspec.Struct):
    """Kind and apiVersion, to choose the fast path; what Go makes of them is asked elsewhere."""

    apiVersion: str  # noqa: N815 - the name in the JSON
    kind: str


class _RawMetadata(msgspec.Struct):
    metadata: msgspec.Raw


_head_decoder = msgspec.json.Decoder(_Head)
_metadata_decoder = msgspec.json.Decoder(_RawMetadata)
_REFUSALS: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class _FastPath(NamedTuple):
    """Decoder for one kind and version, and what is known of its objects before looking."""

    decoder: msgspec.json.Decoder[Any]
    gvk: GroupVersionKind
    readable_until: str
    may_roll_back: bool


class TypeMeta(NamedTuple):
    """Kind, group and version as the sniffing decoder found them; parts may be empty."""

    group: str
    version: str
    kind: str
    api_version: str


class JSONDecoder:
    """Decodes values that are JSON objects, for one release or for all known ones."""

    def __init__(self, schema: Schema, registry: Registry) -> None:
        self._registry = registry
        self._types = GoTypes(schema)
        self._structs = Structs(self._types)
        # The path that last worked for a kind of key; its objects nearly always share one version.
        self._latest: dict[tuple[str, str], _FastPath] = {}
        self._paths: dict[tuple[str, str, str, str], _FastPath | None] = {}

    def decode(self, data: bytes, expected_group: str, expected_kind: str) -> DecodedObject:
        """Decode a value found under a key that promises ``expected_kind`` of ``expected_group``.

        Raises:
            JSONMalformed: Not JSON, or of the wrong types.
            KindUnknown: The type is missing, not registered, or does not convert to what the key promises.
            ConversionFailed: Decodes, but does not convert to the server's internal type.

        All carry the API server's message for a GET. Offsets count from the start of ``data``.
        """
        if not gojson.deeper_than_allowed(data):
            healthy = self._prove_healthy(data, expected_group, expected_kind)
            if healthy is not None:
                return healthy
        return self.decode_strictly(data, expected_group, expected_kind)

    # The fast path

    def _prove_healthy(self, data: bytes, group: str, kind: str) -> DecodedObject | None:
        path = self._latest.get((group, kind))
        value = _try_decode(path, data) if path is not None else None
        if value is None:
            path = self._choose(data, group, kind)
            value = _try_decode(path, data) if path is not None else None
            if path is None or value is None:
                return None
            self._latest[group, kind] = path
        assert path is not None
        metadata = value.metadata
        # A missing identity may have been given twice, which Go merges; rare enough for the strict path.
        if metadata is None or metadata.name is None or metadata.uid is None:
            return None
        if metadata.namespace is None and not _really_without_namespace(data):
            return None
        if not data.isascii() and utf8_fault(data):
            return None
        if b"\\u00" in data and _SPELLING_ESCAPE.search(data):
            return None
        if path.may_roll_back and ROLLBACK_ANNOTATION.encode() in data:
            return None
        namespace = metadata.namespace
        return DecodedObject(
            path.gvk,
            metadata.name.encode(),
            None if namespace is None else namespace.encode(),
            metadata.uid.encode(),
            "json",
            readable_until=path.readable_until,
        )

    def _choose(self, data: bytes, group: str, kind: str) -> _FastPath | None:
        try:
            head = _head_decoder.decode(data)
        except _REFUSALS:
            return None
        key = (group, kind, head.apiVersion, head.kind)
        if key not in self._paths:
            path = self._prepare(*key)
            if path is None and len(self._paths) >= _MAX_PATHS:
                return None  # names from damaged values must not fill the memory
            self._paths[key] = path
        return self._paths[key]

    def _prepare(self, group: str, kind: str, api_version: str, found_kind: str) -> _FastPath | None:
        found_group, slash, version = api_version.partition("/")
        if not slash:
            found_group, version = "", api_version
        registered = self._registry.lookup(found_group, version, found_kind)
        if registered is None or not self._registry.convertible(registered.gvk, group, kind):
            return None
        metadata = self._types.fields(registered.message).get("metadata")
        if metadata is None or metadata.message != _OBJECT_META:
            return None
        return _FastPath(
            self._structs.decoder(registered.message, api_version, found_kind),
            registered.gvk,
            self._registry.readable_until(*registered.gvk),
            registered.gvk in ROLLBACK_VERSIONS,
        )

    # The strict path

    def decode_strictly(
        self, data: bytes, expected_group: str, expected_kind: str, *, stored_size: int | None = None
    ) -> DecodedObject:
        """Decode without the fast path; for JSON that was made from YAML, ``stored_size`` is the YAML's."""
        error = gojson.check_json(data)
        if error is not None:
            raise JSONMalformed(SNIFFING + error.message, offset=error.offset)
        tokens = gojson.tokenize(data)
        found = interpret(data, tokens)
        size = len(data) if stored_size is None else stored_size
        registered = self._resolve(found, expected_group, expected_kind, size)
        expected = self._registry.internal_type(expected_group, expected_kind)
        if isinstance(registered, str):
            # The internal version, asked for or fallen back to: none of the object's fields has a name there.
            unmarshal_internal(self._types, data, tokens, registered, _OBJECT_META)
            if registered != expected:
                raise _wrong_kind(registered, expected, found)
            return DecodedObject(
                GroupVersionKind(found.group, found.version, found.kind), None, None, None, "json", empty=True
            )
        result = Unmarshalled()
        if registered.message:
            result = unmarshal(self._types, data, tokens, registered.message)
        if not self._registry.convertible(registered.gvk, expected_group, expected_kind):
            raise _wrong_kind(registered.go_type, expected, found)
        _convert(registered, result)
        return self._healthy(found, registered, result)

    def _healthy(self, found: TypeMeta, registered: RegisteredKind, result: Unmarshalled) -> DecodedObject:
        wrong = result.inconsistencies
        if not found.kind:
            kept = f"apiVersion {registered.gvk.api_version}, no kind; the key completes it"
            wrong.insert(0, Inconsistency("kind-missing", "kind", kept))
        warnings: tuple[Evidence, ...] = ()
        if result.unknown_count:
            warnings = (Evidence("unknown-fields", str(result.unknown_count), "; ".join(result.unknown)),)
        return DecodedObject(
            GroupVersionKind(found.group, found.version, found.kind),
            result.identity.get("name"),
            result.identity.get("namespace"),
            result.identity.get("uid"),
            "json",
            inconsistencies=tuple(wrong),
            warnings=warnings,
            readable_until=self._registry.readable_until(*registered.gvk),
        )

    def _resolve(
        self, found: TypeMeta, expected_group: str, expected_kind: str, size: int
    ) -> RegisteredKind | str:
        """Find what the server decodes into: a registered kind, or the Go type of an internal one.

        Missing parts are completed from the key's internal type (``gvkWithDefaults``).
        """
        registry = self._registry
        first_group = registry.first_group(expected_group, expected_kind)
        group, version, kind = found.group, found.version, found.kind or expected_kind
        if not version and group in ("", first_group):
            group, version = first_group, INTERNAL_VERSION
        if not version:
            raise KindUnknown(
                f"Object 'apiVersion' is missing in '<{size} bytes withheld>'",
                group_version=found.api_version,
                kind=found.kind,
                reason="missing",
            )
        if version == INTERNAL_VERSION:
            internal = registry.internal_of(group, kind, expected_group, expected_kind)
            if internal:
                return internal
            raise KindUnknown(
                registry.without_internal(group, kind),
                group_version=found.api_version,
                kind=found.kind,
                reason="not-registered" if found.version else "missing",
            )
        registered = registry.lookup(group, version, kind)
        if registered is None:
            raise registry.unregistered(group, version, kind)
        return registered


_MAX_PATHS: Final = 4096


def interpret(data: bytes, tokens: list[Token]) -> TypeMeta:
    """Return kind and apiVersion as ``meta.go`` ``Interpret`` does: field names in any case, last one wins.

    Raises:
        JSONMalformed: The document is no object, or one of the two is no string.
        KindUnknown: apiVersion has more than one slash.
    """
    root = tokens[0]
    if root.kind not in "{n":
        raise JSONMalformed(
            f"{SNIFFING}json: cannot unmarshal {_WORDS[root.kind]} into Go value of type {_SNIFFED_STRUCT}",
            offset=root.start,
        )
    texts = {"kind": "", "apiVersion": ""}
    wrong: tuple[str, Token] | None = None
    index = 1
    while index < root.next:
        name = _sniffed_name(gojson.string_text(data, tokens[index]))
        value = tokens[index + 1]
        if name and value.kind == '"':
            texts[name] = gojson.string_text(data, value)
        elif name and value.kind != "n" and wrong is None:
            wrong = (name, value)
        index = value.next
    if wrong is not None:
        name, value = wrong
        raise JSONMalformed(
            f"{SNIFFING}json: cannot unmarshal {_WORDS[value.kind]} into Go struct field .{name} of type string",
            offset=value.start,
            field_path=name,
        )
    return _type_meta(texts["kind"], texts["apiVersion"])


def _sniffed_name(key: str) -> str:
    if _KIND.fullmatch(key):
        return "kind"
    return "apiVersion" if _API_VERSION.fullmatch(key) else ""


def _type_meta(kind: str, api_version: str) -> TypeMeta:
    """Split apiVersion (``schema.ParseGroupVersion``)."""
    if api_version in ("", "/"):
        return TypeMeta("", "", kind, api_version)
    group, slash, version = api_version.partition("/")
    if "/" in version:
        raise KindUnknown(
            f"unexpected GroupVersion string: {api_version}",
            group_version=api_version,
            kind=kind,
            reason="not-registered",
        )
    return TypeMeta(group, version, kind, api_version) if slash else TypeMeta("", group, kind, api_version)


def _try_decode(path: _FastPath, data: bytes) -> Any:
    try:
        return path.decoder.decode(data)
    except _REFUSALS:
        return None


def _really_without_namespace(data: bytes) -> bool:
    """Say whether no metadata in ``data`` names a namespace, an earlier duplicate of it included."""
    if b'"namespace"' not in data:
        return True
    raw = bytes(_metadata_decoder.decode(data).metadata)
    first = data.index(b'"metadata"') + len(b'"metadata"')
    return b'"namespace"' not in raw and data[first:].lstrip(b" \t\r\n:").startswith(raw)


def _wrong_kind(found_type: str, expected: str, found: TypeMeta) -> KindUnknown:
    return KindUnknown(
        f"converting ({found_type}) to ({expected}): unknown conversion",
        group_version=found.api_version,
        kind=found.kind,
        reason="wrong-kind",
    )


def _convert(registered: RegisteredKind, result: Unmarshalled) -> None:
    check_rollback(registered.gvk, result.rollback_annotation)
    if result.json_overflow:
        raise ConversionFailed(
            f"json: cannot unmarshal number <{len(result.json_overflow)} bytes withheld> into Go value of type float64",
            group_version=registered.gvk.api_version,
            kind=registered.gvk.kind,
        )
