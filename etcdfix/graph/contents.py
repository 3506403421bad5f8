"""From an examined value to what it says of other objects: decrypted once more, read, and forgotten.

An :class:`Examination` never holds plaintext, so a value that is looked into is opened
a second time. That is cheap beside the rest: the keys are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.fields import Plain, ProtobufExtractor, at, items, mapping, parse_json, text
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.index import FINISHED, READY, NamespaceDetails
from etcdfix.graph.kinds import Kinds
from etcdfix.graph.model import Condition, OwnerReference
from etcdfix.graph.recreation import Claim, read_claims
from etcdfix.graph.references import (
    Handler,
    Known,
    Scene,
    handler_for,
    mask_for,
    owners_of,
    policy_parameters,
    snapshot_templates,
    storage_templates,
)
from etcdfix.graph.uses import GROUP_SNAPSHOT_GROUP, SNAPSHOT_GROUP, Reference
from etcdfix.graph.webhooks import Webhook, ready_service, service_of, webhooks_of
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, GroupVersionKind, Outcome
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec
from etcdfix.sources.base import Source

SKIP_PROTECTION: Final = "secret.kubernetes.io/skip-secret-protection"
"""KEP-2639's annotation; ``yes`` opts a Secret out of protection."""

GRAPH_EXTRACTION: Final = f"{__name__}:make"
"""Names :func:`make` for other processes."""

LEARNED_PATHS: Final = (
    "storageclasses",
    f"{SNAPSHOT_GROUP}/volumesnapshotclasses",
    f"{GROUP_SNAPSHOT_GROUP}/volumegroupsnapshotclasses",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicies",
)
"""Directories of the objects that others refer through: :meth:`ContentReader.learn` reads them ahead."""

_READ: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT})
_CUSTOM: Final = frozenset({StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN})
_FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_MESSAGE: Final = 4096
_MOST_CONDITIONS: Final = 32


class ObjectExtract(msgspec.Struct, array_like=True, gc=False):
    """What matters of one object beside its verdict.

    Attributes:
        references: What it uses, each once.
        finalizers: ``metadata.finalizers``.
        terminating_since: ``metadata.deletionTimestamp``, "" for none.
        uid: Where decoding did not tell it, what the object itself says; b"" for nothing.
        flags: Of a Pod that it has finished, of a Node that it is ready.
        unprotected: A Secret that opts out of protection.
        namespace: What a Namespace says of its end.
        unavailable: Why an APIService is not available; None where it does not say so.
        service: The Service, ``namespace/name``, that an APIService names.
        endpoint_of: The Service that has a ready endpoint here.
        webhooks: Of a webhook configuration: those that call a Service, and refuse where it does not answer.
        claims: What its spec makes controllers create.
    """

    owners: list[OwnerReference]
    references: list[Reference]
    finalizers: tuple[str, ...] = ()
    terminating_since: str = ""
    uid: bytes = b""
    flags: int = 0
    unprotected: bool = False
    namespace: NamespaceDetails | None = None
    unavailable: str | None = None
    service: str = ""
    endpoint_of: str = ""
    webhooks: tuple[Webhook, ...] = ()
    claims: list[Claim] = []

    @property
    def says_more(self) -> bool:
        """Whether reports on a namespace or a Secret ask for more than its references and finalizers."""
        told = self.unprotected, self.namespace, self.service, self.endpoint_of, self.webhooks
        return any(told) or self.unavailable is not None


_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(list[ObjectExtract | None]).decode
_decode_known = msgspec.msgpack.Decoder(Known).decode


def setup_of(reader: ContentReader) -> bytes:
    """Return what :func:`make` needs in another process."""
    return _encode(reader.known)


def make(examiner: Examiner, setup: bytes) -> ContentReader:
    """Return what extracts from values that an examiner examines; for a process of its own."""
    reader = ContentReader(examiner)
    reader.known = _decode_known(setup)
    return reader


def _extract_status(extracted: ObjectExtract, found: Examination, plain: Plain) -> None:
    """Take what namespaces, their webhooks and their pods wait for."""
    directory = found.directory
    match directory.group, directory.kind:
        case "", "Secret":
            extracted.unprotected = mapping(at(plain, "metadata.annotations")).get(SKIP_PROTECTION) == "yes"
        case "", "Pod":
            extracted.flags = FINISHED if text(at(plain, "status.phase")) in _FINISHED_PHASES else 0
        case "", "Node":
            ready = any((c.type, c.status) == ("Ready", "True") for c in _conditions(plain))
            extracted.flags = READY if ready else 0
        case "", "Namespace":
            extracted.namespace = NamespaceDetails(
                text(at(plain, "status.phase")),
                tuple(f for f in items(at(plain, "spec.finalizers")) if type(f) is str),
                _conditions(plain),
            )
        case "", "Service" if at(plain, "spec.type") == "ExternalName":
            extracted.endpoint_of = (
                f"{found.namespace}/{found.name}"  # whoever answers is outside of the cluster
            )
        case ("", "Endpoints") | ("discovery.k8s.io", "EndpointSlice"):
            extracted.endpoint_of = ready_service(plain, found.namespace, found.name)
        case _, "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration":
            extracted.webhooks = webhooks_of(plain)
        case _, "APIService":
            extracted.service = service_of(mapping(plain.get("spec")))
            for condition in _conditions(plain):
                if condition.type == "Available" and condition.status != "True":
                    extracted.unavailable = condition.reason or condition.message


def _conditions(plain: Plain) -> tuple[Condition, ...]:
    found = []
    for entry in items(at(plain, "status.conditions"))[:_MOST_CONDITIONS]:
        if type(entry) is dict:
            names = ("type", "status", "reason", "message")
            kind, status, reason, message = (text(entry.get(n))[:_LONGEST_MESSAGE] for n in names)
            found.append(Condition(kind, status, reason, message, problem=status == "True"))
    return tuple(found)


class _Way(NamedTuple):
    """How values of one type are read: what takes the wanted fields out, and what reads references out of these."""

    extract: Callable[[bytes], Plain | None] | None
    handler: Handler | None


class ContentReader:
    """Looks into readable values.

    Args:
        examiner: The one that examined them; it must have learned the CRDs.
    """

    def __init__(self, examiner: Examiner) -> None:
        self._examiner = examiner
        self._decoder = examiner.decoder
        self._objects = ObjectReader(examiner.decoder)
        self._extractor = ProtobufExtractor(examiner.decoder.schema)
        self.kinds = Kinds(examiner.readers.custom_resources)
        self.known = Known()
        self._ways: dict[tuple[str, GroupVersionKind], _Way] = {}

    def learn(self, source: Source) -> None:
        """Read the few objects that others refer through: storage and snapshot classes, admission policies.

        Raises:
            SourceError: The source cannot be read.
        """
        for path in LEARNED_PATHS:
            for plain, name in self._objects_in(source, path):
                parameters, group = mapping(plain.get("parameters")), path.rpartition("/")[0]
                if path.endswith("policies"):
                    self.known.policy_parameters[f"{path}/{name}"] = policy_parameters(plain)
                elif not group:
                    self.known.storage_classes[name] = storage_templates(parameters)
                else:
                    plural = path.removeprefix(f"{group}/")
                    self.known.snapshot_classes[f"{plural}/{name}"] = snapshot_templates(parameters)

    def _objects_in(self, source: Source, path: str) -> Iterator[tuple[Plain, str]]:
        for stored in source.current(self._examiner.layout.path(f"{path}/")):
            found = self._examiner.examine(stored)
            contents = self.read(found)
            if contents is not None:
                yield contents[0], found.name

    def extract(self, found: Examination) -> ObjectExtract | None:
        """Return what matters of an object; None where it cannot be looked into.

        Raises:
            KMSPending: See :meth:`read`.
        """
        contents = self.read(found)
        if contents is None:
            return None
        plain, references = contents
        metadata = mapping(plain.get("metadata"))
        extracted = ObjectExtract(
            owners_of(plain) if "ownerReferences" in metadata else [],
            list(dict.fromkeys(references)) if len(references) > 1 else references,
            tuple(item for item in items(metadata.get("finalizers")) if type(item) is str),
            text(metadata.get("deletionTimestamp")),
            claims=read_claims(found, self.whole),
        )
        if found.decoded is None or not found.decoded.uid:
            # No readable CRD claims it: it was decoded without a uid being looked for.
            extracted.uid = text(metadata.get("uid")).encode("utf-8", "backslashreplace")
        _extract_status(extracted, found, plain)
        return extracted

    def pack(self, extracted: Sequence[ObjectExtract | None]) -> bytes:
        """Return what was extracted from a page as bytes.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        return _encode(extracted)

    def unpack(self, packed: bytes) -> list[ObjectExtract | None]:
        """Return what was packed."""
        return _decode_page(packed)

    def read(self, found: Examination) -> tuple[Plain, list[Reference]] | None:
        """Return what an examined object says; None where it cannot be looked into.

        These are the fields that matter, of JSON objects all fields, and what it uses by name, in no order, maybe
        several times. The fields hold no data of Secrets unless these are stored as JSON: never keep them.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        decoded = found.decoded
        if decoded is None or decoded.empty or found.verdict.outcome not in _READ:
            return None
        data = self._examiner.plaintext(found)
        if data is None:
            return None
        way = self._way(found.directory, decoded.gvk)
        plain = self._plain(found, decoded, way, data)
        if plain is None:
            return None
        if way.handler is not None:
            uid = decoded.uid.decode("utf-8", "replace") if decoded.uid else ""
            scene = Scene(found.namespace, found.name, uid, self.known, self.kinds)
            return plain, list(way.handler(plain, scene))
        custom = found.directory.codec in _CUSTOM
        return plain, list(heuristic_references(plain, found.namespace)) if custom else []

    def _plain(self, found: Examination, decoded: DecodedObject, way: _Way, data: bytes) -> Plain | None:
        if decoded.encoding == "json":
            value = parse_json(data)
            return value if type(value) is dict else None
        plain = way.extract(data) if way.extract is not None and decoded.encoding == "protobuf" else None
        return plain if plain is not None else self._whole(found, data)

    def whole(self, found: Examination) -> Plain | None:
        """Return all of an examined object as plain values; slow, for single objects."""
        data = self._examiner.plaintext(found) if found.decoded is not None else None
        return None if data is None else self._whole(found, data)

    def _way(self, directory: ResourcePrefix, gvk: GroupVersionKind) -> _Way:
        place = (directory.path, gvk)
        way = self._ways.get(place)
        if way is None:
            way = self._ways[place] = self._make_way(directory, *gvk)
        return way

    def _make_way(self, directory: ResourcePrefix, group: str, version: str, kind: str) -> _Way:
        # A key's own kind says what is looked for; the value's type says how it is read.
        named = directory.kind or (kind if directory.codec in _CUSTOM else "")
        handler = handler_for(directory.group, named)
        registered = self._decoder.registry(group).lookup(group, version, kind or directory.kind)
        if registered is None or not registered.message:
            return _Way(None, handler)
        return _Way(self._extractor.reader(registered.message, mask_for(directory.group, named)), handler)

    def _whole(self, found: Examination, data: bytes) -> Plain | None:
        directory, objects = found.directory, self._objects
        try:
            match directory.codec:
                case StorageCodec.BUILTIN:
                    return objects.builtin(data, directory.group, directory.kind).value
                case StorageCodec.JSON_BUILTIN:
                    return objects.json_builtin(data, directory.group, directory.kind).value
                case StorageCodec.CUSTOM_RESOURCE | StorageCodec.UNKNOWN:
                    crd = self._examiner.readers.custom_resources.get((directory.group, directory.resource))
                    return (
                        objects.foreign(data) if crd is None else objects.custom_resource(data, crd)
                    ).value
        except DecodeError:
            pass
        return None
