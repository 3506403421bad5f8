"""From a document tree to the fields of an EncryptionConfiguration, as strictly as the API server.

Sources: ``k8s.io/apimachinery/pkg/runtime/serializer/json/json.go`` (order of the checks),
``sigs.k8s.io/json`` (type errors, unknown and duplicate fields, case-sensitive names) and
``k8s.io/apiserver/pkg/apis/apiserver/v1`` (field names, Go types, kinds, defaults).
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from etcdfix.encryption.config_document import Document, Mapping, Node, Number
from etcdfix.encryption.config_values import NANOSECONDS, parse_duration
from etcdfix.encryption.wording import shown, shown_bare
from etcdfix.errors import ConfigurationError
from etcdfix.golang.goquote import withheld

_GROUP_VERSION = "apiserver.config.k8s.io/v1"
_ACCEPTED = {(_GROUP_VERSION, "EncryptionConfiguration"), ("v1", "EncryptionConfig")}
# Kinds of the same scheme: they decode, and are then found to be something else.
_OTHER_KINDS = {
    "AdmissionConfiguration", "AuthenticationConfiguration", "AuthorizationConfiguration", "TracingConfiguration",
}  # fmt: skip
_TYPE_META = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
_KIND_HINT = f"The file must begin with apiVersion: {_GROUP_VERSION} and kind: EncryptionConfiguration."
_FIELD_HINT = (
    "Compare the field names, which are case-sensitive, and their types with the Kubernetes documentation."
)
_DEFAULT_TIMEOUT = 3 * NANOSECONDS
_DEFAULT_CACHE_SIZE = 1000
# As many strict problems as sigs.k8s.io/json collects.
_MAX_STRICT_PROBLEMS = 100
_INTEGER = re.compile(r"-?[0-9]+")
_LONGEST_NUMBER = 20
_SURROGATE = re.compile("[\ud800-\udfff]")


class RawKey:
    """A key as written; ``secret`` is still base64. No ``repr``: see the module of the tree."""

    __slots__ = ("name", "secret")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.name: str = fields.get("name", "")
        self.secret: str = fields.get("secret", "")


class RawKMS:
    """A ``kms`` stanza with its defaults filled in; ``timeout`` in nanoseconds."""

    __slots__ = ("api_version", "cache_size", "endpoint", "name", "timeout")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.api_version: str = fields.get("apiVersion") or "v1"
        self.name: str = fields.get("name", "")
        self.endpoint: str = fields.get("endpoint", "")
        timeout: int | None = fields.get("timeout")
        self.timeout = _DEFAULT_TIMEOUT if timeout is None else timeout
        self.cache_size: int | None = fields.get("cachesize")
        if self.cache_size is None and self.api_version == "v1":
            self.cache_size = _DEFAULT_CACHE_SIZE


class RawProvider:
    """One element of a provider list: every member that was given, by its field name.

    Attributes:
        members: Field names of the members that are not null, in no particular order.
        keys: Keys of an aescbc, aesgcm or secretbox member, by field name.
        kms: The ``kms`` member, or None.
        size: Bytes that the element takes as JSON where it has several members; shown in its place.
    """

    __slots__ = ("keys", "kms", "members", "size")

    def __init__(self, fields: dict[str, Any]) -> None:
        given = {name: value for name, value in fields.items() if value is not None}
        self.members = frozenset(given)
        self.keys: dict[str, list[RawKey]] = {
            name: [RawKey(key) for key in given[name].get("keys") or []]
            for name in ("aescbc", "aesgcm", "secretbox")
            if name in given
        }
        self.kms = RawKMS(given["kms"]) if "kms" in given else None
        self.size = len(json.dumps(given, separators=(",", ":"))) if len(given) > 1 else 0


class RawRule:
    """One element of the top-level ``resources`` list."""

    __slots__ = ("providers", "resources")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.resources: list[str] = fields.get("resources") or []
        self.providers = [RawProvider(provider) for provider in fields.get("providers") or []]


def decode_document(document: Document, *, file_size: int) -> list[RawRule]:
    """Return the rules of the configuration, with defaults, not yet validated.

    Args:
        document: A parsed file.
        file_size: Bytes of the file; shown where the API server echoes the whole file.

    Raises:
        ConfigurationError: Wrong kind, wrong types, unknown or duplicate fields; Go's wording.
    """
    _check_kind(document.root, file_size)
    assert isinstance(document.root, Mapping)  # _check_kind has seen to it
    decoder = _Decoder()
    fields: dict[str, Any] = decoder.value(document.root, _CONFIGURATION, ())
    if decoder.type_problem:
        raise ConfigurationError(decoder.type_problem, hint=_FIELD_HINT)
    strict = [*document.strict_problems, *decoder.strict_problems]
    if strict:
        raise ConfigurationError(f"strict decoding error: {', '.join(strict)}", hint=_FIELD_HINT)
    return [RawRule(rule) for rule in fields.get("resources") or []]


def _check_kind(root: Node, file_size: int) -> None:
    api_version, kind = _type_meta(root)
    if not kind:
        raise ConfigurationError(f"Object 'Kind' is missing in '{withheld(file_size)}'", hint=_KIND_HINT)
    if api_version.count("/") > 1:
        message = f"unexpected GroupVersion string: {shown_bare(api_version)}"
        raise ConfigurationError(message, hint=_KIND_HINT)
    if not api_version.partition("/")[2] and api_version in {"", "/"}:
        raise ConfigurationError(
            f"Object 'apiVersion' is missing in '{withheld(file_size)}'", hint=_KIND_HINT
        )
    if (api_version, kind) in _ACCEPTED:
        return
    if api_version == _GROUP_VERSION and kind in _OTHER_KINDS:
        raise ConfigurationError(
            f"got unexpected config type: {api_version}, Kind={kind}",
            hint="Pass the file of the API server's flag --encryption-provider-config.",
        )
    # Upstream goes on with the source line of its type registry, which differs from build to build.
    raise ConfigurationError(
        f"no kind {shown(kind)} is registered for version {shown(api_version)}", hint=_KIND_HINT
    )


def _type_meta(root: Node) -> tuple[str, str]:
    """Return apiVersion and kind as ``SimpleMetaFactory.Interpret`` finds them: in any case, last one wins."""
    if root is None:
        return "", ""
    if not isinstance(root, Mapping):
        _not_type_meta(f"{_go_kind(root)} into Go value of type {_TYPE_META}")
    found = {"apiversion": "", "kind": ""}
    for name, node in root.pairs:
        folded = name.lower()
        if folded not in found or node is None:
            continue
        if not isinstance(node, str):
            field = "apiVersion" if folded == "apiversion" else "kind"
            _not_type_meta(f"{_go_kind(node)} into Go struct field .{field} of type string")
        found[folded] = _text(node)
    return found["apiversion"], found["kind"]


def _not_type_meta(what: str) -> NoReturn:
    raise ConfigurationError(
        f"couldn't get version/kind; json parse error: json: cannot unmarshal {what}", hint=_KIND_HINT
    )


class _Scalar:
    __slots__ = ("go_type",)

    def __init__(self, go_type: str) -> None:
        self.go_type = go_type


class _Struct:
    __slots__ = ("fields", "name")

    def __init__(self, name: str, /, **fields: _Type) -> None:
        self.name = name
        self.fields = fields

    @property
    def go_type(self) -> str:
        return f"v1.{self.name}"


class _List:
    __slots__ = ("element",)

    def __init__(self, element: _Type) -> None:
        self.element = element

    @property
    def go_type(self) -> str:
        return f"[]{self.element.go_type}"


_Type = _Scalar | _Struct | _List

_STRING = _Scalar("string")
_INT32 = _Scalar("int32")
_DURATION = _Scalar("string")  # metav1.Duration reads a string and reports its type
_KEYS = _List(_Struct("Key", name=_STRING, secret=_STRING))
_PROVIDER = _Struct(
    "ProviderConfiguration",
    aesgcm=_Struct("AESConfiguration", keys=_KEYS),
    aescbc=_Struct("AESConfiguration", keys=_KEYS),
    secretbox=_Struct("SecretboxConfiguration", keys=_KEYS),
    identity=_Struct("IdentityConfiguration"),
    kms=_Struct(
        "KMSConfiguration",
        apiVersion=_STRING,
        name=_STRING,
        cachesize=_INT32,
        endpoint=_STRING,
        timeout=_DURATION,
    ),
)
_RULE = _Struct("ResourceConfiguration", resources=_List(_STRING), providers=_List(_PROVIDER))
_CONFIGURATION = _Struct("EncryptionConfiguration", kind=_STRING, apiVersion=_STRING, resources=_List(_RULE))


class _Decoder:
    """``sigs.k8s.io/json`` ``UnmarshalStrict``, for the types above.

    Attributes:
        type_problem: The first value of a wrong type; decoding goes on after it.
        strict_problems: Unknown and duplicate fields, in the order met.
    """

    def __init__(self) -> None:
        self.type_problem = ""
        self.strict_problems: list[str] = []
        self._path = ""
        self._struct = ""

    def value(self, node: Node, type_: _Type, fields: tuple[str, ...]) -> Any:
        """Return the Go value as dicts, lists and scalars; None for null and for what has a wrong type."""
        if node is None:
            return None
        if isinstance(type_, _Struct) and isinstance(node, Mapping):
            return self._object(node, type_, fields)
        if isinstance(type_, _List) and isinstance(node, list):
            return self._list(node, type_, fields)
        if type_ is _DURATION:
            return self._duration(node, fields)
        if type_ is _STRING and isinstance(node, str):
            return _text(node)
        if type_ is _INT32 and isinstance(node, Number):
            return self._int32(node.text, fields)
        self._save(_go_kind(node), type_.go_type, fields)
        return None

    def _object(self, node: Mapping, type_: _Struct, fields: tuple[str, ...]) -> dict[str, Any]:
        outer_path, outer_struct = self._path, self._struct
        decoded: dict[str, Any] = {}
        for name, child in node.pairs:
            path = f"{outer_path}.{name}" if outer_path else name
            field = type_.fields.get(name)
            if field is None:
                self._strict("unknown", outer_path, name)
                continue
            if name in decoded:
                self._strict("duplicate", outer_path, name)
            self._path, self._struct = path, type_.name
            value = self.value(child, field, (*fields, name))
            # null leaves a string as it is, empties a list and takes a pointer away.
            decoded[name] = "" if value is None and field is _STRING else value
        self._path, self._struct = outer_path, outer_struct
        return decoded

    def _list(self, node: list[Node], type_: _List, fields: tuple[str, ...]) -> list[Any]:
        path = self._path
        decoded = []
        for index, child in enumerate(node):
            self._path = f"{path}[{index}]"
            value = self.value(child, type_.element, fields)
            # A null element is the zero value of its type.
            zero: Any = "" if type_.element is _STRING else {}
            decoded.append(zero if value is None else value)
        self._path = path
        return decoded

    def _duration(self, node: Node, fields: tuple[str, ...]) -> int:
        # Duration has an unmarshaller of its own: its errors end the decoding at once.
        if not isinstance(node, str):
            raise ConfigurationError(self._mismatch(_go_kind(node), "string", fields), hint=_FIELD_HINT)
        try:
            return parse_duration(_text(node))
        except ValueError as error:
            raise ConfigurationError(str(error), hint="Write a duration such as 3s or 500ms.") from error

    def _int32(self, text: str, fields: tuple[str, ...]) -> int | None:
        digits = text if len(text) <= _LONGEST_NUMBER else withheld(len(text))
        if _INTEGER.fullmatch(digits) and -(1 << 31) <= int(digits) < 1 << 31:
            return int(digits)
        self._save(f"number {digits}", "int32", fields)
        return None

    def _save(self, found: str, go_type: str, fields: tuple[str, ...]) -> None:
        if not self.type_problem:
            self.type_problem = self._mismatch(found, go_type, fields)

    def _mismatch(self, found: str, go_type: str, fields: tuple[str, ...]) -> str:
        field = f"{self._struct}.{'.'.join(fields)}"
        return f"json: cannot unmarshal {found} into Go struct field {field} of type {go_type}"

    def _strict(self, what: str, path: str, name: str) -> None:
        full = f"{path}.{name}" if path else name
        field = shown(full)
        if not field.startswith('"'):
            place = f"{path}." if path else ""
            field = f'"{place}{withheld(len(name.encode(errors="replace")))}"'
        problem = f"{what} field {field}"
        if problem not in self.strict_problems and len(self.strict_problems) < _MAX_STRICT_PROBLEMS:
            self.strict_problems.append(problem)


def _go_kind(node: Node) -> str:
    if isinstance(node, bool):
        return "bool"
    if isinstance(node, str):
        return "string"
    if isinstance(node, Number):
        return "number"
    return "object" if isinstance(node, Mapping) else "array"


def _text(text: str) -> str:
    # encoding/json puts U+FFFD for half a surrogate pair; Python keeps the half.
    return _SURROGATE.sub("\ufffd", text)
