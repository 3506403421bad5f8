"""Kubernetes objects stored as protobuf: the API server's verdict, its message, and what is wrong inside.

There are two paths. The fast one parses with the protobuf library, drops what the schema does not know,
serializes again and compares: when the bytes come out as they went in, the API server accepts them too (its
own encoder wrote them so), and only Quantities, raw JSON and IntOrStrings are left to look at. Everything else,
healthy or not, takes the strict path (:mod:`etcdfix.decoding.protobuf.strict`), which copies the server's decoder and
alone makes error messages.

Format: ``apimachinery/pkg/runtime/serializer/protobuf/protobuf.go`` (completion of missing type information),
``pkg/runtime/serializer/versioning/versioning.go`` (decode, default, convert), ``pkg/runtime/error.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from etcdfix.decoding.consistency import (
    ROLLBACK_ANNOTATION,
    ROLLBACK_VERSIONS,
    FastCheck,
    FastChecks,
    broken_json,
    check_rollback,
    inconsistencies,
    parse_whole,
)
from etcdfix.decoding.errors import ConversionFailed, KindUnknown
from etcdfix.decoding.protobuf.envelope import Envelope, parse_envelope
from etcdfix.decoding.protobuf.strict import Decoded, Node, StrictDecoder
from etcdfix.decoding.registry import INTERNAL_VERSION, RegisteredKind, Registry
from etcdfix.decoding.schema import Schema
from etcdfix.model.model import DecodedObject, Evidence, GroupVersionKind, Inconsistency

ENCODING: Final = "protobuf"

_OBJECT_META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta"

# What follows ``raw`` in every value that the API server wrote: contentEncoding and contentType, both empty.
_TAIL: Final = b"\x1a\x00\x22\x00"
_MIN_LENGTH: Final = 8


class _FastPath(msgspec.Struct, frozen=True):
    """What is needed to prove one kind's objects healthy, prepared once per kind."""

    gvk: GroupVersionKind
    readable_until: str
    parse: Callable[[bytes], Any]
    check: FastCheck
    may_roll_back: bool


class ProtobufDecoder:
    """Decodes values that start with the protobuf magic, for one release or for all known ones."""

    def __init__(self, schema: Schema, registry: Registry) -> None:
        self._schema = schema
        self._registry = registry
        self._strict = StrictDecoder(schema)
        self._checks = FastChecks(schema)
        # By the kind that a key promises, then by everything that stands before the length of ``raw``.
        self._fast_paths: dict[tuple[str, str], dict[bytes, _FastPath]] = {}
        self._readers: dict[tuple[str, str], Callable[[bytes], DecodedObject]] = {}

    def decode(self, data: bytes, expected_group: str, expected_kind: str) -> DecodedObject:
        """Decode a value found under a key that promises ``expected_kind`` of ``expected_group``.

        Raises:
            ProtobufMalformed: Envelope or object break the rules of the server's decoder.
            KindUnknown: The type is missing, not registered, or does not convert to what the key promises.
            ConversionFailed: A well-formed object whose contents do not convert.

        All carry the API server's message for a GET. Offsets count from the start of ``data``.
        """
        return self.reader(expected_group, expected_kind)(data)

    def reader(self, expected_group: str, expected_kind: str) -> Callable[[bytes], DecodedObject]:
        """Return :meth:`decode` for the keys of one kind; where many values follow, it is quicker."""
        place = (expected_group, expected_kind)
        found = self._readers.get(place)
        if found is None:
            found = self._readers[place] = self._make_reader(expected_group, expected_kind)
        return found

    # The fast path

    def _make_reader(self, expected_group: str, expected_kind: str) -> Callable[[bytes], DecodedObject]:
        paths = self._fast_paths.setdefault((expected_group, expected_kind), {})

        def read(data: bytes) -> DecodedObject:
            if len(data) > _MIN_LENGTH:
                start = data[5] + 7
                path = paths.get(data[:start])
                if path is None:
                    path = self._prepare(data, expected_group, expected_kind)
                    if path is not None:
                        paths[data[:start]] = path
                if path is not None:
                    healthy = _prove_healthy(path, data, start)
                    if healthy is not None:
                        return healthy
            return self._decode_strictly(data, expected_group, expected_kind)

        return read

    def _prepare(self, data: bytes, expected_group: str, expected_kind: str) -> _FastPath | None:
        prefix = _canonical_prefix(data)
        if prefix is None:
            return None
        envelope = parse_envelope(prefix + b"\x00")
        registered = self._registry.lookup(*_texts(envelope))
        if registered is None or not self._registry.convertible(
            registered.gvk, expected_group, expected_kind
        ):
            return None
        if self._metadata_number(registered.message) is None:
            return None
        check = self._checks.make(registered.message)
        if check is None:
            return None
        return _FastPath(
            gvk=registered.gvk,
            readable_until=self._registry.readable_until(*registered.gvk),
            parse=self._checks.classes[registered.message].FromString,
            check=check,
            may_roll_back=registered.gvk in ROLLBACK_VERSIONS,
        )

    # The strict path

    def _decode_strictly(self, data: bytes, expected_group: str, expected_kind: str) -> DecodedObject:
        envelope = parse_envelope(data)
        registered = self._resolve(envelope, expected_group, expected_kind)
        decoded = Decoded({}, (), 0)
        if registered.message:
            end = envelope.raw_offset + len(envelope.raw)
            decoded = self._strict.decode(registered.message, data, envelope.raw_offset, end)
        if not self._registry.convertible(registered.gvk, expected_group, expected_kind):
            expected = self._registry.internal_type(expected_group, expected_kind)
            raise KindUnknown(
                f"converting ({registered.go_type}) to ({expected}): unknown conversion",
                group_version=registered.gvk.api_version,
                kind=registered.gvk.kind,
                reason="wrong-kind",
            )
        metadata_number = self._metadata_number(registered.message)
        metadata: Node = {} if metadata_number is None else decoded.node.get(metadata_number, {})
        self._convert(registered, decoded.node, metadata)
        group, version, kind = _texts(envelope)
        wrong = inconsistencies(self._schema, registered.message, decoded.node)
        if not kind:
            detail = (
                f"apiVersion {registered.gvk.api_version}, no kind; a key of {expected_kind} completes it"
            )
            wrong.insert(0, Inconsistency("kind-missing", "kind", detail))
        return DecodedObject(
            gvk=GroupVersionKind(group, version, kind),
            name=metadata.get(1),
            namespace=metadata.get(3),
            uid=metadata.get(5),
            encoding=ENCODING,
            empty=not envelope.raw,
            inconsistencies=tuple(wrong),
            warnings=_unknown_fields_warning(decoded, envelope.unknown_fields),
            readable_until=self._registry.readable_until(*registered.gvk),
        )

    def _resolve(self, envelope: Envelope, expected_group: str, expected_kind: str) -> RegisteredKind:
        """Find the type that the server decodes into, completing what is missing from the key's type."""
        group, version, kind = _texts(envelope)
        if version in {"", INTERNAL_VERSION}:
            return self._resolve_internal(envelope, expected_group, expected_kind)
        kind = kind or expected_kind
        registered = self._registry.lookup(group, version, kind)
        if registered is None:
            raise self._registry.unregistered(group, version, kind)
        return registered

    def _resolve_internal(
        self, envelope: Envelope, expected_group: str, expected_kind: str
    ) -> RegisteredKind:
        """Resolve a value that names no version, or the internal one: internal types have no protobuf form."""
        registry = self._registry
        group, version, kind = _texts(envelope)
        if not version:
            group = registry.first_group(expected_group, expected_kind)
        kind = kind or expected_kind
        go_type = registry.internal_of(group, kind, expected_group, expected_kind)
        unversioned = None if go_type else registry.lookup(group, INTERNAL_VERSION, kind)
        if unversioned is not None:
            return unversioned
        message = (
            f"object *{go_type} does not implement the protobuf marshalling interface "
            "and cannot be encoded to a protobuf message"
            if go_type
            else registry.without_internal(group, kind)
        )
        raise KindUnknown(
            message,
            group_version=_text(envelope.api_version),
            kind=_text(envelope.kind),
            reason="not-registered" if version else "missing",
        )

    def _convert(self, registered: RegisteredKind, node: Node, metadata: Node) -> None:
        check_rollback(registered.gvk, metadata.get(12, {}).get(ROLLBACK_ANNOTATION.encode(), b""))
        if registered.gvk.kind == "CustomResourceDefinition":
            error, path = broken_json(self._schema, registered.message, node)
            if error:
                gvk = registered.gvk
                raise ConversionFailed(error, field_path=path, group_version=gvk.api_version, kind=gvk.kind)

    def _metadata_number(self, message: str) -> int | None:
        for field in self._schema.message(message).fields:
            if field.type == _OBJECT_META and field.name == "metadata":
                return field.number
        return None


def _canonical_prefix(data: bytes) -> bytes | None:
    """Return what stands before the length of ``raw`` if the server would write it so, else None."""
    length = data[5]
    if data[4] != 0x0A or length >= 0x80 or len(data) < length + 8 or data[6] != 0x0A:
        return None
    version_end = 8 + data[7]
    end = 6 + length
    if version_end + 2 > end or data[version_end] != 0x12 or version_end + 2 + data[version_end + 1] != end:
        return None
    return data[: end + 1] if data[end] == 0x12 else None


def _prove_healthy(path: _FastPath, data: bytes, start: int) -> DecodedObject | None:
    """Decode the fast path; None where only the strict one can tell. Runs once per key."""
    try:
        size = data[start]
        start += 1
        if size >= 0x80:
            byte = data[start]
            size += (byte << 7) - 0x80
            start += 1
            if byte >= 0x80:
                byte = data[start]
                size += (byte << 14) - 0x4000
                start += 1
                if byte >= 0x80:
                    byte = data[start]
                    size += (byte << 21) - 0x20_0000
                    start += 1
                    if byte >= 0x80:
                        return None
    except IndexError:
        return None
    end = start + size
    if not size or data[end:] != _TAIL:
        return None
    raw = data[start:end]
    message = parse_whole(path.parse, raw)
    if message is None:
        return None
    metadata = message.metadata
    if not path.check(message, metadata, raw):
        return None
    if path.may_roll_back and ROLLBACK_ANNOTATION in metadata.annotations:
        return None  # rare enough to leave its contents to the strict path
    name, namespace, uid = metadata.name, metadata.namespace, metadata.uid
    return DecodedObject(
        path.gvk,
        name.encode() if name or metadata.HasField("name") else None,
        namespace.encode() if namespace or metadata.HasField("namespace") else None,
        uid.encode() if uid or metadata.HasField("uid") else None,
        ENCODING,
        readable_until=path.readable_until,
    )


def _unknown_fields_warning(decoded: Decoded, in_envelope: int) -> tuple[Evidence, ...]:
    count = decoded.unknown_count + in_envelope
    if not count:
        return ()
    places = [f"{field.path or 'the object'}: number {field.number}" for field in decoded.unknown]
    if in_envelope:
        places.append(f"the envelope: {in_envelope}")
    return (Evidence("unknown-fields", str(count), "; ".join(places)),)


def _texts(envelope: Envelope) -> tuple[str, str, str]:
    """Return group, version and kind; bytes that are not UTF-8 become lone surrogates, which no known name has."""
    group, version = envelope.group_version
    return _text(group), _text(version), _text(envelope.kind)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
