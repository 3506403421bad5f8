"""The road of a value that is not plainly readable: what it would be, what others show, how it could be put right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import msgspec

from etcdfix.encryption.envelope import parse_envelope
from etcdfix.encryption.repairs import cbc_size, misspelt_prefix, nearly_behind_plugin
from etcdfix.examine.alike import AlikeValues
from etcdfix.examine.claims import ClaimSearch, too_large, without_its_lease
from etcdfix.examine.looking import (
    Looking,
    encryption_keys,
    ends_inside_its_envelope,
    identity_mismatch,
    kms_key_id_of,
)
from etcdfix.examine.readers import ResourceReader
from etcdfix.examine.repair import (
    NO_REPAIR,
    RepairSearch,
    find_repair,
    without_doubtful_prefix,
)
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, is_right_key
from etcdfix.examine.verdicts.deletability import FAILED, rests_on_others
from etcdfix.examine.verdicts.examination import Examination, KeyName
from etcdfix.examine.verdicts.judge import Verdict, judge
from etcdfix.examine.verdicts.observation import Neighbours, Observation, OwnKey
from etcdfix.examine.verdicts.plaintext import bits_off
from etcdfix.model.errors import DecodeError
from etcdfix.model.model import (
    DecodedObject,
    Evidence,
    Outcome,
    Peek,
    Plaintext,
    StoredValue,
    TransformFailure,
    Undone,
)
from etcdfix.model.providers import ENCRYPTED_PREFIX, IDENTITY
from etcdfix.model.storagekey import StorageCodec

if TYPE_CHECKING:
    from etcdfix.examine.one import Examiner

_UNREAD = FAILED | {Outcome.UNDETERMINED}
_ELSEWHERE: Final = frozenset({Undone.OTHER_PREFIX, Undone.OTHER_PATH})


class UnreadableExaminer:
    """Examines values that the straight road of :class:`Examiner` could not settle.

    Args:
        repairs: Look for what puts a value right.

    Attributes:
        last_seen: The value that was looked at last, and what was seen of it.
    """

    def __init__(self, examiner: Examiner, *, repairs: bool = True) -> None:
        self._examiner = examiner
        self._repairs = repairs
        self._looking = Looking(examiner)
        self._claims = ClaimSearch(examiner.layout, examiner.readers.is_claimed)
        self.last_seen: tuple[StoredValue, Observation] | None = None
        self.alike = AlikeValues(examiner.transformers, self._looking)

    def examine(
        self,
        reader: ResourceReader,
        stored: StoredValue,
        problem: TransformFailure | DecodeError | None,
        plain: Plaintext | None,
        decoded: DecodedObject | None,
        *,
        first: bool,
        thorough: bool,
    ) -> Examination:
        """Say what a value is.

        Args:
            reader: How its resource is read.
            stored: As etcd has it.
            problem: Why it does not open, or does not decode.
            plain: What it opens to.
            decoded: What that decodes to.
            first: What other values show is left out of account.
            thorough: Try whatever may have damaged a value that does not open.

        Raises:
            KMSPending: A KMS plugin has not answered yet.
        """
        if first and not thorough and isinstance(problem, TransformFailure):
            like = self.alike.find(reader, stored, problem)
            if like is not None:
                return self._same_as(reader, stored, *like)
        data = plain.data if plain is not None else None
        transformer = plain.transformer if plain is not None else ""
        where = self._examiner.layout.split(stored.key, (reader.directory, reader.shared))
        enveloped = stored.value.startswith(ENCRYPTED_PREFIX)
        envelope = parse_envelope(stored.value, self._examiner.names) if enveloped else None
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
                own_key = self._examiner.readers.opened.own_key(wrote, stored.mod_revision)
            else:
                neighbours = self._examiner.readers.opened.around(keys, stored.mod_revision, stored.key)
        seen = Observation(
            codec=reader.directory.codec,
            owner_known=reader.owner_known,
            too_few_parts=reader.directory.namespaced is not None
            and not (where.name and (where.namespace or not reader.directory.namespaced)),
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
            assumed_release=self._examiner.assumed_release,
            peek=peek,
            neighbours=neighbours,
            own_key=own_key,
            names_own_key=peek is not None and peek.look is not None and peek.look.belongs == (stored.key,),
            evidence=(
                *self._name_warnings(reader, stored.key),
                *without_its_lease(self._examiner.layout, stored),
                *too_large(stored),
            ),
        )
        verdict = judge(seen)
        if not first and _may_be_shown_by_itself(verdict) and self._has_kept_opening(stored):
            seen = msgspec.structs.replace(seen, own_key=OwnKey.KEPT)
            verdict = judge(seen)
        self.last_seen = stored, seen
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
            without_doubtful_prefix(
                self._find_repair(reader, stored, verdict, peek, thorough=thorough), verdict.cause
            ).repair,
            verdict.cause is Cause.KMS_ENVELOPE_DAMAGED
            and reader.transformers is not None
            and reader.transformers.has_dropped_data_keys(stored.value),
        )
        if first and not thorough and envelope is not None and known:
            self.alike.remember(reader, envelope, seen, found)
        return found

    def _same_as(
        self, reader: ResourceReader, stored: StoredValue, seen: Observation, found: Examination
    ) -> Examination:
        assert seen.peek is not None  # without one, none is remembered
        self.last_seen = stored, seen
        self._note_failing(reader, stored, found.encryption_keys, seen.peek, found.verdict)
        where = self._examiner.layout.split(stored.key, (reader.directory, reader.shared))
        return msgspec.structs.replace(found, stored=stored, namespace=where.namespace, name=where.name)

    def _has_kept_opening(self, stored: StoredValue) -> bool:
        kept = self._examiner.kept
        return kept is not None and kept.opens(stored)

    @staticmethod
    def _note_failing(
        reader: ResourceReader, stored: StoredValue, keys: Iterable[KeyName], peek: Peek, verdict: Verdict
    ) -> None:
        """Take note of what a value that does not open shows of its key for others."""
        if is_right_key(peek):
            for name in keys:
                span = reader.span_of_named_key(name) if peek.key_fingerprint in {"", name.key} else None
                if span is not None and peek.undone is not None:
                    span.elsewhere = span.elsewhere or peek.undone.what in _ELSEWHERE
                elif span is not None and _is_whole_but_unfitting(peek):
                    span.first_unfitting = min(span.first_unfitting, stored.mod_revision)
        elif verdict.damage is not Damage.PROVEN and verdict.cause is not Cause.KMS_UNREACHABLE:
            for span in filter(None, map(reader.span_of_named_key, keys)):
                span.note_failing(stored.mod_revision, stored.key)

    def search_repair(self, found: Examination) -> RepairSearch:
        """Look for the only way in which the stored bytes of a value are put right; also where no tag proves it.

        Args:
            found: The value; of KMS values it has to be known what others under its provider came to.

        Raises:
            KMSPending: Only while plugins defer.
        """
        stored = found.stored
        reader = self._examiner.readers.reader_for(stored.key)
        seen = self.last_seen
        peek = seen[1].peek if seen is not None and seen[0] is stored else None
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

        def fits(plaintext: bytes) -> bool:
            try:
                decoded = reader.decode(plaintext)
            except DecodeError:
                return False
            here = self._looking.key_of(reader.directory, decoded)
            return not decoded.inconsistencies and stored.key in here

        return find_repair(
            stored,
            reader.transformers,
            peek.undone if peek is not None else None,
            self._examiner,
            thorough=thorough,
            fits=fits if unproven else None,
        )

    def plugin_to_ask(self, found: Examination) -> str:
        """Return the KMS provider (``kms/v2/prov``) that has to be asked whether a prefix is damaged; "" for none."""
        reader = self._examiner.readers.reader_for(found.stored.key)
        if found.verdict.outcome not in _UNREAD or not reader.owner_known or reader.transformers is None:
            return ""
        return nearly_behind_plugin(found.stored.value, reader.transformers)

    def misspelt_prefix(self, found: Examination) -> bytes:
        """Return the prefix of a failing value that is one bit off that of a key of its rule; b"" for none."""
        own = self._examiner.readers.reader_for(found.stored.key).transformers
        return (
            misspelt_prefix(found.stored.value, own)
            if own is not None and found.verdict.outcome in FAILED
            else b""
        )

    def cbc_size(self, found: Examination) -> int:
        """Return the size of a failing value's body that no tag protects; 0 where one does, or none is encrypted."""
        own = self._examiner.readers.reader_for(found.stored.key).transformers
        return cbc_size(found.stored.value, own) if own is not None and found.verdict.outcome in FAILED else 0

    def _name_warnings(self, reader: ResourceReader, key: bytes) -> tuple[Evidence, ...]:
        """Say of a key that no resource claims that one bit of its name may have changed."""
        stranger = reader.directory.codec is StorageCodec.NOT_AN_OBJECT
        if reader.owner_known and not (stranger and not self._examiner.layout.holds(key)):
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
