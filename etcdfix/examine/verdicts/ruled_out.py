"""Which other causes an outcome could have had, and what shows that it is none of them.

Made from what the verdict was made from, and from nothing else: a cause that nothing was seen to speak against is not
among them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.contents import ENVELOPE_BITS
from etcdfix.examine.verdicts.damage import is_right_key
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.observation import Covered, Neighbours, Observation, PlaintextShape
from etcdfix.model.model import Confidence, FailureReason, Outcome, Peek, PeekState
from etcdfix.model.providers import facts_of
from etcdfix.model.storagekey import StorageCodec

_NOT_TRIED = frozenset({FailureReason.NO_KEY_MATCHED, FailureReason.NO_PROVIDER_MATCHED})


class RuledOut(msgspec.Struct, frozen=True):
    """A cause that was checked and is none; published as it is.

    Attributes:
        why: What shows it, in one clause.
        confidence: ``likely`` where something that nothing in etcd shows could look the same.
    """

    cause: Cause
    why: str
    confidence: Confidence = Confidence.CERTAIN


def ruled_out(seen: Observation, verdict: Verdict, *, searched: bool) -> tuple[RuledOut, ...]:
    """Return the causes that were checked and are none, each once."""
    found: Iterator[RuledOut]
    match verdict.outcome:
        case Outcome.DECRYPT_FAILURE:
            found = _of_decryption(seen, searched=searched)
        case Outcome.DECODE_FAILURE:
            found = _of_decoding(seen)
        case Outcome.INCONSISTENT:
            found = _of_contents(seen)
        case _:
            return ()
    first: dict[Cause, RuledOut] = {}
    for one in found:
        if one.cause is not verdict.cause:
            first.setdefault(one.cause, one)
    return tuple(first.values())


def _of_decryption(seen: Observation, *, searched: bool) -> Iterator[RuledOut]:
    if not seen.enveloped:
        return
    yield RuledOut(Cause.PLAINTEXT_NOT_ALLOWED, "the value is encrypted: it begins with k8s:enc:")
    yield RuledOut(Cause.ENVELOPE_DAMAGED, "k8s:enc: stands at its start, every bit of it")
    if seen.envelope_known:
        yield RuledOut(
            Cause.UNKNOWN_ENVELOPE, f"API servers write such an envelope: {seen.envelope_transformer}"
        )
    if seen.covered is Covered.COVERED:
        yield RuledOut(
            Cause.RESOURCE_NOT_CONFIGURED, f"the configuration has an entry that holds for {seen.resource}"
        )
    yield from _by_attempts(seen)
    if seen.peek is not None:
        yield from _by_peek(seen, seen.peek, searched=searched)


def _by_attempts(seen: Observation) -> Iterator[RuledOut]:
    failure = seen.transform_failure
    tried = [one for one in failure.attempts if one.reason not in _NOT_TRIED] if failure is not None else []
    if not tried or seen.name_may_go_on:
        return
    written = seen.envelope_transformer
    yield RuledOut(Cause.PROVIDER_MISSING, f"the configuration has that provider: {written}")
    if not facts_of(written).under_kms:
        keys = ", ".join(dict.fromkeys(one.key_fingerprint for one in tried))
        yield RuledOut(Cause.KEY_NAME_MISSING, f"a key of that name is configured, and was tried: {keys}")


def _by_peek(seen: Observation, peek: Peek, *, searched: bool) -> Iterator[RuledOut]:
    written = seen.envelope_transformer
    if is_right_key(peek):
        shown = (
            f"under the key that the value names, the start of {peek.encoding} stands where it belongs "
            f"(chance: less than 1 in 2^{peek.odds_bits})"
            if peek.encoding
            else f"with {_undone(peek)} it opens, tag checked, under the key that the value names"
        )
        yield RuledOut(Cause.WRONG_KEY, shown)
        yield RuledOut(Cause.KEY_RENAMED, f"the key of that name wrote it: {peek.key_fingerprint or written}")
        yield from _under_right_key(peek, searched=searched)
        return
    if peek.state is PeekState.NOISE and (
        not facts_of(written).under_kms or (searched and not peek.not_asked)
    ):
        yield RuledOut(
            Cause.KEY_RENAMED,
            "under no key of the configuration, of any rule and name, does it look like an object; damage at its start "
            "would look the same",
            Confidence.LIKELY,
        )
    if seen.neighbours is Neighbours.SAME_KEY:
        yield RuledOut(
            Cause.WRONG_KEY,
            "values that were written before and after it open under the same key; only other bytes of the key for a "
            "time would look the same",
            Confidence.LIKELY,
        )


def _undone(peek: Peek) -> str:
    return f"{peek.undone.detail} put right" if peek.undone is not None else "what was damaged put right"


def _under_right_key(peek: Peek, *, searched: bool) -> Iterator[RuledOut]:
    if peek.encoding not in {"", "encrypted"}:
        yield RuledOut(Cause.DOUBLE_ENCRYPTED, f"what it decrypts to begins as {peek.encoding}")
    look = peek.look
    # Any line of text ends with a line feed; and a padding of AES-CBC that is gone leaves no trace in the plaintext.
    ends = look is not None and look.ends_as_written and not look.ends_early
    telling = peek.encoding == "protobuf" or (peek.encoding == "json" and look is not None and look.whole)
    if ends and telling and peek.undone is None and peek.authenticated:
        yield RuledOut(Cause.VALUE_TRUNCATED, "it ends as API servers write it")
    if not searched or peek.undone is not None:
        return
    yield RuledOut(Cause.TEXT_MODE_DAMAGE, "turning every CR LF back into LF does not make it open")
    if not peek.bound:
        return
    yield RuledOut(
        Cause.STORAGE_PREFIX_CHANGED,
        "it opens below none of the storage prefixes that distributions use; another one would look the same",
        Confidence.LIKELY,
    )
    if look is not None and look.belongs:
        yield RuledOut(
            Cause.VALUE_MOVED, "it does not open under the etcd key that the object in it leads to"
        )


def _of_decoding(seen: Observation) -> Iterator[RuledOut]:
    if seen.enveloped:
        proven = seen.peek is None
        if proven:
            yield RuledOut(Cause.WRONG_KEY, f"it opens under {seen.transformer}, and its tag fits")
        elif is_right_key(seen.peek):
            assert seen.peek is not None  # it says so
            yield RuledOut(
                Cause.WRONG_KEY,
                f"under {seen.transformer} the start of {seen.peek.encoding} stands where it belongs (chance: less "
                f"than 1 in 2^{seen.peek.odds_bits})",
            )
    elif seen.envelope_bits_off > ENVELOPE_BITS:
        yield RuledOut(
            Cause.ENVELOPE_DAMAGED, f"its start differs from k8s:enc: in {seen.envelope_bits_off} bits"
        )
    if seen.shape is not None:
        yield from _by_shape(seen.shape)


def _by_shape(shape: PlaintextShape) -> Iterator[RuledOut]:
    if not shape.size:
        return
    yield RuledOut(Cause.EMPTY_VALUE, f"it holds {shape.size} bytes")
    if not shape.zeroed:
        yield RuledOut(Cause.ZEROED_VALUE, "not all of its bytes are zero")
    if not shape.starts_encrypted:
        yield RuledOut(Cause.DOUBLE_ENCRYPTED, "the plaintext does not begin with k8s:enc:")
    if not shape.heals_as_text:
        yield RuledOut(
            Cause.TEXT_MODE_DAMAGE, "turning every CR LF back into LF does not give a whole object"
        )
    if not shape.whole_at:
        yield RuledOut(
            Cause.TRAILING_BYTES, "no whole object stands at its start, with other bytes behind it"
        )
    if not shape.magic_bits_off:
        yield RuledOut(Cause.MAGIC_DAMAGED, "it begins with the protobuf magic, every bit of it")
    if shape.ends_envelope:
        yield RuledOut(Cause.VALUE_TRUNCATED, "it ends as API servers end a protobuf object")


def _of_contents(seen: Observation) -> Iterator[RuledOut]:
    decoded = seen.decoded
    if decoded is None or not seen.owner_known:
        return
    if not seen.identity_mismatch:
        yield RuledOut(
            Cause.IDENTITY_MISMATCH, "metadata.name and metadata.namespace are those of the etcd key"
        )
    if seen.codec is not StorageCodec.BUILTIN or decoded.encoding != "protobuf":
        return
    wrong = {inconsistency.cause for inconsistency in decoded.inconsistencies}
    for cause, why in (
        (Cause.RAW_JSON_INVALID, "every field that holds raw JSON parses"),
        (Cause.INT_OR_STRING_INVALID, "every field that is a number or a text says which"),
        (Cause.INVALID_UTF8, "every text is valid UTF-8"),
    ):
        if cause not in wrong:
            yield RuledOut(cause, why)
