"""From an examined value to what it says of other objects: decrypted once more, read, and forgotten.

An :class:`~etcdfix.verdicts.examination.Examination` never holds plaintext, so a value that is looked into is opened
a second time. That is cheap beside the rest: the keys are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Final, NamedTuple

from etcdfix.decoding.kubeobject import ObjectReader
from etcdfix.errors import DecodeError
from etcdfix.examine import Examiner
from etcdfix.graph.classes import snapshot_templates, storage_templates
from etcdfix.graph.fields import Plain, Pod, ProtobufExtractor, Replica, at, mapping, parse_json
from etcdfix.graph.heuristic_references import heuristic_references
from etcdfix.graph.kinds import Kinds
from etcdfix.graph.references import (
    POLICIES,
    Handler,
    Known,
    Scene,
    handler_for,
    mask_for,
    names_own_claims,
    node_reference,
    pod_references,
    replica_mask,
)
from etcdfix.graph.uses import GROUP_SNAPSHOT_GROUP, SNAPSHOT_GROUP, Reference
from etcdfix.model import DecodedObject, GroupVersionKind, Outcome
from etcdfix.sources.base import Source
from etcdfix.storagekey import ResourcePrefix, StorageCodec
from etcdfix.verdicts.examination import Examination

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
                directory = self.kinds.of_api_version(api_version, word)
                if directory is not None:
                    self.known.policy_parameters[f"{plural}/{name}"] = directory.path

    def _objects_in(self, source: Source, path: str) -> Iterator[tuple[Plain, str]]:
        prefix = self._examiner.layout.prefix_bytes + path.encode() + b"/"
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
