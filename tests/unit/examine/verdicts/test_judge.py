"""Every branch from what was seen to what it means, one row each."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, is_right_key
from etcdfix.examine.verdicts.judge import Verdict, judge
from etcdfix.examine.verdicts.kms import undetermined_cause
from etcdfix.examine.verdicts.observation import (
    Covered,
    DecodeFailure,
    DecodeFailureKind,
    Neighbours,
    Observation,
    PlaintextShape,
)
from etcdfix.model.model import (
    Attempt,
    Confidence,
    DecodedObject,
    Evidence,
    FailureReason,
    GroupVersionKind,
    Inconsistency,
    Look,
    Outcome,
    Peek,
    PeekState,
    PluginRecord,
    ServerBehaviour,
    TransformFailure,
    Undone,
    UndoneDamage,
)
from etcdfix.model.storagekey import StorageCodec

CERTAIN, LIKELY, POSSIBLE = Confidence
NONE, POSSIBLE_DAMAGE, LIKELY_DAMAGE, PROVEN = Damage
CBC = "aescbc/v1/key1"
BROKEN = Look(
    whole=False, breaks=True, ends_early=False, ends_as_written=True, message="proto: illegal wireType 7"
)
NOISE = Peek(PeekState.NOISE, candidates=2)
SECRET = GroupVersionKind("", "v1", "Secret")


def seen(**changes: Any) -> Observation:
    fields: dict[str, Any] = {
        "codec": StorageCodec.BUILTIN, "owner_known": True, "covered": Covered.COVERED, "enveloped": False,
        "envelope_known": False, "envelope_transformer": "", "resource": "secrets",
    }  # fmt: skip
    return Observation(**(fields | changes))


def enveloped(written_under: str = "aesgcm/v1/key2", /, **changes: Any) -> Observation:
    fields = {"enveloped": True, "envelope_known": True, "envelope_transformer": written_under}
    return seen(**(fields | changes))


def failed(*reasons: str, overall: str = "", **changes: Any) -> TransformFailure:
    attempts = tuple(
        Attempt(FailureReason(r), (f"error: {r}",), transformer="aesgcm/v1/key2", key_fingerprint="0a1b2c3d")
        for r in reasons
    )
    return TransformFailure(
        reason=FailureReason(overall or (reasons[0] if reasons else "no-provider-matched")),
        message="as the server says it",
        attempts=attempts,
        **changes,
    )


def behind_plugin(
    reason: str,
    *,
    status: str = "",
    healthy: bool = True,
    same_key: int = 0,
    any_key: int = 0,
    **changes: Any,
) -> Observation:
    trust = PluginRecord(healthy=healthy, same_key=same_key, any_key=any_key)
    attempt = Attempt(FailureReason(reason), (f"error: {reason}",), status, trust, "kms/v2/prov")
    failure = TransformFailure(
        reason=FailureReason(reason), message="as the server says it", attempts=(attempt,)
    )
    return enveloped("kms/v2/prov", transform_failure=failure, **changes)


def rejected(**changes: Any) -> Observation:
    return behind_plugin("kms-refused", status="INVALID_ARGUMENT", **changes)


def right(transformer: str = "aesgcm/v1/key2", *, named: bool = True, **changes: Any) -> Peek:
    fields: dict[str, Any] = {"rule": "secrets", "key_fingerprint": "fp:0a1b2c3d", "encoding": "protobuf",
                              "odds_bits": 100, "candidates": 2}  # fmt: skip
    return Peek(PeekState.RIGHT_KEY, transformer=transformer, named=named, **(fields | changes))


def unopened(*reasons: str, overall: str = "", **changes: Any) -> Observation:
    return enveloped(transform_failure=failed(*reasons, overall=overall), **changes)


def shape(**changes: Any) -> PlaintextShape:
    fields: dict[str, Any] = {
        "size": 200, "zeroed": False, "starts_encrypted": False, "magic_bits_off": 16, "starts_json": False,
        "ends_envelope": False, "heals_magic": False, "heals_as_text": False,
    }  # fmt: skip
    return PlaintextShape(**(fields | changes))


def undecoded(
    kind: DecodeFailureKind = DecodeFailureKind.UNKNOWN_ENCODING,
    message: str = "as the decoder says it",
    *,
    plaintext: PlaintextShape | None = None,
    transformer: str = "identity",
    failure: dict[str, Any] | None = None,
    **changes: Any,
) -> Observation:
    return seen(
        decode_failure=DecodeFailure(kind=kind, message=message, **(failure or {})),
        shape=plaintext,
        transformer=transformer,
        **changes,
    )


def under_padding(
    kind: DecodeFailureKind = DecodeFailureKind.UNKNOWN_ENCODING, **changes: Any
) -> Observation:
    known: dict[str, Any] = {"enveloped": True, "envelope_known": True, "envelope_transformer": CBC}
    return undecoded(kind, transformer=CBC, **known, **changes)


def refused(
    kind: DecodeFailureKind, *, plaintext: PlaintextShape | None = None, **changes: Any
) -> Observation:
    return seen(
        transform_failure=failed(),
        decode_failure=DecodeFailure(kind, "as the decoder says it"),
        shape=plaintext,
        **changes,
    )


def decoded(*inconsistencies: Inconsistency, **changes: Any) -> DecodedObject:
    fields: dict[str, Any] = {
        "gvk": SECRET, "name": b"web", "namespace": b"shop", "uid": b"u", "encoding": "protobuf",
    }  # fmt: skip
    return DecodedObject(**(fields | changes), inconsistencies=inconsistencies)


class Row(NamedTuple):
    """What was seen and what it means; whether more could be found, a later release may read it, its key is shown."""

    observation: Observation
    outcome: Outcome
    cause: Cause | None
    confidence: Confidence
    apiserver: ServerBehaviour
    damage: Damage
    waits: bool = False
    newer: bool = False
    key_proven: bool = False


def undetermined(seen: Observation, cause: Cause, **also: bool) -> Row:
    return Row(seen, Outcome.UNDETERMINED, cause, CERTAIN, ServerBehaviour.NOT_ASKED, NONE, **also)


def not_opened(
    seen: Observation, cause: Cause, sure: Confidence = CERTAIN, damage: Damage = NONE, **also: bool
) -> Row:
    return Row(seen, Outcome.DECRYPT_FAILURE, cause, sure, ServerBehaviour.CORRUPT, damage, **also)


def broken_sealed(seen: Observation, cause: Cause, **also: bool) -> Row:
    return not_opened(seen, cause, CERTAIN, PROVEN, **also)


def not_decoded(seen: Observation, cause: Cause, sure: Confidence, damage: Damage, **also: bool) -> Row:
    return Row(seen, Outcome.DECODE_FAILURE, cause, sure, ServerBehaviour.CORRUPT, damage, **also)


def broken(seen: Observation, cause: Cause, **also: bool) -> Row:
    return not_decoded(seen, cause, CERTAIN, PROVEN, **also)


def inconsistent(seen: Observation, cause: Cause, server: ServerBehaviour = ServerBehaviour.SERVES) -> Row:
    return Row(seen, Outcome.INCONSISTENT, cause, CERTAIN, server, NONE)


BRANCHES = {
    "bookkeeping": Row(
        seen(codec=StorageCodec.NOT_AN_OBJECT), Outcome.NOT_AN_OBJECT, None, CERTAIN, ServerBehaviour.NOT_ASKED, NONE
    ),
    "no configuration": undetermined(enveloped(covered=Covered.NO_CONFIGURATION), Cause.NO_CONFIGURATION),
    "plugin not asked": undetermined(
        enveloped("kms/v2/prov", transform_failure=failed("kms-unreachable")), Cause.KMS_UNREACHABLE
    ),
    "plugin may not": undetermined(
        behind_plugin("kms-refused", status="PERMISSION_DENIED", same_key=5, any_key=5), Cause.KMS_DENIED
    ),
    "plugin may not, values around it open": undetermined(
        behind_plugin("kms-refused", status="UNAUTHENTICATED", same_key=5, any_key=5, neighbours=Neighbours.SAME_KEY),
        Cause.KMS_DENIED
    ),
    "plugin knows other keys": undetermined(
        behind_plugin("kms-refused", status="NOT_FOUND", any_key=1), Cause.KMS_KEY_UNKNOWN
    ),
    "plugin knows no key": undetermined(
        behind_plugin("kms-refused", status="NOT_FOUND"), Cause.KMS_UNPROVEN, waits=True
    ),
    "plugin contradicts itself": undetermined(
        behind_plugin("kms-refused", status="NOT_FOUND", same_key=1, any_key=3), Cause.KMS_UNPROVEN, waits=True
    ),
    "plugin rejects, values around it open": not_opened(
        rejected(same_key=1, any_key=1, neighbours=Neighbours.SAME_KEY),
        Cause.KMS_ENVELOPE_DAMAGED, LIKELY, LIKELY_DAMAGE, waits=True
    ),
    "plugin rejects, is unwell, values around it open": undetermined(
        rejected(healthy=False, same_key=1, any_key=1, neighbours=Neighbours.SAME_KEY), Cause.KMS_UNPROVEN, waits=True
    ),
    "plugin rejects the newest value, and no other one": not_opened(
        rejected(same_key=3, any_key=3, neighbours=Neighbours.NEWEST),
        Cause.KMS_ENVELOPE_DAMAGED, POSSIBLE, POSSIBLE_DAMAGE, waits=True
    ),
    "plugin rejects one value and opens another in turns": undetermined(
        rejected(same_key=3, any_key=3, neighbours=Neighbours.TWO_WRITERS), Cause.KMS_UNPROVEN, waits=True
    ),
    "tag fails under the plugin's key, without a control": undetermined(
        behind_plugin("authentication-failed", any_key=3), Cause.KMS_UNPROVEN, waits=True
    ),
    "tag fails under the plugin's key, and the value shows that it is right": broken_sealed(
        behind_plugin("authentication-failed", peek=right("kms/v2/prov", look=BROKEN)),
        Cause.CIPHERTEXT_DAMAGED, key_proven=True
    ),
    "plugin rejects, and a neighbour's data key opens the value": broken_sealed(
        rejected(peek=right("kms/v2/prov", undone=UndoneDamage(Undone.DATA_KEY, "of a neighbour"))),
        Cause.KMS_ENVELOPE_DAMAGED, key_proven=True
    ),
    "plugin not asked, and another key of the configuration fits": undetermined(
        enveloped("kms/v2/prov", transform_failure=failed("kms-unreachable"), peek=right("kms/v2/other", named=False)),
        Cause.KMS_UNREACHABLE
    ),
    "too short for the plugin's key, with a control": broken_sealed(
        behind_plugin("too-short", same_key=3, any_key=3), Cause.VALUE_TRUNCATED
    ),
    "broken KMS envelope": broken_sealed(
        enveloped("kms/v2/prov", transform_failure=failed("kms-envelope-invalid")), Cause.KMS_ENVELOPE_DAMAGED
    ),
    "broken KMS envelope, whose provider's name may go on": not_opened(
        enveloped("kms/v1/prov", transform_failure=failed("kms-envelope-invalid"),
            peek=Peek(PeekState.NOT_POSSIBLE, name_may_go_on=True)),
        Cause.PROVIDER_MISSING, POSSIBLE, NONE
    ),
    "too short for the plugin's key, and its provider's name may go on": not_opened(
        behind_plugin("too-short", same_key=3, any_key=3, peek=Peek(PeekState.NOT_POSSIBLE, name_may_go_on=True)),
        Cause.PROVIDER_MISSING, POSSIBLE, NONE
    ),
    "damaged length of a KMS v1 value": broken_sealed(
        enveloped("kms/v1/prov", transform_failure=failed("kms-size-damaged")), Cause.KMS_ENVELOPE_DAMAGED
    ),
    "one of two KMS providers of a name was not asked": undetermined(
        enveloped("kms/v1/prov", transform_failure=failed("kms-envelope-invalid", "kms-unreachable")),
        Cause.KMS_UNREACHABLE
    ),
    "another API server's, and no entry for it": undetermined(
        unopened(overall="identity-refused", owner_known=False, rule_known=True, covered=Covered.NOT_COVERED),
        Cause.NO_CONFIGURATION
    ),
    "another API server's, and a key that is missing": not_opened(
        unopened("no-key-matched", owner_known=False, rule_known=True), Cause.KEY_NAME_MISSING
    ),
    "another API server's, and damaged": undetermined(
        unopened("too-short", owner_known=False, rule_known=True, peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)),
        Cause.OWNER_UNKNOWN
    ),
    "nobody's, and damaged": undetermined(
        unopened("too-short", owner_known=False, peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)), Cause.OWNER_UNKNOWN
    ),
    "no such key, and noise under the others": not_opened(
        unopened("no-key-matched", peek=NOISE), Cause.KEY_NAME_MISSING
    ),
    "no such key, and too short for any": broken_sealed(
        unopened("no-key-matched", peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)), Cause.VALUE_TRUNCATED
    ),
    "empty and nobody's": Row(
        seen(decoded=decoded(empty=True), owner_known=False, codec=StorageCodec.UNKNOWN, shape=shape(size=0)),
        Outcome.READABLE, Cause.OWNER_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE
    ),
    "strange envelope": broken_sealed(
        unopened(overall="no-provider-matched", envelope_known=False, envelope_transformer=""),
        Cause.UNKNOWN_ENVELOPE, newer=True
    ),
    "resource without entry": not_opened(
        unopened(overall="identity-refused", covered=Covered.NOT_COVERED), Cause.RESOURCE_NOT_CONFIGURED
    ),
    "plaintext without identity": not_opened(
        seen(transform_failure=failed(), decoded=decoded()), Cause.PLAINTEXT_NOT_ALLOWED
    ),
    "plaintext without identity, broken": broken_sealed(
        refused(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True)), Cause.PROTOBUF_DAMAGED
    ),
    "plaintext without identity, of a version that its definition dropped": not_opened(
        refused(DecodeFailureKind.VERSION_REMOVED, codec=StorageCodec.CUSTOM_RESOURCE), Cause.CRD_VERSION_MISSING
    ),
    "plaintext without identity, from which nothing comes out": broken_sealed(
        seen(transform_failure=failed(), decoded=decoded(empty=True), shape=shape(size=2)), Cause.EMPTY_OBJECT
    ),
    "no such provider": not_opened(unopened(overall="no-provider-matched"), Cause.PROVIDER_MISSING),
    "no such key": not_opened(unopened("no-key-matched"), Cause.KEY_NAME_MISSING),
    "no such key, and another one fits": not_opened(
        unopened("no-key-matched", peek=right(named=False)), Cause.KEY_RENAMED
    ),
    "does not authenticate": not_opened(
        unopened("authentication-failed"), Cause.AUTHENTICATION_FAILED, POSSIBLE, NONE, waits=True
    ),
    "noise under every key of the name": not_opened(
        unopened("authentication-failed", peek=NOISE), Cause.WRONG_KEY, LIKELY, NONE, waits=True
    ),
    "too short": broken_sealed(
        unopened("too-short", peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)), Cause.VALUE_TRUNCATED
    ),
    "undecodable and nobody's": undetermined(
        undecoded(owner_known=False, codec=StorageCodec.CUSTOM_RESOURCE), Cause.OWNER_UNKNOWN
    ),
    "allocator": Row(
        undecoded(DecodeFailureKind.PROTOBUF, codec=StorageCodec.ALLOCATOR, plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.ALLOCATOR_DAMAGED, CERTAIN, ServerBehaviour.NOT_ASKED, NONE
    ),
    "0 bytes": broken(undecoded(plaintext=shape(size=0)), Cause.EMPTY_VALUE),
    "no object's key": broken(
        undecoded(plaintext=shape(size=22, is_word=True), too_few_parts=True), Cause.NOT_AN_OBJECTS_KEY
    ),
    "no object's key, empty": Row(
        seen(decoded=decoded(empty=True), shape=shape(size=0, is_word=True), too_few_parts=True),
        Outcome.DECODE_FAILURE, Cause.NOT_AN_OBJECTS_KEY, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN
    ),
    "no object's key, and more than a word": broken(
        undecoded(plaintext=shape(), too_few_parts=True), Cause.UNKNOWN_ENCODING, newer=True
    ),
    "zeroed": broken(undecoded(plaintext=shape(zeroed=True)), Cause.ZEROED_VALUE),
    "encrypted twice": not_decoded(
        enveloped(decode_failure=DecodeFailure(DecodeFailureKind.UNKNOWN_ENCODING, "as the decoder says it"),
            shape=shape(starts_encrypted=True), transformer="aesgcm/v1/key2"),
        Cause.DOUBLE_ENCRYPTED, CERTAIN, NONE, key_proven=True
    ),
    "text mode": broken(
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(heals_as_text=True)), Cause.TEXT_MODE_DAMAGE
    ),
    "bytes after the end": broken(
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(whole_at=180)), Cause.TRAILING_BYTES
    ),
    "iv": not_decoded(
        under_padding(plaintext=shape(ends_envelope=True, heals_first_block=True), peek=right(CBC, wrong_bits=1)),
        Cause.IV_DAMAGED, LIKELY, PROVEN, newer=True, key_proven=True
    ),
    "noise under aescbc": not_decoded(
        under_padding(plaintext=shape(), peek=NOISE), Cause.WRONG_KEY, LIKELY, NONE, waits=True
    ),
    "k8s:enc: nearly right, plaintext not allowed": not_opened(
        seen(transform_failure=failed(), envelope_bits_off=3), Cause.ENVELOPE_DAMAGED, LIKELY, NONE
    ),
    "k8s:enc: too far off": broken(
        undecoded(plaintext=shape(), envelope_bits_off=4), Cause.UNKNOWN_ENCODING, newer=True
    ),
    "nothing known below an intact envelope": broken(
        undecoded(plaintext=shape(), enveloped=True, envelope_bits_off=0, transformer="aesgcm/v1/key1"),
        Cause.UNKNOWN_ENCODING, newer=True, key_proven=True
    ),
    "cut inside the envelope": broken_sealed(
        seen(enveloped=True, envelope_cut=True, transform_failure=failed()), Cause.VALUE_TRUNCATED
    ),
    "too little to see under aescbc": not_decoded(
        under_padding(plaintext=shape(), peek=Peek(PeekState.NOT_POSSIBLE)), Cause.WRONG_KEY, LIKELY, NONE, waits=True
    ),
    "noise under aescbc, values around it open": not_decoded(
        under_padding(plaintext=shape(), peek=NOISE, neighbours=Neighbours.SAME_KEY),
        Cause.CIPHERTEXT_DAMAGED, LIKELY, LIKELY_DAMAGE, waits=True, newer=True
    ),
    "padding fits under another key than the one that wrote it": not_decoded(
        under_padding(plaintext=shape(), peek=right("aescbc/v1/other", named=False)), Cause.KEY_RENAMED, CERTAIN, NONE
    ),
    "damage in the first block under aescbc": not_decoded(
        under_padding(DecodeFailureKind.PROTOBUF, failure={"offset": 9}, peek=right(CBC, wrong_bits=2),
            plaintext=shape(magic_bits_off=0, ends_envelope=True, heals_first_block=True)),
        Cause.IV_DAMAGED, LIKELY, PROVEN, key_proven=True
    ),
    "another start under aescbc, and nothing that shows what stood there": not_decoded(
        under_padding(plaintext=shape(ends_envelope=True), peek=right(CBC, wrong_bits=1)),
        Cause.MAGIC_DAMAGED, LIKELY, PROVEN, newer=True, key_proven=True
    ),
    "another magic under aescbc, before a whole object": not_decoded(
        under_padding(plaintext=shape(heals_magic=True, heals_first_block=True, holds_whole=True), peek=right(CBC)),
        Cause.IV_DAMAGED, POSSIBLE, PROVEN, newer=True, key_proven=True
    ),
    "JSON that begins otherwise": broken(
        undecoded(DecodeFailureKind.JSON, "unexpected end of JSON input", plaintext=shape()),
        Cause.UNKNOWN_ENCODING, newer=True
    ),
    "contents in an encoding that the envelope names": broken(
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True, names_encoding=True)),
        Cause.PROTOBUF_DAMAGED, newer=True
    ),
    "nothing comes out, and the envelope names an encoding": Row(
        seen(decoded=decoded(empty=True), shape=shape(names_encoding=True)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN, newer=True
    ),
    "kind garbled under aescbc": broken(
        under_padding(DecodeFailureKind.NOT_REGISTERED, plaintext=shape(starts_json=True), peek=right(CBC,
            wrong_bits=1), assumed_release="1.36"),
        Cause.KIND_NOT_REGISTERED, newer=True, key_proven=True
    ),
    "first block noise under aescbc, the end of a JSON object whole": not_decoded(
        under_padding(DecodeFailureKind.JSON, plaintext=shape(heals_first_block=True), peek=right(CBC)),
        Cause.IV_DAMAGED, LIKELY, PROVEN, newer=True, key_proven=True
    ),
    "damage that no place is known of under aescbc": broken(
        under_padding(DecodeFailureKind.JSON, plaintext=shape(starts_json=True), peek=right(CBC, wrong_bits=1)),
        Cause.JSON_DAMAGED, key_proven=True
    ),
    "damage further on under aescbc": broken(
        under_padding(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True), failure={"offset": 90},
            peek=right(CBC)),
        Cause.PROTOBUF_DAMAGED, key_proven=True
    ),
    "version no longer in the CRD": not_decoded(
        undecoded(DecodeFailureKind.VERSION_REMOVED, codec=StorageCodec.CUSTOM_RESOURCE),
        Cause.CRD_VERSION_MISSING, CERTAIN, NONE
    ),
    "empty object under aescbc": Row(
        enveloped(CBC, decoded=decoded(empty=True), shape=shape(size=90), transformer=CBC, peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN, key_proven=True
    ),
    "empty object under aescbc, and nothing proves its key": Row(
        enveloped(CBC, decoded=decoded(empty=True), shape=shape(size=90), transformer=CBC, peek=NOISE),
        Outcome.DECODE_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.SERVES_EMPTY, NONE, waits=True
    ),
    "magic lost, end whole": not_decoded(
        undecoded(plaintext=shape(magic_bits_off=9, ends_envelope=True)),
        Cause.MAGIC_DAMAGED, LIKELY, PROVEN, newer=True
    ),
    "protobuf cut": not_decoded(
        undecoded(DecodeFailureKind.PROTOBUF, "unexpected EOF", plaintext=shape()),
        Cause.VALUE_TRUNCATED, LIKELY, PROVEN
    ),
    "json cut": not_decoded(
        undecoded(DecodeFailureKind.JSON, "error: unexpected end of JSON input", plaintext=shape(starts_json=True)),
        Cause.VALUE_TRUNCATED, LIKELY, PROVEN
    ),
    "cbor broken": broken(undecoded(DecodeFailureKind.CBOR, plaintext=shape()), Cause.CBOR_DAMAGED, newer=True),
    "kind unknown, release named": broken(
        undecoded(DecodeFailureKind.NOT_REGISTERED, plaintext=shape(ends_envelope=True), assumed_release="1.36"),
        Cause.KIND_NOT_REGISTERED, newer=True
    ),
    "version removed": broken(
        undecoded(DecodeFailureKind.VERSION_REMOVED, failure={"readable_until": "1.24"}),
        Cause.VERSION_REMOVED, newer=True
    ),
    "kind missing": broken(
        undecoded(DecodeFailureKind.KIND_MISSING, codec=StorageCodec.CUSTOM_RESOURCE), Cause.KIND_MISSING
    ),
    "another kind": broken(undecoded(DecodeFailureKind.WRONG_KIND), Cause.WRONG_KIND_FOR_KEY, newer=True),
    "does not convert": broken(
        undecoded(DecodeFailureKind.CONVERSION, plaintext=shape()), Cause.CONVERSION_FAILED, newer=True
    ),
    "served as an empty object, 0 bytes": Row(
        seen(decoded=decoded(empty=True), shape=shape(size=0), transformer="identity"),
        Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN
    ),
    "served as an empty object, some bytes": Row(
        seen(decoded=decoded(empty=True), shape=shape(size=2), transformer="identity"),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN
    ),
    "empty allocator": Row(
        seen(decoded=decoded(empty=True), shape=shape(size=0), codec=StorageCodec.ALLOCATOR),
        Outcome.DECODE_FAILURE, Cause.ALLOCATOR_DAMAGED, CERTAIN, ServerBehaviour.NOT_ASKED, NONE
    ),
    "readable": Row(seen(decoded=decoded()), Outcome.READABLE, None, CERTAIN, ServerBehaviour.SERVES, NONE),
    "readable until": Row(
        seen(decoded=decoded(readable_until="1.35")), Outcome.READABLE, None, CERTAIN, ServerBehaviour.SERVES, NONE
    ),
    "parses and nobody's": Row(
        seen(decoded=decoded(), owner_known=False, codec=StorageCodec.UNKNOWN, identity_mismatch="does not count"),
        Outcome.READABLE, Cause.OWNER_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE
    ),
    "contradicts its key": inconsistent(
        seen(decoded=decoded(), identity_mismatch="metadata.name differs from the key"), Cause.IDENTITY_MISMATCH
    ),
    "invalid text": inconsistent(
        seen(decoded=decoded(Inconsistency("invalid-utf8", "metadata.labels", "2 bytes"))), Cause.INVALID_UTF8
    ),
    "kind missing, data kept": inconsistent(
        seen(decoded=decoded(Inconsistency("kind-missing", "", "no kind"))), Cause.KIND_MISSING
    ),
    "raw json": inconsistent(
        seen(decoded=decoded(Inconsistency("raw-json-invalid", "a", "b", breaks_responses=True))),
        Cause.RAW_JSON_INVALID, ServerBehaviour.BREAKS_LIST
    ),
    "int or string": inconsistent(
        seen(decoded=decoded(Inconsistency("int-or-string-invalid", "a", "b", breaks_responses=True))),
        Cause.INT_OR_STRING_INVALID, ServerBehaviour.BREAKS_LIST
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", BRANCHES.values(), ids=BRANCHES)
def test_verdict(row: Row) -> None:
    verdict = judge(row.observation)
    assert (verdict.outcome, verdict.cause, verdict.confidence) == (row.outcome, row.cause, row.confidence)
    assert (verdict.apiserver, verdict.damage) == (row.apiserver, row.damage)
    assert (not verdict.settled, verdict.maybe_newer, verdict.key_proven) == (
        row.waits, row.newer, row.key_proven,
    )  # fmt: skip
    assert verdict.is_damage is (row.damage is PROVEN and not verdict.maybe_newer)
    assert verdict.message
    assert "\n" not in verdict.message
    assert not verdict.message.endswith(".")
    assert verdict.breaks_responses is (row.apiserver is ServerBehaviour.BREAKS_LIST)
    assert verdict.transient is (row.cause is Cause.KMS_UNREACHABLE)
    if verdict.cause is not None:
        assert verdict.outcome in CATALOGUE[verdict.cause].outcomes
    if verdict.damage is not Damage.NONE:
        assert verdict.outcome in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}
        assert verdict.apiserver in {ServerBehaviour.CORRUPT, ServerBehaviour.SERVES_EMPTY}
        assert verdict.cause is not None
        assert not CATALOGUE[verdict.cause].curable_by_configuration
        assert not verdict.fitting_key
    if verdict.apiserver is ServerBehaviour.CORRUPT:
        failure = row.observation.transform_failure or row.observation.decode_failure
        assert failure is not None
        is_cbor = failure is row.observation.decode_failure and failure.kind is DecodeFailureKind.CBOR
        assert verdict.upstream_message == ("" if is_cbor else failure.message)


@pytest.mark.parametrize("status", ["NOT_FOUND", "FAILED_PRECONDITION"])
def test_an_unknown_key_that_opened_others_is_a_contradiction_of_v2_alone(status: str) -> None:
    """Of v1 there is no key id: the values that opened may have been under another key."""
    for transformer, cause in (("kms/v2/p", Cause.KMS_UNPROVEN), ("kms/v1/p", Cause.KMS_KEY_UNKNOWN)):
        trust = PluginRecord(healthy=True, same_key=3, any_key=3)
        attempt = Attempt(FailureReason.KMS_REFUSED, ("no",), status, trust, transformer)
        assert undetermined_cause((attempt,), right_key=False, neighbours=Neighbours.NONE) is cause


@pytest.mark.parametrize("neighbours", Neighbours)
def test_a_key_with_two_writers_is_not_lost(neighbours: Neighbours) -> None:
    found = judge(under_padding(plaintext=shape(), peek=NOISE, neighbours=neighbours))
    assert found.two_writers is (neighbours is Neighbours.TWO_WRITERS)
    assert not judge(rejected(same_key=3, any_key=3, neighbours=neighbours)).two_writers


# Where an encryption key is right, or values around a value are: the rows of test_damage.py.
RULED_ON_ELSEWHERE = {
    Cause.STORAGE_PREFIX_CHANGED, Cause.VALUE_MOVED, Cause.ASSOCIATED_DATA_UNKNOWN, Cause.NONCE_DAMAGED,
}  # fmt: skip


def test_every_cause_has_a_branch_that_leads_to_it() -> None:
    assert {row.cause for row in BRANCHES.values()} - {None} == set(Cause) - RULED_ON_ELSEWHERE


@pytest.mark.parametrize("name", list(BRANCHES))
def test_nothing_is_proven_damaged_by_a_key_that_does_not_fit(name: str) -> None:
    """Without a look that shows the key to be right, what a local key makes of a value proves nothing."""
    observation = BRANCHES[name][0]
    verdict = judge(observation)
    written = observation.envelope_transformer if observation.envelope_known else ""
    local = written.startswith(("aescbc/", "aesgcm/", "secretbox/"))
    opened_by_a_tag = observation.transformer and observation.peek is None
    if (
        local
        and not opened_by_a_tag
        and not is_right_key(observation.peek)
        and verdict.cause is not Cause.EMPTY_VALUE
        and verdict.outcome is not Outcome.UNDETERMINED
    ):
        too_short = observation.peek is not None and observation.peek.too_short
        assert (verdict.damage is Damage.PROVEN) == too_short


def judged(**changes: Any) -> Verdict:
    return judge(seen(**changes))


def test_what_holds_a_whole_object_is_not_proven_damaged() -> None:
    whole = shape(starts_json=True, holds_whole=True)
    for observation in (
        undecoded(DecodeFailureKind.JSON, plaintext=whole),
        refused(DecodeFailureKind.JSON, plaintext=whole),
        seen(decoded=decoded(empty=True), shape=whole),
    ):
        verdict = judge(observation)
        assert (verdict.damage, verdict.holds_whole, verdict.is_damage) == (Damage.PROVEN, True, False)


@pytest.mark.parametrize("look", [BROKEN, BROKEN._replace(ends_early=True, ends_as_written=False)])
@pytest.mark.parametrize(
    ("changes", "newer"),
    [
        ({"encoding": "cbor"}, True),
        ({"encoding": "protobuf"}, False),
        ({"encoding": "cbor", "undone": UndoneDamage(Undone.CIPHERTEXT_BIT, "bit 1 of byte 7")}, False),
    ],
)
def test_broken_cbor_below_a_tag_that_does_not_fit_may_be_newer_as_below_one_that_fits(
    look: Look, changes: dict[str, Any], *, newer: bool
) -> None:
    verdict = judge(unopened("authentication-failed", peek=right(look=look, **changes)))
    assert (verdict.damage, verdict.maybe_newer) == (Damage.PROVEN, newer)


def test_a_key_that_wrote_the_value_is_named_wherever_it_stands() -> None:
    elsewhere = right("aescbc/v1/key2", named=False, rule="configmaps")
    name = "aescbc/v1/key2 of configmaps (fp:0a1b2c3d)"
    assert judge(unopened("authentication-failed", peek=elsewhere)).fitting_key == name
    # The configuration is not to blame alone: an entry is missing, and the key is there.
    verdict = judge(unopened(overall="identity-refused", covered=Covered.NOT_COVERED, peek=elsewhere))
    assert (verdict.cause, verdict.fitting_key) == (Cause.RESOURCE_NOT_CONFIGURED, name)
    assert judge(BRANCHES["padding fits under another key than the one that wrote it"][0]).fitting_key
    # Nothing is known of a value whose plugin is silent, but its key cannot be lost.
    verdict = judge(BRANCHES["plugin not asked, and another key of the configuration fits"][0])
    assert (verdict.outcome, verdict.fitting_key) == (
        Outcome.UNDETERMINED,
        "kms/v2/other of secrets (fp:0a1b2c3d)",
    )
    assert not judge(unopened("authentication-failed", peek=NOISE)).fitting_key


def test_the_kind_that_a_value_states_is_kept_for_the_search_of_its_likes() -> None:
    states: dict[str, Any] = {"group_version": "apps/v9", "value_kind": "Deployment"}
    assert (
        judge(undecoded(DecodeFailureKind.NOT_REGISTERED, failure=states)).stated_kind == "apps/v9 Deployment"
    )
    assert judge(undecoded(DecodeFailureKind.CBOR)).stated_kind == ""
    refused_kind = seen(
        transform_failure=failed(),
        decode_failure=DecodeFailure(DecodeFailureKind.NOT_REGISTERED, "no kind", **states),
    )
    assert judge(refused_kind).stated_kind == "apps/v9 Deployment"


def test_the_worst_inconsistency_is_the_cause_and_the_rest_are_evidence() -> None:
    verdict = judged(
        decoded=decoded(
            Inconsistency("invalid-utf8", "metadata.labels", "2 bytes"),
            Inconsistency("kind-missing", "", "no kind"),
            Inconsistency("int-or-string-invalid", "spec.port", "type 7", breaks_responses=True),
            Inconsistency("raw-json-invalid", "metadata.managedFields[0].fieldsV1", "byte 9", breaks_responses=True),
            warnings=(Evidence("unknown fields", "ignored"),),
        ),
        identity_mismatch="metadata.name differs from the key",
    )  # fmt: skip
    assert verdict.cause is Cause.RAW_JSON_INVALID
    assert verdict.message == "metadata.managedFields[0].fieldsV1: byte 9"
    assert [e.check for e in verdict.evidence] == [
        "raw-json-invalid", "int-or-string-invalid", "identity-mismatch", "kind-missing", "invalid-utf8",
        "unknown fields",
    ]  # fmt: skip
    assert verdict.evidence[3] == Evidence("kind-missing", "object", "no kind")


def test_a_whole_object_under_a_right_key_makes_no_envelope_known() -> None:
    """A newer server may accept it: that the neighbours' data key opens it is no proof that it is damaged."""
    whole = Look(whole=True, breaks=False, ends_early=False, ends_as_written=True, message="")
    bound_elsewhere = right("kms/v2/prov", look=whole)
    undone = UndoneDamage(Undone.DATA_KEY, "the data key of another value")
    for peek in (bound_elsewhere, right("kms/v2/prov", look=whole, undone=undone)):
        verdict = judge(behind_plugin("kms-envelope-unknown", peek=peek))
        assert (verdict.cause, verdict.maybe_newer, verdict.key_proven) == (
            Cause.UNKNOWN_ENVELOPE,
            True,
            True,
        )
    verdict = judge(behind_plugin("kms-envelope-invalid", peek=bound_elsewhere))
    assert (verdict.cause, verdict.is_damage) == (Cause.ASSOCIATED_DATA_UNKNOWN, False)


@pytest.mark.parametrize(
    "fits",
    [
        {"opens": True},
        {"undone": UndoneDamage(Undone.SOURCE_TYPE, "a seed")},
        {"undone": UndoneDamage(Undone.DATA_KEY, "k")},
    ],
)
def test_what_breaks_below_a_fitting_tag_makes_no_envelope_known(fits: dict[str, Any]) -> None:
    opens = right("kms/v2/prov", look=BROKEN, **fits)
    verdict = judge(behind_plugin("kms-envelope-unknown", same_key=3, any_key=3, peek=opens))
    assert (verdict.cause, verdict.maybe_newer, verdict.is_damage) == (Cause.UNKNOWN_ENVELOPE, True, False)


@pytest.mark.parametrize(
    "observation",
    [
        behind_plugin("kms-unreachable"),
        unopened("authentication-failed"),
        under_padding(DecodeFailureKind.PROTOBUF, plaintext=shape()),
        enveloped(CBC, transformer=CBC, decoded=decoded(empty=True)),
    ],
    ids=["undetermined", "decrypt-failure", "decode-failure", "empty"],
)
def test_who_could_not_be_asked_is_kept_with_every_failure(observation: Observation) -> None:
    peek = Peek(PeekState.NOISE, not_asked="kms/v2/other of configmaps")
    assert judge(msgspec.structs.replace(observation, peek=peek)).not_asked == "kms/v2/other of configmaps"
    assert judge(msgspec.structs.replace(observation, peek=None)).not_asked == ""
