"""What a plaintext proves that does not become an object, where its encryption key is right or there is none."""

from __future__ import annotations

from typing import Final

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, Ruling
from etcdfix.examine.verdicts.observation import (
    GARBLED,
    DecodeFailure,
    DecodeFailureKind,
    Observation,
    PlaintextShape,
)
from etcdfix.model.model import Confidence
from etcdfix.model.storagekey import StorageCodec

# So many flipped bits still let a start be recognised: of the magic's 32, of the 64 of k8s:enc:.
_MAGIC_BITS: Final = 2
ENVELOPE_BITS: Final = 3

# What may be whole below one damaged or one additional layer, or once the CRD lists its version again: no damage that a
# deletion could rest on.
MAY_BE_WHOLE: Final = frozenset({Cause.DOUBLE_ENCRYPTED, Cause.CRD_VERSION_MISSING, Cause.ENVELOPE_DAMAGED})

# A cluster that is newer than this tool may read what looks like that.
MAYBE_NEWER: Final = frozenset(
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

ALMOST_ENVELOPED: Final = Ruling(
    Cause.ENVELOPE_DAMAGED,
    Confidence.LIKELY,
    "begins like k8s:enc: with a few bits flipped, so it is not recognised as encrypted",
)

_NO_OBJECTS_KEY: Final = Ruling(
    Cause.NOT_AN_OBJECTS_KEY,
    Confidence.CERTAIN,
    "no object can have this etcd key: it has too few parts",
    Damage.PROVEN,
)

_BY_KIND: Final = {
    DecodeFailureKind.PROTOBUF: (Cause.PROTOBUF_DAMAGED, "the protobuf body breaks{where}{path}"),
    DecodeFailureKind.JSON: (Cause.JSON_DAMAGED, "the JSON body breaks{where}{path}"),
    DecodeFailureKind.CBOR: (Cause.CBOR_DAMAGED, "the CBOR body breaks{where}{path}"),
    DecodeFailureKind.NOT_REGISTERED: (Cause.KIND_NOT_REGISTERED, "says it is {stated}, {known}"),
    DecodeFailureKind.VERSION_REMOVED: (
        Cause.VERSION_REMOVED,
        "written as {stated}; the last to read it is {until}",
    ),
    DecodeFailureKind.KIND_MISSING: (Cause.KIND_MISSING, "does not say what kind of object it is"),
    DecodeFailureKind.WRONG_KIND: (
        Cause.WRONG_KIND_FOR_KEY,
        "is a {stated}, which does not belong under this key",
    ),
    DecodeFailureKind.CONVERSION: (Cause.CONVERSION_FAILED, "decodes, but does not convert{path}"),
    DecodeFailureKind.UNKNOWN_ENCODING: (
        Cause.UNKNOWN_ENCODING,
        "no serializer of the API server recognises the bytes",
    ),
}


def is_nearly_enveloped(seen: Observation) -> bool:
    """Say whether a value begins like an encrypted one but for a few bits."""
    return not seen.enveloped and seen.envelope_bits_off <= ENVELOPE_BITS


def _is_unknown_encoding(failure: DecodeFailure, shape: PlaintextShape) -> bool:
    """Say whether the bytes begin as nothing that is known here; whatever custom resources are, JSON is what fails."""
    return failure.kind is DecodeFailureKind.UNKNOWN_ENCODING or (
        failure.kind is DecodeFailureKind.JSON and not shape.starts_json
    )


def may_be_newer(seen: Observation, cause: Cause) -> bool:
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


def _is_no_objects(seen: Observation) -> bool:
    """Say whether no object can have the etcd key, and none is in the value either, whoever would read it."""
    word = seen.shape is not None and seen.shape.is_word
    return seen.too_few_parts and word and not (seen.enveloped or is_nearly_enveloped(seen))


def empty_ruling(seen: Observation) -> Ruling:
    """Rule on a plaintext that parses, and from which no field of an object comes out."""
    if _is_no_objects(seen):
        return _NO_OBJECTS_KEY
    cause, what = Cause.EMPTY_OBJECT, "no field of an object comes out"
    if seen.shape is not None and seen.shape.size == 0:
        cause, what = Cause.EMPTY_VALUE, "the value has 0 bytes"
    message = f"{what}; the API server shows an empty object"
    return Ruling(cause, Confidence.CERTAIN, message, Damage.PROVEN)


def rule_on_contents(seen: Observation, failure: DecodeFailure) -> Ruling:
    """Rule on a plaintext that does not decode."""
    if _is_no_objects(seen):
        return _NO_OBJECTS_KEY
    cause, confidence, message = _cause(seen, failure)
    return Ruling(cause, confidence, message, Damage.NONE if cause in MAY_BE_WHOLE else Damage.PROVEN)


def _cause(seen: Observation, failure: DecodeFailure) -> tuple[Cause, Confidence, str]:
    shape = seen.shape
    shaped = _cause_by_shape(seen, failure, shape) if shape is not None else None
    if shaped is not None:
        return shaped
    if shape is not None and failure.kind is DecodeFailureKind.JSON and not shape.starts_json:
        return Cause.UNKNOWN_ENCODING, Confidence.CERTAIN, "begins as nothing that its API server reads"
    if failure.kind is DecodeFailureKind.VERSION_REMOVED and seen.codec is StorageCodec.CUSTOM_RESOURCE:
        message = f"stored as {failure.stated}, a version that the CustomResourceDefinition no longer lists"
        return Cause.CRD_VERSION_MISSING, Confidence.CERTAIN, message
    cause, words = _BY_KIND[failure.kind]
    message = words.format(
        where=f" at byte {failure.offset}" if failure.offset is not None else "",
        path=f", in {failure.field_path}" if failure.field_path else "",
        stated=failure.stated,
        known=_who_knows(seen, failure),
        until=failure.readable_until or "an earlier release",
    )
    return cause, Confidence.CERTAIN, message


def _who_knows(seen: Observation, failure: DecodeFailure) -> str:
    if not seen.assumed_release:
        return "which no known release has"
    if failure.known_since:
        return f"which {seen.assumed_release} does not register; {failure.known_since} brought it"
    return f"which neither {seen.assumed_release} nor any other known release has"


def _cause_by_shape(
    seen: Observation, failure: DecodeFailure, shape: PlaintextShape
) -> tuple[Cause, Confidence, str] | None:
    certain, likely, possible = Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE
    unknown = failure.kind is DecodeFailureKind.UNKNOWN_ENCODING
    first_block = shape.heals_first_block and failure.kind in GARBLED
    garbled = "only the first cipher block is garbled, which is what a damaged initialisation vector does"
    newer = f"{garbled}; a magic that is newer looks the same"
    protobuf = failure.kind is DecodeFailureKind.PROTOBUF and failure.message in {
        "unexpected EOF",
        "empty body",
    }
    # In the middle of true, false or null, the message is about the word.
    ran_out = failure.message.endswith("unexpected end of JSON input") or failure.offset == shape.size
    json = failure.kind is DecodeFailureKind.JSON and ran_out and shape.starts_json
    extra = f"a whole object of {shape.whole_at} bytes, and {shape.size - shape.whole_at} bytes after it"
    twice = f"decrypts under {seen.transformer} to another encrypted value"
    rows = (
        (shape.size == 0, Cause.EMPTY_VALUE, certain, "the value has 0 bytes"),
        (shape.zeroed, Cause.ZEROED_VALUE, certain, f"all {shape.size} bytes are zero"),
        (shape.starts_encrypted, Cause.DOUBLE_ENCRYPTED, certain, twice),
        (is_nearly_enveloped(seen), *ALMOST_ENVELOPED[:3]),
        (
            shape.heals_as_text,
            Cause.TEXT_MODE_DAMAGE,
            certain,
            "decodes once every CR LF is turned back into LF",
        ),
        (shape.whole_at > 0, Cause.TRAILING_BYTES, certain, extra),
        (first_block and shape.heals_magic, Cause.IV_DAMAGED, possible, newer),
        (first_block, Cause.IV_DAMAGED, likely, garbled),
        (
            shape.heals_magic,
            Cause.MAGIC_DAMAGED,
            certain,
            "decodes once its first four bytes are the protobuf magic again",
        ),
        (
            unknown and shape.ends_envelope,
            Cause.MAGIC_DAMAGED,
            likely,
            "ends like a protobuf object, but does not start like one",
        ),
        (
            unknown and shape.magic_bits_off <= _MAGIC_BITS,
            Cause.MAGIC_DAMAGED,
            possible,
            "starts almost like a protobuf object",
        ),
        (
            protobuf and not (shape.ends_envelope or shape.names_encoding),
            Cause.VALUE_TRUNCATED,
            likely,
            "a length in the protobuf body runs past the end of the value",
        ),
        (json, Cause.VALUE_TRUNCATED, likely, "the JSON body stops before it is complete"),
    )
    return next((row[1:] for row in rows if row[0]), None)
