"""The first look at the values of pages, by this process or by workers beside it.

What a worker says of a value rests on the value, the configuration and the cluster's CRDs alone, and that is the same
wherever it is said. Whatever needs more comes back unexamined: values that a KMS plugin has to be asked about, and
records that are not as etcd writes nearly all. This process examines those itself, in their turn, so that a report
does not tell how many processes there were.

A worker is told the seeds that KMS plugins have given so far and that opened values. It never talks to a plugin.

Whoever has to look into the plaintext of every value names an :class:`Extractor`; it runs where the value is examined.
What is made of the extracts, in the order of the values, is up to this process.
"""

from __future__ import annotations

import copyreg
import io
import mmap
import os
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Generic, Literal, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config_model import EncryptionConfiguration, ResourceRule
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import KMSPending, WrappedKey
from etcdfix.encryption.kms.transformer import KMSv2Reader, KnownSeed
from etcdfix.encryption.transformer import PluginFor, Transformers, no_plugin
from etcdfix.examine.one import Examiner, FirstLookResult, Reading
from etcdfix.examine.readers import PlainCounts
from etcdfix.examine.verdicts.examination import Examination, PlainCount
from etcdfix.examine.verdicts.opened_spans import PlacedSpan
from etcdfix.examine.workers import WorkerPool, room_for_jobs
from etcdfix.model.model import StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.base import Source
from etcdfix.sources.bbolt.page import Image
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.pages import Page, passed_on

D = TypeVar("D")
E = TypeVar("E")

Jobs = Literal["auto"] | int
"""How many processes look at values: a number, or as many as are worth their start."""

PageExaminer = Callable[[PlainCounts | None], Iterator[tuple[StoredValue, FirstLookResult]]]
"""Takes the first look at one page, as :meth:`~etcdfix.examine.one.Examiner.examine_each` does."""

_BEFORE_AUTO: Final = 20_000
"""With ``auto``, so many values are looked at before workers are started: a scope may hold few."""
_FEWEST_KEYS: Final = 50_000
_SMALLEST_BYTES: Final = 100_000_000
"""With ``auto``, a smaller source is not worth the start of a worker."""
_MOST_SEEDS: Final = 128
# Text that is not Unicode, or a number too large: the other process has no need to encode it.
_NOT_TO_BE_SENT: Final = (ValueError, OverflowError)
_NO_BYTES: Final = StoredValue(b"", b"", 0, 0, 0, 0)


class Extractor(Protocol[D]):
    """Says what is extracted from the plaintext of one value; there is one in each process that examines values."""

    def extract(self, found: Examination) -> D:
        """Return what is wanted of a value that was examined just now; it rests on that value alone.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        ...

    def pack(self, extracted: Sequence[D]) -> bytes:
        """Return what was extracted from one page as bytes.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        ...

    def unpack(self, packed: bytes) -> Sequence[D]:
        """Return what another process has packed, equal to what went in."""
        ...


def _extractor_of(examiner: Examiner, target: str, setup: bytes) -> Extractor[D]:
    module, _, name = target.partition(":")
    make: Callable[[Examiner, bytes], Extractor[D]] = getattr(import_module(module), name)
    return make(examiner, setup)


class Extracted(Generic[D]):
    """What is extracted from values, by workers or by this process.

    Args:
        examiner: The one that examines the values; it must have learned the CRDs.
        target: Dotted name of a function ``make(examiner: Examiner, setup: bytes) -> Extractor``, as
            ``package.module:make``, looked up in each process.
        setup: What ``make`` is given; goes through a pipe.
    """

    def __init__(self, examiner: Examiner, target: str, setup: bytes = b"") -> None:
        self.made_by = (target, setup)
        self._here: Extractor[D] = _extractor_of(examiner, *self.made_by)
        self._told: tuple[Examination, D] | None = None
        self.unpack = self._here.unpack

    def of(self, found: Examination) -> D:
        """Return the extract for the current examination.

        Raises:
            KMSPending: See :meth:`Extractor.extract`.
        """
        told = self._told
        return told[1] if told is not None and told[0] is found else self._here.extract(found)

    def tell(self, found: Examination, extracted: D) -> None:
        """Take what a worker has extracted from the value that comes next."""
        self._told = found, extracted


class _Setup(NamedTuple):
    """What a worker needs of the whole. Holds keys: it goes through a pipe and nowhere else."""

    prefix: str
    kubernetes_minor: int | None
    rules: tuple[ResourceRule, ...] | None
    asks_plugins: bool
    names: frozenset[str]
    custom_resources: Mapping[tuple[str, str], CustomResourceInfo]
    aggregated_groups: frozenset[str]
    extractor: tuple[str, bytes] | None

    def packed(self) -> bytes:
        """Pickle it, its keys too."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream)
        pickler.dispatch_table = copyreg.dispatch_table | {
            KeyMaterial: lambda material: (KeyMaterial, (material.expose(),))
        }
        pickler.dump(self)
        return stream.getvalue()


class Knowledge(msgspec.Struct, frozen=True, array_like=True):
    """What a KMS v2 plugin has given so far, and the key id that it writes with."""

    write_key_id: str
    seeds: tuple[KnownSeed, ...]


class Question(msgspec.Struct, frozen=True, array_like=True):
    """A page, as :func:`~etcdfix.sources.pages.passed_on` takes it, and what is known when it is given."""

    knowledge: tuple[Knowledge, ...]
    kind: bytes
    page: memoryview  # of the question's bytes, where one is read: a page is large

    def __repr__(self) -> str:
        return f"Question({len(self.page)} bytes)"


class Answer(msgspec.Struct, Generic[E], frozen=True, array_like=True):
    """What a page came to; a worker has each examination encoded already.

    Attributes:
        plain: What is plain, counted.
        opened: What opened, from which mod revision to which.
        others: Places of all other values, and what they are, without the stored bytes; None for those that were not
            examined.
        extracted: What was extracted from those that were examined, packed; b"" where nobody wants it.
    """

    plain: tuple[PlainCount, ...]
    opened: tuple[PlacedSpan, ...]
    others: tuple[tuple[int, E | None], ...]
    extracted: bytes = b""

    def __repr__(self) -> str:
        return f"Answer({len(self.others)} values)"


_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(Question).decode
decode_answer = msgspec.msgpack.Decoder(Answer[Examination]).decode


def jobs_for(jobs: Jobs, source: Source) -> int:
    """Return how many workers the values of a source are worth; 1 means that none is worth its start.

    Raises:
        SourceError: The source cannot be read.
    """
    if jobs != "auto":
        return jobs
    if source.page_file is not None:
        large = os.fstat(source.page_file).st_size >= _SMALLEST_BYTES
        return room_for_jobs(etcd_here=False) if large else 1
    if (source.estimate() or 0) < _FEWEST_KEYS:
        return 1
    endpoints = source.describe().endpoints
    here = endpoints is None or any(
        parse_endpoint(text, has_tls_material=False).is_here() for text in endpoints
    )
    return room_for_jobs(etcd_here=here)


def _kms_providers(transformers: Transformers | None) -> Mapping[tuple[str, str], KMSv2Reader]:
    """Return the KMS v2 providers by rule and name, in the order of the configuration; no two share a name."""
    if transformers is None:
        return MappingProxyType({})
    return {
        (rule.rule or "", reader.transformer): reader
        for rule in transformers.rules
        for reader in rule.kms_readers
        if isinstance(reader, KMSv2Reader)
    }


class FirstPass:
    """Takes the first look at the pages of one source, with workers where they are worth it.

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
        self._providers = _kms_providers(examiner.transformers)

    def looks(self, pages: Iterable[Page]) -> Iterator[PageExaminer]:
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
            yield partial(self._examiner.examine_each, page.values())

    def _looks_of_workers(self, pages: Iterable[Page]) -> Iterator[PageExaminer]:
        with WorkerPool(self._jobs, make, self._setup().packed(), self._source.page_file) as pool:
            try:
                for page, answer in pool.run(pages, self._question):
                    told = None if answer is None else _understood(answer, len(page))
                    if told is not None:
                        yield partial(self._told, page, told)
                    else:
                        yield partial(self._examiner.examine_each, page.values())
            finally:
                self.lost += pool.lost

    def _setup(self) -> _Setup:
        examiner, readers = self._examiner, self._examiner.readers
        configuration = self._reading.of_servers
        return _Setup(
            examiner.layout.prefix,
            self._reading.kubernetes_minor,
            None if configuration is None else configuration.rules,
            examiner.plugins is not None,
            examiner.names,
            readers.custom_resources,
            frozenset(readers.aggregated_groups),
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
        return _encode(Question(knowledge, page.kind, memoryview(page.raw())))

    def _told(
        self, page: Page, answer: Answer[Examination], counts: PlainCounts | None
    ) -> Iterator[tuple[StoredValue, FirstLookResult]]:
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


def make(setup: bytes, page_file: int | None) -> Callable[[bytes], bytes]:
    """Return what answers the questions of one run, in a worker; pages name places in the file of a descriptor."""
    # This process was started by the one that wrote it.
    return _Worker(pickle.loads(setup), page_file).answer  # noqa: S301


class _Worker:
    def __init__(self, setup: _Setup, page_file: int | None) -> None:
        self.needs_plugin = False
        transformers = None
        if setup.rules is not None:
            configuration = EncryptionConfiguration("", "", setup.rules)
            absent: PluginFor = lambda _provider: _AbsentPlugin(self)  # noqa: E731 - one for each provider
            plugin_for = absent if setup.asks_plugins else no_plugin
            transformers = Transformers.from_configuration(configuration, plugin_for)
        minor = setup.kubernetes_minor
        release = f"1.{minor}" if minor else ""
        self._examiner = Examiner(
            StorageLayout(setup.prefix), transformers, Decoder(minor), assumed_release=release
        )
        self._examiner.know_names(setup.names)
        readers = self._examiner.readers
        readers.custom_resources = dict(setup.custom_resources)
        readers.aggregated_groups = set(setup.aggregated_groups)
        self._extractor: Extractor[Any] | None = (
            None if setup.extractor is None else _extractor_of(self._examiner, *setup.extractor)
        )
        self._providers = _kms_providers(transformers)
        self._image: Image = b"" if page_file is None else mmap.mmap(page_file, 0, access=mmap.ACCESS_READ)

    def answer(self, question: bytes) -> bytes:
        """Return the answer to one question, as bytes."""
        asked = _decode_question(question)
        for opener, known in zip(self._providers.values(), asked.knowledge, strict=True):
            if isinstance(opener.plugin, _AbsentPlugin):
                opener.plugin.write_key_id = known.write_key_id
            for seed in known.seeds:
                opener.remember(seed)
        others: list[tuple[int, msgspec.Raw | None]] = []

        def leave(place: int) -> None:
            others.append((place, None))

        page = passed_on(asked.kind, asked.page, self._image, leave)
        counts = PlainCounts() if self._extractor is None else None
        extracted: list[Any] = []
        for _, found in self._examiner.examine_each(page.values(), counts):
            others.append((page.at, self._shown(found, extracted)))
        packed = b""
        if self._extractor is not None:
            try:
                packed = self._extractor.pack(extracted)
            except _NOT_TO_BE_SENT:
                packed, others = self._extractor.pack(()), [(place, None) for place, _ in others]
        plain = tuple(counts.settle()) if counts is not None else ()
        opened = tuple(self._examiner.readers.opened.take())
        return _encode(Answer(plain, opened, tuple(others), packed))

    def _shown(self, found: FirstLookResult, extracted: list[Any]) -> msgspec.Raw | None:
        """Return an examination without the stored bytes, and keep what is extracted from the value.

        None where a plugin has a part in it.
        """
        own = None
        if self._extractor is not None and not isinstance(found, KMSPending):
            try:
                own = self._extractor.extract(found)
            except KMSPending:
                self.needs_plugin = True
        needed, self.needs_plugin = self.needs_plugin, False
        if needed or isinstance(found, KMSPending):
            return None
        try:
            shown = msgspec.Raw(_encode(msgspec.structs.replace(found, stored=_NO_BYTES)))
        except _NOT_TO_BE_SENT:
            return None
        if self._extractor is not None:
            extracted.append(own)
        return shown


class _AbsentPlugin:
    """Stands where a KMS plugin is: it knows nothing, and whoever needs it has to go to the other process."""

    def __init__(self, worker: _Worker) -> None:
        self._worker = worker
        self.healthy = False  # asked for only where a plugin has answered
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()

    def check(self) -> NoReturn:
        self._worker.needs_plugin = True
        raise KMSPending

    def unwrap(self, _wrapped: WrappedKey) -> NoReturn:
        self._worker.needs_plugin = True
        raise KMSPending

    def recall(self, _wrapped: WrappedKey) -> bytes | None:
        self._worker.needs_plugin = True
        return None

    def add_control(self, _wrapped: WrappedKey, _key: bytes) -> None:
        self._worker.needs_plugin = True
