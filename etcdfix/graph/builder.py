"""One pass over etcd: every examined value is looked into once, and its references become edges."""

from __future__ import annotations

from collections.abc import Iterable
from sys import intern
from typing import Final

from etcdfix.examine.one import Examiner
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.graph.contents import ContentReader, GraphExtraction, ObjectExtract, setup_of
from etcdfix.graph.edges import UNKNOWN
from etcdfix.graph.index import (
    FOREGROUND,
    FOREGROUND_FINALIZER,
    OPAQUE,
    ORPHAN_FINALIZER,
    ORPHANS,
    SEEN,
    SERVES_EMPTY,
    TERMINATING,
    UNDETERMINED,
    UNREADABLE,
    ImpactIndex,
    encoded,
)
from etcdfix.graph.kinds import relative_key
from etcdfix.graph.model import OwnerReference
from etcdfix.model.model import Outcome, ServerBehaviour
from etcdfix.model.storagekey import API_SERVICE_PATH, CRD_PATH, StorageCodec, display
from etcdfix.sources.base import Source

_LOST: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
_MOST_EDGES_OF_AN_OBJECT: Final = 20_000
_MOST_FINALIZERS: Final = 64
_MOST_STRANGE_PREFIXES: Final = 1000


class IndexBuilder:
    """Builds an index out of examinations, in whatever order they come.

    Args:
        examiner: The one that makes the examinations; it must have learned the CRDs.
        source: Where to read, ahead of everything, the classes that others refer through.

    Attributes:
        index: The index, not finished before :meth:`finish` or :meth:`refresh`.

    Raises:
        SourceError: The source cannot be read.
    """

    def __init__(self, examiner: Examiner, source: Source) -> None:
        self._reader = ContentReader(examiner)
        self._reader.learn(source)
        self._extraction = GraphExtraction(self._reader)
        self._examiner = examiner
        self._custom: set[tuple[str, str]] = set()
        self.index = ImpactIndex(examiner.layout, self._reader.kinds)
        self.index.unreadable_crds = tuple(examiner.readers.unreadable_crds)
        self._shared: dict[tuple[str, ...], tuple[str, ...]] = {}

    def extraction_setup(self) -> bytes:
        """Return what :func:`etcdfix.graph.contents.make` needs."""
        return setup_of(self._reader)

    def add(self, found: Examination) -> None:
        """Take in one key that was examined just now.

        Raises:
            KMSPending: See :meth:`~etcdfix.graph.contents.ContentReader.read`.
        """
        self.absorb(found, self._extraction.extract(found))

    def absorb(self, found: Examination, extracted: ObjectExtract | None) -> None:
        """Take in one key, and what was extracted from its value; None where that cannot be looked into."""
        index, directory, size = self.index, found.directory, len(found.stored.value)
        relative = index.layout.below(found.stored.key)
        if relative is None:
            self._count_outside(found.stored.key, size)
            return
        node = index.number(relative)
        if directory.codec is StorageCodec.CUSTOM_RESOURCE:
            self._custom.add((directory.group, directory.resource))
        index.sizes[node] = min(size, 0xFFFF_FFFF)
        flags, outcome = SEEN, found.verdict.outcome
        if outcome in _LOST:
            flags |= UNREADABLE
            if found.verdict.apiserver is ServerBehaviour.SERVES_EMPTY:
                flags |= SERVES_EMPTY
        elif outcome is Outcome.UNDETERMINED:
            flags |= UNDETERMINED
        elif outcome is not Outcome.NOT_AN_OBJECT:
            uid = found.decoded.uid if found.decoded is not None else b""
            if extracted is None:
                flags |= OPAQUE
                index.opaque += 1
            else:
                flags |= self._take(node, found, extracted)
            index.uids[node] = uid or (extracted.uid if extracted is not None else b"")
        index.flags[node] = flags

    def forget(self, key: bytes) -> None:
        """Take back what was added of a key whose value is another one now, or gone; :meth:`refresh` the index then."""
        node = self.index.find(key)
        if node is not None:
            self.index.forget(node)

    def refresh(self) -> None:
        """Make the index whole again after keys were added or forgotten."""
        readers = self._examiner.readers
        # Stored custom resources mention their CustomResourceDefinition, which may be gone.
        for group, plural in self._custom - readers.custom_resources.keys():
            if group not in readers.aggregated_groups:
                self.index.number(encoded(f"{CRD_PATH}/{plural}.{group}"))
        self.index.settle()

    def finish(self, problems: Iterable[str] = ()) -> ImpactIndex:
        """Return the index."""
        self.refresh()
        self.index.problems = list(problems)
        return self.index

    def _count_outside(self, key: bytes, size: int) -> None:
        outside = self.index.outside
        start = display(b"/".join(key.split(b"/")[:2]))[:200]
        if start not in outside and len(outside) >= _MOST_STRANGE_PREFIXES:
            self.index.outside_complete = False
            return
        count, bytes_ = outside.get(start, (0, 0))
        outside[start] = count + 1, bytes_ + size

    def _take(self, node: int, found: Examination, extracted: ObjectExtract) -> int:
        index, flags = self.index, extracted.flags
        finalizers = extracted.finalizers[:_MOST_FINALIZERS]
        if finalizers:
            index.finalizer_lists[node] = self._shared.setdefault(finalizers, finalizers)
            flags |= ORPHANS if ORPHAN_FINALIZER in finalizers else 0
            flags |= FOREGROUND if FOREGROUND_FINALIZER in finalizers else 0
        if extracted.terminating_since:
            index.since[node] = extracted.terminating_since
            flags |= TERMINATING
        owners, references = extracted.owners, extracted.references
        if max(len(owners), len(references)) > _MOST_EDGES_OF_AN_OBJECT:
            index.truncated += 1
        for owner in owners[:_MOST_EDGES_OF_AN_OBJECT]:
            self._take_owner(node, found.namespace, owner)
        for key, use, uid in references[:_MOST_EDGES_OF_AN_OBJECT]:
            index.edges.add(node, index.number(encoded(key)), use, uid)
        if extracted.type:
            index.types[node] = intern(extracted.type)
        if extracted.unprotected:
            index.unprotected.add(node)
        if extracted.namespace is not None:
            index.namespaces[node] = extracted.namespace
        if extracted.webhooks:
            index.webhooks[node] = extracted.webhooks
        if extracted.service:
            apis = found.directory.path == API_SERVICE_PATH
            (index.api_services if apis else index.endpoints)[node] = extracted.service
        if extracted.unavailable is not None:
            index.unavailable_apis[node] = extracted.unavailable
        for claim in extracted.claims:
            index.claims[claim.namespace, claim.wanted] = claim
        return flags

    def _take_owner(self, node: int, namespace: str, owner: OwnerReference) -> None:
        directory, _ = self.index.kinds.of_owner(owner.api_version, owner.kind)
        target = UNKNOWN
        if directory is not None and (namespace or not directory.namespaced):
            target = self.index.number(encoded(relative_key(directory, namespace, owner.name)))
        self.index.edges.add(node, target, owner._replace(uid=""), owner.uid)
