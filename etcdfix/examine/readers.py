"""How the keys of one resource are read: which providers apply, what decodes them, and whose they are.

That depends on the configuration, and on the CRDs and APIServices of the cluster, whatever is in scope.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, Protocol

import msgspec

from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config_model import KMSProvider
from etcdfix.encryption.kms.envelopes import KMSPending, KMSPlugin
from etcdfix.encryption.transformer import ResourceTransformers, Transformers, TransformFailed
from etcdfix.examine.verdicts.examination import KeyName, PlainCount
from etcdfix.examine.verdicts.observation import Covered
from etcdfix.examine.verdicts.opened_spans import OpenedSpan, OpenedSpans
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import DecodedObject, GroupResource, StoredValue, key_id_digest
from etcdfix.model.providers import ENCRYPTED_PREFIX, facts_of
from etcdfix.model.storagekey import (
    API_SERVICE_PATH,
    CRD_PATH,
    NOT_AN_OBJECT,
    ResourcePrefix,
    StorageCodec,
    StorageLayout,
    custom_directory,
    display,
)
from etcdfix.sources.base import Source
from etcdfix.text.safetext import BOOTSTRAP

_MOST_READERS: Final = 4096
_MOST_TRIED: Final = 4096

Decode = Callable[[bytes], DecodedObject]


class Plugins(Protocol):
    """The KMS plugins of one run.

    Attributes:
        deferring: Unwrapping does not wait for an answer.
        final: What is said of a value now is the last word, and rests on fresh answers.
    """

    deferring: bool
    final: bool

    def start_over(self) -> None:
        """Forget what counts for or against values."""
        ...

    def without_recording(self) -> AbstractContextManager[None]:
        """Look at values that are none of the run: each waits, and none speaks for those of the run."""
        ...

    @property
    def over(self) -> bool:
        """Whether no plugin is asked any more."""
        ...

    def plugin_for(self, provider: KMSProvider) -> KMSPlugin:
        """Return the plugin of a KMS provider."""
        ...

    def abort(self) -> None:
        """Ask no plugin any more."""
        ...


class ResourceReader:
    """How the keys of one directory are read: resolved once, used for each of them."""

    __slots__ = (
        "_key_digest", "_key_id", "covered", "decode", "directory", "match", "owner_known", "rule",
        "shared", "spans", "transformers",
    )  # fmt: skip

    def __init__(
        self,
        directory: ResourcePrefix,
        shared: bytes,
        *,
        single_key: bool,
        covered: Covered,
        transformers: ResourceTransformers | None,
        decode: Decode,
        owner_known: bool,
        spans: dict[tuple[str, str], OpenedSpan],
    ) -> None:
        self.directory = directory
        self.shared = shared
        # What the next key must start with to be read the same way; nothing starts with ().
        self.match: bytes | tuple[()] = () if single_key else shared
        self.covered = covered
        self.transformers = transformers
        self.rule = transformers.rule or "" if transformers is not None else ""
        self.decode = decode
        self.owner_known = owner_known
        self.spans = spans
        self._key_id = self._key_digest = ""

    def cannot_be_read(self, data: bytes) -> bool:
        """Say whether this reader cannot read a value: it is no object, or it is encrypted and no key is given."""
        if self.directory.codec is StorageCodec.NOT_AN_OBJECT:
            return True
        return self.covered is Covered.NO_CONFIGURATION and data.startswith(ENCRYPTED_PREFIX)

    def span_of_plaintext(self, transformer: str, key_fingerprint: str, kms_key_id: str) -> OpenedSpan:
        """Return the span of the key that opened a plaintext, and create it if it is missing."""
        key = key_fingerprint
        if kms_key_id:
            # The same key opens one value after the other.
            if kms_key_id != self._key_id:
                self._key_id, self._key_digest = kms_key_id, key_id_digest(kms_key_id)
            key = self._key_digest
        place = transformer, key
        span = self.spans.get(place)
        if span is None:
            span = self.spans[place] = OpenedSpan((key_fingerprint,) if key_fingerprint else ())
        return span

    def span_of_named_key(self, name: KeyName) -> OpenedSpan | None:
        """Return the span of a key that a value names, and create it if it is missing.

        Returns None for a key that is not configured, and past so many key ids: hostile values can name any.
        """
        place = name.transformer, name.key
        span = self.spans.get(place)
        if span is None and self.transformers is not None:
            configured = any(key.transformer == name.transformer for key in self.transformers.keys)
            if configured and len(self.spans) < _MOST_TRIED:
                span = self.spans[place] = OpenedSpan((name.key,) if name.key.startswith("fp:") else ())
        return span


class ResourceReaders:
    """Every resource's reader, made when its first key comes.

    Attributes:
        aggregated_groups: API groups whose APIService names a Service, or cannot be read.
        custom_resources: ``(group, plural)`` to the readable CRD that claims it.
        opened: Which encryption keys opened what in this run; a verdict against a value may rest on it.
        unreadable_crds: ``(group, plural)`` of CRDs that cannot be read, by their keys.
    """

    def __init__(self, layout: StorageLayout, transformers: Transformers | None, decoder: Decoder) -> None:
        self._layout = layout
        self._transformers = transformers
        self._decoder = decoder
        self.custom_resources: dict[tuple[str, str], CustomResourceInfo] = {}
        self.unreadable_crds: list[tuple[str, str]] = []
        self.aggregated_groups: set[str] = set()
        self.opened = OpenedSpans()
        self._made: dict[bytes, ResourceReader] = {}
        self._last = b""

    def start_over(self) -> None:
        """Forget which encryption keys opened what, and every reader that counts it."""
        self.opened = OpenedSpans()
        self._made.clear()

    def independent_copy(self) -> ResourceReaders:
        """Return readers of the same resources that count for themselves what is opened."""
        other = copy.copy(self)
        other.opened = OpenedSpans()
        other._made = {}  # noqa: SLF001 - its own
        return other

    def learn(self, source: Source, plugins: Plugins | None) -> None:
        """Read every CRD and APIService, in scope or not.

        Only a readable CRD makes its objects custom resources, and only where no APIService hands the group to another
        server, or might.

        Raises:
            SourceError: They cannot be read.
        """
        self.custom_resources, self.unreadable_crds, self.aggregated_groups = {}, [], set()
        self._made.clear()
        self._ask_ahead(source, plugins)
        prefix = self._layout.path(f"{CRD_PATH}/")
        for stored in source.current(prefix):
            name = stored.key[len(prefix) :]
            crd = self._readable_crd(stored)
            if crd is not None and name == f"{crd.plural}.{crd.group}".encode():
                self.custom_resources[crd.group, crd.plural] = crd
            else:
                plural, _, group = display(name).partition(".")
                directory, _ = self._layout.locate(self._layout.path(f"{group}/{plural}/-"))
                # Any bytes can be a key here; only one that can be a CRD's stands for a directory.
                if directory == custom_directory(group, plural) and name == f"{plural}.{group}".encode():
                    self.unreadable_crds.append((group, plural))
        prefix = self._layout.path(f"{API_SERVICE_PATH}/")
        for stored in source.current(prefix):
            if self._may_be_aggregated(stored):
                self.aggregated_groups.add(display(stored.key[len(prefix) :]).partition(".")[2])
        self._made.clear()

    def share_crds_of(self, other: ResourceReaders) -> None:
        """Know the CRDs and APIServices that another one has read, and count for itself what is opened."""
        self.custom_resources = other.custom_resources
        self.unreadable_crds = other.unreadable_crds
        self.aggregated_groups = other.aggregated_groups
        self._made.clear()

    def _ask_ahead(self, source: Source, plugins: Plugins | None) -> None:
        """Let the KMS plugins know of the data keys that the CRDs need, where they need any; waits for none."""
        path, _, resource = CRD_PATH.partition("/")
        if self._transformers is None or plugins is None:
            return
        keys = self._transformers.for_resource(GroupResource(path, resource)).keys
        if not any(key.facts.under_kms for key in keys):
            return
        plugins.deferring = True
        try:
            for stored in source.current(self._layout.path(f"{CRD_PATH}/")):
                with contextlib.suppress(KMSPending):
                    self.plaintext_of(stored)
        finally:
            plugins.deferring = False

    def custom_resource(self, directory: ResourcePrefix) -> CustomResourceInfo | None:
        """Return the readable CRD that claims a directory, None where there is none."""
        if directory.codec not in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
            return None
        return self.custom_resources.get((directory.group, directory.resource))

    def custom_directories(self) -> list[ResourcePrefix]:
        """Return the directories of custom resources; what their keys look like is open where a CRD cannot be read."""
        readable = [
            _claimed(custom_directory(group, plural), crd)
            for (group, plural), crd in self.custom_resources.items()
        ]
        return readable + [custom_directory(group, plural) for group, plural in self.unreadable_crds]

    def is_claimed(self, directory: ResourcePrefix) -> bool:
        """Say whether a resource that is known here keeps its objects in a directory."""
        if directory.codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
            named = (directory.group, directory.resource)
            return named in self.custom_resources and directory.group not in self.aggregated_groups
        return directory.codec is not StorageCodec.NOT_AN_OBJECT

    def _is_custom_directory(self, key: bytes) -> bool:
        """Say whether a key is the directory of custom resources, or of their group: no LIST reads it."""
        group, _, plural = display(self._layout.below(key) or b"").partition("/")
        named = [(group, plural)] if plural else [one for one in self.custom_resources if one[0] == group]
        return group not in self.aggregated_groups and any(one in self.custom_resources for one in named)

    def _may_be_aggregated(self, stored: StoredValue) -> bool:
        plaintext = self.plaintext_of(stored)
        if plaintext is None:
            return True
        try:
            return self._decoder.is_aggregated(plaintext)
        except DecodeError:
            return True

    def _readable_crd(self, stored: StoredValue) -> CustomResourceInfo | None:
        plaintext = self.plaintext_of(stored)
        if plaintext is None:
            return None
        try:
            return self._decoder.crd(plaintext)
        except DecodeError:
            return None

    def plaintext_of(self, stored: StoredValue) -> bytes | None:
        """Decrypt a value; None where it does not open.

        Raises:
            KMSPending: A KMS plugin has not answered yet.
        """
        reader = self.reader_for(stored.key)
        if reader.transformers is None:
            return stored.value
        try:
            return reader.transformers.from_storage(stored.value, stored.key).data
        except TransformFailed:
            return None

    def reader_for(self, key: bytes) -> ResourceReader:
        """Return how a key is read."""
        # Keys come in order: most begin as the last one did, and what is located by that is the same.
        if self._last and key.startswith(self._last) and BOOTSTRAP not in key:
            reader = self._made.get(self._last)
            if reader is not None:
                return reader
        directory, shared = self._layout.locate(key)
        self._last = shared if shared != key else b""
        reader = self._made.get(shared) if shared != key else None
        if reader is None:
            reader = self._make_reader(directory, shared, single_key=shared == key)
            if shared != key:
                if len(self._made) >= _MOST_READERS:
                    self._made.clear()
                self._made[shared] = reader
        return reader

    def _make_reader(self, directory: ResourcePrefix, shared: bytes, *, single_key: bool) -> ResourceReader:
        if directory.codec is StorageCodec.UNKNOWN and self._is_custom_directory(shared):
            directory = NOT_AN_OBJECT
        decoder, group, kind = self._decoder, directory.group, directory.kind
        owner_known = True
        never_encrypted = directory.codec in {StorageCodec.ALLOCATOR, StorageCodec.NOT_AN_OBJECT}
        decode: Decode
        match directory.codec:
            case StorageCodec.BUILTIN | StorageCodec.ALLOCATOR:
                decode = decoder.builtin_reader(group, kind)
            case StorageCodec.JSON_BUILTIN:
                decode = lambda data: decoder.json_builtin(data, group, kind)  # noqa: E731
            case StorageCodec.CUSTOM_RESOURCE | StorageCodec.UNKNOWN:
                never_encrypted = directory.resource == "ranges"
                crd = self.custom_resources.get((group, directory.resource))
                if group in self.aggregated_groups:
                    crd = None  # another server owns the group, whatever definition was left behind
                owner_known = crd is not None
                if crd is not None:
                    directory = _claimed(directory, crd)
                    decode = partial(decoder.custom_resource, crd=crd)
                else:
                    decode = decoder.parses
            case _:
                decode = decoder.parses
        transformers = None
        if never_encrypted:
            covered = Covered.NEVER_ENCRYPTED
        elif self._transformers is None:
            covered = Covered.NO_CONFIGURATION
        else:
            transformers = self._transformers.for_resource(directory.group_resource)
            covered = Covered.COVERED if transformers.rule is not None else Covered.NOT_COVERED
        return ResourceReader(
            directory,
            shared,
            single_key=single_key,
            covered=covered,
            transformers=transformers,
            decode=decode,
            owner_known=owner_known,
            spans=self.opened.place(
                transformers.rule or "" if transformers is not None else "", directory.path
            ),
        )


def _claimed(directory: ResourcePrefix, crd: CustomResourceInfo) -> ResourcePrefix:
    served = crd.storage_version if crd.storage_version in crd.served_versions else ""
    return msgspec.structs.replace(
        directory,
        kind=crd.kind,
        namespaced=crd.scope == "Namespaced",
        version=served or next(iter(crd.served_versions), ""),
        singular=crd.singular,
        short_names=crd.short_names,
    )


def is_maybe_unbound(transformer: str, stale: bool) -> bool:
    """Say whether a value that opened may have had no associated data although others under its transformer have.

    Under KMS v1 servers up to 1.24 wrote AES-CBC; what they wrote is always stale.
    """
    return stale and facts_of(transformer).stale_is_unbound


PlainPlace = tuple[str, str, str, bool]
"""Transformer, key fingerprint, KMS key id, stale."""


class PlainCounts:
    """Counts the plain values of a page."""

    def __init__(self) -> None:
        self._readers: dict[int, tuple[ResourceReader, dict[PlainPlace, list[int]]]] = {}
        self._taken: list[PlainCount] = []

    def of(self, reader: ResourceReader) -> dict[PlainPlace, list[int]]:
        """Return the mod revisions of one directory's values, by transformer, key fingerprint, KMS key id and stale."""
        found = self._readers.get(id(reader))
        if found is None:
            found = self._readers[id(reader)] = reader, {}
        return found[1]

    def take(self, counts: Iterable[PlainCount]) -> None:
        """Take what another process has counted; its keys speak for themselves already."""
        self._taken.extend(counts)

    def settle(self) -> Sequence[PlainCount]:
        """Return what was counted, and let each key that opened a value speak for itself; begin anew."""
        readers, self._readers = self._readers, {}
        counts, self._taken = self._taken, []
        for reader, places in readers.values():
            for (transformer, fingerprint, kms_key_id, stale), revisions in places.items():
                opened = reader.span_of_plaintext(transformer, fingerprint, kms_key_id)
                first, last = opened.reach(revisions, unbound=is_maybe_unbound(transformer, stale))
                counts.append(
                    PlainCount(
                        reader.directory,
                        reader.rule,
                        transformer,
                        opened.key_fingerprints,
                        kms_key_id,
                        stale,
                        len(revisions),
                        first,
                        last,
                    )
                )
        return counts
