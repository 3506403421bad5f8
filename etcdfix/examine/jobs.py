"""The first look at the values of pages, by other processes beside this one.

What a worker says of a value rests on the value, the configuration and the cluster's CRDs alone, and that is the same
wherever it is said. Whatever needs more comes back unexamined: values that a KMS plugin has to be asked about, and
records that are not as etcd writes nearly all. This process examines those itself, in their turn, so that a report
does not tell how many processes there were.

Whoever has to look into the plaintext of every value says by an :class:`Extraction` what to take out of one; that is
done where the value is examined. What is made of it, in the order of the values, is up to this process.

What runs in a worker is :mod:`etcdfix.examine.worker`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from etcdfix.examine.frames import Answer, Knowledge, Question, Setup, decode_answer, encode, sent_rule
from etcdfix.examine.one import Examiner, Reading
from etcdfix.examine.readers import PlainCounts
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.worker import Extraction, Found, extraction_of, kms_providers, make
from etcdfix.examine.workers.jobs import resolve_jobs
from etcdfix.examine.workers.pool import WorkerPool
from etcdfix.model.model import StoredValue
from etcdfix.sources.base import Source
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.pages import Page

D = TypeVar("D")

Jobs = Literal["auto"] | int
"""How many processes look at values: a number, or as many as are worth their start."""

Look = Callable[[PlainCounts | None], Iterator[tuple[StoredValue, Found]]]
"""Takes the first look at one page, as :meth:`~etcdfix.examine.one.Examiner.examine_each` does."""

_BEFORE_AUTO: Final = 20_000
"""With ``auto``, so many values are looked at before workers are started: a scope may hold few."""

_MOST_SEEDS: Final = 128


class Extracted(Generic[D]):
    """What is extracted from values, by workers or by this process.

    Args:
        examiner: The one that examines the values; it must have learned the CRDs.
        target: Dotted name of a function ``make(examiner: Examiner, setup: bytes) -> Extraction``, as
            ``package.module:make``, looked up in each process.
        setup: What ``make`` is given; goes through a pipe.
    """

    def __init__(self, examiner: Examiner, target: str, setup: bytes = b"") -> None:
        self.made_by = (target, setup)
        self._here: Extraction[D] = extraction_of(examiner, *self.made_by)
        self._told: tuple[Examination, D] | None = None

    def of(self, found: Examination) -> D:
        """Return what is wanted of the value that is taken now.

        Raises:
            KMSPending: See :meth:`Extraction.extract`.
        """
        told = self._told
        return told[1] if told is not None and told[0] is found else self._here.extract(found)

    def unpack(self, packed: bytes) -> Sequence[D]:
        """Return what a worker has extracted from a page."""
        return self._here.unpack(packed)

    def tell(self, found: Examination, extracted: D) -> None:
        """Take what a worker has extracted from the value that comes next."""
        self._told = found, extracted


def jobs_for(jobs: Jobs, source: Source) -> int:
    """Return how many workers the values of a source are worth.

    Raises:
        SourceError: The source cannot be read.
    """
    if jobs != "auto":
        return jobs
    if source.page_file is not None:
        return resolve_jobs(jobs, keys=None, size_bytes=os.fstat(source.page_file).st_size, etcd_here=False)
    endpoints = source.describe().endpoints
    here = endpoints is None or any(
        parse_endpoint(text, has_tls_material=False).is_here() for text in endpoints
    )
    return resolve_jobs(jobs, keys=source.estimate(), size_bytes=None, etcd_here=here)


class Helpers:
    """Workers that take the first look at the pages of one source.

    Attributes:
        lost: A sentence for each worker that ended too early.
    """

    def __init__(
        self,
        examiner: Examiner,
        reading: Reading,
        source: Source,
        jobs: Jobs,
        *,
        extracted: Extracted[Any] | None = None,
    ) -> None:
        self.lost: list[str] = []
        self._extracted = extracted
        self._examiner = examiner
        self._source = source
        self._reading = reading
        self._alone = _BEFORE_AUTO if jobs == "auto" else 0
        self._jobs = jobs_for(jobs, source)
        self._providers = kms_providers(examiner.transformers)

    def looks(self, pages: Iterable[Page]) -> Iterator[Look]:
        """Yield the first look at each page, in the order of the pages.

        Raises:
            SourceError: As ``pages`` does.
        """
        rest = iter(pages)
        for page in rest:
            if self._jobs > 1 and self._alone <= 0:
                yield from self._looks_of_workers(chain((page,), rest))
                return
            self._alone -= len(page)
            yield self._look_here(page)

    def _looks_of_workers(self, pages: Iterable[Page]) -> Iterator[Look]:
        setup = self._encoded_setup()
        if setup is None:
            yield from map(self._look_here, pages)
            return
        with WorkerPool(self._jobs, make, setup, self._source.page_file) as pool:
            try:
                for page, answer in pool.run(pages, self._question):
                    told = None if answer is None else _understood(answer, len(page))
                    yield self._look_here(page) if told is None else partial(self._told, page, told)
            finally:
                self.lost += pool.lost

    def _look_here(self, page: Page) -> Look:
        return partial(self._examiner.examine_each, page.values())

    def _encoded_setup(self) -> bytes | None:
        """Return what workers need; None where text in it is not Unicode: this process has no need to encode it."""
        try:
            return encode(self._setup())
        except UnicodeEncodeError:
            return None

    def _setup(self) -> Setup:
        examiner, readers = self._examiner, self._examiner.readers
        configuration = self._reading.configuration
        return Setup(
            examiner.layout.prefix,
            self._reading.kubernetes_minor,
            examiner.assumed_release,
            None if configuration is None else tuple(map(sent_rule, configuration.rules)),
            examiner.plugins is not None,
            tuple(sorted(examiner.names)),
            tuple(readers.custom_resources.values()),
            tuple(readers.unreadable_crds),
            tuple(sorted(readers.aggregated_groups)),
            None if self._extracted is None else self._extracted.made_by,
        )

    def _question(self, page: Page) -> bytes:
        knowledge = tuple(
            Knowledge(
                opener.plugin.write_key_id if opener.plugin is not None else "",
                tuple(opener.known_seeds[-_MOST_SEEDS:]),
            )
            for opener in self._providers.values()
        )
        return encode(Question(knowledge, page.kind, memoryview(page.raw())))

    def _told(
        self, page: Page, answer: Answer[Examination], counts: PlainCounts | None
    ) -> Iterator[tuple[StoredValue, Found]]:
        """Do with an answer what the examiner does with values of its own."""
        self._examiner.readers.opened.add(answer.opened)
        if counts is not None:
            counts.take(answer.plain)
        for plain in answer.plain:
            self._count_opened(plain.rule, plain.transformer, plain.kms_key_id, plain.count)
        extracted = iter(() if self._extracted is None else self._extracted.unpack(answer.extracted))
        for place, found in answer.others:
            own = None if self._extracted is None or found is None else next(extracted)
            stored = page.value(place)
            if stored is None:
                continue
            if found is None:
                yield from self._examiner.examine_each((stored,), counts)
                continue
            if found.opened:
                self._count_opened(found.rule, found.transformer, found.kms_key_id, 1)
            whole = msgspec.structs.replace(found, stored=stored)
            if self._extracted is not None:
                self._extracted.tell(whole, own)
            yield stored, whole

    def _count_opened(self, rule: str, transformer: str, kms_key_id: str, count: int) -> None:
        opener = self._providers.get((rule, transformer))
        if opener is not None and opener.plugin is not None:
            opener.plugin.opened[kms_key_id] += count


def _understood(answer: bytes, places: int) -> Answer[Examination] | None:
    try:
        told = decode_answer(answer)
    except msgspec.DecodeError:
        return None
    return told if all(0 <= place < places for place, _ in told.others) else None
