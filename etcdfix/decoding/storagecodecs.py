"""The API server's three storage codecs: which serializers are tried on a stored value, in which order.

=================  =====================================================================================
built-ins          protobuf by magic, JSON by its first ``{``, YAML, base64 of any of these
CRDs, APIServices  JSON, YAML, protobuf by magic
custom resources   CBOR by tag, else JSON
=================  =====================================================================================

A recognised form is final: its error is the error. What nobody recognises walks on to YAML and base64, and
the error of the last of them is all that the server says.

Format:
    Kubernetes ``apiserver/pkg/server/storage/storage_codec.go`` (``NewStorageCodec``),
    ``apimachinery/pkg/runtime/serializer/recognizer/recognizer.go``, ``codec_factory.go``,
    ``pkg/runtime/codec.go`` (base64).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec

from etcdfix.decoding import cbor
from etcdfix.decoding.customresource import CustomResourceDecoder, CustomResourceInfo, crd_info
from etcdfix.decoding.errors import KindUnknown, ProtobufMalformed
from etcdfix.decoding.kubejson.codec import JSONDecoder
from etcdfix.decoding.protobuf.codec import ProtobufDecoder
from etcdfix.decoding.protobuf.envelope import is_well_formed, parse_envelope
from etcdfix.decoding.protobuf.strict import StrictDecoder
from etcdfix.decoding.recognise import CBOR_TAG, PROTOBUF_MAGIC, is_json
from etcdfix.decoding.registry import Registry, SchemeName
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import Schema, load_schema
from etcdfix.golang import gobase64, gojson, goyaml
from etcdfix.golang.errors import UnknownEncoding
from etcdfix.golang.goquote import withheld
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind
from etcdfix.model.storagekey import display

_SCHEMES: Final = {
    "apiextensions.k8s.io": SchemeName.APIEXTENSIONS,
    "apiregistration.k8s.io": SchemeName.AGGREGATOR,
}
_CRD_GROUP: Final = "apiextensions.k8s.io"
_CRD_KIND: Final = "CustomResourceDefinition"
_CRD_PACKAGE: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions"
_API_SERVICE_GROUP: Final = "apiregistration.k8s.io"
_API_SERVICE_KIND: Final = "APIService"
_API_SERVICE_PACKAGE: Final = "k8s.io.kube_aggregator.pkg.apis.apiregistration"

_YAML_WARNING: Final = Evidence(
    "yaml-fallback", "readable as YAML", "not protobuf or JSON; the API server still reads it"
)
_BASE64_WARNING: Final = Evidence(
    "base64-fallback", "readable after base64", "as etcd2 stored it; the API server still reads it"
)


class _Serializers(NamedTuple):
    protobuf: ProtobufDecoder
    json: JSONDecoder


class Decoder:
    """Decodes stored values (already decrypted) as the API server would; what the pipeline calls.

    All methods are pure: they take bytes, and return or raise :class:`~etcdfix.model.errors.DecodeError`.
    """

    def __init__(self, kubernetes_minor: int | None = None) -> None:
        """Prepare for one Kubernetes minor (1.``kubernetes_minor``), or for all known releases (None)."""
        self._schema: Schema = load_schema(kubernetes_minor)
        self._kubernetes_minor = kubernetes_minor
        self._custom_resources = CustomResourceDecoder()
        self._serializers = cache(self._make_serializers)

    def _make_serializers(self, scheme: SchemeName) -> _Serializers:
        registry = Registry(self._kubernetes_minor, scheme)
        return _Serializers(ProtobufDecoder(self._schema, registry), JSONDecoder(self._schema, registry))

    @property
    def schema(self) -> Schema:
        """The messages of the assumed release."""
        return self._schema

    def registry(self, group: str) -> Registry:
        """Return the kinds known to the scheme that decodes ``group``."""
        return Registry(self._kubernetes_minor, _SCHEMES.get(group, SchemeName.KUBERNETES))

    def builtin(self, data: bytes, group: str, kind: str) -> DecodedObject:
        """Decode a value under a built-in's key.

        Raises:
            DecodeError: With the API server's message for a GET.
        """
        serializers = self._serializers(_SCHEMES.get(group, SchemeName.KUBERNETES))
        if data.startswith(PROTOBUF_MAGIC):
            return serializers.protobuf.decode(data, group, kind)
        if is_json(data):
            return serializers.json.decode(data, group, kind)
        with suppress(DecodeError):  # YAML's complaint is lost, as on the server: base64 comes after it
            return _yaml(serializers, data, group, kind)
        decoded = self._universal(serializers, gobase64.decode(data), group, kind)
        return msgspec.structs.replace(
            decoded, encoding=f"base64+{decoded.encoding}", warnings=(_BASE64_WARNING, *decoded.warnings)
        )

    def builtin_reader(self, group: str, kind: str) -> Callable[[bytes], DecodedObject]:
        """Return :meth:`builtin` for the keys of one kind; where many values follow, it is quicker."""
        protobuf = self._serializers(_SCHEMES.get(group, SchemeName.KUBERNETES)).protobuf.reader(group, kind)

        def read(data: bytes) -> DecodedObject:
            if data.startswith(PROTOBUF_MAGIC):
                return protobuf(data)
            return self.builtin(data, group, kind)

        return read

    def json_builtin(self, data: bytes, group: str, kind: str) -> DecodedObject:
        """Decode a value under the key of a CustomResourceDefinition or an APIService.

        Raises:
            DecodeError: With the API server's message for a GET.
        """
        return self._universal(
            self._serializers(_SCHEMES.get(group, SchemeName.KUBERNETES)), data, group, kind
        )

    def _universal(self, serializers: _Serializers, data: bytes, group: str, kind: str) -> DecodedObject:
        """Decode as the universal deserializer does: everything but base64."""
        if is_json(data):
            return serializers.json.decode(data, group, kind)
        if data.startswith(PROTOBUF_MAGIC):
            return serializers.protobuf.decode(data, group, kind)
        return _yaml(serializers, data, group, kind)

    def custom_resource(self, data: bytes, crd: CustomResourceInfo) -> DecodedObject:
        """Decode a value under a custom resource's key.

        Raises:
            DecodeError: With the API server's message for a GET at the storage version.
        """
        return self._custom_resources.decode(data, crd)

    def parses(self, data: bytes) -> DecodedObject:
        """Say whether a value whose owner nobody knows looks like a whole Kubernetes object.

        Nothing is asserted about types: a protobuf envelope must be well formed down to the fields of the
        object inside, JSON and CBOR must parse and have a kind. The identity is left out, because where it
        stands is the owner's business.

        Raises:
            DecodeError: It does not look like one.
        """
        if data.startswith(PROTOBUF_MAGIC):
            return _parse_foreign_protobuf(data)
        if is_json(data):
            return _foreign(gojson.loads(data), "json", len(data))
        if data.startswith(CBOR_TAG):
            return _foreign(cbor.decode_map(data), "cbor", len(data))
        raise UnknownEncoding("no serialization format matched the provided data", offset=0)

    def crd(self, data: bytes) -> CustomResourceInfo:
        """Decode a stored CustomResourceDefinition to what its custom resources need.

        Raises:
            DecodeError: The API server could not read it either, or would read an empty object.
        """
        return crd_info(self._members(data, _CRD_GROUP, _CRD_KIND, _CRD_PACKAGE))

    def is_aggregated(self, data: bytes) -> bool:
        """Say whether a stored APIService hands its group version to another server.

        Raises:
            DecodeError: The API server could not read it either, or would read an empty object.
        """
        spec = self._members(data, _API_SERVICE_GROUP, _API_SERVICE_KIND, _API_SERVICE_PACKAGE).get("spec")
        return isinstance(spec, dict) and spec.get("service") is not None

    def _members(self, data: bytes, group: str, kind: str, package: str) -> dict[str, Any]:
        decoded = self.json_builtin(data, group, kind)
        if decoded.empty:
            raise KindUnknown(
                f"Object 'Kind' is missing in '{withheld(len(data))}'",
                group_version=decoded.gvk.api_version,
                kind=decoded.gvk.kind,
                reason="missing",
            )
        if is_json(data):
            parsed = gojson.loads(data)
        elif data.startswith(PROTOBUF_MAGIC):
            parsed = self._members_of_protobuf(data, kind, package)
        else:
            parsed = gojson.loads(goyaml.to_json(data))
        assert isinstance(parsed, dict)
        return parsed

    def _members_of_protobuf(self, data: bytes, kind: str, package: str) -> dict[str, Any]:
        """Return the object as JSON would show it; no server stores these kinds so."""
        envelope = parse_envelope(data)
        api_version = display(envelope.api_version)
        message = f"{package}.{api_version.rpartition('/')[2]}.{kind}"
        node = StrictDecoder(self._schema).decode(message, envelope.raw).node
        members: dict[str, Any] = Renderer(self._schema).render(message, node)
        return {**members, "apiVersion": api_version}


def _yaml(serializers: _Serializers, data: bytes, group: str, kind: str) -> DecodedObject:
    as_json = goyaml.to_json(data)
    decoded = serializers.json.decode_strictly(as_json, group, kind, stored_size=len(data))
    warnings = decoded.warnings if decoded.empty else (_YAML_WARNING, *decoded.warnings)
    return msgspec.structs.replace(decoded, encoding="yaml", warnings=warnings)


def _parse_foreign_protobuf(data: bytes) -> DecodedObject:
    envelope = parse_envelope(data)
    if not is_well_formed(envelope.raw):
        raise ProtobufMalformed("unexpected EOF", offset=envelope.raw_offset)
    members = {"apiVersion": display(envelope.api_version), "kind": display(envelope.kind)}
    return _foreign(members, "protobuf", len(data))


def _foreign(value: object, encoding: str, size: int) -> DecodedObject:
    members = value if isinstance(value, dict) else {}
    kind, api_version = members.get("kind"), members.get("apiVersion")
    if not isinstance(api_version, str):
        api_version = ""
    if not isinstance(kind, str) or not kind:
        raise KindUnknown(
            f"Object 'Kind' is missing in '{withheld(size)}'",
            group_version=api_version,
            kind="",
            reason="missing",
        )
    group, _, version = api_version.rpartition("/")
    return DecodedObject(GroupVersionKind(group, version, kind), None, None, None, encoding)
