"""The spine on one screen: sources -> encryption -> decoding -> verdicts.

:meth:`Examiner.examine` is the road that every key takes, in a scan of a million as in a look at one. Exceptions of the
encryption and decoding packages are caught here, and only here, and become observations.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import Protocol

import msgspec

from etcdfix.claims import ClaimSearch
from etcdfix.decoding.customresource import CustomResourceInfo
from etcdfix.decoding.registry import Registry, SchemeName, stored_kinds
from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config import EncryptionConfiguration, KMSProvider
from etcdfix.encryption.envelope import Envelope, parse_envelope
from etcdfix.encryption.kms.envelopes import KEY_ID_MAX_SIZE, KMSPending, KMSPlugin, stored_key_id
from etcdfix.encryption.peek import LookInto, PeekRequest, Structures, peek
from etcdfix.encryption.transformer import (
    ResourceTransformers,
    Transformers,
    TransformFailed,
    no_plugin,
)
from etcdfix.errors import DecodeError, KindUnknown
from etcdfix.model import (
    Confidence,
    DecodedObject,
    Evidence,
    GroupResource,
    Look,
    Outcome,
    Peek,
    Plaintext,
    ServerBehaviour,
    StoredValue,
    TransformFailure,
    key_id_digest,
)
from etcdfix.sources.base import Source
from etcdfix.storagekey import (
    API_SERVICE_PATH,
    CRD_PATH,
    ResourcePrefix,
    StorageCodec,
    StorageLayout,
    builtin_directories,
    custom_directory,
    display,
    under_other_prefixes,
)
from etcdfix.verdicts.examination import Examination, KeyName
from etcdfix.verdicts.judge import Verdict, judge
from etcdfix.verdicts.key_loss import OpenedSpan, OpenedSpans
from etcdfix.verdicts.observation import (
    Covered,
    DecodeFailure,
    DecodeFailureKind,
    Neighbours,
    Observation,
)
from etcdfix.verdicts.plaintext import (
    bits_off,
    describe_failure,
    is_in_order,
    look_of_failure,
    look_of_object,
    shape_of,
)

_ENCRYPTED = b"k8s:enc:"
PLAIN = Verdict(Outcome.READABLE, None, Confidence.CERTAIN, ServerBehaviour.SERVES, "readable")
"""Of every value of which there is nothing to say."""

# A value that ends before the colon after its key name.
_ENVELOPE_CUT = re.compile(rb"k8s:enc:(?:(?:aescbc|aesgcm|secretbox):v1|kms:v[12]):[^:]{0,253}")
_MOST_READERS = 4096

Decode = Callable[[bytes], DecodedObject]


class Plugins(Protocol):
    """The KMS plugins of one run.

    Attributes:
        deferring: Unwrapping does not wait for an answer.
        final: What is said of a value now is the last word, and rests on fresh answers.
    """

    deferring: bool
    final: bool

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


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of a cluster are read.

    Attributes:
        layout: Storage prefix.
        configuration: The EncryptionConfiguration, None when none was given.
        kubernetes_minor: Release whose kinds count as registered, 36 for 1.36; None for every release known.
    """

    layout: StorageLayout
    configuration: EncryptionConfiguration | None = None
    kubernetes_minor: int | None = None


class _Reader:
    """How the keys of one directory are read: resolved once, used for each of them."""

    __slots__ = (
        "_key_digest", "_key_id", "covered", "decode", "directory", "match", "namespaced", "owner_known", "rule",
        "shared", "spans", "transformers",
    )  # fmt: skip

    def __init__(
        self,
        directory: ResourcePrefix,
        shared: bytes,
        *,
        single_key: bool,
        namespaced: bool | None,
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
        self.namespaced = namespaced
        self.covered = covered
        self.transformers = transformers
        self.rule = transformers.rule or "" if transformers is not None else ""
        self.decode = decode
        self.owner_known = owner_known
        self.spans = spans
        self._key_id = self._key_digest = ""

    def opened_by(self, plain: Plaintext) -> OpenedSpan:
        """Return what the key that opened a value has opened here."""
        key = plain.key_fingerprint
        if plain.kms_key_id:
            # The same key opens one value after the other.
            if plain.kms_key_id != self._key_id:
                self._key_id, self._key_digest = plain.kms_key_id, key_id_digest(plain.kms_key_id)
            key = self._key_digest
        place = plain.transformer, key
        span = self.spans.get(place)
        if span is None:
            span = self.spans[place] = OpenedSpan((plain.key_fingerprint,) if plain.key_fingerprint else ())
        return span


class Examiner:
    """Turns stored values into verdicts, given a configuration and the CRDs of the cluster.

    Attributes:
        aggregated_groups: API groups whose APIService names a Service, or cannot be read.
        custom_resources: ``(group, plural)`` to the readable CRD that claims it.
        opened: Which encryption keys opened what in this run; a verdict against a value may rest on it.
        plugins: The KMS plugins that are asked; None where none is.
        unreadable_crds: ``(group, plural)`` of CRDs that cannot be read, by their keys.

    Args:
        layout: Storage prefix and paths.
        transformers: From the encryption configuration; None when none was given.
        decoder: For the release assumed.
        plugins: The KMS plugins behind the transformers; None where none is asked.
        assumed_release: The release that was named (``1.36``), or "": then a kind may be newer than our tables.
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
        self.plugins = plugins
        self._names = transformers.names if transformers is not None else frozenset[str]()
        self._claims = ClaimSearch(layout, self._is_claimed)
        self.assumed_release = assumed_release
        self.custom_resources: dict[tuple[str, str], CustomResourceInfo] = {}
        self.unreadable_crds: list[tuple[str, str]] = []
        self.opened = OpenedSpans()
        self.aggregated_groups: set[str] = set()
        self._last_opened: tuple[StoredValue, bytes] | None = None
        self._reader: _Reader | None = None
        self._readers: dict[bytes, _Reader] = {}

    @classmethod
    def of(cls, reading: Reading, plugins: Plugins | None = None) -> Examiner:
        """Return what examines values that are read so; it has not learned the CRDs yet."""
        transformers = None
        if reading.configuration is not None:
            plugin_for = plugins.plugin_for if plugins is not None else no_plugin
            transformers = Transformers.from_configuration(reading.configuration, plugin_for)
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
        self.opened = OpenedSpans()
        self._readers.clear()
        self._reader = None

    def learn_custom_resources(self, source: Source) -> None:
        """Read every CRD and APIService, in scope or not.

        Only a readable CRD makes its objects custom resources, and only where no APIService hands the group to another
        server, or might.

        Raises:
            SourceError: They cannot be read.
        """
        self._ask_ahead(source)
        prefix = self.layout.prefix_bytes + CRD_PATH.encode() + b"/"
        for stored in source.current(prefix):
            name = stored.key[len(prefix) :]
            crd = self._readable_crd(stored)
            if crd is not None and name == f"{crd.plural}.{crd.group}".encode():
                self.custom_resources[crd.group, crd.plural] = crd
            else:
                plural, _, group = display(name).partition(".")
                directory, _ = self.layout.locate(self.layout.prefix_bytes + f"{group}/{plural}/-".encode())
                # Any bytes can be a key here; only one that can be a CRD's stands for a directory.
                if directory == custom_directory(group, plural) and name == f"{plural}.{group}".encode():
                    self.unreadable_crds.append((group, plural))
        prefix = self.layout.prefix_bytes + API_SERVICE_PATH.encode() + b"/"
        for stored in source.current(prefix):
            if self._may_be_aggregated(stored):
                self.aggregated_groups.add(display(stored.key[len(prefix) :]).partition(".")[2])
        self._readers.clear()
        self._reader = None

    def _ask_ahead(self, source: Source) -> None:
        """Let the KMS plugins know of the data keys that the CRDs need, where they need any; waits for none."""
        path, _, resource = CRD_PATH.partition("/")
        if self.transformers is None or self.plugins is None:
            return
        keys = self.transformers.for_resource(GroupResource(path, resource)).keys
        if not any(key.transformer.startswith("kms/") for key in keys):
            return
        self.plugins.deferring = True
        try:
            for stored in source.current(self.layout.prefix_bytes + CRD_PATH.encode() + b"/"):
                with contextlib.suppress(KMSPending):
                    self._plaintext_of(stored)
        finally:
            self.plugins.deferring = False

    def know_names(self, names: Collection[str]) -> None:
        """Know further names of encryption keys, so that one with colons in it is called by its whole name."""
        self._names |= frozenset(names)

    def kube_system_uid(self, source: Source) -> str | None:
        """Return the uid of namespace kube-system, which names the cluster; None when it cannot be read."""
        stored = source.get(self.layout.prefix_bytes + b"namespaces/kube-system")
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
        key = stored.key
        reader = self._reader
        if reader is None or not key.startswith(reader.match):
            reader = self._reader = self._reader_for(key)
            if reader.directory.codec is StorageCodec.NOT_AN_OBJECT:
                return self._judge_closely(reader, stored, None)
        data = stored.value
        if reader.transformers is not None:
            try:
                plain = reader.transformers.from_storage(data, key)
            except TransformFailed as problem:
                return self._judge_closely(reader, stored, problem.failure, thorough=thorough)
            data = plain.data
        elif data.startswith(_ENCRYPTED) and reader.covered is Covered.NO_CONFIGURATION:
            return self._judge_closely(reader, stored, None)
        else:
            plain = Plaintext(data, "identity", stale=False)
        self._last_opened = stored, data
        try:
            decoded = reader.decode(data)
        except DecodeError as problem:
            return self._judge_closely(reader, stored, problem, plain, thorough=thorough)
        opened = reader.spans.get((plain.transformer, plain.key_fingerprint)) or reader.opened_by(plain)
        if not decoded.empty:  # what a wrong key makes of AES-CBC might pass for an empty object
            revision = stored.mod_revision
            if revision < opened.first:  # noqa: PLR1730 - min() costs three times as much, for every value
                opened.first = revision
            if revision > opened.last:  # noqa: PLR1730 - same
                opened.last = revision
        namespace, name = decoded.namespace, decoded.name
        rest = key[len(reader.shared) :]
        same = (namespace + b"/" + name if namespace else name) == rest if name else False
        if (
            same
            and reader.owner_known
            and not (decoded.inconsistencies or decoded.warnings or decoded.empty or decoded.readable_until)
            and (reader.namespaced is None or reader.namespaced == bool(namespace))
            and rest.count(b"/") == (1 if namespace else 0)
        ):
            return Examination(
                stored,
                reader.directory,
                namespace.decode() if namespace else "",
                name.decode() if name else "",
                plain.transformer,
                True,
                plain.stale,
                PLAIN,
                decoded,
                plain.kms_key_id,
                reader.rule,
                opened.key_fingerprints,
            )
        return self._judge_closely(reader, stored, None, plain, decoded, thorough=thorough)

    def plaintext(self, found: Examination) -> bytes | None:
        """Return what a value that :meth:`examine` opened holds; None for one that did not open.

        It is decrypted once more, unless it was the last one: no examination carries plaintext around.
        Bookkeeping of the API servers and the keys of other programs come back as they are stored.
        """
        if found.opened and self._last_opened is not None and self._last_opened[0] is found.stored:
            return self._last_opened[1]
        if found.opened or found.directory.codec is StorageCodec.NOT_AN_OBJECT:
            return self._plaintext_of(found.stored)
        return None

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

    def _judge_closely(
        self,
        reader: _Reader,
        stored: StoredValue,
        problem: TransformFailure | DecodeError | None,
        plain: Plaintext | None = None,
        decoded: DecodedObject | None = None,
        *,
        thorough: bool = False,
    ) -> Examination:
        """Collect everything a verdict needs about a value that is not plainly readable."""
        data = plain.data if plain is not None else None
        transformer = plain.transformer if plain is not None else ""
        where = self.layout.split(stored.key, reader.directory, reader.shared, namespaced=reader.namespaced)
        enveloped = stored.value.startswith(_ENCRYPTED)
        envelope = parse_envelope(stored.value, self._names) if enveloped else None
        known = envelope is not None and envelope.known
        written_under = envelope.transformer if envelope is not None and envelope.known else ""
        failure = decode_failure = shape = None
        if isinstance(problem, TransformFailure):
            failure = problem
            if not enveloped and reader.owner_known:
                data, decoded, decode_failure = stored.value, *self._in_the_clear(reader, stored.value)
        elif isinstance(problem, DecodeError):
            decode_failure = self._describe(problem, reader)
        if data is not None and (decode_failure is not None or (decoded is not None and decoded.empty)):
            shape = shape_of(data, reader.decode, heal=decode_failure is not None)
        empty = decoded is not None and decoded.empty
        peek = None
        if known and (failure is not None or decode_failure is not None or empty):
            peek = self._peek(reader, stored, plain, thorough=thorough)
        keys = _encryption_keys(reader, plain, written_under, _kms_key_id(stored, envelope))
        neighbours = Neighbours.UNKNOWN
        if peek is not None:
            wrote = tuple(name for name in keys if peek.named and name.key == peek.key_fingerprint)
            neighbours = self.opened.around(wrote or keys, reader.directory.path, stored.mod_revision)
        seen = Observation(
            codec=reader.directory.codec,
            owner_known=reader.owner_known,
            covered=reader.covered,
            enveloped=enveloped,
            envelope_known=known,
            envelope_transformer=written_under,
            name_may_go_on=known and envelope is not None and envelope.name_may_go_on,
            resource=str(reader.directory.group_resource) or reader.directory.path,
            envelope_cut=enveloped and not known and _ENVELOPE_CUT.fullmatch(stored.value) is not None,
            envelope_bits_off=bits_off(stored.value, _ENCRYPTED),
            transformer=transformer,
            transform_failure=failure,
            decoded=decoded,
            decode_failure=decode_failure,
            shape=shape,
            identity_mismatch=_identity_mismatch(
                reader, where.namespace, where.name, where.well_formed, decoded
            ),
            assumed_release=self.assumed_release,
            peek=peek,
            neighbours=neighbours,
            evidence=self._name_warnings(reader, stored.key),
        )
        return Examination(
            stored,
            reader.directory,
            where.namespace,
            where.name,
            transformer or written_under or ("" if enveloped else "identity"),
            plain is not None,
            plain is not None and plain.stale,
            judge(seen),
            decoded if plain is not None else None,
            _kms_key_id(stored, envelope),
            reader.rule,
            tuple(name.key for name in keys if name.key.startswith("fp:")),
        )

    def _name_warnings(self, reader: _Reader, key: bytes) -> tuple[Evidence, ...]:
        """Say of a key that no resource claims that one bit of its name may have changed."""
        stranger = reader.directory.codec is StorageCodec.NOT_AN_OBJECT
        if reader.owner_known and not (stranger and not key.startswith(self.layout.prefix_bytes)):
            return ()
        return self._claims.look(key)

    def _is_claimed(self, directory: ResourcePrefix) -> bool:
        if directory.codec in {StorageCodec.CUSTOM_RESOURCE, StorageCodec.UNKNOWN}:
            named = (directory.group, directory.resource)
            return named in self.custom_resources and directory.group not in self.aggregated_groups
        return directory.codec is not StorageCodec.NOT_AN_OBJECT

    def _in_the_clear(
        self, reader: _Reader, data: bytes
    ) -> tuple[DecodedObject | None, DecodeFailure | None]:
        """Decode a value that its providers refuse since it is not encrypted: is it whole?"""
        try:
            return reader.decode(data), None
        except DecodeError as problem:
            return None, self._describe(problem, reader)

    def _peek(
        self, reader: _Reader, stored: StoredValue, plain: Plaintext | None, *, thorough: bool
    ) -> Peek | None:
        """Look at a value without its tag or padding; None where its encryption key is proven already, or unknown."""
        if reader.transformers is None or self.transformers is None:
            return None
        if plain is not None and plain.authenticated:
            return None
        request = PeekRequest(
            stored.value,
            stored.key,
            under_other_prefixes(stored.key, self.layout.prefix_bytes) if thorough else (),
            thorough,
        )
        resource = reader.directory.group_resource
        crd = self.custom_resource(reader.directory)
        own = (
            tuple((f"{crd.group}/{version}", crd.kind) for version in crd.versions) if crd is not None else ()
        )
        found = peek(self.transformers, resource, request, known_structures(own), self._look_into(reader))
        if plain is not None and found.named and found.key_fingerprint != plain.key_fingerprint:
            # Padding fitted by chance under an earlier key of the same name, and the server looks no further.
            return msgspec.structs.replace(found, named=False)
        return found

    def _look_into(self, reader: _Reader) -> LookInto:
        """Return what tells the encryption package whether a plaintext is whole; the plaintext stays there."""

        def in_order(data: bytes) -> bool:
            return is_in_order(data, self.decoder.parses, reader.directory.group, reader.directory.kind)

        def look(data: bytes) -> Look:
            try:
                decoded = reader.decode(data)
            except DecodeError as problem:
                failure = self._describe(problem, reader)
                belongs = self._keys_of_kind(data, failure)
                return look_of_failure(data, failure, reader.decode, in_order, belongs)
            belongs = self._key_of(reader.directory, decoded)
            return look_of_object(data, decoded, belongs)

        return look

    def _key_of(self, directory: ResourcePrefix, decoded: DecodedObject) -> tuple[bytes, ...]:
        """Return the etcd key that an object's own namespace and name lead to."""
        if not decoded.name:
            return ()
        namespace = decoded.namespace + b"/" if decoded.namespace else b""
        return (self.layout.directory_prefix(directory) + namespace + decoded.name,)

    def _keys_of_kind(self, data: bytes, failure: DecodeFailure) -> tuple[bytes, ...]:
        """Return the etcd keys of an object of another kind than the one that its key promises."""
        if failure.kind is not DecodeFailureKind.WRONG_KIND:
            return ()
        group = failure.group_version.rpartition("/")[0]
        found: list[bytes] = []
        for directory in builtin_directories():
            if (directory.group, directory.kind) == (group, failure.value_kind):
                with contextlib.suppress(DecodeError):
                    decoded = self._reader_for(self.layout.directory_prefix(directory) + b"-").decode(data)
                    found += self._key_of(directory, decoded)
        return tuple(found)

    @staticmethod
    def _describe(problem: DecodeError, reader: _Reader) -> DecodeFailure:
        """Add to a kind that is not registered what the other releases, and the other API servers, know of it."""
        if not isinstance(problem, KindUnknown) or problem.reason != "not-registered":
            return describe_failure(problem)
        group, _, version = problem.group_version.rpartition("/")
        directory = reader.directory
        for scheme in SchemeName:
            known = Registry(scheme=scheme).lookup(group, version, problem.kind)
            if known is None:
                continue
            if scheme is SchemeName.KUBERNETES:
                elsewhere = directory.codec is StorageCodec.JSON_BUILTIN
            else:
                elsewhere = group != directory.group
            failure = describe_failure(problem, known_since=f"1.{known.since}")
            return (
                msgspec.structs.replace(failure, kind=DecodeFailureKind.WRONG_KIND) if elsewhere else failure
            )
        return describe_failure(problem)

    def _may_be_aggregated(self, stored: StoredValue) -> bool:
        plaintext = self._plaintext_of(stored)
        if plaintext is None:
            return True
        try:
            return self.decoder.is_aggregated(plaintext)
        except DecodeError:
            return True

    def _readable_crd(self, stored: StoredValue) -> CustomResourceInfo | None:
        plaintext = self._plaintext_of(stored)
        if plaintext is None:
            return None
        try:
            return self.decoder.crd(plaintext)
        except DecodeError:
            return None

    def _plaintext_of(self, stored: StoredValue) -> bytes | None:
        reader = self._reader_for(stored.key)
        if reader.transformers is None:
            return stored.value
        try:
            return reader.transformers.from_storage(stored.value, stored.key).data
        except TransformFailed:
            return None

    def _reader_for(self, key: bytes) -> _Reader:
        directory, shared = self.layout.locate(key)
        reader = self._readers.get(shared) if shared != key else None
        if reader is None:
            reader = self._make_reader(directory, shared, single_key=shared == key)
            if shared != key:
                if len(self._readers) >= _MOST_READERS:
                    self._readers.clear()
                self._readers[shared] = reader
        return reader

    def _make_reader(self, directory: ResourcePrefix, shared: bytes, *, single_key: bool) -> _Reader:
        decoder, group, kind = self.decoder, directory.group, directory.kind
        namespaced = directory.namespaced
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
                    namespaced = crd.scope == "Namespaced"
                    directory = _claimed(directory, crd)
                    decode = lambda data, crd=crd: decoder.custom_resource(data, crd)  # type: ignore[misc]  # noqa: E731
                else:
                    decode = decoder.parses
            case _:
                decode = decoder.parses
        transformers = None
        if never_encrypted:
            covered = Covered.NEVER_ENCRYPTED
        elif self.transformers is None:
            covered = Covered.NO_CONFIGURATION
        else:
            transformers = self.transformers.for_resource(directory.group_resource)
            covered = Covered.COVERED if transformers.rule is not None else Covered.NOT_COVERED
        return _Reader(
            directory,
            shared,
            single_key=single_key,
            namespaced=namespaced,
            covered=covered,
            transformers=transformers,
            decode=decode,
            owner_known=owner_known,
            spans=self.opened.place(
                transformers.rule or "" if transformers is not None else "", directory.path
            ),
        )


@lru_cache(maxsize=32)
def known_structures(custom: tuple[tuple[str, str], ...] = ()) -> Structures:
    """Return how values of every kind that a known release stores begin, and some custom resources.

    Args:
        custom: apiVersion and kind of the custom resources.
    """
    return Structures(stored_kinds(), custom)


def _encryption_keys(
    reader: _Reader, plain: Plaintext | None, written_under: str, kms_key_id: str
) -> tuple[KeyName, ...]:
    """Return the encryption keys under which a value counts: the one that opened it, or all of its key's name."""
    if plain is not None:
        key = plain.key_fingerprint or key_id_digest(plain.kms_key_id)
        return (KeyName(reader.rule, plain.transformer, key),)
    alike = () if reader.transformers is None else reader.transformers.keys
    fingerprints = [key.key_fingerprint for key in alike if key.transformer == written_under]
    keys = [fingerprint for fingerprint in fingerprints if fingerprint] or [key_id_digest(kms_key_id)]
    return tuple(KeyName(reader.rule, written_under, key) for key in dict.fromkeys(keys))


def _claimed(directory: ResourcePrefix, crd: CustomResourceInfo) -> ResourcePrefix:
    served = crd.storage_version if crd.storage_version in crd.served_versions else ""
    return msgspec.structs.replace(
        directory,
        kind=crd.kind,
        namespaced=crd.scope == "Namespaced",
        version=served or next(iter(crd.served_versions), ""),
    )


def _kms_key_id(stored: StoredValue, envelope: Envelope | None) -> str:
    if envelope is None or (envelope.provider, envelope.version) != ("kms", "v2") or not envelope.known:
        return ""
    key_id = stored_key_id(stored.value[envelope.body_offset :])
    return (
        key_id if len(key_id.encode()) <= KEY_ID_MAX_SIZE else ""
    )  # longer ones are damage, not key ids in use


def _identity_mismatch(
    reader: _Reader, namespace: str, name: str, well_formed: bool, decoded: DecodedObject | None
) -> str:
    """Say in which way an object contradicts its key; "" when it does not, or has no identity to compare."""
    if decoded is None or decoded.empty or not reader.owner_known:
        return ""
    if reader.directory.codec is StorageCodec.ALLOCATOR:
        return ""
    if not well_formed:
        return "the key has more or fewer path segments than its resource"
    if display(decoded.name or b"") != name:
        return "metadata.name differs from the key" if decoded.name else "metadata.name is missing"
    if display(decoded.namespace or b"") != namespace:
        return "metadata.namespace differs from the key"
    return ""
