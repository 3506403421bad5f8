"""Stored values as the objects that the API server would serve, and what is left of those that it cannot.

Decoding for a verdict (:mod:`etcdfix.decoding.storagecodecs`) looks at a value and forgets it. Here its contents come
out, for ``get`` and for backups: every call decodes first, so nothing is shown that the server would refuse.

What differs from an answer of the API server, by intent or because it cannot be known here: the object has its
stored version and is not converted to another; fields that were missing are not set to their defaults; a custom
resource is not pruned; ``metadata.resourceVersion``, which the server sets from etcd's revision, stays as it is
stored, empty. In JSON an object given twice under one name is not merged, the second one counts.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from etcdfix.decoding import cbor
from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.errors import KindUnknown
from etcdfix.decoding.protobuf.envelope import parse_envelope
from etcdfix.decoding.protobuf.strict import Node, StrictDecoder
from etcdfix.decoding.recognise import CBOR_TAG, is_json
from etcdfix.decoding.registry import RegisteredKind
from etcdfix.decoding.render.fromjson import node_from_json
from etcdfix.decoding.render.salvage import is_protobuf, salvage_envelope, salvage_json
from etcdfix.decoding.render.typed import Renderer
from etcdfix.decoding.schema import kind_rows
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.golang import gobase64, gojson, goyaml
from etcdfix.golang.gojsontext import encode_json, parse_exactly
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, Inconsistency
from etcdfix.model.storagekey import display

_BASE64: Final = "base64+"


class Damage(msgspec.Struct, frozen=True):
    """Why an object is not whole.

    Attributes:
        message: The API server's error, data withheld.
        offset: Byte of the plaintext where decoding stopped, None where that has no meaning.
        field_path: Path of JSON names to it, "" where there is none.
    """

    message: str
    offset: int | None
    field_path: str


class KubeObject(msgspec.Struct, frozen=True):
    """One object with its contents; its ``repr`` shows none of them.

    Attributes:
        value: Plain values (dict, list, str, int, float, bool, None). Fields of built-ins stand in the order in
            which the API server writes them, others as stored.
        encoding: How it is stored, as in :class:`~etcdfix.model.model.DecodedObject`.
        empty: The API server serves an empty object, since the value does not say what it is; ``value`` is what
            is stored, apiVersion and kind may be missing.
        partial: Something is missing from ``value`` because of the damage.
        damage: Why the API server cannot read it; None for an object that it can.
        guessed: The value does not say what it is, or nothing that is known: its type, if it has one here, is that
            of its key. What it was when it was stored, nobody can tell.
        inconsistencies: What is wrong in an object that it reads. Values that it could not render (IntOrString
            of an impossible type, raw JSON that is none) are None in ``value``.
    """

    value: dict[str, Any]
    encoding: str
    empty: bool = False
    partial: bool = False
    damage: Damage | None = None
    guessed: bool = False
    inconsistencies: tuple[Inconsistency, ...] = ()

    def __repr__(self) -> str:
        return f"KubeObject(encoding={self.encoding!r}, partial={self.partial!r})"

    def without_managed_fields(self) -> KubeObject:
        """Return the object without ``metadata.managedFields``, as ``kubectl get`` shows it."""
        metadata = self.value.get("metadata")
        if not isinstance(metadata, dict) or "managedFields" not in metadata:
            return self
        kept = {name: value for name, value in metadata.items() if name != "managedFields"}
        return msgspec.structs.replace(self, value={**self.value, "metadata": kept})

    def to_json(self, *, indent: str = "") -> bytes:
        """Return the object as Go's encoder writes it: in one line, or with ``indent`` per level."""
        return encode_json(self.value, indent=indent)


class ObjectReader:
    """Reads objects with their contents, for the release that a decoder assumes.

    All methods are pure. What is known about the kinds' fields is prepared once per kind.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._schema = decoder.schema
        self._strict = StrictDecoder(decoder.schema)
        self._renderer = Renderer(decoder.schema)
        self._salvage_renderer = Renderer(decoder.schema, only_stored=True)

    def builtin(self, data: bytes, group: str, kind: str) -> KubeObject:
        """Read a value under a built-in's key.

        Raises:
            DecodeError: The API server cannot read it; in its words.
        """
        return self._typed(self._decoder.builtin(data, group, kind), data, kind)

    def json_builtin(self, data: bytes, group: str, kind: str) -> KubeObject:
        """Read a value under the key of a CustomResourceDefinition or an APIService.

        Raises:
            DecodeError: The API server cannot read it; in its words.
        """
        return self._typed(self._decoder.json_builtin(data, group, kind), data, kind)

    def custom_resource(self, data: bytes, crd: CustomResourceInfo) -> KubeObject:
        """Read a value under a custom resource's key: what is stored is what is served.

        Raises:
            DecodeError: The API server cannot read it; in its words.
        """
        decoded = self._decoder.custom_resource(data, crd)
        return KubeObject(_document(data), decoded.encoding, inconsistencies=decoded.inconsistencies)

    def foreign(self, data: bytes) -> KubeObject:
        """Read a value whose owner nobody knows: JSON and CBOR as stored, protobuf where its kind is a built-in.

        Raises:
            DecodeError: It does not look like an object.
            KindUnknown: Protobuf of a kind whose messages are not known.
        """
        decoded = self._decoder.parses(data)
        if decoded.encoding == "protobuf":
            return self._typed(decoded, data, decoded.gvk.kind)
        gvk = decoded.gvk
        # Groups without a name are the API server's own: a kind that it does not know there is none.
        guessed = not gvk.group and self._lookup("", gvk.version, gvk.kind) is None
        return KubeObject(
            _document(data), decoded.encoding, guessed=guessed, inconsistencies=decoded.inconsistencies
        )

    # -- whole objects

    def _typed(self, decoded: DecodedObject, data: bytes, expected_kind: str) -> KubeObject:
        encoding = decoded.encoding
        if encoding.startswith(_BASE64):
            data = gobase64.decode(data)
            encoding = encoding.removeprefix(_BASE64)
        if encoding == "protobuf":
            registered = self._lookup(
                decoded.gvk.group, decoded.gvk.version, decoded.gvk.kind or expected_kind
            )
            if registered is None:
                raise _unknown_kind(decoded)
            node = self._strict.decode(registered.message, parse_envelope(data).raw).node
            value = self._render(registered, node)
        else:
            value = self._typed_json(
                goyaml.to_json(data) if encoding == "yaml" else data, decoded, expected_kind
            )
        wrong = decoded.inconsistencies
        guessed = decoded.empty or any(fault.cause == "kind-missing" for fault in wrong)
        return KubeObject(
            value, decoded.encoding, empty=decoded.empty, guessed=guessed, inconsistencies=wrong
        )

    def _typed_json(self, text: bytes, decoded: DecodedObject, expected_kind: str) -> dict[str, Any]:
        parsed = parse_exactly(text)
        stored: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
        registered = self._lookup(decoded.gvk.group, decoded.gvk.version, decoded.gvk.kind or expected_kind)
        if decoded.empty or registered is None:
            return stored  # the server serves an empty object; what is there says more
        return self._render(registered, node_from_json(self._schema, registered.message, stored).node)

    def _render(self, registered: RegisteredKind, node: Node, *, whole: bool = True) -> dict[str, Any]:
        value: dict[str, Any] = {"kind": registered.gvk.kind, "apiVersion": registered.gvk.api_version}
        renderer = self._renderer if whole else self._salvage_renderer
        renderer.render(registered.message, node, value)
        return value

    def _lookup(self, group: str, version: str, kind: str) -> RegisteredKind | None:
        registered = self._decoder.registry(group).lookup(group, version, kind)
        return registered if registered is not None and registered.message else None

    # -- what is left of broken ones

    def salvage(self, data: bytes, reason: DecodeError, group: str = "", kind: str = "") -> KubeObject | None:
        """Return what could be decoded of a value up to its damage, None where nothing could.

        Works for protobuf of known kinds and for JSON, of built-ins and custom resources alike. The result tells by
        ``partial`` whether anything is missing: an object may be whole and yet be refused, because its kind
        is the wrong one for its key.
        """
        if is_protobuf(data):
            return self._salvage_protobuf(data, reason, group, kind)
        if is_json(data):
            return self._salvage_json(data, reason, group, kind)
        return None

    def _salvage_protobuf(self, data: bytes, reason: DecodeError, group: str, kind: str) -> KubeObject | None:
        envelope = salvage_envelope(data)
        if envelope is None:
            return None
        registered, guessed = self._guess(display(envelope.api_version), display(envelope.kind), group, kind)
        if registered is None:
            return None
        decoded, error = self._strict.salvage(
            registered.message, data, envelope.start, envelope.end, cut_off=envelope.cut_off
        )
        whole = error is None and envelope.whole
        return KubeObject(
            self._render(registered, decoded.node, whole=whole),
            "protobuf",
            partial=not whole,
            damage=_damage(reason if error is None else error),
            guessed=guessed,
        )

    def _salvage_json(self, data: bytes, reason: DecodeError, group: str, kind: str) -> KubeObject | None:
        value, whole = salvage_json(data)
        if value is None:
            return None
        api_version, found = value.get("apiVersion"), value.get("kind")
        registered, guessed = self._guess(
            api_version if isinstance(api_version, str) else "",
            found if isinstance(found, str) else "",
            group,
            kind,
        )
        if registered is not None:
            node, misfits = node_from_json(self._schema, registered.message, value)
            whole = whole and not misfits
            value = self._render(registered, node, whole=whole)
        elif kind and found == kind:  # a custom resource of the kind that its key promises
            guessed = False
        return KubeObject(value, "json", partial=not whole, damage=_damage(reason), guessed=guessed)

    def _guess(
        self, api_version: str, kind: str, group: str, expected_kind: str
    ) -> tuple[RegisteredKind | None, bool]:
        """Find the type of a damaged value: by what it says, else by its key, in the version that lives longest.

        The second value says that it is not what the value says of itself. A version is no part of what it is.
        """
        found_group, _, version = api_version.rpartition("/")
        registered = self._lookup(found_group, version, kind)
        if registered is not None:
            return registered, False
        candidates = [
            row
            for row in kind_rows()
            if (row.group, row.kind, row.role) == (group, expected_kind, "stored")
            and self._lookup(group, row.version, expected_kind) is not None
        ]
        if not candidates:
            return None, True
        best = max(candidates, key=lambda row: (row.version == version, row.until, -row.since))
        return self._lookup(group, best.version, expected_kind), kind != expected_kind


def _document(data: bytes) -> dict[str, Any]:
    """Return a JSON or CBOR value that is known to be a map, or null, which counts as an empty one."""
    if data.startswith(CBOR_TAG):
        value: Any = cbor.decode_map(data)
        # Bytes that are not UTF-8 are lone surrogates now; writing and reading makes them what the server serves.
        value = gojson.loads(encode_json(value))
    else:
        value = gojson.loads(data)
    return value if isinstance(value, dict) else {}


def _damage(error: DecodeError) -> Damage:
    return Damage(error.message, error.offset, error.field_path)


def _unknown_kind(decoded: DecodedObject) -> KindUnknown:
    return KindUnknown(
        "the messages of this kind are not known, so its fields have no names",
        group_version=decoded.gvk.api_version,
        kind=decoded.gvk.kind,
        reason="not-registered",
    )
