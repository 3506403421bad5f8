"""What a value that does not open proves: that its encryption key is right and the value wrong, or nothing.

A tag or a padding that does not fit says neither. A :class:`Peek` looks past them: under the right key
the structure of an object stands where it belongs. Then damage counts where it is found: something was undone and the
tag fits, the plaintext itself breaks, or it ends too early. Everything else is the configuration's fault until
somebody shows the contrary. ``docs/adr`` says why, with the odds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.observation import Neighbours, Observation, OwnKey
from etcdfix.model.model import Attempt, Confidence, Evidence, Look, Peek, PeekState, Undone, UndoneDamage
from etcdfix.model.providers import Noise, facts_of
from etcdfix.model.storagekey import display
from etcdfix.text.words import counted


class Damage(StrEnum):
    """Whether a value is proven wrong: not the configuration, not the reader, the value."""

    NONE = "none"
    POSSIBLE = "possible"
    """As much speaks for an encryption key that was replaced; a deletion also needs the word of every API server."""
    LIKELY = "likely"
    """It rests on other values, or on earlier ones of its etcd key; a deletion needs a person's word."""
    PROVEN = "proven"

    @property
    def is_unproven(self) -> bool:
        """Whether there is damage, and it is not proven."""
        return self in {Damage.LIKELY, Damage.POSSIBLE}


class Ruling(NamedTuple):
    """Why a value does not open.

    Attributes:
        open: More could be found: by a thorough look, or once the values around it have been seen.
        shown_by_itself: Damage that is likely rests on the value, or on earlier ones of its etcd key, and on no others.
    """

    cause: Cause
    confidence: Confidence
    message: str
    damage: Damage = Damage.NONE
    open: bool = False
    shown_by_itself: bool = False


def is_right_key(peek: Peek | None) -> bool:
    """Say whether the encryption key that the value names is proven to be the one that wrote it."""
    return peek is not None and peek.state is PeekState.RIGHT_KEY and peek.named


def other_key(peek: Peek | None) -> str:
    """Return the key elsewhere in the configuration that wrote the value, "" for none."""
    if peek is None or peek.state is not PeekState.RIGHT_KEY or peek.named:
        return ""
    return _key_of(peek)


def _key_of(peek: Peek) -> str:
    fingerprint = f" ({peek.key_fingerprint})" if peek.key_fingerprint else ""
    return f"{peek.transformer} of {peek.rule}{fingerprint}"


def rule_on(seen: Observation, peek: Peek) -> Ruling:
    """Say why a value does not open although a key of the name that it gives was tried."""
    written = seen.envelope_transformer
    if is_right_key(peek):
        return _under_right_key(seen, peek)
    if peek.state is PeekState.RIGHT_KEY:
        how = "opens under" if peek.opens else "was written with"
        message = f"written under {written}, and {how} another key of the configuration: {other_key(peek)}"
        return Ruling(Cause.KEY_RENAMED, Confidence.CERTAIN, message)
    if peek.too_short:
        message = f"too short to have been written under {written}, whatever the key"
        return Ruling(Cause.VALUE_TRUNCATED, Confidence.CERTAIN, message, Damage.PROVEN)
    if peek.name_may_go_on:
        kms = facts_of(written).under_kms
        name = "its provider's name" if kms else "its key name"
        message = f"does not open under {written}, and {name} may be longer: text and another colon follow"
        cause = Cause.PROVIDER_MISSING if kms else Cause.KEY_NAME_MISSING
        return Ruling(cause, Confidence.POSSIBLE, message)
    if seen.neighbours in {Neighbours.SAME_KEY, Neighbours.NEWEST}:
        return _among_neighbours(seen)
    if seen.neighbours is Neighbours.TWO_WRITERS:
        return _between_two_writers(seen, peek)
    if peek.state is PeekState.NOISE:
        message = f"noise under every key named {written}: its bytes are most likely others now"
        return Ruling(Cause.WRONG_KEY, Confidence.LIKELY, message, open=True)
    message = f"does not open under {written}, and too little of it can be seen to say why"
    return Ruling(Cause.AUTHENTICATION_FAILED, Confidence.POSSIBLE, message, open=True)


def _under_right_key(seen: Observation, peek: Peek) -> Ruling:
    written = seen.envelope_transformer
    if peek.undone is not None:
        return _undone(peek.undone, written)
    if peek.encoding == "encrypted":
        message = f"decrypts under {written} to another encrypted value"
        return Ruling(Cause.DOUBLE_ENCRYPTED, Confidence.CERTAIN, message)
    look = peek.look
    certain, likely, proven = Confidence.CERTAIN, Confidence.LIKELY, Damage.PROVEN
    # AES-CBC whose padding fits: the end of the value is as it was written.
    maybe_only_the_iv = peek.opens and not peek.bound
    if look is not None and look.breaks:
        if look.ends_early:
            # A length that was changed looks the same where the end was changed too; a thorough look tells some apart.
            message = f"the key of {written} is right, and the object stops before its end: {look.message}"
            return Ruling(Cause.VALUE_TRUNCATED, likely, message, proven, open=True)
        message = f"the key of {written} is right, and the object itself is damaged: {look.message}"
        return Ruling(Cause.CIPHERTEXT_DAMAGED, likely if maybe_only_the_iv else certain, message, proven)
    # Bytes that are missing at the end, and bytes that were changed there, look the same.
    whole = look is not None and look.whole
    end_wrong = look is not None and whole and not look.ends_as_written
    if look is not None and whole and look.ends_early:
        message = f"the key of {written} is right, and the last bytes that the API server writes are missing"
        return Ruling(Cause.VALUE_TRUNCATED, likely, message, proven)
    if whole and not (peek.authenticated or peek.opens or end_wrong):
        # AES-CBC: an object that ends where the blocks end is one whose padding is gone.
        message = f"the key of {written} is right, and the padding after the object is missing"
        return Ruling(Cause.VALUE_TRUNCATED, likely, message, proven)
    if not peek.bound:
        # There is nothing but the value itself that could be wrong.
        message = f"the key of {written} is right, and the value does not open: bytes of it were changed"
        unsure = end_wrong or maybe_only_the_iv
        return Ruling(Cause.CIPHERTEXT_DAMAGED, likely if unsure else certain, message, proven)
    if end_wrong:
        message = (
            f"the key of {written} is right, and the last bytes are not those that the API server writes"
        )
        return Ruling(Cause.CIPHERTEXT_DAMAGED, likely, message, proven)
    shown = _shown_to_be_damaged(seen, peek)
    if shown is not None:
        return shown
    message = (
        f"the key of {written} is right and no damage is found: it may be in order and bound to another etcd key or "
        "prefix, which nothing here names"
    )
    return Ruling(Cause.ASSOCIATED_DATA_UNKNOWN, Confidence.POSSIBLE, message, open=True)


def _shown_to_be_damaged(seen: Observation, peek: Peek) -> Ruling | None:
    """Rule on a whole object under a tag that does not fit; None where it may be bound to another etcd key.

    Only where it is shown that its own etcd key is its associated data, the value is damaged.
    """
    right = f"the key of {seen.envelope_transformer} is right, the tag does not fit"
    damaged, likely = Cause.CIPHERTEXT_DAMAGED, Confidence.LIKELY
    if peek.equal_bytes:
        message = f"{right}, and 16 equal bytes stand in a row in the encrypted data: they were overwritten"
        return Ruling(damaged, Confidence.CERTAIN, message, Damage.PROVEN)
    unwritable = peek.look.unwritable if peek.look is not None else None
    others_open = seen.own_key not in {OwnKey.UNKNOWN, OwnKey.NONE}
    if unwritable is not None and others_open:
        message = f"{right}, and no API server writes such an object: its bytes were changed"
        damage = Damage.PROVEN if unwritable is Confidence.CERTAIN else Damage.LIKELY
        return Ruling(damaged, unwritable, message, damage, shown_by_itself=True)
    if seen.own_key is OwnKey.KEPT:
        message = f"{right}, and an earlier revision of this etcd key opens: its bytes were changed"
        return Ruling(damaged, likely, message, Damage.LIKELY, shown_by_itself=True)
    if seen.own_key is OwnKey.OTHERS_OPEN and seen.names_own_key:
        message = (
            f"{right}, the object in it is that of this etcd key, and other values under the key open, one of them "
            "older: its bytes were changed"
        )
        return Ruling(damaged, likely, message, Damage.LIKELY)
    return None


def _undone(found: UndoneDamage, written: str) -> Ruling:
    certain, proven = Confidence.CERTAIN, Damage.PROVEN
    detail, home = found.detail, display(found.belongs_to)
    match found.what:
        case Undone.CIPHERTEXT_BIT | Undone.TAG_BIT:
            message = f"opens under {written} once one bit is put back: {detail}"
            return Ruling(Cause.CIPHERTEXT_DAMAGED, certain, message, proven)
        case Undone.NONCE_BIT | Undone.INFO_BIT:
            message = f"opens under {written} once one bit is put back: {detail}"
            return Ruling(Cause.NONCE_DAMAGED, certain, message, proven)
        case Undone.SOURCE_TYPE:
            message = f"opens under {written} as a value of the other source type: the envelope is damaged"
            return Ruling(Cause.KMS_ENVELOPE_DAMAGED, certain, message, proven)
        case Undone.DATA_KEY:
            message = (
                f"opens under {written} with the data key of a neighbour: its own wrapped key is damaged"
            )
            return Ruling(Cause.KMS_ENVELOPE_DAMAGED, certain, message, proven)
        case Undone.TEXT_MODE:
            message = f"opens under {written} once every CR LF is turned back into LF"
            return Ruling(Cause.TEXT_MODE_DAMAGE, certain, message, proven)
        case Undone.OTHER_PREFIX:
            message = f"opens under {written} as the value of {home}: the storage prefix was another one"
            return Ruling(Cause.STORAGE_PREFIX_CHANGED, certain, message)
        case Undone.OTHER_PATH:
            message = f"opens under {written} as the value of {home}: it was copied from there"
            return Ruling(Cause.VALUE_MOVED, certain, message)
        case _:
            assert_never(found.what)


# What nothing in etcd tells from damage.
_ELSE: Final = "or an API server had other bytes under that name"
MEANING_OF_NOISE: Final = {
    Noise.NONCE: (Cause.NONCE_DAMAGED, "noise", "its nonce"),
    Noise.CIPHERTEXT: (Cause.CIPHERTEXT_DAMAGED, "noise", "the encrypted data"),
    Noise.ENVELOPE: (Cause.KMS_ENVELOPE_DAMAGED, "does not open", "its wrapped data key or its nonce"),
}
"""The cause of noise under the right encryption key, how a value shows it, and what is damaged."""


def _among_neighbours(seen: Observation) -> Ruling:
    """Rule on noise where other values open: all that were written before it, or some before and some after it."""
    written = seen.envelope_transformer
    confidence, damage = Confidence.LIKELY, Damage.LIKELY
    around = "values written before and after it open under the same key"
    if seen.neighbours is Neighbours.NEWEST:
        confidence, damage = Confidence.POSSIBLE, Damage.POSSIBLE
        around = "it is the newest value under that key and the only one that does not open"
    cause, shown, damaged = MEANING_OF_NOISE[facts_of(written).noise]
    message = f"{shown} under {written}, and {around}: {damaged} is damaged, {_ELSE}"
    return Ruling(cause, confidence, message, damage, open=True)


def _between_two_writers(seen: Observation, peek: Peek) -> Ruling:
    written = seen.envelope_transformer
    message = (
        f"does not open under {written}, and the newest values under that key open and fail in turns: two API servers "
        "seem to write with different bytes under one key name"
    )
    if peek.state is PeekState.NOISE:
        return Ruling(Cause.WRONG_KEY, Confidence.LIKELY, message, open=True)
    return Ruling(Cause.AUTHENTICATION_FAILED, Confidence.POSSIBLE, message, open=True)


def attempt_evidence(attempts: Iterable[Attempt]) -> tuple[Evidence, ...]:
    """Return what each key said, for a finding."""
    return tuple(evidence for attempt in attempts for evidence in _attempted(attempt))


def _attempted(attempt: Attempt) -> Iterator[Evidence]:
    named = f" (key {attempt.key_fingerprint})" if attempt.key_fingerprint else ""
    tried = "failed"
    if attempt.reason == "kms-unreachable":
        tried = "no answer" if attempt.error else "not tried"
    yield Evidence(f"decrypt with {attempt.transformer}{named}", tried, attempt.error)
    plugin = attempt.plugin
    if plugin is not None:
        health = "healthy" if plugin.healthy else "unhealthy"
        yield Evidence(
            f"other values that the plugin of {attempt.transformer} opened in this run",
            str(plugin.any_key),
            f"{plugin.same_key} of them under the same key id; the plugin reports {health}",
        )


_LOOK: Final = "look without tag or padding"
_UNDO: Final = "undo what may have happened"
_DECODE: Final = "decode what the look showed"
PEEK_CHECKS: Final = frozenset({_LOOK, _UNDO, _DECODE})
"""The checks in whose evidence a peek speaks."""


def peek_evidence(peek: Peek | None) -> tuple[Evidence, ...]:
    """Return what the look without tag or padding showed, for a finding; never anything of the plaintext."""
    if peek is None:
        return ()
    attempts = counted(peek.candidates, "attempt")
    tried = f"{attempts} (keys, starts and single bits of nonce and info counted)"
    check = _LOOK
    if peek.state is PeekState.NOT_POSSIBLE:
        return (Evidence(check, "not possible", "too little to see, or no key that could be tried"),)
    if peek.state is PeekState.NOISE:
        return (Evidence(check, "noise", tried),)
    shown = f"the start of {peek.encoding} stands where it belongs, {peek.wrong_bits} bits of it wrong"
    if not peek.encoding:
        shown = "the tag fits"
    odds = f"{shown}; by chance less often than once in 2^{peek.odds_bits}, {tried}"
    found = [Evidence(check, f"right key: {_key_of(peek)}", odds)]
    if peek.undone is not None:
        found.append(Evidence(_UNDO, str(peek.undone.what), peek.undone.detail))
    if peek.look is not None:
        found.append(Evidence(_DECODE, looked(peek.look), peek.look.message))
    return tuple(found)


def looked(look: Look) -> str:
    """Return what decoding says of a plaintext, in a few words."""
    if look.whole:
        return "a whole object" if look.ends_as_written else "a whole object, its end missing"
    if look.ends_early:
        return "ends too early"
    return "breaks" if look.breaks else "does not decode"
