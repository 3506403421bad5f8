"""From what was seen to what it means: one pure function, no input but its argument."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

import msgspec

from etcdfix.examine.verdicts.causes import CURABLE_BY_CONFIGURATION, Cause
from etcdfix.examine.verdicts.damage import Damage, Ruling, is_right_key, other_key, peek_evidence, rule_on
from etcdfix.examine.verdicts.kms import envelope_ruling, undetermined_cause, undetermined_message
from etcdfix.examine.verdicts.observation import (
    GARBLED,
    TELLING,
    Covered,
    DecodeFailure,
    DecodeFailureKind,
    Neighbours,
    Observation,
    PlaintextShape,
)
from etcdfix.examine.verdicts.plaintext import LONGEST_MESSAGE, bounded
from etcdfix.model.model import (
    Attempt,
    Confidence,
    DecodedObject,
    Evidence,
    FailureReason,
    Inconsistency,
    Outcome,
    Peek,
    PeekState,
    ServerBehaviour,
    TransformFailure,
)
from etcdfix.model.storagekey import StorageCodec


class Verdict(msgspec.Struct, frozen=True, cache_hash=True):
    """What one key is, why, and how sure that is.

    Attributes:
        outcome: Exactly one per key.
        cause: None for a plainly readable object.
        confidence: In the cause; the outcome itself is proven.
        upstream_message: The API server's wording, "" where it has none.
        transient: The same scan may say something else once an outage is over.
        breaks_responses: Answers that contain the object are malformed.
        damage: Whether the value is proven wrong, which is what a deletion rests on.
        shown_by_itself: Damage that is likely rests on the value, or on earlier ones of its etcd key, and on no others.
        two_writers: API servers seem to write with different bytes under the name of its key.
        maybe_newer: The cluster may be newer than this tool, or than the release that was named, and read the value.
        holds_whole: A whole object may be found in what it decrypts to, whatever surrounds it.
        fitting_key: A key that wrote the value, and that stands elsewhere in the configuration; "" for none.
        not_asked: A KMS provider elsewhere that could not be asked whether it opens the value; "" for none.
        key_proven: The key that the value names is there, and wrote it: its loss cannot be declared.
        settled: More values, or a longer look, would not change the verdict.
        stated_kind: ``apps/v9 Deployment`` as the value itself states it, where a decoder did not know it, or could not
            convert it; else "".
        seen_encoding: What a look without tag or padding showed the value to begin as (``cbor``); "" for nothing.
        belongs_to: The etcd key that the value belongs to, where it was moved; else b"".
        readable_until: Last Kubernetes minor that reads it, "" where none dropped it.
    """

    outcome: Outcome
    cause: Cause | None
    confidence: Confidence
    apiserver: ServerBehaviour
    message: str
    upstream_message: str = ""
    transient: bool = False
    breaks_responses: bool = False
    damage: Damage = Damage.NONE
    shown_by_itself: bool = False
    two_writers: bool = False
    maybe_newer: bool = False
    holds_whole: bool = False
    fitting_key: str = ""
    not_asked: str = ""
    key_proven: bool = False
    settled: bool = True
    stated_kind: str = ""
    seen_encoding: str = ""
    belongs_to: bytes = b""
    readable_until: str = ""
    evidence: tuple[Evidence, ...] = ()

    @property
    def is_damage(self) -> bool:
        """Whether the value is proven wrong: no newer release could read it, and no whole object is found in it."""
        return self.damage is Damage.PROVEN and not (self.maybe_newer or self.holds_whole)

    @property
    def is_plain(self) -> bool:
        """Whether the value is readable and there is nothing more to say."""
        return self.outcome is Outcome.READABLE and not (self.cause or self.evidence or self.readable_until)


# So many flipped bits still let a start be recognised: of the magic's 32, of the 64 of k8s:enc:.
_MAGIC_BITS = 2
_ENVELOPE_BITS = 3
# A cluster that is newer than this tool may read what looks like that.
MAYBE_NEWER = frozenset(
    {
        Cause.UNKNOWN_ENVELOPE,
        Cause.UNKNOWN_ENCODING,
        Cause.MAGIC_DAMAGED,
        Cause.VERSION_REMOVED,
        Cause.KIND_NOT_REGISTERED,
        Cause.WRONG_KIND_FOR_KEY,
        Cause.CONVERSION_FAILED,
        Cause.CBOR_DAMAGED,
    }
)
# What may be whole below one damaged or one additional layer, or once the CRD lists its version again: no damage that a
# deletion could rest on.
MAY_BE_WHOLE = frozenset({Cause.DOUBLE_ENCRYPTED, Cause.CRD_VERSION_MISSING, Cause.ENVELOPE_DAMAGED})


def judge(seen: Observation) -> Verdict:
    """Return the verdict on one key."""
    if seen.codec is StorageCodec.NOT_AN_OBJECT:
        return Verdict(
            Outcome.NOT_AN_OBJECT,
            None,
            Confidence.CERTAIN,
            ServerBehaviour.NOT_ASKED,
            "bookkeeping, or a key outside the storage prefix",
            evidence=seen.evidence,
        )
    if seen.enveloped and seen.covered is Covered.NO_CONFIGURATION:
        return _undetermined(
            seen,
            Cause.NO_CONFIGURATION,
            f"encrypted under {seen.envelope_transformer or 'an unknown envelope'}; no encryption "
            f"configuration was given to read it with{_name_warning(seen)}",
        )
    if seen.transform_failure is not None:
        return _judge_transform(seen, seen.transform_failure)
    if seen.decode_failure is not None:
        return _judge_decode(seen, seen.decode_failure)
    assert seen.decoded is not None  # one of the three always holds
    return _judge_object(seen, seen.decoded)


def _undetermined(
    seen: Observation,
    cause: Cause,
    message: str,
    *,
    transient: bool = False,
    settled: bool = True,
    evidence: tuple[Evidence, ...] = (),
) -> Verdict:
    failure = seen.transform_failure or seen.decode_failure
    return Verdict(
        Outcome.UNDETERMINED,
        cause,
        Confidence.CERTAIN,
        ServerBehaviour.NOT_ASKED,
        message,
        upstream_message=_upstream_message(failure),
        transient=transient,
        fitting_key=other_key(seen.peek),
        not_asked=seen.peek.not_asked if seen.peek is not None else "",
        settled=settled,
        evidence=seen.evidence + evidence,
    )


def _upstream_message(failure: TransformFailure | DecodeFailure | None) -> str:
    if failure is None or (isinstance(failure, DecodeFailure) and failure.kind is DecodeFailureKind.CBOR):
        return ""
    return failure.message


def _owner_unknown(seen: Observation) -> Verdict:
    return _undetermined(seen, Cause.OWNER_UNKNOWN, f"{_nobody_claims(seen)}, and the value does not parse")


def _nobody_claims(seen: Observation) -> str:
    if seen.rule_known:
        return f"another API server writes {seen.resource}, and etcdfix does not know its types"
    if seen.codec is StorageCodec.CUSTOM_RESOURCE:
        return f"no readable CustomResourceDefinition claims {seen.resource}"
    return f"no known type is stored under {seen.resource}"


_ENVELOPE_MESSAGE = "begins like k8s:enc: with a few bits flipped, so it is not recognised as encrypted"


def _nearly_enveloped(seen: Observation) -> bool:
    return not seen.enveloped and seen.envelope_bits_off <= _ENVELOPE_BITS


def _judge_transform(seen: Observation, failure: TransformFailure) -> Verdict:
    attempts = tuple(evidence for attempt in failure.attempts for evidence in _attempted(attempt))
    attempts += peek_evidence(seen.peek)
    right_key = is_right_key(seen.peek)
    undetermined = undetermined_cause(failure.attempts, right_key=right_key, neighbours=seen.neighbours)
    if undetermined is not None:
        message = undetermined_message(
            undetermined, seen.envelope_transformer, failure.attempts, seen.neighbours
        )
        transient = undetermined is Cause.KMS_UNREACHABLE
        settled = undetermined is not Cause.KMS_UNPROVEN
        return _undetermined(
            seen, undetermined, message, transient=transient, settled=settled, evidence=attempts
        )
    if not seen.owner_known and not seen.rule_known:
        return _owner_unknown(seen)
    if seen.rule_known and seen.covered is Covered.NOT_COVERED:
        message = (
            f"encrypted under {seen.envelope_transformer or 'an unknown envelope'}; another API server writes "
            f"{seen.resource}, and this configuration has no entry for it"
        )
        return _undetermined(seen, Cause.NO_CONFIGURATION, message + _name_warning(seen))
    ruling = _ruling(seen, failure)
    if seen.rule_known and ruling.cause not in CURABLE_BY_CONFIGURATION:
        return _owner_unknown(seen)  # damage is proven by what is in a value, and nothing of that is known
    return Verdict(
        Outcome.DECRYPT_FAILURE,
        ruling.cause,
        ruling.confidence,
        ServerBehaviour.CORRUPT,
        ruling.message,
        upstream_message=failure.message,
        damage=ruling.damage,
        shown_by_itself=ruling.shown_by_itself,
        two_writers=_is_of_two_writers(seen, ruling),
        maybe_newer=_maybe_newer(seen, ruling.cause),
        holds_whole=_holds_whole(seen),
        fitting_key=other_key(seen.peek),
        not_asked=seen.peek.not_asked if seen.peek is not None else "",
        key_proven=right_key,
        settled=not ruling.open,
        stated_kind=_stated_kind(seen.decode_failure),
        seen_encoding=seen.peek.encoding if seen.peek is not None else "",
        belongs_to=seen.peek.undone.belongs_to
        if ruling.cause is Cause.VALUE_MOVED and seen.peek is not None and seen.peek.undone is not None
        else b"",
        evidence=seen.evidence + attempts,
    )


ATTEMPT_CHECK: Final = "decrypt with "
"""With this begins the check in whose evidence one attempt speaks."""


def _attempted(attempt: Attempt) -> Iterator[Evidence]:
    named = f" (key {attempt.key_fingerprint})" if attempt.key_fingerprint else ""
    tried = "failed"
    if attempt.reason == "kms-unreachable":
        tried = "no answer" if attempt.error else "not tried"
    yield Evidence(f"{ATTEMPT_CHECK}{attempt.transformer}{named}", tried, attempt.error)
    plugin = attempt.plugin
    if plugin is not None:
        health = "healthy" if plugin.healthy else "unhealthy"
        yield Evidence(
            f"other values that the plugin of {attempt.transformer} opened in this run",
            str(plugin.any_key),
            f"{plugin.same_key} of them under the same key id; the plugin reports {health}",
        )


def _ruling(seen: Observation, failure: TransformFailure) -> Ruling:
    certain, proven = Confidence.CERTAIN, Damage.PROVEN
    written = seen.envelope_transformer
    if seen.envelope_cut:
        return Ruling(Cause.VALUE_TRUNCATED, certain, "ends inside its own k8s:enc: envelope", proven)
    if seen.enveloped and not seen.envelope_known:
        message = "starts with k8s:enc: but with no envelope that is known"
        return Ruling(Cause.UNKNOWN_ENVELOPE, certain, message, proven)
    if seen.covered is Covered.NOT_COVERED:
        message = f"written under {written}, and the configuration has no entry for {seen.resource}"
        message += _name_warning(seen)
        return Ruling(Cause.RESOURCE_NOT_CONFIGURED, certain, message)
    if _nearly_enveloped(seen):
        return Ruling(Cause.ENVELOPE_DAMAGED, Confidence.LIKELY, _ENVELOPE_MESSAGE)
    if not seen.enveloped:
        return _refused_plaintext(seen)
    reasons = {a.reason for a in failure.attempts} or {failure.reason}
    if reasons <= {FailureReason.NO_KEY_MATCHED, FailureReason.NO_PROVIDER_MATCHED}:
        return _nothing_of_that_name(seen, reasons)
    peek = seen.peek if seen.peek is not None else Peek(PeekState.NOT_POSSIBLE)
    behind_plugin = envelope_ruling(failure.attempts, written, name_may_go_on=peek.name_may_go_on)
    if behind_plugin is not None and not (is_right_key(peek) and _tells_more(peek, behind_plugin)):
        return behind_plugin
    return rule_on(seen, peek)


def _tells_more(peek: Peek, behind_plugin: Ruling) -> bool:
    """Say whether a look under the right key shows more than an envelope that is broken or unknown.

    One that a newer server may accept is no damage, whatever a fitting tag covers: no disk changed that.
    """
    if behind_plugin.cause is not Cause.UNKNOWN_ENVELOPE:
        return True
    fits = peek.opens or peek.undone is not None
    return peek.look is not None and peek.look.breaks and not fits


def _refused_plaintext(seen: Observation) -> Ruling:
    """Rule on an unencrypted value that its providers refuse: whole, it waits for identity; broken, it is broken."""
    if seen.decode_failure is not None:
        cause, confidence, message = _decode_cause(seen, seen.decode_failure)
        return Ruling(cause, confidence, message, _damage_of(cause))
    if seen.decoded is not None and seen.decoded.empty:
        cause, message = _empty_cause(seen)
        return Ruling(cause, Confidence.CERTAIN, message, Damage.PROVEN)
    message = f"stored as plaintext, and the providers of {seen.resource} lack identity"
    return Ruling(Cause.PLAINTEXT_NOT_ALLOWED, Confidence.CERTAIN, message)


def _nothing_of_that_name(seen: Observation, reasons: set[FailureReason]) -> Ruling:
    certain = Confidence.CERTAIN
    written = seen.envelope_transformer
    peek = seen.peek
    if peek is not None and (peek.state is PeekState.RIGHT_KEY or peek.too_short):
        return rule_on(seen, peek)
    if FailureReason.NO_KEY_MATCHED in reasons:
        message = f"written under {written}; no key of that name is configured{_name_warning(seen)}"
        return Ruling(Cause.KEY_NAME_MISSING, certain, message)
    message = f"written under {written}; {seen.resource} has no such provider in the configuration"
    message += _name_warning(seen)
    return Ruling(Cause.PROVIDER_MISSING, certain, message)


def _name_warning(seen: Observation) -> str:
    """Say that nobody knows where the name ends, if so: without its key, the first colon was taken for the end."""
    return "; its name may be longer: text and another colon follow" if seen.name_may_go_on else ""


def _judge_decode(seen: Observation, failure: DecodeFailure) -> Verdict:
    if not seen.owner_known:
        return _owner_unknown(seen)
    if seen.codec is StorageCodec.ALLOCATOR:
        return Verdict(
            Outcome.DECODE_FAILURE,
            Cause.ALLOCATOR_DAMAGED,
            Confidence.CERTAIN,
            ServerBehaviour.NOT_ASKED,
            "the allocation bitmap does not decode; API servers need it at start-up",
            upstream_message=_upstream_message(failure),
            evidence=seen.evidence + _damage_evidence(failure),
        )
    # Sixteen bytes of padding and nothing else are what an empty value is under AES-CBC: no wrong key gives that.
    empty = seen.shape is not None and seen.shape.size == 0
    unproven = None if empty else _unproven_key(seen)
    if unproven is None:
        cause, confidence, message = _decode_cause(seen, failure)
        ruling = Ruling(cause, confidence, message, _damage_of(cause))
    else:
        ruling = unproven
    return Verdict(
        Outcome.DECODE_FAILURE,
        ruling.cause,
        ruling.confidence,
        ServerBehaviour.CORRUPT,
        ruling.message,
        upstream_message=_upstream_message(failure),
        damage=ruling.damage,
        two_writers=_is_of_two_writers(seen, ruling),
        maybe_newer=_maybe_newer(seen, ruling.cause),
        holds_whole=_holds_whole(seen),
        fitting_key=other_key(seen.peek),
        not_asked=seen.peek.not_asked if seen.peek is not None else "",
        key_proven=seen.enveloped and unproven is None,
        settled=not ruling.open,
        stated_kind=_stated_kind(failure),
        seen_encoding=seen.peek.encoding if seen.peek is not None else "",
        readable_until=failure.readable_until,
        evidence=seen.evidence + _damage_evidence(failure) + peek_evidence(seen.peek),
    )


def _unproven_key(seen: Observation) -> Ruling | None:
    """Rule on plaintext that came out of CBC, whose padding proves no key; None where the key is proven."""
    peek = seen.peek
    if peek is None or is_right_key(peek):
        return None
    if peek.state is PeekState.RIGHT_KEY or seen.neighbours in TELLING:
        return rule_on(seen, peek)
    message = (
        f"decrypts under {seen.transformer} to noise with valid padding, which a wrong key gives now and then"
    )
    return Ruling(Cause.WRONG_KEY, Confidence.LIKELY, message, open=True)


def _is_of_two_writers(seen: Observation, ruling: Ruling) -> bool:
    wrong = ruling.cause in {Cause.WRONG_KEY, Cause.AUTHENTICATION_FAILED}
    return wrong and seen.neighbours is Neighbours.TWO_WRITERS


def _damage_of(cause: Cause) -> Damage:
    """Return what a decoder's cause proves, where the encryption key is right or there is none."""
    return Damage.NONE if cause in MAY_BE_WHOLE else Damage.PROVEN


def _maybe_newer(seen: Observation, cause: Cause) -> bool:
    """Say whether a cluster that is newer than this tool, or than the release that was named, may read the value."""
    shape = seen.shape
    if shape is not None and cause is Cause.EMPTY_OBJECT:
        return shape.names_encoding
    if shape is not None and seen.decode_failure is not None:
        if cause is Cause.PROTOBUF_DAMAGED:
            return shape.names_encoding
        if cause is Cause.IV_DAMAGED:
            return not shape.starts_json and shape.magic_bits_off > 0  # another header looks the same
        if cause is Cause.CIPHERTEXT_DAMAGED and _is_unknown_encoding(seen.decode_failure, shape):
            return True  # noise to us, and its padding fits
    if cause in {Cause.CIPHERTEXT_DAMAGED, Cause.VALUE_TRUNCATED}:  # as for a CBOR value whose tag fits
        peek = seen.peek
        if peek is None or peek.look is None or peek.undone is not None:
            return False
        return peek.look.breaks and (peek.encoding == "cbor" or peek.look.maybe_newer)
    return cause in MAYBE_NEWER


def _holds_whole(seen: Observation) -> bool:
    return seen.shape is not None and seen.shape.holds_whole


def _is_unknown_encoding(failure: DecodeFailure, shape: PlaintextShape) -> bool:
    """Say whether the bytes begin as nothing that is known here; whatever custom resources are, JSON is what fails."""
    return failure.kind is DecodeFailureKind.UNKNOWN_ENCODING or (
        failure.kind is DecodeFailureKind.JSON and not shape.starts_json
    )


def _stated_kind(failure: DecodeFailure | None) -> str:
    return (
        f"{failure.group_version} {failure.value_kind}" if failure is not None and failure.value_kind else ""
    )


def _damage_evidence(failure: DecodeFailure) -> tuple[Evidence, ...]:
    where = []
    if failure.offset is not None:
        where.append(f"at byte {failure.offset} of the plaintext")
    if failure.field_path:
        where.append(f"in {failure.field_path}")
    return (Evidence("decode as the API server does", "failed", " ".join(where) or failure.message),)


def _decode_cause(seen: Observation, failure: DecodeFailure) -> tuple[Cause, Confidence, str]:
    certain = Confidence.CERTAIN
    shape = seen.shape
    if shape is not None:
        shaped = _shape_cause(seen, failure, shape)
        if shaped is not None:
            return shaped
    where = f" at byte {failure.offset}" if failure.offset is not None else ""
    path = f", in {failure.field_path}" if failure.field_path else ""
    value_kind = f"{failure.group_version or '(no apiVersion)'} {failure.value_kind or '(no kind)'}"
    match failure.kind:
        case DecodeFailureKind.PROTOBUF:
            return Cause.PROTOBUF_DAMAGED, certain, f"the protobuf body breaks{where}{path}"
        case DecodeFailureKind.JSON if shape is not None and not shape.starts_json:
            return Cause.UNKNOWN_ENCODING, certain, "begins as nothing that its API server reads"
        case DecodeFailureKind.JSON:
            return Cause.JSON_DAMAGED, certain, f"the JSON body breaks{where}{path}"
        case DecodeFailureKind.CBOR:
            return Cause.CBOR_DAMAGED, certain, f"the CBOR body breaks{where}{path}"
        case DecodeFailureKind.NOT_REGISTERED:
            return Cause.KIND_NOT_REGISTERED, certain, f"says it is {value_kind}, {_who_knows(seen, failure)}"
        case DecodeFailureKind.VERSION_REMOVED if seen.codec is StorageCodec.CUSTOM_RESOURCE:
            message = f"stored as {value_kind}, a version that the CustomResourceDefinition no longer lists"
            return Cause.CRD_VERSION_MISSING, certain, message
        case DecodeFailureKind.VERSION_REMOVED:
            until = failure.readable_until or "an earlier release"
            return Cause.VERSION_REMOVED, certain, f"written as {value_kind}; the last to read it is {until}"
        case DecodeFailureKind.KIND_MISSING:
            return Cause.KIND_MISSING, certain, "does not say what kind of object it is"
        case DecodeFailureKind.WRONG_KIND:
            return (
                Cause.WRONG_KIND_FOR_KEY,
                certain,
                f"is a {value_kind}, which does not belong under this key",
            )
        case DecodeFailureKind.CONVERSION:
            return Cause.CONVERSION_FAILED, certain, f"decodes, but does not convert{path}"
        case DecodeFailureKind.UNKNOWN_ENCODING:
            return Cause.UNKNOWN_ENCODING, certain, "no serializer of the API server recognises the bytes"
        case _:
            assert_never(failure.kind)


def _who_knows(seen: Observation, failure: DecodeFailure) -> str:
    if not seen.assumed_release:
        return "which no known release has"
    if failure.known_since:
        return f"which {seen.assumed_release} does not register; {failure.known_since} brought it"
    return f"which neither {seen.assumed_release} nor any other known release has"


def _shape_cause(
    seen: Observation, failure: DecodeFailure, shape: PlaintextShape
) -> tuple[Cause, Confidence, str] | None:
    certain, likely = Confidence.CERTAIN, Confidence.LIKELY
    if shape.size == 0:
        return Cause.EMPTY_VALUE, certain, "the value has 0 bytes"
    if shape.zeroed:
        return Cause.ZEROED_VALUE, certain, f"all {shape.size} bytes are zero"
    if shape.starts_encrypted:
        return (
            Cause.DOUBLE_ENCRYPTED,
            certain,
            f"decrypts under {seen.transformer} to another encrypted value",
        )
    if _nearly_enveloped(seen):
        return Cause.ENVELOPE_DAMAGED, likely, _ENVELOPE_MESSAGE
    if shape.heals_as_text:
        return Cause.TEXT_MODE_DAMAGE, certain, "decodes once every CR LF is turned back into LF"
    if shape.whole_at:
        extra = shape.size - shape.whole_at
        return (
            Cause.TRAILING_BYTES,
            certain,
            f"a whole object of {shape.whole_at} bytes, and {extra} bytes after it",
        )
    if shape.heals_first_block and failure.kind in GARBLED:
        message = "only the first cipher block is garbled, which is what a damaged initialisation vector does"
        if shape.heals_magic:
            return Cause.IV_DAMAGED, Confidence.POSSIBLE, f"{message}; a magic that is newer looks the same"
        return Cause.IV_DAMAGED, likely, message
    if shape.heals_magic:
        return (
            Cause.MAGIC_DAMAGED,
            certain,
            "decodes once its first four bytes are the protobuf magic again",
        )
    if failure.kind is DecodeFailureKind.UNKNOWN_ENCODING:
        if shape.ends_envelope:
            return Cause.MAGIC_DAMAGED, likely, "ends like a protobuf object, but does not start like one"
        if shape.magic_bits_off <= _MAGIC_BITS:
            return Cause.MAGIC_DAMAGED, Confidence.POSSIBLE, "starts almost like a protobuf object"
    cut = failure.kind is DecodeFailureKind.PROTOBUF and not (shape.ends_envelope or shape.names_encoding)
    if cut and failure.message in {"unexpected EOF", "empty body"}:
        return (
            Cause.VALUE_TRUNCATED,
            likely,
            "a length in the protobuf body runs past the end of the value",
        )
    # In the middle of true, false or null, the message is about the word.
    ran_out = failure.message.endswith("unexpected end of JSON input") or failure.offset == shape.size
    if failure.kind is DecodeFailureKind.JSON and ran_out and shape.starts_json:
        return Cause.VALUE_TRUNCATED, likely, "the JSON body stops before it is complete"
    return None


# Worst first: what breaks other people's answers, then what contradicts the key, then the rest.
_SEVERITY = (
    Cause.RAW_JSON_INVALID,
    Cause.INT_OR_STRING_INVALID,
    Cause.IDENTITY_MISMATCH,
    Cause.KIND_MISSING,
    Cause.INVALID_UTF8,
)


def _judge_object(seen: Observation, decoded: DecodedObject) -> Verdict:
    if decoded.empty and seen.owner_known:
        return _judge_empty(seen)
    found = [
        msgspec.structs.replace(item, detail=bounded(item.detail, LONGEST_MESSAGE))
        for item in decoded.inconsistencies
    ]
    if seen.identity_mismatch and seen.owner_known:
        found.append(Inconsistency(Cause.IDENTITY_MISMATCH, "", seen.identity_mismatch))
    warnings = tuple(
        msgspec.structs.replace(warning, detail=bounded(warning.detail, LONGEST_MESSAGE))
        for warning in seen.evidence + decoded.warnings
    )
    if found and seen.owner_known:
        return _judge_inconsistent(decoded, found, warnings)
    if not seen.owner_known:
        cause: Cause | None = Cause.OWNER_UNKNOWN
        message = f"parses; {_nobody_claims(seen)}"
    else:
        cause = None
        message = "readable"
        if decoded.readable_until:
            message = f"readable, by API servers up to {decoded.readable_until}"
        elif warnings:
            message = f"readable, with warnings: {', '.join(dict.fromkeys(w.check for w in warnings))}"
    return Verdict(
        Outcome.READABLE,
        cause,
        Confidence.CERTAIN,
        ServerBehaviour.NOT_ASKED if cause else ServerBehaviour.SERVES,
        message,
        readable_until=decoded.readable_until,
        evidence=warnings,
    )


def _judge_empty(seen: Observation) -> Verdict:
    cause, message = _empty_cause(seen)
    allocator = seen.codec is StorageCodec.ALLOCATOR
    unproven = _unproven_key(seen) if cause is Cause.EMPTY_OBJECT else None  # not one of 0 bytes: as above
    ruling = unproven or Ruling(
        Cause.ALLOCATOR_DAMAGED if allocator else cause,
        Confidence.CERTAIN,
        message,
        Damage.NONE if allocator else Damage.PROVEN,
    )
    return Verdict(
        Outcome.DECODE_FAILURE,
        ruling.cause,
        ruling.confidence,
        ServerBehaviour.NOT_ASKED if allocator else ServerBehaviour.SERVES_EMPTY,
        ruling.message,
        damage=ruling.damage,
        maybe_newer=_maybe_newer(seen, ruling.cause),
        holds_whole=_holds_whole(seen),
        fitting_key=other_key(seen.peek),
        not_asked=seen.peek.not_asked if seen.peek is not None else "",
        key_proven=seen.enveloped and unproven is None,
        settled=not ruling.open,
        evidence=seen.evidence + peek_evidence(seen.peek),
    )


def _empty_cause(seen: Observation) -> tuple[Cause, str]:
    if seen.shape is not None and seen.shape.size == 0:
        return Cause.EMPTY_VALUE, "the value has 0 bytes; the API server shows an empty object"
    return Cause.EMPTY_OBJECT, "no field of an object comes out; the API server shows an empty object"


def _judge_inconsistent(
    decoded: DecodedObject, found: list[Inconsistency], warnings: tuple[Evidence, ...]
) -> Verdict:
    found.sort(key=lambda item: _SEVERITY.index(Cause(item.cause)))
    worst = found[0]
    breaks = any(item.breaks_responses for item in found)
    return Verdict(
        Outcome.INCONSISTENT,
        Cause(worst.cause),
        Confidence.CERTAIN,
        ServerBehaviour.BREAKS_LIST if breaks else ServerBehaviour.SERVES,
        f"{worst.field_path}: {worst.detail}" if worst.field_path else worst.detail,
        breaks_responses=breaks,
        readable_until=decoded.readable_until,
        evidence=tuple(Evidence(item.cause, item.field_path or "object", item.detail) for item in found)
        + warnings,
    )
