"""The first look at the values of pages as a worker takes it.

A worker is told of the seeds that KMS plugins have given so far and that opened values. It never talks to a plugin:
values that one has to be asked about are left unexamined.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, NoReturn, Protocol, TypeVar

import msgspec

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config_model import EncryptionConfiguration, KMSProvider
from etcdfix.encryption.kms.envelopes import KMSPending, WrappedKey
from etcdfix.encryption.kms.transformer import KMSv2Transformer
from etcdfix.encryption.transformer import PluginFor, Transformers, no_plugin
from etcdfix.examine.frames import Answer, Setup, decode_question, decode_setup, encode, rule_of
from etcdfix.examine.one import Examiner
from etcdfix.examine.readers import PlainCounts
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.model.model import StoredValue
from etcdfix.model.storagekey import StorageLayout
from etcdfix.sources.bbolt.page import Image
from etcdfix.sources.pages import passed_on

D = TypeVar("D")

Found = Examination | KMSPending

# Text that is not Unicode, or a number too large: the other process has no need to encode it.
_NOT_TO_BE_SENT: Final = (ValueError, OverflowError)

_NOTHING: Final = StoredValue(b"", b"", 0, 0, 0, 0)


class Extraction(Protocol[D]):
    """Says what is taken out of the plaintext of one value; there is one in each process that examines values."""

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


def extraction_of(examiner: Examiner, target: str, setup: bytes) -> Extraction[D]:
    """Return what a target makes, as :class:`~etcdfix.examine.jobs.Extracted` takes it."""
    module, _, name = target.partition(":")
    make: Callable[[Examiner, bytes], Extraction[D]] = getattr(import_module(module), name)
    return make(examiner, setup)


def kms_providers(transformers: Transformers | None) -> Mapping[tuple[str, str], KMSv2Transformer]:
    """Return the KMS v2 providers by rule and name, in the order of the configuration; no two share a name."""
    if transformers is None:
        return MappingProxyType({})
    return {
        (rule.rule or "", reader.transformer): reader.opener
        for rule in transformers.rules
        for reader in rule.kms_readers
        if isinstance(reader.opener, KMSv2Transformer)
    }


def _without_bytes(found: Examination) -> Examination:
    return msgspec.structs.replace(found, stored=_NOTHING)


def make(setup: bytes, page_file: int | None) -> Callable[[bytes], bytes]:
    """Return what answers the questions of one run; for a worker.

    ``page_file`` is the descriptor of the file that pages name places in; None where there is none.
    """
    return _Worker(decode_setup(setup), page_file).answer


class _Worker:
    def __init__(self, setup: Setup, page_file: int | None) -> None:
        self._untold = _Untold()
        transformers = None
        if setup.rules is not None:
            configuration = EncryptionConfiguration("", "", tuple(map(rule_of, setup.rules)))
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
        self._extraction: Extraction[Any] | None = (
            None if setup.extracted is None else extraction_of(self._examiner, *setup.extracted)
        )
        self._providers = kms_providers(transformers)
        self._image: Image = b""
        if page_file is not None:
            self._image = mmap.mmap(page_file, 0, access=mmap.ACCESS_READ)

    def _plugin_for(self, _provider: KMSProvider) -> _AbsentPlugin:
        return _AbsentPlugin(self._untold)

    def answer(self, question: bytes) -> bytes:
        """Return the answer to one question, as bytes."""
        asked = decode_question(question)
        for opener, known in zip(self._providers.values(), asked.knowledge, strict=True):
            if isinstance(opener.plugin, _AbsentPlugin):
                opener.plugin.write_key_id = known.write_key_id
            for seed in known.seeds:
                opener.remember(seed)
        others: list[tuple[int, msgspec.Raw | None]] = []

        def leave(place: int) -> None:
            others.append((place, None))

        page = passed_on(asked.kind, asked.page, self._image, leave)
        counts = PlainCounts() if self._extraction is None else None
        extracted: list[Any] = []
        for _, found in self._examiner.examine_each(page.values(), counts):
            others.append((page.at, self._shown(found, extracted)))
        packed = b""
        if self._extraction is not None:
            try:
                packed = self._extraction.pack(extracted)
            except _NOT_TO_BE_SENT:
                packed, others = self._extraction.pack(()), [(place, None) for place, _ in others]
        plain = tuple(counts.settle()) if counts is not None else ()
        opened = tuple(self._examiner.readers.opened.take())
        return encode(Answer(plain, opened, tuple(others), packed))

    def _shown(self, found: Found, extracted: list[Any]) -> msgspec.Raw | None:
        """Return an examination without the stored bytes, and keep what is extracted from the value.

        None where a plugin has a part in it.
        """
        own = None
        if self._extraction is not None and not isinstance(found, KMSPending):
            try:
                own = self._extraction.extract(found)
            except KMSPending:
                self._untold.touched = True
        touched, self._untold.touched = self._untold.touched, False
        if touched or isinstance(found, KMSPending):
            return None
        try:
            shown = msgspec.Raw(encode(_without_bytes(found)))
        except _NOT_TO_BE_SENT:
            return None
        if self._extraction is not None:
            extracted.append(own)
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
