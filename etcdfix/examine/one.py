"""The spine on one screen: sources -> encryption -> decoding -> verdicts.

:meth:`Examiner.examine` is the road that every key takes, in a scan of a million as in a look at one. What the
encryption and decoding packages raise becomes an observation here and in :mod:`etcdfix.examine.closer`, and
nowhere else.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext

import msgspec

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.claims import LARGE
from etcdfix.examine.closer import UnreadableExaminer
from etcdfix.examine.readable_revision import KeptOpenings
from etcdfix.examine.readers import PlainCounts, PlainPlace, Plugins, ResourceReader, ResourceReaders
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.observation import Observation
from etcdfix.examine.verdicts.opened_spans import OpenedSpan
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import (
    Confidence,
    Outcome,
    Plaintext,
    ServerBehaviour,
    StoredValue,
    TransformFailure,
)
from etcdfix.model.providers import IDENTITY, facts_of
from etcdfix.model.storagekey import StorageCodec, StorageLayout
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions

FirstLookResult = Examination | KMSPending
"""What a look comes to that waits for no KMS plugin."""

PLAIN = Verdict(Outcome.READABLE, None, Confidence.CERTAIN, ServerBehaviour.SERVES, "readable")
"""Shared verdict of every healthy value."""


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of a cluster are read.

    Attributes:
        layout: Storage prefix.
        configuration: The EncryptionConfiguration, None when none was given.
        kubernetes_minor: Release whose kinds count as registered, 36 for 1.36; None for every release known.
        run: Options of this run, for commands that read the same data in the same way.
    """

    layout: StorageLayout
    configuration: EncryptionConfiguration | None = None
    kubernetes_minor: int | None = None
    run: RunOptions = RunOptions()

    @property
    def of_servers(self) -> EncryptionConfiguration | None:
        """What API servers read with: no rule where somebody says that nothing is encrypted, None where nobody says."""
        if self.configuration is None and "--no-encryption" in self.run.reading:
            return EncryptionConfiguration("", "", ())
        return self.configuration


class Examiner:
    """Turns stored values into verdicts, given a configuration and the CRDs of the cluster.

    Attributes:
        plugins: The KMS plugins that are asked; None where none is.
        readers: How each resource is read: its CRD, and which encryption keys opened what in this run.
        kept: Which etcd keys have earlier revisions that open; None where no source is known that keeps them.
        closer: Looks at what is not plainly readable.
    """

    def __init__(
        self,
        layout: StorageLayout,
        transformers: Transformers | None,
        decoder: Decoder,
        *,
        plugins: Plugins | None = None,
        assumed_release: str = "",
    ) -> None:
        self.layout = layout
        self.transformers = transformers
        self.decoder = decoder
        self.readers = ResourceReaders(layout, transformers, decoder)
        self.plugins = plugins
        self.kept: KeptOpenings | None = None
        self._names = transformers.names if transformers is not None else frozenset[str]()
        self.assumed_release = assumed_release
        self.closer = UnreadableExaminer(self)
        self._last_opened: tuple[StoredValue, bytes] | None = None

    @classmethod
    def of(cls, reading: Reading, plugins: Plugins | None = None) -> Examiner:
        """Return what examines values that are read so; it has not learned the CRDs yet."""
        transformers, configuration = None, reading.of_servers
        if configuration is not None:
            plugin_for = plugins.plugin_for if plugins is not None else no_plugin
            transformers = Transformers.from_configuration(configuration, plugin_for)
        minor = reading.kubernetes_minor
        release = f"1.{minor}" if minor else ""
        return cls(reading.layout, transformers, Decoder(minor), plugins=plugins, assumed_release=release)

    @classmethod
    def of_cluster(cls, source: Source, reading: Reading, plugins: Plugins | None = None) -> Examiner:
        """Return what examines the values of a cluster.

        Raises:
            SourceError: Its CRDs cannot be read.
        """
        examiner = cls.of(reading, plugins)
        examiner.learn_custom_resources(source)
        return examiner

    def start_over(self) -> None:
        """Forget which encryption keys opened what: a new run counts what it sees itself, and nothing else."""
        self.readers.start_over()
        self.closer.alike.clear()
        if self.kept is not None:
            self.kept.start_over()

    def start_over_with_plugins(self) -> None:
        """Forget also what plugins said, and what their data keys opened, as a process that begins."""
        self.start_over()
        if self.transformers is not None:
            for rule in self.transformers.rules:
                rule.start_over()
        if self.plugins is not None:
            self.plugins.start_over()

    def independent_copy(self, *, repairs: bool = True) -> Examiner:
        """Return an examiner that reads in the same way; the values of neither speak for those of the other.

        Args:
            repairs: Look for what puts values right.
        """
        other = copy.copy(self)
        other.readers = self.readers.independent_copy()
        other.closer = UnreadableExaminer(other, repairs=repairs)
        other._last_opened = None  # noqa: SLF001 - its own
        other.kept = None  # what is read elsewhere is no newer value of these etcd keys
        return other

    def without_recording(self) -> AbstractContextManager[None]:
        """Look at values that are not of the run: what plugins say of them speaks for none that is."""
        return self.plugins.without_recording() if self.plugins is not None else nullcontext()

    def learn_custom_resources(self, source: Source) -> None:
        """Read every CRD and APIService, in scope or not.

        Raises:
            SourceError: They cannot be read.
        """
        self.readers.learn(source, self.plugins)
        self.kept = KeptOpenings(source, self.independent_copy())

    def share_crds_of(self, other: Examiner) -> None:
        """Take over the CRDs and APIServices that another examiner has learned."""
        self.readers.share_crds_of(other.readers)
        if other.kept is not None:
            self.kept = KeptOpenings(other.kept.source, self.independent_copy())

    def opens_bound(self, stored: StoredValue) -> bool:
        """Say whether a value opens with its own etcd key as associated data.

        Raises:
            KMSPending: A KMS plugin has not answered yet.
        """
        transformers = self.readers.reader_for(stored.key).transformers
        opened = transformers.read(stored.value, stored.key) if transformers is not None else None
        return isinstance(opened, Plaintext) and opened.authenticated and facts_of(opened.transformer).bound

    @property
    def names(self) -> frozenset[str]:
        """Names of encryption keys and KMS providers, for envelopes whose names have colons in them."""
        return self._names

    def know_names(self, names: Collection[str]) -> None:
        """Know further names of encryption keys, so that one with colons in it is called by its whole name."""
        self._names |= frozenset(names)
        self.closer.alike.clear()

    def kube_system_uid(self, source: Source) -> str | None:
        """Return the uid of namespace kube-system, which names the cluster; None when it cannot be read."""
        stored = source.get(self.layout.path("namespaces/kube-system"))
        if stored is None:
            return None
        examination = self.examine(stored)
        if examination.verdict.outcome is not Outcome.READABLE or examination.decoded is None:
            return None
        uid = examination.decoded.uid
        return uid.decode("utf-8", "replace") if uid else None

    def examine(self, stored: StoredValue, *, thorough: bool = False) -> Examination:
        """Decrypt, decode and judge one stored value.

        Args:
            stored: As etcd has it.
            thorough: Try whatever may have damaged a value that does not open, at up to a second for a large one.

        Raises:
            KMSPending: A KMS plugin has not answered yet; look again later.
        """
        ((_, found),) = self.examine_each((stored,), first=False, thorough=thorough)
        if isinstance(found, KMSPending):
            raise found
        return found

    def examine_each(
        self,
        values: Iterable[StoredValue],
        counts: PlainCounts | None = None,
        *,
        first: bool = True,
        thorough: bool = False,
    ) -> Iterator[tuple[StoredValue, Examination | KMSPending]]:
        """Examine values one after the other; those of which there is nothing to say are counted, if somebody counts.

        Args:
            values: As etcd has them.
            counts: Takes what is plain; None to have that yielded too.
            first: Not everything has been seen: what other values came to is left out of account, so that it does not
                matter in which order they come.
            thorough: As for :meth:`examine`.

        Yields:
            Each of the others, and what it is: an error where a KMS plugin has not answered yet.
        """
        found: Examination | KMSPending
        counted: dict[PlainPlace, list[int]] | None = None
        match: bytes | tuple[()] = ()
        for stored in values:
            key, data = stored.key, stored.value
            if not key.startswith(match):
                # What each value of one directory needs is looked up once: this loop runs for every value.
                reader = self.readers.reader_for(key)
                match, shared, namespaced, owner_known = (
                    reader.match, len(reader.shared), reader.directory.namespaced, reader.owner_known,
                )  # fmt: skip
                transformers, decode = reader.transformers, reader.decode
                if counts is not None:
                    counted = counts.of(reader)
            problem: TransformFailure | DecodeError | None = None
            plain = decoded = None
            try:
                if transformers is not None:
                    opened = transformers.read(data, key)
                    if isinstance(opened, Plaintext):
                        plain = opened
                        data = plain.data
                        decoded = decode(data)
                    else:
                        problem = opened
                elif not reader.cannot_be_read(data):
                    plain = Plaintext(data, IDENTITY, stale=False)
                    decoded = decode(data)
            except DecodeError as error:
                problem = error
            except KMSPending as error:
                yield stored, error
                continue
            if decoded is not None and plain is not None:
                namespace, name = decoded.namespace, decoded.name
                rest = key[shared:]
                if (
                    name
                    and (namespace + b"/" + name if namespace else name) == rest
                    and owner_known
                    and not (
                        decoded.inconsistencies or decoded.warnings or decoded.empty or decoded.readable_until
                    )
                    and (namespaced is None or namespaced == bool(namespace))
                    and rest.count(b"/") == (1 if namespace else 0)
                    and len(stored.value) < LARGE
                ):
                    if counted is not None:
                        place = plain.transformer, plain.key_fingerprint, plain.kms_key_id, plain.stale
                        revisions = counted.get(place)
                        if revisions is None:
                            revisions = counted[place] = []
                        revisions.append(stored.mod_revision)
                        continue
                    span = self._note_opened(reader, plain, stored.mod_revision)
                    self._last_opened = stored, data
                    yield (
                        stored,
                        Examination(
                            stored,
                            reader.directory,
                            namespace.decode() if namespace else "",
                            name.decode(),
                            plain.transformer,
                            True,
                            plain.stale,
                            PLAIN,
                            decoded,
                            plain.kms_key_id,
                            reader.rule,
                            span.key_fingerprints,
                        ),
                    )
                    continue
                if not decoded.empty:  # what a wrong key makes of AES-CBC might pass for an empty object
                    self._note_opened(reader, plain, stored.mod_revision)
            if plain is not None:
                self._last_opened = stored, data
            try:
                found = self.closer.examine(
                    reader, stored, problem, plain, decoded, first=first, thorough=thorough
                )
            except KMSPending as error:
                found = error
            yield stored, found

    def _note_opened(self, reader: ResourceReader, plain: Plaintext, revision: int) -> OpenedSpan:
        opened = reader.span_of_plaintext(plain.transformer, plain.key_fingerprint, plain.kms_key_id)
        opened.reach((revision,), unbound=not plain.authenticated)
        return opened

    def plaintext(self, found: Examination) -> bytes | None:
        """Return what a value that :meth:`examine` opened holds; None for one that did not open.

        It is decrypted once more, unless it was the last one: no examination carries plaintext around.
        Bookkeeping of the API servers and the keys of other programs come back as they are stored.
        """
        if found.opened and self._last_opened is not None and self._last_opened[0] is found.stored:
            return self._last_opened[1]
        if found.opened or found.directory.codec is StorageCodec.NOT_AN_OBJECT:
            return self.readers.plaintext_of(found.stored)
        return None

    def observation(self, found: Examination) -> Observation | None:
        """Return what a verdict was made from: of the last value that was looked at closely; None of any other one."""
        seen = self.closer.last_seen
        return seen[1] if seen is not None and seen[0] is found.stored else None
