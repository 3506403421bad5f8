"""The spine on one screen: sources -> encryption -> decoding -> verdicts.

:meth:`Examiner.examine` is the road that every key takes, in a scan of a million as in a look at one. What the
encryption and decoding packages raise becomes an observation here and in :mod:`etcdfix.examine.looking`, and
nowhere else.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from etcdfix.decoding.storagecodecs import Decoder
from etcdfix.encryption.config_model import EncryptionConfiguration
from etcdfix.encryption.envelope import Envelope, parse_envelope
from etcdfix.encryption.kms.envelopes import KMSPending
from etcdfix.encryption.repairs import (
    cbc_size,
    is_never_near,
    misspelt_prefix,
    nearly_behind_plugin,
    unsearched,
)
from etcdfix.encryption.same_look import SameLook
from etcdfix.encryption.transformer import Transformers, no_plugin
from etcdfix.examine.claims import ClaimSearch
from etcdfix.examine.kept_openings import KeptOpenings
from etcdfix.examine.looking import (
    Looking,
    encryption_keys,
    ends_inside_its_envelope,
    identity_mismatch,
    kms_key_id_of,
)
from etcdfix.examine.readers import PlainCounts, PlainPlace, Plugins, ResourceReader, ResourceReaders
from etcdfix.examine.repair import NO_REPAIR, RepairSearch, find_repair, proof_of, rewrites_of, unasked
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, is_right_key
from etcdfix.examine.verdicts.deletability import FAILED, rests_on_others
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.judge import Verdict, judge
from etcdfix.examine.verdicts.observation import Neighbours, Observation, OwnKey
from etcdfix.examine.verdicts.opened_spans import OpenedSpan
from etcdfix.examine.verdicts.plaintext import bits_off
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import (
    Confidence,
    DecodedObject,
    Evidence,
    Outcome,
    Peek,
    Plaintext,
    RepairProof,
    ServerBehaviour,
    StoredValue,
    TransformFailure,
    Undone,
)
from etcdfix.model.providers import ENCRYPTED_PREFIX, IDENTITY, facts_of
from etcdfix.model.storagekey import StorageCodec, StorageLayout
from etcdfix.sources.base import Source
from etcdfix.text.commands import RunOptions

_UNREAD = FAILED | {Outcome.UNDETERMINED}
_ELSEWHERE: Final = frozenset({Undone.OTHER_PREFIX, Undone.OTHER_PATH})
FirstLookResult = Examination | KMSPending
"""What a look comes to that waits for no KMS plugin."""

PLAIN = Verdict(Outcome.READABLE, None, Confidence.CERTAIN, ServerBehaviour.SERVES, "readable")
"""Of every value of which there is nothing to say."""


class _OneOfMany(NamedTuple):
    """What was said of one value that does not open, and is said of every other one that looks the same."""

    look: SameLook
    failure: TransformFailure
    seen: Observation
    found: Examination


_MOST_ALIKE: Final = 8
"""So many kinds of one resource are told apart; hostile values can all be of their own."""
_MOST_RESOURCES: Final = 1_000


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


class Examiner:
    """Turns stored values into verdicts, given a configuration and the CRDs of the cluster.

    Attributes:
        plugins: The KMS plugins that are asked; None where none is.
        readers: How each resource is read: its CRD, and which encryption keys opened what in this run.
        kept: Which etcd keys have earlier revisions that open; None where no source is known that keeps them.
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
        self._claims = ClaimSearch(layout, self.readers.is_claimed)
        self.assumed_release = assumed_release
        self._looking = Looking(layout, transformers, decoder, self.readers)
        self._last_opened: tuple[StoredValue, bytes] | None = None
        self._last_seen: tuple[StoredValue, Observation] | None = None
        self._last_judged: tuple[Observation, Verdict] | None = None
        self._alike: dict[ResourceReader, list[_OneOfMany]] = {}
        self._repairs = True

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
        self.readers.start_over()
        self._alike.clear()
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

    def apart(self) -> Examiner:
        """Return one that reads in the same way, whose values do not speak for those of this run, nor the other way."""
        other = copy.copy(self)
        other.readers = self.readers.apart()
        other._looking = Looking(self.layout, self.transformers, self.decoder, other.readers)  # noqa: SLF001 - its own
        other._last_opened = other._last_seen = None  # noqa: SLF001 - its own
        other._alike = {}  # noqa: SLF001 - its own
        other.kept = None  # what is read elsewhere is no newer value of these etcd keys
        return other

    def learn_custom_resources(self, source: Source) -> None:
        """Read every CRD and APIService, in scope or not.

        Raises:
            SourceError: They cannot be read.
        """
        self.readers.learn(source, self.plugins)
        self.kept = KeptOpenings(source, self.apart())

    def know_as(self, other: Examiner) -> None:
        """Know the CRDs and APIServices that another one has learned."""
        self.readers.know_as(other.readers)
        if other.kept is not None:
            self.kept = KeptOpenings(other.kept.source, self.apart())

    def _has_kept_opening(self, stored: StoredValue) -> bool:
        return self.kept is not None and self.kept.opens(stored)

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
        self._alike.clear()

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
                elif not reader.is_closed(data):
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
            if first and not thorough and isinstance(problem, TransformFailure):
                known = self._like_another(reader, stored, problem)
                if known is not None:
                    yield stored, known
                    continue
            try:
                found = self._judge_closely(
                    reader, stored, problem, plain, decoded, first=first, thorough=thorough
                )
            except KMSPending as error:
                found = error
            yield stored, found

    def _note_opened(self, reader: ResourceReader, plain: Plaintext, revision: int) -> OpenedSpan:
        opened = reader.opened_by(plain.transformer, plain.key_fingerprint, plain.kms_key_id)
        opened.reach((revision,), unbound=not plain.authenticated)
        return opened

    @staticmethod
    def _note_failing(
        reader: ResourceReader, stored: StoredValue, keys: Iterable[KeyName], peek: Peek, verdict: Verdict
    ) -> None:
        """Take note of what a value that does not open shows of its key for others."""
        if is_right_key(peek):
            for name in keys:
                span = reader.tried_by(name) if peek.key_fingerprint in {"", name.key} else None
                if span is not None and peek.undone is not None:
                    span.elsewhere = span.elsewhere or peek.undone.what in _ELSEWHERE
                elif span is not None and _is_whole_but_unfitting(peek):
                    span.first_unfitting = min(span.first_unfitting, stored.mod_revision)
        elif verdict.damage is not Damage.PROVEN and verdict.cause is not Cause.KMS_UNREACHABLE:
            for span in filter(None, map(reader.tried_by, keys)):
                span.note_failing(stored.mod_revision, stored.key)

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
        seen = self._last_seen
        return seen[1] if seen is not None and seen[0] is found.stored else None

    def _like_another(
        self, reader: ResourceReader, stored: StoredValue, failure: TransformFailure
    ) -> Examination | None:
        """Return what a value is that looks the same as another one; None where it has to be looked at."""
        for like, failed, seen, found in self._alike.get(reader, ()):
            if failed is not failure and failed != failure:
                continue
            peek = like.of_another(stored.value, stored.key, self._looking.look_into(reader))
            if peek is None:
                continue
            self._last_seen = stored, seen if peek is seen.peek else msgspec.structs.replace(seen, peek=peek)
            self._note_failing(reader, stored, found.encryption_keys, peek, found.verdict)
            where = self.layout.split(stored.key, (reader.directory, reader.shared))
            return Examination(
                stored,
                reader.directory,
                where.namespace,
                where.name,
                found.transformer,
                False,
                False,
                found.verdict,
                None,
                "",
                reader.rule,
                found.key_fingerprints,
            )
        return None

    def _remember(
        self, reader: ResourceReader, envelope: Envelope, seen: Observation, found: Examination
    ) -> None:
        """Keep what a first look said of a value, where it may be said of others with the same envelope."""
        own, failure, data = reader.transformers, seen.transform_failure, found.stored.value
        if own is None or self.transformers is None or failure is None:
            return
        if seen.peek is None or not reader.owner_known:
            return
        # What a name says beside its namespace, or a repair of the prefix, would be of that value alone.
        if reader.directory.codec is StorageCodec.NOT_AN_OBJECT or not is_never_near(
            data[: envelope.body_offset], own
        ):
            return
        if len(self._alike) >= _MOST_RESOURCES:
            self._alike.clear()
        known = self._alike.setdefault(reader, [])
        if len(known) >= _MOST_ALIKE:
            return
        resource = reader.directory.group_resource
        structures = self._looking.structures(reader)
        body = envelope.body_offset
        look = SameLook.of(data, found.stored.key, body, resource, self.transformers, structures, seen.peek)
        if look is not None:
            stored = msgspec.structs.replace(found.stored, value=b"")
            known.append(_OneOfMany(look, failure, seen, msgspec.structs.replace(found, stored=stored)))

    def _judge_closely(
        self,
        reader: ResourceReader,
        stored: StoredValue,
        problem: TransformFailure | DecodeError | None,
        plain: Plaintext | None = None,
        decoded: DecodedObject | None = None,
        *,
        first: bool = False,
        thorough: bool = False,
    ) -> Examination:
        data = plain.data if plain is not None else None
        transformer = plain.transformer if plain is not None else ""
        where = self.layout.split(stored.key, (reader.directory, reader.shared))
        enveloped = stored.value.startswith(ENCRYPTED_PREFIX)
        envelope = parse_envelope(stored.value, self._names) if enveloped else None
        known = envelope is not None and envelope.known
        written_under = envelope.transformer if envelope is not None and envelope.known else ""
        failure = decode_failure = shape = None
        if isinstance(problem, TransformFailure):
            failure = problem
            if not enveloped and reader.owner_known:
                data = stored.value
                decoded, decode_failure = self._looking.in_the_clear(reader, data)
        elif isinstance(problem, DecodeError):
            decode_failure = self._looking.describe(problem, reader)
        if data is not None and (decode_failure is not None or (decoded is not None and decoded.empty)):
            shape = self._looking.shape(reader, data, plain, decode_failure)
        empty = decoded is not None and decoded.empty
        peek = None
        if known and (failure is not None or decode_failure is not None or empty):
            peek = self._looking.peek(reader, stored, plain, thorough=thorough)
        keys = encryption_keys(reader, plain, written_under, kms_key_id_of(stored, envelope))
        neighbours, own_key = Neighbours.UNKNOWN, OwnKey.UNKNOWN
        if peek is not None and not first:
            if is_right_key(peek):
                wrote = next((name for name in keys if name.key == peek.key_fingerprint), keys[0])
                own_key = self.readers.opened.own_key(wrote, stored.mod_revision)
            else:
                neighbours = self.readers.opened.around(keys, stored.mod_revision, stored.key)
        seen = Observation(
            codec=reader.directory.codec,
            owner_known=reader.owner_known,
            rule_known=reader.directory.codec is StorageCodec.UNKNOWN and bool(reader.directory.group),
            covered=reader.covered,
            enveloped=enveloped,
            envelope_known=known,
            envelope_transformer=written_under,
            name_may_go_on=known and envelope is not None and envelope.name_may_go_on,
            resource=str(reader.directory.group_resource) or reader.directory.path,
            envelope_cut=enveloped and not known and ends_inside_its_envelope(stored.value),
            envelope_bits_off=bits_off(stored.value, ENCRYPTED_PREFIX),
            transformer=transformer,
            transform_failure=failure,
            decoded=decoded,
            decode_failure=decode_failure,
            shape=shape,
            identity_mismatch=identity_mismatch(
                reader, where.namespace, where.name, where.well_formed, decoded
            ),
            assumed_release=self.assumed_release,
            peek=peek,
            neighbours=neighbours,
            own_key=own_key,
            names_own_key=peek is not None and peek.look is not None and peek.look.belongs == (stored.key,),
            evidence=self._name_warnings(reader, stored.key),
        )
        verdict = self._verdict_on(seen)
        if not first and _may_be_shown_by_itself(verdict) and self._has_kept_opening(stored):
            seen = msgspec.structs.replace(seen, own_key=OwnKey.KEPT)
            verdict = self._verdict_on(seen)
        self._last_seen = stored, seen
        if peek is not None:
            self._note_failing(reader, stored, keys, peek, verdict)
        found = Examination(
            stored,
            reader.directory,
            where.namespace,
            where.name,
            transformer or written_under or ("" if enveloped else IDENTITY),
            plain is not None,
            plain is not None and plain.stale,
            verdict,
            decoded if plain is not None else None,
            kms_key_id_of(stored, envelope),
            reader.rule,
            tuple(name.key for name in keys if name.key.startswith("fp:")),
            unasked(
                self._find_repair(reader, stored, verdict, peek, thorough=thorough), verdict.cause
            ).repair,
            verdict.cause is Cause.KMS_ENVELOPE_DAMAGED
            and reader.transformers is not None
            and reader.transformers.has_dropped_data_keys(stored.value),
        )
        if first and not thorough and envelope is not None and known:
            self._remember(reader, envelope, seen, found)
        return found

    def _verdict_on(self, seen: Observation) -> Verdict:
        """Judge what was seen; many values of one key show the same, one after the other."""
        last = self._last_judged
        if last is not None and last[0] == seen:
            return last[1]
        verdict = judge(seen)
        self._last_judged = seen, verdict
        return verdict

    def search_repair(self, found: Examination) -> RepairSearch:
        """Look for the only way in which the stored bytes of a value are put right; also where no tag proves it.

        Args:
            found: The value; of KMS values it has to be known what others under its provider came to.

        Raises:
            KMSPending: Only while plugins defer.
        """
        stored = found.stored
        reader = self.readers.reader_for(stored.key)
        seen = self.observation(found)
        peek = seen.peek if seen is not None else None
        if found.verdict.outcome in _UNREAD and (peek is None or not peek.searched):
            peek = self._looking.peek(reader, stored, None, thorough=True)
        return self._find_repair(reader, stored, found.verdict, peek, thorough=True, unproven=True)

    def _find_repair(
        self,
        reader: ResourceReader,
        stored: StoredValue,
        verdict: Verdict,
        peek: Peek | None,
        *,
        thorough: bool,
        unproven: bool = False,
    ) -> RepairSearch:
        if not self._repairs or verdict.outcome not in _UNREAD or not reader.owner_known:
            return NO_REPAIR
        own = reader.transformers
        trial: Examiner | None = None

        @contextlib.contextmanager
        def aside() -> Iterator[None]:
            with (
                self.plugins.without_recording() if self.plugins is not None else contextlib.nullcontext(),
                own.learning_nothing() if own is not None else contextlib.nullcontext(),
            ):
                yield

        def proven(other: StoredValue) -> RepairProof | None:
            with aside():
                return proof_of(other, own)

        def examine(other: StoredValue) -> Examination:
            nonlocal trial
            if trial is None:
                trial = self.apart()
                trial._repairs = False  # noqa: SLF001 - its own
            with aside():
                return trial.examine(other)

        def fits(plaintext: bytes) -> bool:
            try:
                decoded = reader.decode(plaintext)
            except DecodeError:
                return False
            return not decoded.inconsistencies and stored.key in self._looking.key_of(
                reader.directory, decoded
            )

        candidates = rewrites_of(
            stored,
            own,
            peek.undone if peek is not None else None,
            thorough=thorough,
            fits=fits if unproven else None,
        )
        left = unsearched(stored.value, own) if unproven and own is not None else ""
        return find_repair(stored, candidates, proven, examine, unsearched=left)

    def plugin_to_ask(self, found: Examination) -> str:
        """Return the KMS provider (``kms/v2/prov``) that has to be asked whether a prefix is damaged; "" for none."""
        reader = self.readers.reader_for(found.stored.key)
        if found.verdict.outcome not in _UNREAD or not reader.owner_known or reader.transformers is None:
            return ""
        return nearly_behind_plugin(found.stored.value, reader.transformers)

    def misspelt_prefix(self, found: Examination) -> bytes:
        """Return the prefix of a failing value that is one bit off that of a key of its rule; b"" for none."""
        own = self.readers.reader_for(found.stored.key).transformers
        return (
            misspelt_prefix(found.stored.value, own)
            if own is not None and found.verdict.outcome in FAILED
            else b""
        )

    def cbc_size(self, found: Examination) -> int:
        """Return the size of a failing value's body that no tag protects; 0 where one does, or none is encrypted."""
        own = self.readers.reader_for(found.stored.key).transformers
        return cbc_size(found.stored.value, own) if own is not None and found.verdict.outcome in FAILED else 0

    def _name_warnings(self, reader: ResourceReader, key: bytes) -> tuple[Evidence, ...]:
        """Say of a key that no resource claims that one bit of its name may have changed."""
        stranger = reader.directory.codec is StorageCodec.NOT_AN_OBJECT
        if reader.owner_known and not (stranger and not self.layout.holds(key)):
            return ()
        return self._claims.look(key)


def _may_be_shown_by_itself(verdict: Verdict) -> bool:
    """Say whether an earlier revision that opens would say more of a value under the right key than others do."""
    under_its_key = verdict.key_proven and rests_on_others(verdict)
    return verdict.cause is Cause.ASSOCIATED_DATA_UNKNOWN or under_its_key


def _is_whole_but_unfitting(peek: Peek) -> bool:
    """Say whether a value looks in order but for its tag, as one that was copied from another etcd key does."""
    look = peek.look
    return (
        peek.bound
        and not (peek.opens or peek.equal_bytes)
        and look is not None
        and look.whole
        and look.ends_as_written
        and look.unwritable is None
    )
