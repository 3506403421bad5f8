"""The first look at the values of pages, by other processes beside this one.

What a worker says of a value rests on the value, the configuration and the cluster's CRDs alone, and that is the same
wherever it is said. Whatever needs more comes back unexamined: values that a KMS plugin has to be asked about, and
records that are not as etcd writes nearly all. This process examines those itself, in their turn, so that a report
does not tell how many processes there were.

Whoever has to look into the plaintext of every value says by a :class:`Drawing` what to take out of one; that is done
where the value is examined. What is made of it, in the order of the values, is up to this process.

A worker is told of the seeds that KMS plugins have given so far and that opened values. It never talks to a plugin.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
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
from etcdfix.encryption.config import (
    EncryptionConfiguration,
    IdentityProvider,
    KeyedProvider,
    KMSProvider,
    NamedKey,
    Provider,
    ProviderType,
    ResourceRule,
)
from etcdfix.encryption.keyring import KeyMaterial
from etcdfix.encryption.kms.envelopes import KMSPending, WrappedKey
from etcdfix.encryption.kms.transformer import KMSv2Transformer, KnownSeed
from etcdfix.encryption.transformer import PluginFor, Transformers, no_plugin
from etcdfix.examine import Examiner, Reading
from etcdfix.model import StoredValue
from etcdfix.readers import PlainCounts
from etcdfix.sources.base import Source
from etcdfix.sources.bbolt.page import Image
from etcdfix.sources.etcd.endpoints import parse_endpoint
from etcdfix.sources.pages import Page
from etcdfix.sources.passedpages import pass_on, passed_on
from etcdfix.storagekey import StorageLayout
from etcdfix.verdicts.examination import Examination, PlainCount
from etcdfix.verdicts.key_loss import OpenedReach
from etcdfix.workers.jobs import resolve_jobs
from etcdfix.workers.pool import WorkerPool

D = TypeVar("D")

Jobs = Literal["auto"] | int
"""How many processes look at values: a number, or as many as are worth their start."""

Found = Examination | KMSPending
Look = Callable[[PlainCounts | None], Iterator[tuple[StoredValue, Found]]]
"""Takes the first look at one page, as :meth:`~etcdfix.examine.Examiner.examine_each` does."""

_BEFORE_AUTO: Final = 20_000
"""With ``auto``, so many values are looked at before workers are started: a scope may hold few."""

# Text that is not Unicode, or a number too large: the other process has no need to encode it.
_NOT_TO_BE_SENT: Final = (ValueError, OverflowError)

_MOST_SEEDS: Final = 128
_LAST_STREAM: Final = 2
_TARGET: Final = f"{__name__}:make"
_NOTHING: Final = StoredValue(b"", b"", 0, 0, 0, 0)


class Drawing(Protocol[D]):
    """Says what is taken out of the plaintext of one value; there is one in each process that examines values."""

    def draw(self, found: Examination) -> D:
        """Return what is wanted of a value that was examined just now; it rests on that value alone.

        Raises:
            KMSPending: Only while plugins defer, and not for a value whose key they have just given.
        """
        ...

    def pack(self, drawn: Sequence[D]) -> bytes:
        """Return what was drawn out of one page as bytes.

        Raises:
            ValueError: It holds text that is not Unicode.
        """
        ...

    def unpack(self, packed: bytes) -> Sequence[D]:
        """Return what another process has packed, equal to what went in."""
        ...


class Drawn(Generic[D]):
    """What is drawn out of values, by workers or by this process.

    Args:
        examiner: The one that examines the values; it must have learned the CRDs.
        target: Dotted name of a function ``make(examiner: Examiner, setup: bytes) -> Drawing``, as
            ``package.module:make``, looked up in each process.
        setup: What ``make`` is given; goes through a pipe.
    """

    def __init__(self, examiner: Examiner, target: str, setup: bytes = b"") -> None:
        self.made_by = (target, setup)
        self._here: Drawing[D] = _drawing(examiner, *self.made_by)
        self._told: tuple[Examination, D] | None = None

    def of(self, found: Examination) -> D:
        """Return what is wanted of the value that is taken now.

        Raises:
            KMSPending: See :meth:`Drawing.draw`.
        """
        told = self._told
        return told[1] if told is not None and told[0] is found else self._here.draw(found)

    def unpack(self, packed: bytes) -> Sequence[D]:
        """Return what a worker has drawn out of a page."""
        return self._here.unpack(packed)

    def tell(self, found: Examination, drawn: D) -> None:
        """Take what a worker has drawn out of the value that comes next."""
        self._told = found, drawn


def _drawing(examiner: Examiner, target: str, setup: bytes) -> Drawing[D]:
    module, _, name = target.partition(":")
    make: Callable[[Examiner, bytes], Drawing[D]] = getattr(import_module(module), name)
    return make(examiner, setup)


class _Setup(msgspec.Struct, frozen=True, array_like=True):
    """What a worker needs of the whole. Holds keys: it goes through a pipe and nowhere else."""

    prefix: str
    kubernetes_minor: int | None
    assumed_release: str
    rules: tuple[_Rule, ...] | None
    asks_plugins: bool
    names: tuple[str, ...]
    custom_resources: tuple[CustomResourceInfo, ...]
    unreadable_crds: tuple[tuple[str, str], ...]
    aggregated_groups: tuple[str, ...]
    page_file: int | None
    drawn: tuple[str, bytes] | None = None

    def __repr__(self) -> str:
        return "_Setup()"


class _Provider(msgspec.Struct, frozen=True, array_like=True):
    type: str
    keys: tuple[tuple[str, bytes], ...] = ()
    kms: KMSProvider | None = None

    def __repr__(self) -> str:
        return f"_Provider({self.type!r})"


class _Rule(msgspec.Struct, frozen=True, array_like=True):
    resources: tuple[str, ...]
    providers: tuple[_Provider, ...]


class _Knowledge(msgspec.Struct, frozen=True, array_like=True):
    """What a KMS v2 plugin has given so far, and the key id that it writes with."""

    write_key_id: str
    seeds: tuple[KnownSeed, ...]


class _Question(msgspec.Struct, frozen=True, array_like=True):
    knowledge: tuple[_Knowledge, ...]
    kind: bytes
    page: memoryview  # of the question's bytes, where one is read: a page is large

    def __repr__(self) -> str:
        return f"_Question({len(self.page)} bytes)"


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    """What a page came to.

    Attributes:
        plain: What is plain, counted.
        opened: What opened, from which mod revision to which.
        others: Places of all other values, and what they are, without the stored bytes; None for those that were not
            examined.
        drawn: What was drawn out of those that were examined, packed; b"" where nobody wants it.
    """

    plain: tuple[PlainCount, ...]
    opened: tuple[OpenedReach, ...]
    others: tuple[tuple[int, Examination | None], ...]
    drawn: bytes = b""

    def __repr__(self) -> str:
        return f"_Answer({len(self.others)} values)"


class _AnswerOut(msgspec.Struct, frozen=True, array_like=True):
    """The same, each examination encoded already."""

    plain: tuple[PlainCount, ...]
    opened: tuple[OpenedReach, ...]
    others: tuple[tuple[int, msgspec.Raw | None], ...]
    drawn: bytes = b""

    def __repr__(self) -> str:
        return f"_AnswerOut({len(self.others)} values)"


_encode = msgspec.msgpack.Encoder().encode
_decode_setup = msgspec.msgpack.Decoder(_Setup).decode
_decode_question = msgspec.msgpack.Decoder(_Question).decode
_decode_answer = msgspec.msgpack.Decoder(_Answer).decode


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


class EarlyWorkers(NamedTuple):
    """Workers that have been started, and wait to be told what they need.

    Attributes:
        pool: The workers.
        page_file: The descriptor of the file that pages name places in, as they have it; None where there is none.
    """

    pool: WorkerPool
    page_file: int | None


@contextlib.contextmanager
def started_early(source: Source, jobs: Jobs, *, everything: bool) -> Iterator[EarlyWorkers | None]:
    """Start the workers of a file before it is read: they import while its keys are sorted, then wait.

    Args:
        source: Where the values are.
        jobs: How many processes are to look.
        everything: The scope is all of it; with ``auto``, another may hold few values.

    Yields:
        None where none is worth it, or not yet.

    Raises:
        SourceError: The source cannot be read.
    """
    several = source.page_file is not None and (jobs != "auto" or everything)
    count = jobs_for(jobs, source) if several else 1
    if count == 1:
        yield None
        return
    with _start(source, count) as started:
        yield started


@contextlib.contextmanager
def _start(source: Source, jobs: int) -> Iterator[EarlyWorkers]:
    """Start workers for so many processes that look.

    Pages of a file cost nothing to come by, so that this process has the time to be one of them.
    """
    with _above_streams(source.page_file) as page_file:
        count = jobs if page_file is None else jobs - 1
        with WorkerPool(count, _TARGET, None, pass_fds=() if page_file is None else (page_file,)) as pool:
            yield EarlyWorkers(pool, page_file)


class Helpers:
    """Workers that take the first look at the pages of one source.

    Args:
        examiner: Examines what they leave; it has learned the CRDs.
        reading: What it was made of.
        source: Where the pages come from.
        jobs: How many processes look; one means that this one does it all.
        early: Workers of :func:`started_early`, for the first look.
        drawn: What is wanted of the plaintext of every value; None where the consumer takes what is plain as counts.

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
        early: EarlyWorkers | None = None,
        drawn: Drawn[Any] | None = None,
    ) -> None:
        self.lost: list[str] = []
        self._early = early
        self._drawn = drawn
        self._own: _Worker | None = None
        self._examiner = examiner
        self._source = source
        self._reading = reading
        self._alone = _BEFORE_AUTO if jobs == "auto" and early is None else 0
        self._jobs = jobs_for(jobs, source)
        self._providers = _kms_providers(examiner.transformers)

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
        early, self._early = self._early, None
        with contextlib.ExitStack() as stack:
            started = early or stack.enter_context(_start(self._source, self._jobs))
            setup = self._encoded_setup(started.page_file)
            if setup is None:
                yield from map(self._look_here, pages)
            else:
                started.pool.set_up(setup)
                yield from self._looks_of_pool(started, pages)

    def _looks_of_pool(self, started: EarlyWorkers, pages: Iterable[Page]) -> Iterator[Look]:
        page_file = started.page_file
        here = None if page_file is None else partial(self._answer_here, page_file)
        with started.pool as pool:
            answers = pool.run(pages, self._question, here)
            try:
                for page, answer in answers:
                    told = None if answer is None else _understood(answer, len(page))
                    yield self._look_here(page) if told is None else partial(self._told, page, told)
            finally:
                self.lost += pool.lost

    def _look_here(self, page: Page) -> Look:
        return partial(self._examiner.examine_each, page.values())

    def _answer_here(self, page_file: int, page: Page) -> bytes:
        """Answer as a worker does, before it is the turn of the page."""
        if self._own is None:
            self._own = _Worker(self._setup(page_file))
        return self._own.answer(self._question(page))

    def _encoded_setup(self, page_file: int | None) -> bytes | None:
        """Return what workers need; None where text in it is not Unicode: this process has no need to encode it."""
        try:
            return _encode(self._setup(page_file))
        except UnicodeEncodeError:
            return None

    def _setup(self, page_file: int | None) -> _Setup:
        examiner, readers = self._examiner, self._examiner.readers
        configuration = self._reading.configuration
        return _Setup(
            examiner.layout.prefix,
            self._reading.kubernetes_minor,
            examiner.assumed_release,
            None if configuration is None else tuple(map(_rule, configuration.rules)),
            examiner.plugins is not None,
            tuple(sorted(examiner.names)),
            tuple(readers.custom_resources.values()),
            tuple(readers.unreadable_crds),
            tuple(sorted(readers.aggregated_groups)),
            page_file,
            None if self._drawn is None else self._drawn.made_by,
        )

    def _question(self, page: Page) -> bytes:
        knowledge = tuple(
            _Knowledge(
                opener.plugin.write_key_id if opener.plugin is not None else "",
                tuple(opener.known_seeds[-_MOST_SEEDS:]),
            )
            for opener in self._providers.values()
        )
        kind, raw = pass_on(page)
        return _encode(_Question(knowledge, kind, memoryview(raw)))

    def _told(
        self, page: Page, answer: _Answer, counts: PlainCounts | None
    ) -> Iterator[tuple[StoredValue, Found]]:
        """Do with an answer what the examiner does with values of its own."""
        self._examiner.readers.opened.add(answer.opened)
        if counts is not None:
            counts.take(answer.plain)
        for plain in answer.plain:
            self._count_opened(plain.rule, plain.transformer, plain.kms_key_id, plain.count)
        drawn = iter(() if self._drawn is None else self._drawn.unpack(answer.drawn))
        for place, found in answer.others:
            own = None if self._drawn is None or found is None else next(drawn)
            stored = page.value(place)
            if stored is None:
                continue
            if found is None:
                yield from self._examiner.examine_each((stored,), counts)
                continue
            if found.opened:
                self._count_opened(found.rule, found.transformer, found.kms_key_id, 1)
            whole = msgspec.structs.replace(found, stored=stored)
            if self._drawn is not None:
                self._drawn.tell(whole, own)
            yield stored, whole

    def _count_opened(self, rule: str, transformer: str, kms_key_id: str, count: int) -> None:
        opener = self._providers.get((rule, transformer))
        if opener is not None and opener.plugin is not None:
            opener.plugin.opened[kms_key_id] += count


@contextlib.contextmanager
def _above_streams(descriptor: int | None) -> Iterator[int | None]:
    """Give a descriptor under a number that no worker needs for its pipes: a file gets that of a closed stream."""
    if descriptor is None or descriptor > _LAST_STREAM:
        yield descriptor
        return
    other = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _LAST_STREAM + 1)
    try:
        yield other
    finally:
        os.close(other)


def _understood(answer: bytes, places: int) -> _Answer | None:
    """Return what an answer says of a page of so many places; None where it is none."""
    try:
        told = _decode_answer(answer)
    except msgspec.DecodeError:
        return None
    return told if all(0 <= place < places for place, _ in told.others) else None


def _kms_providers(transformers: Transformers | None) -> Mapping[tuple[str, str], KMSv2Transformer]:
    """Return the KMS v2 providers by rule and name, in the order of the configuration; no two share a name."""
    if transformers is None:
        return MappingProxyType({})
    return {
        (rule.rule or "", reader.transformer): reader.opener
        for rule in transformers.rules
        for reader in rule.kms_readers
        if isinstance(reader.opener, KMSv2Transformer)
    }


def _rule(rule: ResourceRule) -> _Rule:
    return _Rule(rule.resources, tuple(map(_provider, rule.providers)))


def _provider(provider: Provider) -> _Provider:
    if isinstance(provider, KeyedProvider):
        return _Provider(provider.type, tuple((key.name, key.material.expose()) for key in provider.keys))
    if isinstance(provider, KMSProvider):
        return _Provider(provider.type, kms=provider)
    return _Provider(provider.type)


def _provider_of(provider: _Provider) -> Provider:
    if provider.kms is not None:
        return provider.kms
    if provider.type == ProviderType.IDENTITY:
        return IdentityProvider()
    keys = tuple(NamedKey(name, KeyMaterial(secret)) for name, secret in provider.keys)
    return KeyedProvider(ProviderType(provider.type), keys)


def _without_bytes(found: Examination) -> Examination:
    return msgspec.structs.replace(found, stored=_NOTHING)


def make(setup: bytes) -> Callable[[bytes], bytes]:
    """Return what answers the questions of one run; for a worker."""
    return _Worker(_decode_setup(setup)).answer


class _Worker:
    """Takes the first look at pages."""

    def __init__(self, setup: _Setup) -> None:
        self._untold = _Untold()
        configuration = None
        if setup.rules is not None:
            rules = (
                ResourceRule(rule.resources, tuple(map(_provider_of, rule.providers))) for rule in setup.rules
            )
            configuration = EncryptionConfiguration("", "", tuple(rules))
        transformers = None
        if configuration is not None:
            plugin_for: PluginFor = self._plugin_for if setup.asks_plugins else no_plugin
            transformers = Transformers.from_configuration(configuration, plugin_for)
        self._examiner = Examiner(
            StorageLayout(setup.prefix),
            transformers,
            Decoder(setup.kubernetes_minor),
            assumed_release=setup.assumed_release,
        )
        self._examiner.know_names(setup.names)
        readers = self._examiner.readers
        readers.custom_resources = {(crd.group, crd.plural): crd for crd in setup.custom_resources}
        readers.unreadable_crds = list(setup.unreadable_crds)
        readers.aggregated_groups = set(setup.aggregated_groups)
        self._drawing: Drawing[Any] | None = (
            None if setup.drawn is None else _drawing(self._examiner, *setup.drawn)
        )
        self._providers = _kms_providers(transformers)
        self._image: Image = b""
        if setup.page_file is not None:
            self._image = mmap.mmap(setup.page_file, 0, access=mmap.ACCESS_READ)

    def _plugin_for(self, _provider: KMSProvider) -> _AbsentPlugin:
        return _AbsentPlugin(self._untold)

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
        counts = PlainCounts() if self._drawing is None else None
        drawn: list[Any] = []
        for _, found in self._examiner.examine_each(page.values(), counts):
            others.append((page.at, self._shown(found, drawn)))
        packed = b""
        if self._drawing is not None:
            try:
                packed = self._drawing.pack(drawn)
            except _NOT_TO_BE_SENT:
                packed, others = self._drawing.pack(()), [(place, None) for place, _ in others]
        plain = tuple(counts.settle()) if counts is not None else ()
        opened = tuple(self._examiner.readers.opened.take())
        return _encode(_AnswerOut(plain, opened, tuple(others), packed))

    def _shown(self, found: Found, drawn: list[Any]) -> msgspec.Raw | None:
        """Return an examination without the stored bytes, and keep what is drawn out of the value.

        None where a plugin has a part in it.
        """
        own = None
        if self._drawing is not None and not isinstance(found, KMSPending):
            try:
                own = self._drawing.draw(found)
            except KMSPending:
                self._untold.touched = True
        touched, self._untold.touched = self._untold.touched, False
        if touched or isinstance(found, KMSPending):
            return None
        try:
            shown = msgspec.Raw(_encode(_without_bytes(found)))
        except _NOT_TO_BE_SENT:
            return None
        if self._drawing is not None:
            drawn.append(own)
        return shown


class _Untold:
    """Whether a plugin was needed for the value that is looked at."""

    touched = False


class _AbsentPlugin:
    """Stands where a KMS plugin is: it knows nothing, and whoever needs it has to go to the other process."""

    def __init__(self, untold: _Untold) -> None:
        self._untold = untold
        self.healthy = False  # asked for only where a plugin has answered
        self.write_key_id = ""
        self.opened: Counter[str] = Counter()

    def check(self) -> NoReturn:
        self._untold.touched = True
        raise KMSPending

    def unwrap(self, _wrapped: WrappedKey) -> NoReturn:
        self._untold.touched = True
        raise KMSPending

    def recall(self, _wrapped: WrappedKey) -> bytes | None:
        self._untold.touched = True
        return None

    def add_control(self, _wrapped: WrappedKey, _key: bytes) -> None:
        self._untold.touched = True
