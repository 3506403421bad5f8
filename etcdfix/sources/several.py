"""Several etcds as one source: some resources have one of their own (``--etcd-servers-overrides``)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain

import msgspec

from etcdfix.model.model import KeptRevision, StoredValue
from etcdfix.model.storagekey import display
from etcdfix.sources.base import Segment, Source, SourceDescription
from etcdfix.sources.etcd.paging import bounds_of
from etcdfix.text.words import counted


class SeveralSources(Source):
    """The keys of the main etcd, and those of some resources from an etcd of their own, in the order of the keys.

    An API server looks nowhere else: what the main etcd has of these resources is left out, and a notice says how much.
    It counts for the description: revision, cluster and version are those of the main etcd, ``segments`` tell at which
    revision of its own etcd each of the others was read.

    Args:
        main: The main etcd.
        others: Key prefixes, none inside another, to the etcd that has the keys below each; several may have the same.
        on_notice: Told, in a sentence, what a person should know.
    """

    def __init__(
        self, main: Source, others: Mapping[bytes, Source], *, on_notice: Callable[[str], None]
    ) -> None:
        self._main = main
        self._others = dict(sorted(others.items()))
        self._on_notice = on_notice

    @property
    def _each(self) -> list[Source]:
        return [self._main, *{id(source): source for source in self._others.values()}.values()]

    def _of(self, key: bytes) -> Source:
        return next((s for prefix, s in self._others.items() if key.startswith(prefix)), self._main)

    def describe(self) -> SourceDescription:
        main = self._main.describe()
        segments = list(main.segments)
        for prefix, other in self._others.items():
            revision = other.describe().revision
            if not revision:  # nothing was asked of it
                continue
            begin, end = (display(bound) for bound in bounds_of(prefix))
            before = [segment for segment in segments if segment.from_key < begin]
            until = [segment for segment in segments if segment.from_key <= end]
            segments = [
                *before,
                Segment(begin, revision),
                *([Segment(end, until[-1].revision)] if until else []),
                *(segment for segment in segments if segment.from_key > end),
            ]
        endpoints = chain.from_iterable(source.describe().endpoints or () for source in self._each)
        return msgspec.structs.replace(
            main,
            endpoints=tuple(dict.fromkeys(endpoints)),
            segments=tuple(segments),
        )

    @property
    def compacted_midway(self) -> bool:
        """Whether one of them was compacted while it was read, and went on at another revision."""
        return not all(source.describe().single_revision for source in self._each)

    def current(self, prefix: bytes) -> Iterator[StoredValue]:
        whole = self._of(prefix)
        if whole is not self._main:
            return whole.current(prefix)
        below = [other.current(begin) for begin, other in self._others.items() if begin.startswith(prefix)]
        mains = self._not_overridden(prefix) if below else self._main.current(prefix)
        return heapq.merge(mains, *below, key=lambda stored: stored.key)

    def _not_overridden(self, prefix: bytes) -> Iterator[StoredValue]:
        overridden = tuple(self._others)
        unseen = 0
        for stored in self._main.current(prefix):
            if stored.key.startswith(overridden):
                unseen += 1
            else:
                yield stored
        if unseen:
            self._on_notice(
                f"left out: {counted(unseen, 'key')} of the main etcd, because another etcd holds their resources; no "
                "API server reads them"
            )

    def get(self, key: bytes) -> StoredValue | None:
        return self._of(key).get(key)

    def before(self, key: bytes, revision: int) -> StoredValue | None:
        return self._of(key).before(key, revision)

    def lacks_predecessor(self, stored: StoredValue) -> bool:
        return self._of(stored.key).lacks_predecessor(stored)

    def compacted_revision(self) -> int | None:
        """Return that of the main etcd."""
        return self._main.compacted_revision()

    def history(self, key: bytes) -> Iterator[KeptRevision]:
        return self._of(key).history(key)

    def superseded(self) -> Iterator[StoredValue]:
        for source in self._each:
            yield from (stored for stored in source.superseded() if self._of(stored.key) is source)

    @contextmanager
    def aside(self) -> Iterator[None]:
        with ExitStack() as stack:
            for source in self._each:
                stack.enter_context(source.aside())
            yield

    def members_differ(self) -> str:
        told = [source.members_differ() for source in self._each]
        for at, source in enumerate(self._each):
            if at and told[at]:
                told[at] += f" (compare with --endpoints {','.join(source.describe().endpoints or ())})"
        return "; ".join(filter(None, told))

    def estimate(self) -> int:
        return sum(source.estimate() for source in self._each)

    @property
    def problems(self) -> list[str]:
        problems = list(self._main.problems)
        for prefix, other in self._others.items():
            problems += [f"{display(prefix)}: {problem}" for problem in other.problems]
        return problems

    def close(self) -> None:
        with ExitStack() as stack:
            for source in self._each:
                stack.callback(source.close)
