"""From what was seen to what it means: one pure function, no input but its argument."""

from __future__ import annotations

import msgspec

from etcdfix.examine.verdicts.catalogue import CURABLE_BY_CONFIGURATION
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.contents import (
    ALMOST_ENVELOPED,
    empty_ruling,
    is_nearly_enveloped,
    may_be_newer,
    rule_on_contents,
)
from etcdfix.examine.verdicts.damage import (
    Damage,
    Ruling,
    attempt_evidence,
    is_right_key,
    other_key,
    peek_evidence,
    rule_on,
)
from etcdfix.examine.verdicts.kms import envelope_ruling, undetermined_cause, undetermined_message
from etcdfix.examine.verdicts.observation import (
    TELLING,
    Covered,
    DecodeFailure,
    DecodeFailureKind,
    Neighbours,
    Observation,
)
from etcdfix.examine.verdicts.plaintext import LONGEST_MESSAGE, bounded
from etcdfix.model.model import (
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
        upstream_message: The API server's wording, "" where it has none.
        transient: The same scan may say something else once an outage is over.
        breaks_responses: Answers that contain the object are malformed.
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


def judge(seen: Observation) -> Verdict:
    """Return the verdict on one key."""
    if seen.codec is StorageCodec.NOT_AN_OBJECT:
        return Verdict(
            Outcome.NOT_AN_OBJECT,
            None,
            Confidence.CERTAIN,
            ServerBehaviour.NOT_ASKED,
            next(
                (e.detail for e in seen.evidence),
                "no LIST reads it: bookkeeping, a directory, or a key outside the storage prefix",
            ),
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
    return Verdict(
        Outcome.UNDETERMINED,
        cause,
        Confidence.CERTAIN,
        ServerBehaviour.NOT_ASKED,
        message,
        upstream_message=_upstream_message(seen),
        transient=transient,
        fitting_key=other_key(seen.peek),
        not_asked=seen.peek.not_asked if seen.peek is not None else "",
        settled=settled,
        evidence=seen.evidence + evidence,
    )


def _failed(
    seen: Observation,
    outcome: Outcome,
    behaviour: ServerBehaviour,
    ruling: Ruling,
    *,
    key_proven: bool,
    evidence: tuple[Evidence, ...],
) -> Verdict:
    """Return the verdict on a value that does not read, for whatever reason."""
    peek, failure, cause = seen.peek, seen.decode_failure, ruling.cause
    undone = peek.undone if peek is not None else None
    wrong_key = cause in {Cause.WRONG_KEY, Cause.AUTHENTICATION_FAILED}
    return Verdict(
        outcome,
        cause,
        ruling.confidence,
        behaviour,
        ruling.message,
        upstream_message=_upstream_message(seen),
        damage=ruling.damage,
        shown_by_itself=ruling.shown_by_itself,
        two_writers=wrong_key and seen.neighbours is Neighbours.TWO_WRITERS,
        maybe_newer=may_be_newer(seen, cause),
        holds_whole=seen.shape is not None and seen.shape.holds_whole,
        fitting_key=other_key(peek),
        not_asked=peek.not_asked if peek is not None else "",
        key_proven=key_proven,
        settled=not ruling.open,
        stated_kind=f"{failure.group_version} {failure.value_kind}"
        if failure is not None and failure.value_kind
        else "",
        seen_encoding=peek.encoding if peek is not None else "",
        belongs_to=undone.belongs_to if undone is not None and cause is Cause.VALUE_MOVED else b"",
        readable_until=failure.readable_until if failure is not None and not seen.transform_failure else "",
        evidence=seen.evidence + evidence,
    )


def _upstream_message(seen: Observation) -> str:
    failure = seen.transform_failure or seen.decode_failure
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


def _judge_transform(seen: Observation, failure: TransformFailure) -> Verdict:
    attempts = attempt_evidence(failure.attempts) + peek_evidence(seen.peek)
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
    return _failed(
        seen,
        Outcome.DECRYPT_FAILURE,
        ServerBehaviour.CORRUPT,
        ruling,
        key_proven=right_key,
        evidence=attempts,
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
        message = f"written under {written}, and no EncryptionConfiguration has an entry for {seen.resource}"
        return Ruling(Cause.RESOURCE_NOT_CONFIGURED, certain, message + _name_warning(seen))
    if is_nearly_enveloped(seen):
        return ALMOST_ENVELOPED
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
        return rule_on_contents(seen, seen.decode_failure)
    if seen.decoded is not None and seen.decoded.empty:
        return empty_ruling(seen)
    message = f"stored as plaintext, and the providers of {seen.resource} lack identity"
    return Ruling(Cause.PLAINTEXT_NOT_ALLOWED, Confidence.CERTAIN, message)


def _nothing_of_that_name(seen: Observation, reasons: set[FailureReason]) -> Ruling:
    written, peek = seen.envelope_transformer, seen.peek
    if peek is not None and (peek.state is PeekState.RIGHT_KEY or peek.too_short):
        return rule_on(seen, peek)
    cause = Cause.PROVIDER_MISSING
    message = f"written under {written}; {seen.resource} has no such provider in the configuration"
    if FailureReason.NO_KEY_MATCHED in reasons:
        cause = Cause.KEY_NAME_MISSING
        message = f"written under {written}; no key of that name is configured"
    return Ruling(cause, Confidence.CERTAIN, message + _name_warning(seen))


def _name_warning(seen: Observation) -> str:
    """Say that nobody knows where the name ends, if so: without its key, the first colon was taken for the end."""
    return "; its name may be longer: text and another colon follow" if seen.name_may_go_on else ""


def _judge_decode(seen: Observation, failure: DecodeFailure) -> Verdict:
    if not seen.owner_known:
        return _owner_unknown(seen)
    behaviour, unproven = ServerBehaviour.CORRUPT, None
    if seen.codec is StorageCodec.ALLOCATOR:
        behaviour = ServerBehaviour.NOT_ASKED
        message = "the allocation bitmap does not decode; API servers need it at start-up"
        ruling = Ruling(Cause.ALLOCATOR_DAMAGED, Confidence.CERTAIN, message)
    else:
        # 16 bytes of padding and nothing else are what an empty value is under AES-CBC: no wrong key gives that.
        empty = seen.shape is not None and seen.shape.size == 0
        unproven = None if empty else _unproven_key(seen)
        ruling = unproven or rule_on_contents(seen, failure)
    return _failed(
        seen,
        Outcome.DECODE_FAILURE,
        behaviour,
        ruling,
        key_proven=seen.enveloped and unproven is None,
        evidence=_damage_evidence(failure) + peek_evidence(seen.peek),
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


def _damage_evidence(failure: DecodeFailure) -> tuple[Evidence, ...]:
    where = []
    if failure.offset is not None:
        where.append(f"at byte {failure.offset} of the plaintext")
    if failure.field_path:
        where.append(f"in {failure.field_path}")
    return (Evidence("decode as the API server does", "failed", " ".join(where) or failure.message),)


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
    ruling, behaviour = empty_ruling(seen), ServerBehaviour.SERVES_EMPTY
    unproven = (
        _unproven_key(seen) if ruling.cause is Cause.EMPTY_OBJECT else None
    )  # not one of 0 bytes: as above
    if seen.codec is StorageCodec.ALLOCATOR:
        behaviour = ServerBehaviour.NOT_ASKED
        ruling = Ruling(Cause.ALLOCATOR_DAMAGED, Confidence.CERTAIN, ruling.message)
    return _failed(
        seen,
        Outcome.DECODE_FAILURE,
        behaviour,
        unproven or ruling,
        key_proven=seen.enveloped and unproven is None,
        evidence=peek_evidence(seen.peek),
    )


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
