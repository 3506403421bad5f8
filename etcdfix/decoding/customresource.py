"""Custom resources: what the API server makes of their stored bytes, given their CustomResourceDefinition.

A custom resource is a map without a Go type. The server parses it (CBOR by tag, else JSON, nothing else),
insists on a kind, coerces apiVersion and metadata, prunes and defaults by schema (which cannot fail) and
converts to the requested version. All of that is decided here except a conversion webhook's answer.

Format:
    Kubernetes ``apiextensions-apiserver/pkg/apiserver/customresource_handler.go``
    (``schemaCoercingDecoder``), ``schema/objectmeta/coerce.go``, ``conversion/converter.go``;
    ``apimachinery/pkg/apis/meta/v1/unstructured/helpers.go`` (``UnstructuredJSONScheme``, ``NestedString``).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from etcdfix.decoding import cbor
from etcdfix.decoding.consistency import MAX_INCONSISTENCIES, utf8_fault
from etcdfix.decoding.errors import CBORMalformed, KindUnknown
from etcdfix.decoding.recognise import CBOR_TAG
from etcdfix.golang import gojson
from etcdfix.golang.errors import JSONMalformed
from etcdfix.golang.gojson import Token
from etcdfix.golang.goquote import go_quote, withheld
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency

_IDENTITY: Final = ("name", "namespace", "uid")
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")
_any_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class CustomResourceInfo(msgspec.Struct, frozen=True):
    """What a CustomResourceDefinition says that decoding its objects needs.

    Attributes:
        plural: Resource name, lower case plural (``widgets``).
        scope: ``Namespaced`` or ``Cluster``.
        versions: Names of all versions, in the order given; served or not, their objects decode.
        served_versions: Those of them that the API serves.
        storage_version: The version written today; "" where none is marked.
        conversion: ``None`` or ``Webhook``.
        singular: What one of them is called; "" where the definition does not say.
        webhook_service: ``namespace/name`` of the Service that converts between versions; "" for none.
        bundle_broken: The webhook has a caBundle without a certificate: API servers serve none of its objects.
    """

    group: str
    plural: str
    kind: str
    scope: str
    versions: tuple[str, ...]
    served_versions: tuple[str, ...]
    storage_version: str
    conversion: str = "None"
    singular: str = ""
    short_names: tuple[str, ...] = ()
    webhook_service: str = ""
    bundle_broken: bool = False


def crd_info(crd: Mapping[str, Any]) -> CustomResourceInfo:
    """Read a CustomResourceDefinition of either version, v1beta1 (how they are stored) or v1.

    What is missing or of the wrong type counts as absent, and gets the default of its version.
    """
    spec = _mapping(crd.get("spec"))
    names = _mapping(spec.get("names"))
    versions = [entry for entry in _list(spec.get("versions")) if isinstance(entry, Mapping)]
    single = _string(spec.get("version"))
    conversion = _mapping(spec.get("conversion"))
    webhook = _mapping(conversion.get("webhook")).get("clientConfig") or conversion.get("webhookClientConfig")
    client = _mapping(webhook) if conversion.get("strategy") == "Webhook" else {}
    if not versions and single:
        # v1beta1 from before there were several: the one version is served and stored.
        versions = [{"name": single, "served": True, "storage": True}]
    stored = next((_string(entry.get("name")) for entry in versions if entry.get("storage") is True), single)
    return CustomResourceInfo(
        group=_string(spec.get("group")),
        plural=_string(names.get("plural")),
        kind=_string(names.get("kind")),
        scope=_string(spec.get("scope")) or "Namespaced",
        versions=tuple(_string(entry.get("name")) for entry in versions),
        served_versions=tuple(
            _string(entry.get("name")) for entry in versions if entry.get("served") is True
        ),
        storage_version=stored,
        conversion=_string(conversion.get("strategy")) or "None",
        singular=_string(names.get("singular")),
        short_names=tuple(filter(None, map(_string, _list(names.get("shortNames"))))),
        webhook_service=_service(_mapping(client.get("service"))),
        bundle_broken=_lacks_certificate(_string(client.get("caBundle"))),
    )


def _service(service: Mapping[str, Any]) -> str:
    namespace, name = _string(service.get("namespace")), _string(service.get("name"))
    return f"{namespace}/{name}" if namespace and name else ""


def _lacks_certificate(bundle: str) -> bool:
    """Say whether a caBundle is there and has no certificate; one that is no base64 is not judged."""
    try:
        return bool(bundle) and b"-----BEGIN CERTIFICATE-----" not in base64.b64decode(bundle, validate=True)
    except ValueError:
        return False


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


class CustomResourceDecoder:
    """Decodes values found under a custom resource's keys."""

    def decode(self, data: bytes, crd: CustomResourceInfo) -> DecodedObject:
        """Decode one value as a GET at the storage version would.

        Raises:
            JSONMalformed: Not JSON, or kind, apiVersion or metadata have the wrong types.
            CBORMalformed: The same of a value that starts with the CBOR tag.
            KindUnknown: No kind, another group, or a version that the definition does not list any more.
        """
        if data.startswith(CBOR_TAG):
            return self._decode_cbor(data, crd)
        if not gojson.deeper_than_allowed(data):
            try:
                value = _any_decoder.decode(data)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                pass
            else:
                if type(value) is dict:
                    return _examine(value, crd, "json", len(data))
        return self._decode_json_strictly(data, crd)

    def _decode_json_strictly(self, data: bytes, crd: CustomResourceInfo) -> DecodedObject:
        value = gojson.loads(data)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            name = _JSON_WORDS[type(value)]
            raise JSONMalformed(
                f"json: cannot unmarshal {name} into Go value of type map[string]interface {{}}", offset=0
            )
        decoded = _examine(value, crd, "json", len(data))
        if not utf8_fault(data):
            return decoded
        tokens = gojson.tokenize(data)
        return msgspec.structs.replace(
            decoded,
            name=_stored_text(data, tokens, "name"),
            namespace=_stored_text(data, tokens, "namespace"),
            uid=_stored_text(data, tokens, "uid"),
            inconsistencies=(*decoded.inconsistencies, *_json_utf8_faults(data, tokens)),
        )

    def _decode_cbor(self, data: bytes, crd: CustomResourceInfo) -> DecodedObject:
        value = cbor.decode_map(data)
        decoded = _examine(value, crd, "cbor", len(data))
        try:
            # Lone surrogates, which stand for bytes that are not UTF-8, do not encode.
            _encoder.encode(value)
        except (UnicodeEncodeError, RecursionError):
            wrong = tuple(_cbor_utf8_faults(value))
            decoded = msgspec.structs.replace(decoded, inconsistencies=decoded.inconsistencies + wrong)
        return decoded


# ----------------------------------------------------------------------------- the steps of the server


def _examine(value: dict[str, Any], crd: CustomResourceInfo, encoding: str, size: int) -> DecodedObject:
    kind = value.get("kind")
    api_version = value.get("apiVersion")
    # An apiVersion with two slashes makes the whole GroupVersionKind empty, so Kind is what is missed.
    if not isinstance(kind, str) or not kind or (isinstance(api_version, str) and api_version.count("/") > 1):
        raise _missing("Kind", value, size)
    if encoding == "cbor" and (not isinstance(api_version, str) or not api_version):
        raise _missing("apiVersion", value, size)
    if "apiVersion" in value and not isinstance(api_version, str):
        raise _malformed(
            encoding, f".apiVersion accessor error: {_go_value(api_version)}, expected string", "apiVersion"
        )
    metadata = value.get("metadata")
    if metadata is not None and type(metadata) is not dict:
        wanted = f"invalid metadata: expected object, got {_go_type(metadata)}"
        raise _malformed(encoding, wanted, "metadata")
    gvk = _convert(kind, api_version or "", crd)
    wrong: tuple[Inconsistency, ...] = ()
    warnings: tuple[Evidence, ...] = ()
    if kind != crd.kind:
        wrong = (Inconsistency("identity-mismatch", "kind", f"kind {kind} where the CRD says {crd.kind}"),)
    if crd.bundle_broken:
        detail = "its caBundle has no certificate: API servers answer no request for objects of this type"
        warnings = (Evidence("conversion", "conversion webhook cannot be called", detail),)
    elif crd.conversion == "Webhook" and gvk.version != crd.storage_version:
        detail = f"stored as {gvk.version}, written today as {crd.storage_version}; offline nobody can ask it"
        warnings = (Evidence("conversion", "depends on conversion webhook", detail),)
    name = namespace = uid = None
    if metadata:
        name, namespace, uid = metadata.get("name"), metadata.get("namespace"), metadata.get("uid")
        dropped = [
            part
            for part, text in zip(_IDENTITY, (name, namespace, uid), strict=True)
            if text is not None and type(text) is not str
        ]
        if dropped:
            detail = "of the wrong type; the API server drops them and serves the rest"
            warnings = (*warnings, Evidence("metadata-fields-dropped", ", ".join(dropped), detail))
    return DecodedObject(
        gvk, _bytes(name), _bytes(namespace), _bytes(uid), encoding, inconsistencies=wrong, warnings=warnings
    )


def _bytes(text: Any) -> bytes | None:
    return text.encode("utf-8", "surrogateescape") if type(text) is str else None


def _missing(what: str, value: dict[str, Any], size: int) -> KindUnknown:
    return KindUnknown(
        f"Object '{what}' is missing in '{withheld(size)}'",
        group_version=_string(value.get("apiVersion")),
        kind=_string(value.get("kind")),
        reason="missing",
    )


def _malformed(encoding: str, message: str, field_path: str) -> JSONMalformed | CBORMalformed:
    error = CBORMalformed if encoding == "cbor" else JSONMalformed
    return error(message, field_path=field_path)


def _convert(kind: str, api_version: str, crd: CustomResourceInfo) -> GroupVersionKind:
    """Do of the conversion to the storage version what can fail without a webhook (``ConvertToVersion``)."""
    group, slash, version = api_version.partition("/")
    if not slash:
        group, version = "", api_version
    if group != crd.group:
        target = f"{crd.group}/{crd.storage_version}".encode("utf-8", "surrogateescape")
        raise KindUnknown(
            f"{group}/{version}, Kind={kind} is unstructured and is not suitable for converting to "
            f"{go_quote(target)}",
            group_version=api_version,
            kind=kind,
            reason="wrong-kind" if api_version else "missing",
        )
    if version not in crd.versions:
        raise KindUnknown(
            f"request to convert CR from an invalid group/version: {api_version}",
            group_version=api_version,
            kind=kind,
            reason="version-removed",
            hint=f"add version {version} to the CustomResourceDefinition again; it need not be served",
        )
    return GroupVersionKind(group, version, kind)


_JSON_WORDS: Final[dict[type, str]] = {
    list: "array", str: "string", bool: "bool", int: "number", float: "number",
}  # fmt: skip
_GO_TYPES: Final[dict[type, str]] = {
    str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}",
    dict: "map[string]interface {}", type(None): "<nil>",
}  # fmt: skip


def _go_type(value: Any) -> str:
    return _GO_TYPES[type(value)]


def _go_value(value: Any) -> str:
    """Print an apiVersion that is no string like ``%v is of the type %T``; larger things are withheld."""
    if value is None:
        shown = "<nil>"
    elif isinstance(value, (list, dict)):
        shown = "<value withheld>"
    else:
        shown = str(value).lower()
    return f"{shown} is of the type {_go_type(value)}"


# ---------------------------------------------------------------------------------------------- UTF-8


def _stored_text(data: bytes, tokens: list[Token], part: str) -> bytes | None:
    """Return ``metadata.<part>`` unescaped but with invalid UTF-8 kept, which parsed JSON has lost."""
    metadata = _member(data, tokens, 0, "metadata")
    index = _member(data, tokens, metadata, part) if metadata else 0
    return gojson.string_bytes(data, tokens[index]) if index and tokens[index].kind == '"' else None


def _member(data: bytes, tokens: list[Token], holder: int, name: str) -> int:
    found = 0
    index = holder + 1
    while tokens[holder].kind == "{" and index < tokens[holder].next:
        if gojson.string_text(data, tokens[index]) == name:
            found = index + 1
        index = tokens[index + 1].next
    return found


def _json_utf8_faults(data: bytes, tokens: list[Token]) -> list[Inconsistency]:
    found: list[Inconsistency] = []
    holders: list[tuple[Token, str, int]] = []
    path = ""
    is_key = False
    for index, token in enumerate(tokens):
        while holders and index >= holders[-1][0].next:
            holders.pop()
        if holders:
            holder, base, position = holders[-1]
            is_key = holder.kind == "{" and position % 2 == 0
            if is_key:
                path = f"{base}.{_shown(gojson.string_text(data, token))}".lstrip(".")
            elif holder.kind == "[":
                path = f"{base}[{position}]"
            holders[-1] = (holder, base, position + 1)
        if token.kind in "{[":
            holders.append((token, path, 0))
        elif token.kind == '"':
            fault = utf8_fault(gojson.string_bytes(data, token))
            if fault:
                found.append(Inconsistency("invalid-utf8", path, ("key: " if is_key else "") + fault))
                if len(found) == MAX_INCONSISTENCIES:
                    break
    return found


def _cbor_utf8_faults(value: dict[str, Any]) -> Iterator[Inconsistency]:
    """Name the byte strings of a decoded map that are not UTF-8 (they hold lone surrogates now)."""
    found = 0
    waiting: list[tuple[str, str, Any]] = [("", "", value)]
    while waiting and found < MAX_INCONSISTENCIES:
        path, what, item = waiting.pop()
        if isinstance(item, dict):
            for key, member in reversed(item.items()):
                inner = f"{path}.{_shown(key)}".lstrip(".")
                waiting += [(inner, "", member), (inner, "key: ", key)]
        elif isinstance(item, list):
            waiting += [(f"{path}[{at}]", "", member) for at, member in reversed(list(enumerate(item)))]
        elif isinstance(item, str):
            fault = utf8_fault(item.encode("utf-8", "surrogateescape"))
            if fault:
                found += 1
                yield Inconsistency("invalid-utf8", path, what + fault)


def _shown(key: str) -> str:
    """Return a key for a path; one that looks like data rather than a field name is not shown."""
    return key if _PLAIN_NAME.fullmatch(key) else "(key)"
