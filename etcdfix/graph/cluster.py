"""One pass over everything in a source: who refers to whom, and what else reports ask of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from etcdfix.examine.all import Progress, examine_all, no_progress
from etcdfix.examine.first_pass import Extracted, FirstPass, Jobs
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.key_loss import THE_KEY, KeyCounter
from etcdfix.graph.builder import IndexBuilder
from etcdfix.graph.contents import GRAPH_EXTRACTION, ObjectExtract
from etcdfix.graph.index import UNDETERMINED, ImpactIndex
from etcdfix.model.errors import EndedEarly
from etcdfix.model.interruptions import whole_calls
from etcdfix.model.providers import IDENTITY
from etcdfix.model.storagekey import likely_prefixes
from etcdfix.sources.base import Source
from etcdfix.text.words import counted

if TYPE_CHECKING:
    from etcdfix.encryption.kms.plugins import KMSPlugins

Keep = Callable[[Examination], int | None]
"""Says how much an examination matters to a report, nothing for not at all: of too many, the weightiest are kept."""

_MOST_KEPT = 1000
_SAMPLE = 200


class ClusterIndex(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about a cluster after one look at all of it. Made by :func:`index_cluster`.

    Attributes:
        kept: What was examined and asked to be kept, by key; the thousand that matter most, the first among equals.
        aggregated: API groups whose APIService names a Service, or cannot be read: another API server may own them.
        below_prefix: Whether any key lies below the storage prefix.
        suggested_prefixes: Where Kubernetes' keys seem to be instead, when none does.
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
    suggested_prefixes: list[str]
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
    below = next(index.nodes(), None) is not None
    # What could not be read is not absent.
    sample = () if below or problems else islice(source.current(b""), _SAMPLE)
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
        below_prefix=below,
        suggested_prefixes=likely_prefixes(stored.key for stored in sample),
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
