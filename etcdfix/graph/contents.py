"""From an examined value to what it says of other objects: decrypted once more, read, and forgotten.

An :class:`Examination` never holds plaintext, so a value that is looked into is opened
a second time. That is cheap beside the rest: the keys are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.classes import snapshot_templates, storage_templates
from etcdfix.graph.fields import Plain, Pod, ProtobufExtractor, Replica, at, items, mapping, parse_json, text
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.index import FINISHED, READY, NamespaceDetails
from etcdfix.graph.kinds import Kinds
from etcdfix.graph.model import Condition, OwnerReference
from etcdfix.graph.recreation import Claim, read_claims
from etcdfix.graph.references import (
    POLICIES,
    Handler,
    Known,
    Scene,
    handler_for,
    mask_for,
    names_own_claims,
    node_reference,
    owners_of,
    pod_references,
    replica_mask,
)
from etcdfix.graph.uses import GROUP_SNAPSHOT_GROUP, SNAPSHOT_GROUP, Reference, Use
from etcdfix.graph.webhooks import Webhook, ready_service, service_of, webhooks_of
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, GroupVersionKind, Outcome
from etcdfix.model.storagekey import ResourcePrefix, StorageCodec
from etcdfix.sources.base import Source

SKIP_PROTECTION: Final = "secret.kubernetes.io/skip-secret-protection"
"""KEP-2639's annotation; ``yes`` opts a Secret out of protection."""

GRAPH_EXTRACTION: Final = f"{__name__}:make"
"""Names :func:`make` for other processes."""

_FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_TYPE: Final = 200
_LONGEST_MESSAGE: Final = 4096
_MOST_CONDITIONS: Final = 32


class ObjectExtract(msgspec.Struct, array_like=True, gc=False):
    """What matters of one object beside its verdict.

    Attributes:
        owners: Its owner references.
        references: What it uses, each once.
        finalizers: ``metadata.finalizers``.
        terminating_since: ``metadata.deletionTimestamp``, "" for none.
        uid: Where decoding did not tell it, what the object itself says; b"" for nothing.
        flags: Of a Pod that it has finished, of a Node that it is ready.
        type: Of a Secret; cut at 200 characters.
        unprotected: A Secret that opts out of protection.
        namespace: What a Namespace says of its end.
        unavailable: Why an APIService is not available; None where it does not say so.
        service: The Service, ``namespace/name``, that an APIService names, or whose ready endpoints these are.
        webhooks: Of a webhook configuration: those that call a Service, and refuse where it does not answer.
        claims: What its spec makes controllers create.
    """

    owners: list[OwnerReference]
    references: list[Reference]
    finalizers: tuple[str, ...] = ()
    terminating_since: str = ""
    uid: bytes = b""
    flags: int = 0
    type: str = ""
    unprotected: bool = False
    namespace: NamespaceDetails | None = None
    unavailable: str | None = None
    service: str = ""
    webhooks: tuple[Webhook, ...] = ()
    claims: list[Claim] = []


_Packed = list[tuple[str, int, str]]
"""References, each with the number of its use on the page."""


class _Page(msgspec.Struct, array_like=True):
    uses: list[Use]
    objects: list[tuple[ObjectExtract, _Packed] | None]


_encode = msgspec.msgpack.Encoder().encode
_decode_page = msgspec.msgpack.Decoder(_Page).decode
_decode_known = msgspec.msgpack.Decoder(Known).decode


def setup_of(reader: ContentReader) -> bytes:
    """Return what :func:`make` needs in another process."""
    return _encode(reader.known)


def make(examiner: Examiner, setup: bytes) -> GraphExtraction:
    """Return what extracts from values that an examiner examines; for a process of its own."""
    reader = ContentReader(examiner)
    reader.known = _decode_known(setup)
    return GraphExtraction(reader)


class GraphExtraction:
    """Extracts from values what the index needs of them.

    Args:
        reader: Looks into them; it must have learned the classes that others refer through.
    """

    def __init__(self, reader: ContentReader) -> None:
        self.reader = reader

    def extract(self, found: Examination) -> ObjectExtract | None:
        """Return what matters of an object; None where it cannot be looked into.

        Raises:
            KMSPending: See :meth:`~etcdfix.graph.contents.ContentReader.read`.
        """
        contents = self.reader.read(found)
        if contents is None:
            return None
        extracted = _extracted(found, contents)
        extracted.claims = read_claims(found, self.reader.whole)
        return extracted

    def pack(self, extracted: Sequence[ObjectExtract | None]) -> bytes:
        """Return what was extracted from a page as bytes; a use that objects share stands there once.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        uses: dict[Use, int] = {}
        page = _Page([], [])
        for one in extracted:
            if one is None:
                page.objects.append(None)
                continue
            packed = [(key, uses.setdefault(use, len(uses)), uid) for key, use, uid in one.references]
            page.objects.append((msgspec.structs.replace(one, references=[]), packed))
        page.uses = list(uses)
        return _encode(page)

    def unpack(self, packed: bytes) -> list[ObjectExtract | None]:
        """Return what was packed."""
        page = _decode_page(packed)
        for one in filter(None, page.objects):
            one[0].references = [Reference(key, page.uses[number], uid) for key, number, uid in one[1]]
        return [None if one is None else one[0] for one in page.objects]


def _extracted(found: Examination, contents: Contents) -> ObjectExtract:
    plain, references = contents
    metadata = mapping(plain.get("metadata"))
    extracted = ObjectExtract(
        owners_of(plain) if "ownerReferences" in metadata else [],
        list(dict.fromkeys(references)) if len(references) > 1 else references,
        tuple(item for item in items(metadata.get("finalizers")) if type(item) is str),
        text(metadata.get("deletionTimestamp")),
    )
    if found.decoded is None or not found.decoded.uid:
        # No readable CRD claims it: it was decoded without a uid being looked for.
        extracted.uid = text(at(plain, "metadata.uid")).encode("utf-8", "backslashreplace")
    directory = found.directory
    if not directory.group:
        _extract_core(extracted, found, plain)
    elif directory.kind.endswith("WebhookConfiguration"):
        extracted.webhooks = webhooks_of(plain)
    elif directory.kind == "EndpointSlice":
        extracted.service = ready_service(plain, found.namespace, found.name)
    elif directory.kind == "APIService":
        extracted.service = service_of(mapping(plain.get("spec")))
        for condition in _conditions(plain):
            if condition.type == "Available" and condition.status != "True":
                extracted.unavailable = condition.reason or condition.message
    return extracted


def _extract_core(extracted: ObjectExtract, found: Examination, plain: Plain) -> None:
    kind = found.directory.kind
    if kind == "Secret":
        extracted.type = text(plain.get("type"))[:_LONGEST_TYPE]
        extracted.unprotected = mapping(at(plain, "metadata.annotations")).get(SKIP_PROTECTION) == "yes"
    elif kind == "Pod":
        extracted.flags = FINISHED if text(at(plain, "status.phase")) in _FINISHED_PHASES else 0
    elif kind == "Node":
        ready = any((c.type, c.status) == ("Ready", "True") for c in _conditions(plain))
        extracted.flags = READY if ready else 0
    elif kind == "Namespace":
        extracted.namespace = NamespaceDetails(
            text(at(plain, "status.phase")),
            tuple(f for f in items(at(plain, "spec.finalizers")) if type(f) is str),
            _conditions(plain),
        )
    elif kind == "Service" and at(plain, "spec.type") == "ExternalName":
        extracted.service = f"{found.namespace}/{found.name}"  # whoever answers is outside of the cluster
    elif kind == "Endpoints":
        extracted.service = ready_service(plain, found.namespace, found.name)


def _conditions(plain: Plain) -> tuple[Condition, ...]:
    found = []
    for entry in items(at(plain, "status.conditions"))[:_MOST_CONDITIONS]:
        if type(entry) is dict:
            names = ("type", "status", "reason", "message")
            kind, status, reason, message = (text(entry.get(n))[:_LONGEST_MESSAGE] for n in names)
            found.append(Condition(kind, status, reason, message, problem=status == "True"))
    return tuple(found)


_READ: Final = frozenset({Outcome.READABLE, Outcome.INCONSISTENT})
_MOST_REPLICAS: Final = 4096
_SNAPSHOT_CLASSES: Final = (
    (SNAPSHOT_GROUP, "volumesnapshotclasses"),
    (GROUP_SNAPSHOT_GROUP, "volumegroupsnapshotclasses"),
)
LEARNED_PATHS: Final = (
    "storageclasses",
    *(f"{group}/{plural}" for group, plural in _SNAPSHOT_CLASSES),
    *POLICIES.values(),
)
"""Directories of the objects that others refer through: :meth:`ContentReader.learn` reads them ahead."""


class Contents(NamedTuple):
    """What one object says.

    Attributes:
        plain: The fields that matter, as plain values; of JSON objects all fields. Holds no data of Secrets unless
            they are stored as JSON: never keep it.
        references: What it uses by name, in no order, maybe several times.
    """

    plain: Plain
    references: list[Reference]


class _Way(NamedTuple):
    extract: Callable[[bytes], Plain | None] | None
    handler: Handler | None
    pod: Callable[[bytes, str, Container[Replica]], Pod | None] | None = None


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
        self._replicas: dict[Replica, list[Reference] | None] = {}

    def learn(self, source: Source) -> None:
        """Read the few objects that others refer through: storage and snapshot classes, admission policies.

        Raises:
            SourceError: The source cannot be read.
        """
        for plain, name in self._objects_in(source, "storageclasses"):
            self.known.storage_classes[name] = storage_templates(mapping(plain.get("parameters")))
        for group, plural in _SNAPSHOT_CLASSES:
            for plain, name in self._objects_in(source, f"{group}/{plural}"):
                templates = snapshot_templates(mapping(plain.get("parameters")))
                self.known.snapshot_classes[f"{plural}/{name}"] = templates
        for plural in POLICIES.values():
            for plain, name in self._objects_in(source, plural):
                kind = mapping(at(plain, "spec.paramKind"))
                api_version, word = str(kind.get("apiVersion", "")), str(kind.get("kind", ""))
                directory, _ = self.kinds.of_owner(api_version, word)
                if directory is not None:
                    self.known.policy_parameters[f"{plural}/{name}"] = directory.path

    def _objects_in(self, source: Source, path: str) -> Iterator[tuple[Plain, str]]:
        prefix = self._examiner.layout.path(f"{path}/")
        for stored in source.current(prefix):
            found = self._examiner.examine(stored)
            plain = self.plain(found)
            if plain is not None:
                yield plain, found.name

    def read(self, found: Examination) -> Contents | None:
        """Return what an examined object says; None where it cannot be looked into.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        decoded, data = found.decoded, self._plaintext(found)
        if decoded is None or data is None:
            return None
        way = self._way(found.directory, decoded.gvk)
        if way.pod is not None and decoded.encoding == "protobuf":
            contents = self._replica(way, found.namespace, data)
            if contents is not None:
                return contents
        plain = self._plain(found, decoded, way, data)
        if plain is None:
            return None
        references: list[Reference] = []
        handler = way.handler
        directory = found.directory
        if handler is not None or directory.codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
            uid = decoded.uid.decode("utf-8", "replace") if decoded.uid else ""
            scene = Scene(found.namespace, found.name, uid, self.known, self.kinds)
            if handler is not None:
                references = list(handler(plain, scene))
            else:
                references = list(heuristic_references(plain, found.namespace))
        return Contents(plain, references)

    def _replica(self, way: _Way, namespace: str, data: bytes) -> Contents | None:
        """Read a Pod whose like has been read before, or will be again; None where it takes more."""
        if len(self._replicas) >= _MOST_REPLICAS:
            self._replicas.clear()
        pod = way.pod(data, namespace, self._replicas) if way.pod is not None else None
        if pod is None:
            return None
        if pod.replica not in self._replicas:
            alike = list(dict.fromkeys(pod_references(pod.plain, namespace)))
            self._replicas[pod.replica] = None if names_own_claims(pod.plain) else alike
        references = self._replicas[pod.replica]
        if references is None:
            return None
        return Contents(pod.plain, [*references, node_reference(pod.node)] if pod.node else references)

    def plain(self, found: Examination) -> Plain | None:
        """Return the fields of an examined object that matter; None where it cannot be looked into."""
        decoded, data = found.decoded, self._plaintext(found)
        if decoded is None or data is None:
            return None
        return self._plain(found, decoded, self._way(found.directory, decoded.gvk), data)

    def _plaintext(self, found: Examination) -> bytes | None:
        decoded = found.decoded
        if decoded is None or decoded.empty or found.verdict.outcome not in _READ:
            return None
        return self._examiner.plaintext(found)

    def _plain(self, found: Examination, decoded: DecodedObject, way: _Way, data: bytes) -> Plain | None:
        if decoded.encoding == "protobuf":
            plain = way.extract(data) if way.extract is not None else None
            return plain if plain is not None else self._whole(found, data)
        if decoded.encoding == "json":
            value = parse_json(data)
            return value if type(value) is dict else None
        return self._whole(found, data)

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
        custom = directory.codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}
        expected = (directory.group, directory.kind or kind) if custom else (directory.group, directory.kind)
        registered = self._decoder.registry(group).lookup(group, version, kind or directory.kind)
        if registered is None or not registered.message:
            return _Way(None, handler_for(*expected))
        extract = self._extractor.reader(registered.message, mask_for(*expected))
        if expected != ("", "Pod"):
            return _Way(extract, handler_for(*expected))
        pod = self._extractor.pod_reader(registered.message, replica_mask())
        return _Way(extract, handler_for(*expected), pod)

    def _whole(self, found: Examination, data: bytes) -> Plain | None:
        directory = found.directory
        try:
            match directory.codec:
                case StorageCodec.BUILTIN:
                    read = self._objects.builtin(data, directory.group, directory.kind)
                case StorageCodec.JSON_BUILTIN:
                    read = self._objects.json_builtin(data, directory.group, directory.kind)
                case StorageCodec.CUSTOM_RESOURCE | StorageCodec.UNKNOWN:
                    crd = self._examiner.readers.custom_resources.get((directory.group, directory.resource))
                    read = (
                        self._objects.custom_resource(data, crd)
                        if crd is not None
                        else self._objects.foreign(data)
                    )
                case _:
                    return None
        except DecodeError:
            return None
        return read.value
