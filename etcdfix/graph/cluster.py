"""One pass over everything in a source: who refers to whom, and what else reports ask of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.examine.all import Progress, examine_all, no_progress
from etcdfix.examine.first_pass import Extracted, FirstPass, Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import THE_KEY, KeyCounter
from etcdfix.graph.contents import GRAPH_EXTRACTION, ContentReader, ObjectExtract, setup_of
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
from etcdfix.model.errors import EndedEarly
from etcdfix.model.interruptions import whole_calls
from etcdfix.model.model import Outcome, ServerBehaviour
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import CRD_PATH, StorageCodec
from etcdfix.sources.base import Source
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

_LOST: Final = frozenset({Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE})
_MOST_EDGES_OF_AN_OBJECT: Final = 20_000
_MOST_FINALIZERS: Final = 64


class IndexBuilder:
    """Builds an index out of examinations, in whatever order they come.

    Args:
        examiner: The one that makes the examinations; it must have learned the CRDs.
        source: Where to read, ahead of everything, the classes that others refer through.

    Attributes:
        index: The index, not finished before :meth:`finish`.

    Raises:
        SourceError: The source cannot be read.
    """

    def __init__(self, examiner: Examiner, source: Source) -> None:
        self._reader = ContentReader(examiner)
        self._reader.learn(source)
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
        self.absorb(found, self._reader.extract(found))

    def absorb(self, found: Examination, extracted: ObjectExtract | None) -> None:
        """Take in one key, and what was extracted from its value; None where that cannot be looked into."""
        index, directory, size = self.index, found.directory, len(found.stored.value)
        relative = index.layout.below(found.stored.key)
        if relative is None:
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

    def finish(self, problems: Iterable[str] = ()) -> ImpactIndex:
        """Return the index."""
        readers = self._examiner.readers
        # Stored custom resources mention their CustomResourceDefinition, which may be gone.
        for group, plural in self._custom - readers.custom_resources.keys():
            if group not in readers.aggregated_groups:
                self.index.number(encoded(f"{CRD_PATH}/{plural}.{group}"))
        self.index.settle()
        self.index.problems = list(problems)
        return self.index

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
        if extracted.says_more:
            index.extracts[node] = msgspec.structs.replace(extracted, owners=[], references=[], claims=[])
        for claim in extracted.claims:
            index.claims[claim.namespace, claim.wanted] = claim
        return flags

    def _take_owner(self, node: int, namespace: str, owner: OwnerReference) -> None:
        directory, _ = self.index.kinds.of_owner(owner.api_version, owner.kind)
        target = UNKNOWN
        if directory is not None and (namespace or not directory.namespaced):
            target = self.index.number(encoded(relative_key(directory, namespace, owner.name)))
        self.index.edges.add(node, target, owner._replace(uid=""), owner.uid)


Keep = Callable[[Examination], int | None]
"""Says how much an examination matters to a report, nothing for not at all: of too many, the weightiest are kept."""

_MOST_KEPT = 1000


class ClusterIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about a cluster after one look at all of it. Made by :func:`index_cluster`.

    Attributes:
        kept: What was examined and asked to be kept, by key; the thousand that matter most, the first among equals.
        aggregated: API groups whose APIService names a Service, or cannot be read: another API server may own them.
        below_prefix: Whether any key lies below the storage prefix.
    """

    request: Reading
    source: Source
    examiner: Examiner
    index: ImpactIndex
    kept: dict[bytes, Examination]
    keys: KeyCounter
    kube_system_uid: str | None
    aggregated: frozenset[str]
    undetermined: int
    below_prefix: bool
    ended: EndedEarly | None

    def key_looks_lost(self, found: Examination) -> bool:
        """Say whether so much under the encryption key of a value fails that it is the key, not the object."""
        return found.transformer != IDENTITY and bool(self.keys.doubts_about(found) & THE_KEY)

    def incomplete_reasons(self, undetermined: int) -> list[str]:
        """Return why a report is not everything.

        Args:
            undetermined: How many objects that matter to it could not be judged.
        """
        reasons = list(self.index.problems)
        if self.index.opaque:
            reasons.append(f"objects that cannot be looked into: {self.index.opaque}")
        if self.index.truncated:
            reasons.append(f"objects with more references than are followed: {self.index.truncated}")
        if undetermined:
            reasons.append(
                f"undetermined: {counted(undetermined, 'object')}; what else is referred to from there is not known"
            )
        return reasons


def index_cluster(
    source: Source,
    request: Reading,
    *,
    keep: Keep,
    plugins: KMSPlugins | None = None,
    progress: Progress = no_progress,
    jobs: Jobs = 1,
    examiner: Examiner | None = None,
    targets: Collection[bytes] = (),
) -> ClusterIndex:
    """Examine everything in a source once, and gather who refers to whom.

    Args:
        source: Where the values are.
        request: How to read them.
        keep: Says of which examinations the report will speak, and how much they matter to it.
        plugins: The KMS plugins to ask; None to ask none. What waits for them is examined after everything else.
        progress: Counts the values for a display, and those that wait for a KMS plugin.
        jobs: How many processes examine values; the result is the same for any number.
        examiner: Of the source; made when not given.
        targets: Etcd keys of values that are searched for damage in any case.

    Raises:
        SourceError: Nothing could be read.
    """
    examiner = examiner or Examiner.of_cluster(source, request, plugins)
    cluster = examiner.kube_system_uid(source)
    builder = IndexBuilder(examiner, source)
    kept = _Kept()
    keys = KeyCounter()
    extracted: Extracted[ObjectExtract | None] = Extracted(
        examiner, GRAPH_EXTRACTION, builder.extraction_setup()
    )

    def take(found: Examination) -> None:
        builder.absorb(found, extracted.of(found))
        keys.add(found)
        weight = keep(found)
        if weight:
            kept.put(found, weight)

    first_pass = FirstPass(examiner, request, source, jobs, extracted=extracted) if jobs != 1 else None
    # Of a value that was taken by half, the index would speak of what it does not have.
    with whole_calls(take) as taken:
        ending = examine_all(
            examiner, source.pages(b""), taken, first_pass=first_pass, targets=targets, progress=progress
        )
    problems = [*source.problems, *ending.problems, *ending.lost]
    if ending.ended is not None:
        problems.append(f"{ending.ended.reason} before the end")
    index = builder.finish(problems)
    return ClusterIndex(
        request=request,
        source=source,
        examiner=examiner,
        index=index,
        kept=kept.by_key(),
        keys=keys,
        kube_system_uid=cluster,
        aggregated=frozenset(examiner.readers.aggregated_groups),
        undetermined=sum(1 for node in index.nodes() if index.flags[node] & UNDETERMINED),
        below_prefix=next(index.nodes(), None) is not None,
        ended=ending.ended,
    )


class _Kept:
    """Examinations, no more than a thousand: one that matters more takes the place of one that matters less."""

    def __init__(self) -> None:
        self._by_weight: dict[int, dict[bytes, Examination]] = {}

    def put(self, found: Examination, weight: int) -> None:
        if sum(map(len, self._by_weight.values())) >= _MOST_KEPT:
            least = min(known for known, members in self._by_weight.items() if members)
            if least >= weight:
                return
            self._by_weight[least].popitem()
        self._by_weight.setdefault(weight, {})[found.stored.key] = found

    def by_key(self) -> dict[bytes, Examination]:
        return {key: found for members in self._by_weight.values() for key, found in members.items()}
