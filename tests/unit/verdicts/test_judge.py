"""Every branch from what was seen to what it means, one row each."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.model import (
    Attempt,
    Confidence,
    DecodedObject,
    Evidence,
    FailureReason,
    Found,
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
)
from etcdfix.storagekey import StorageCodec
from etcdfix.verdicts.causes import CATALOGUE, Cause
from etcdfix.verdicts.damage import Damage, is_right_key
from etcdfix.verdicts.judge import Verdict, judge
from etcdfix.verdicts.observation import (
    Covered,
    DecodeFailure,
    DecodeFailureKind,
    Neighbours,
    Observation,
    PlaintextShape,
)

CERTAIN, LIKELY, POSSIBLE = Confidence
NONE, POSSIBLE_DAMAGE, LIKELY_DAMAGE, PROVEN = Damage
CBC = "aescbc/v1/key1"
BROKEN = Look(
    whole=False, breaks=True, ends_early=False, ends_as_written=True, message="proto: illegal wireType 7"
)
NOISE = Peek(PeekState.NOISE, candidates=2)
SECRET = GroupVersionKind("", "v1", "Secret")


def seen(**changes: Any) -> Observation:
    """Return an observation of a Secret under a configuration that covers it."""
    fields: dict[str, Any] = {
        "codec": StorageCodec.BUILTIN,
        "owner_known": True,
        "covered": Covered.COVERED,
        "enveloped": False,
        "envelope_known": False,
        "envelope_transformer": "",
        "resource": "secrets",
    }
    return Observation(**(fields | changes))


def enveloped(written_under: str = "aesgcm/v1/key2", /, **changes: Any) -> Observation:
    """Return an observation of a value with an envelope of a known kind."""
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
    """Return an observation of a KMS value about which a plugin had its say."""
    trust = PluginRecord(healthy=healthy, same_key=same_key, any_key=any_key)
    attempt = Attempt(FailureReason(reason), (f"error: {reason}",), status, trust, "kms/v2/prov")
    failure = TransformFailure(
        reason=FailureReason(reason), message="as the server says it", attempts=(attempt,)
    )
    return enveloped("kms/v2/prov", transform_failure=failure, **changes)


def right(transformer: str = "aesgcm/v1/key2", *, named: bool = True, **changes: Any) -> Peek:
    """Return a look that shows which key wrote a value: by default the one that the value names."""
    fields: dict[str, Any] = {"rule": "secrets", "key_fingerprint": "fp:0a1b2c3d", "encoding": "protobuf",
                              "odds_bits": 100, "candidates": 2}  # fmt: skip
    return Peek(PeekState.RIGHT_KEY, transformer=transformer, named=named, **(fields | changes))


def unopened(*reasons: str, overall: str = "", **changes: Any) -> Observation:
    """Return an observation of an enveloped value that nothing opened, for these reasons."""
    return enveloped(transform_failure=failed(*reasons, overall=overall), **changes)


def shape(**changes: Any) -> PlaintextShape:
    """Return the shape of plaintext about which nothing is remarkable."""
    fields: dict[str, Any] = {
        "size": 200,
        "zeroed": False,
        "starts_encrypted": False,
        "magic_bits_off": 16,
        "starts_json": False,
        "ends_envelope": False,
        "heals_magic": False,
        "heals_as_text": False,
    }
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
    """Return an observation of plaintext from which no object came out."""
    return seen(
        decode_failure=DecodeFailure(kind=kind, message=message, **(failure or {})),
        shape=plaintext,
        transformer=transformer,
        **changes,
    )


def under_padding(
    kind: DecodeFailureKind = DecodeFailureKind.UNKNOWN_ENCODING, **changes: Any
) -> Observation:
    """Return an observation of what AES-CBC made of a value, and from which no object came out."""
    known: dict[str, Any] = {"enveloped": True, "envelope_known": True, "envelope_transformer": CBC}
    return undecoded(kind, transformer=CBC, **known, **changes)


def refused(
    kind: DecodeFailureKind, *, plaintext: PlaintextShape | None = None, **changes: Any
) -> Observation:
    """Return an observation of a value in the clear that its providers refuse, and that does not decode."""
    return seen(
        transform_failure=failed(),
        decode_failure=DecodeFailure(kind, "as the decoder says it"),
        shape=plaintext,
        **changes,
    )


def decoded(*inconsistencies: Inconsistency, **changes: Any) -> DecodedObject:
    fields: dict[str, Any] = {
        "gvk": SECRET,
        "name": b"web",
        "namespace": b"shop",
        "uid": b"u",
        "encoding": "protobuf",
    }
    return DecodedObject(**(fields | changes), inconsistencies=inconsistencies)


# name: observation, outcome, cause, confidence, what the server does, damage
BRANCHES: dict[str, tuple[Observation, Outcome, Cause | None, Confidence, ServerBehaviour, Damage]] = {
    "bookkeeping": (
        seen(codec=StorageCodec.NOT_AN_OBJECT),
        Outcome.NOT_AN_OBJECT, None, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "no configuration": (
        enveloped(covered=Covered.NO_CONFIGURATION),
        Outcome.UNDETERMINED, Cause.NO_CONFIGURATION, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin not asked": (
        enveloped("kms/v2/prov", transform_failure=failed("kms-unreachable")),
        Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin may not": (
        behind_plugin("kms-refused", status="PERMISSION_DENIED", same_key=5, any_key=5),
        Outcome.UNDETERMINED, Cause.KMS_DENIED, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin knows other keys": (
        behind_plugin("kms-refused", status="NOT_FOUND", any_key=1),
        Outcome.UNDETERMINED, Cause.KMS_KEY_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin knows no key": (
        behind_plugin("kms-refused", status="NOT_FOUND"),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin that is unwell knows other keys": (
        behind_plugin("kms-refused", status="NOT_FOUND", healthy=False, any_key=1),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin contradicts itself": (
        behind_plugin("kms-refused", status="NOT_FOUND", same_key=1, any_key=3),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin rejects, without a control": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", any_key=7),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin rejects, is unwell, with a control": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", healthy=False, same_key=7, any_key=7),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin rejects, with a control": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", same_key=1, any_key=1),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin rejects, values around it open": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", same_key=1, any_key=1, neighbours=Neighbours.SAME_KEY),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, LIKELY_DAMAGE,
    ),
    "plugin rejects, is unwell, values around it open": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", healthy=False, same_key=1, any_key=1,
                      neighbours=Neighbours.SAME_KEY),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "plugin rejects the newest value, and no other one": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", same_key=3, any_key=3, neighbours=Neighbours.NEWEST),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, POSSIBLE, ServerBehaviour.CORRUPT, POSSIBLE_DAMAGE,
    ),
    "plugin rejects one value and opens another in turns": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT", same_key=3, any_key=3,
                      neighbours=Neighbours.TWO_WRITERS),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "no data key, without a control": (
        behind_plugin("kms-key-invalid"),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "no data key, values around it open": (
        behind_plugin("kms-key-invalid", same_key=2, any_key=2, neighbours=Neighbours.SAME_KEY),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, LIKELY_DAMAGE,
    ),
    "tag fails under the plugin's key, without a control": (
        behind_plugin("authentication-failed", any_key=3),
        Outcome.UNDETERMINED, Cause.KMS_UNPROVEN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "tag fails under the plugin's key, with a control": (
        behind_plugin("authentication-failed", same_key=3, any_key=3),
        Outcome.DECRYPT_FAILURE, Cause.AUTHENTICATION_FAILED, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "noise under the plugin's key, values around it open": (
        behind_plugin("authentication-failed", same_key=3, any_key=3, peek=NOISE, neighbours=Neighbours.SAME_KEY),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, LIKELY_DAMAGE,
    ),
    "tag fails under the plugin's key, and the value shows that it is right": (
        behind_plugin("authentication-failed", peek=right("kms/v2/prov", look=BROKEN)),
        Outcome.DECRYPT_FAILURE, Cause.CIPHERTEXT_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "plugin rejects, and a neighbour's data key opens the value": (
        behind_plugin("kms-refused", status="INVALID_ARGUMENT",
                      peek=right("kms/v2/prov", undone=Found(Undone.DATA_KEY, "of a neighbour"))),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "plugin not asked, and another key of the configuration fits": (
        enveloped("kms/v2/prov", transform_failure=failed("kms-unreachable"), peek=right("kms/v2/other", named=False)),
        Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "too short for the plugin's key, with a control": (
        behind_plugin("too-short", same_key=3, any_key=3),
        Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "broken KMS envelope": (
        enveloped("kms/v2/prov", transform_failure=failed("kms-envelope-invalid")),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "broken KMS envelope, whose provider's name may go on": (
        enveloped(
            "kms/v1/prov", transform_failure=failed("kms-envelope-invalid"),
            peek=Peek(PeekState.NOT_POSSIBLE, name_may_go_on=True),
        ),
        Outcome.DECRYPT_FAILURE, Cause.PROVIDER_MISSING, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "too short for the plugin's key, and its provider's name may go on": (
        behind_plugin("too-short", same_key=3, any_key=3, peek=Peek(PeekState.NOT_POSSIBLE, name_may_go_on=True)),
        Outcome.DECRYPT_FAILURE, Cause.PROVIDER_MISSING, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "KMS envelope that a newer server may accept": (
        enveloped("kms/v2/prov", transform_failure=failed("kms-envelope-unknown")),
        Outcome.DECRYPT_FAILURE, Cause.UNKNOWN_ENVELOPE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "damaged length of a KMS v1 value": (
        enveloped("kms/v1/prov", transform_failure=failed("kms-size-damaged")),
        Outcome.DECRYPT_FAILURE, Cause.KMS_ENVELOPE_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "one of two KMS providers of a name was not asked": (
        enveloped("kms/v1/prov", transform_failure=failed("kms-envelope-invalid", "kms-unreachable")),
        Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "not opened and nobody's": (
        unopened("authentication-failed", owner_known=False, codec=StorageCodec.UNKNOWN),
        Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "strange envelope": (
        unopened(overall="no-provider-matched", envelope_known=False, envelope_transformer=""),
        Outcome.DECRYPT_FAILURE, Cause.UNKNOWN_ENVELOPE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "strange envelope of a resource without entry": (
        unopened(overall="identity-refused", envelope_known=False, covered=Covered.NOT_COVERED),
        Outcome.DECRYPT_FAILURE, Cause.UNKNOWN_ENVELOPE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "resource without entry": (
        unopened(overall="identity-refused", covered=Covered.NOT_COVERED),
        Outcome.DECRYPT_FAILURE, Cause.RESOURCE_NOT_CONFIGURED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "plaintext without identity": (
        seen(transform_failure=failed(), decoded=decoded()),
        Outcome.DECRYPT_FAILURE, Cause.PLAINTEXT_NOT_ALLOWED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "plaintext without identity, broken": (
        refused(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True)),
        Outcome.DECRYPT_FAILURE, Cause.PROTOBUF_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "plaintext without identity, of a version that its definition dropped": (
        refused(DecodeFailureKind.VERSION_REMOVED, codec=StorageCodec.CUSTOM_RESOURCE),
        Outcome.DECRYPT_FAILURE, Cause.CRD_VERSION_MISSING, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "plaintext without identity, from which nothing comes out": (
        seen(transform_failure=failed(), decoded=decoded(empty=True), shape=shape(size=2)),
        Outcome.DECRYPT_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "plaintext without identity, 0 bytes": (
        seen(transform_failure=failed(), decoded=decoded(empty=True), shape=shape(size=0)),
        Outcome.DECRYPT_FAILURE, Cause.EMPTY_VALUE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "no such provider": (
        unopened(overall="no-provider-matched"),
        Outcome.DECRYPT_FAILURE, Cause.PROVIDER_MISSING, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "no such provider, and a key of another fits": (
        unopened(overall="no-provider-matched", peek=right("aescbc/v1/key2", named=False)),
        Outcome.DECRYPT_FAILURE, Cause.KEY_RENAMED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "no such key": (
        unopened("no-key-matched"),
        Outcome.DECRYPT_FAILURE, Cause.KEY_NAME_MISSING, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "no such key, and a look that decides nothing": (
        unopened("no-key-matched", peek=NOISE),
        Outcome.DECRYPT_FAILURE, Cause.KEY_NAME_MISSING, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "no such key, and another one fits": (
        unopened("no-key-matched", peek=right(named=False)),
        Outcome.DECRYPT_FAILURE, Cause.KEY_RENAMED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "does not authenticate": (
        unopened("authentication-failed"),
        Outcome.DECRYPT_FAILURE, Cause.AUTHENTICATION_FAILED, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "noise under every key of the name": (
        unopened("authentication-failed", peek=NOISE),
        Outcome.DECRYPT_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "one key fails, another list lacks it": (
        unopened("no-key-matched", "authentication-failed"),
        Outcome.DECRYPT_FAILURE, Cause.AUTHENTICATION_FAILED, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "too short": (
        unopened("too-short", peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)),
        Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "too short under the name that matched": (
        unopened("too-short"),
        Outcome.DECRYPT_FAILURE, Cause.AUTHENTICATION_FAILED, POSSIBLE, ServerBehaviour.CORRUPT, NONE,
    ),
    "too short under any key, and no key of that name": (
        unopened("no-key-matched", peek=Peek(PeekState.NOT_POSSIBLE, too_short=True)),
        Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "undecodable and nobody's": (
        undecoded(owner_known=False, codec=StorageCodec.CUSTOM_RESOURCE),
        Outcome.UNDETERMINED, Cause.OWNER_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "allocator": (
        undecoded(DecodeFailureKind.PROTOBUF, codec=StorageCodec.ALLOCATOR, plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.ALLOCATOR_DAMAGED, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "0 bytes": (
        undecoded(plaintext=shape(size=0)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "zeroed": (
        undecoded(plaintext=shape(zeroed=True)),
        Outcome.DECODE_FAILURE, Cause.ZEROED_VALUE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "encrypted twice": (
        enveloped(decode_failure=DecodeFailure(DecodeFailureKind.UNKNOWN_ENCODING, "as the decoder says it"),
                  shape=shape(starts_encrypted=True), transformer="aesgcm/v1/key2"),
        Outcome.DECODE_FAILURE, Cause.DOUBLE_ENCRYPTED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "text mode": (
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(heals_as_text=True)),
        Outcome.DECODE_FAILURE, Cause.TEXT_MODE_DAMAGE, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "bytes after the end": (
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(whole_at=180)),
        Outcome.DECODE_FAILURE, Cause.TRAILING_BYTES, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "iv": (
        under_padding(plaintext=shape(ends_envelope=True, heals_first_block=True), peek=right(CBC, wrong_bits=1)),
        Outcome.DECODE_FAILURE, Cause.IV_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "noise under aescbc": (
        under_padding(plaintext=shape(), peek=NOISE),
        Outcome.DECODE_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "magic heals": (
        undecoded(plaintext=shape(magic_bits_off=8, heals_magic=True)),
        Outcome.DECODE_FAILURE, Cause.MAGIC_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "magic nearly right": (
        undecoded(plaintext=shape(magic_bits_off=2)),
        Outcome.DECODE_FAILURE, Cause.MAGIC_DAMAGED, POSSIBLE, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "k8s:enc: nearly right, read as plaintext": (
        undecoded(plaintext=shape(magic_bits_off=2), envelope_bits_off=1),
        Outcome.DECODE_FAILURE, Cause.ENVELOPE_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "k8s:enc: nearly right, plaintext not allowed": (
        seen(transform_failure=failed(), envelope_bits_off=3),
        Outcome.DECRYPT_FAILURE, Cause.ENVELOPE_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "k8s:enc: too far off": (
        undecoded(plaintext=shape(), envelope_bits_off=4),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "nothing known below an intact envelope": (
        undecoded(plaintext=shape(), enveloped=True, envelope_bits_off=0, transformer="aesgcm/v1/key1"),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "cut inside the envelope": (
        seen(enveloped=True, envelope_cut=True, transform_failure=failed()),
        Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "too little to see under aescbc": (
        under_padding(plaintext=shape(), peek=Peek(PeekState.NOT_POSSIBLE)),
        Outcome.DECODE_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "noise under aescbc, values around it open": (
        under_padding(plaintext=shape(), peek=NOISE, neighbours=Neighbours.SAME_KEY),
        Outcome.DECODE_FAILURE, Cause.CIPHERTEXT_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, LIKELY_DAMAGE,
    ),
    "noise under aescbc, the newest value and the only one": (
        under_padding(plaintext=shape(), peek=NOISE, neighbours=Neighbours.NEWEST),
        Outcome.DECODE_FAILURE, Cause.CIPHERTEXT_DAMAGED, POSSIBLE, ServerBehaviour.CORRUPT, POSSIBLE_DAMAGE,
    ),
    "noise under aescbc between two writers": (
        under_padding(plaintext=shape(), peek=NOISE, neighbours=Neighbours.TWO_WRITERS),
        Outcome.DECODE_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.CORRUPT, NONE,
    ),
    "padding fits under another key than the one that wrote it": (
        under_padding(plaintext=shape(), peek=right("aescbc/v1/other", named=False)),
        Outcome.DECODE_FAILURE, Cause.KEY_RENAMED, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "damage in the first block under aescbc": (
        under_padding(DecodeFailureKind.PROTOBUF, failure={"offset": 9}, peek=right(CBC, wrong_bits=2),
                      plaintext=shape(magic_bits_off=0, ends_envelope=True, heals_first_block=True)),
        Outcome.DECODE_FAILURE, Cause.IV_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "another start under aescbc, and nothing that shows what stood there": (
        under_padding(plaintext=shape(ends_envelope=True), peek=right(CBC, wrong_bits=1)),
        Outcome.DECODE_FAILURE, Cause.MAGIC_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "another magic under aescbc, before a whole object": (
        under_padding(plaintext=shape(heals_magic=True, heals_first_block=True, holds_whole=True), peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.IV_DAMAGED, Confidence.POSSIBLE, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "JSON that begins otherwise": (
        undecoded(DecodeFailureKind.JSON, "unexpected end of JSON input", plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "contents in an encoding that the envelope names": (
        undecoded(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True, names_encoding=True)),
        Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "nothing comes out, and the envelope names an encoding": (
        seen(decoded=decoded(empty=True), shape=shape(names_encoding=True)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "nothing comes out of plaintext that is refused, and the envelope names an encoding": (
        seen(transform_failure=failed(), decoded=decoded(empty=True), shape=shape(names_encoding=True)),
        Outcome.DECRYPT_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "kind garbled under aescbc": (
        under_padding(DecodeFailureKind.NOT_REGISTERED, plaintext=shape(starts_json=True),
                      peek=right(CBC, wrong_bits=1), assumed_release="1.36"),
        Outcome.DECODE_FAILURE, Cause.KIND_NOT_REGISTERED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "first block noise under aescbc, the end of a JSON object whole": (
        under_padding(DecodeFailureKind.JSON, plaintext=shape(heals_first_block=True), peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.IV_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "noise at both ends under aescbc": (
        under_padding(DecodeFailureKind.JSON, plaintext=shape(), peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "damage that no place is known of under aescbc": (
        under_padding(DecodeFailureKind.JSON, plaintext=shape(starts_json=True),
                      peek=right(CBC, wrong_bits=1)),
        Outcome.DECODE_FAILURE, Cause.JSON_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "damage further on under aescbc": (
        under_padding(DecodeFailureKind.PROTOBUF, plaintext=shape(ends_envelope=True),
                      failure={"offset": 90}, peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "version no longer in the CRD": (
        undecoded(DecodeFailureKind.VERSION_REMOVED, codec=StorageCodec.CUSTOM_RESOURCE),
        Outcome.DECODE_FAILURE, Cause.CRD_VERSION_MISSING, CERTAIN, ServerBehaviour.CORRUPT, NONE,
    ),
    "kind of a later release": (
        undecoded(DecodeFailureKind.NOT_REGISTERED, failure={"known_since": "1.37"}, assumed_release="1.36"),
        Outcome.DECODE_FAILURE, Cause.KIND_NOT_REGISTERED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "empty object under aescbc": (
        enveloped(CBC, decoded=decoded(empty=True), shape=shape(size=90), transformer=CBC, peek=right(CBC)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "empty object under aescbc, and nothing shows the key": (
        enveloped(CBC, decoded=decoded(empty=True), shape=shape(size=90), transformer=CBC, peek=NOISE),
        Outcome.DECODE_FAILURE, Cause.WRONG_KEY, LIKELY, ServerBehaviour.SERVES_EMPTY, NONE,
    ),
    "0 bytes under aescbc": (
        enveloped(CBC, decoded=decoded(empty=True), shape=shape(size=0), transformer=CBC,
                  peek=Peek(PeekState.NOT_POSSIBLE)),
        Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "magic lost, end whole": (
        undecoded(plaintext=shape(magic_bits_off=9, ends_envelope=True)),
        Outcome.DECODE_FAILURE, Cause.MAGIC_DAMAGED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "nothing known": (
        undecoded(plaintext=shape(magic_bits_off=9)),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "nothing known and not looked at": (
        undecoded(),
        Outcome.DECODE_FAILURE, Cause.UNKNOWN_ENCODING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "protobuf cut": (
        undecoded(DecodeFailureKind.PROTOBUF, "unexpected EOF", plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.VALUE_TRUNCATED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "protobuf cut after the magic": (
        undecoded(DecodeFailureKind.PROTOBUF, "empty body", plaintext=shape(size=4, magic_bits_off=0)),
        Outcome.DECODE_FAILURE, Cause.VALUE_TRUNCATED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "length damaged, end whole": (
        undecoded(DecodeFailureKind.PROTOBUF, "unexpected EOF", plaintext=shape(ends_envelope=True)),
        Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "protobuf broken": (
        undecoded(DecodeFailureKind.PROTOBUF, "proto: illegal wireType 7", plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "json cut": (
        undecoded(DecodeFailureKind.JSON, "couldn't get version/kind; json parse error: unexpected end of JSON input",
                  plaintext=shape(starts_json=True)),
        Outcome.DECODE_FAILURE, Cause.VALUE_TRUNCATED, LIKELY, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "json broken": (
        undecoded(DecodeFailureKind.JSON, "invalid character", plaintext=shape(starts_json=True, ends_envelope=True)),
        Outcome.DECODE_FAILURE, Cause.JSON_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "cbor broken": (
        undecoded(DecodeFailureKind.CBOR, plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.CBOR_DAMAGED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "kind unknown, release named": (
        undecoded(DecodeFailureKind.NOT_REGISTERED, plaintext=shape(ends_envelope=True), assumed_release="1.36"),
        Outcome.DECODE_FAILURE, Cause.KIND_NOT_REGISTERED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "kind unknown, maybe newer than the tables": (
        undecoded(DecodeFailureKind.NOT_REGISTERED, plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.KIND_NOT_REGISTERED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "version removed": (
        undecoded(DecodeFailureKind.VERSION_REMOVED, failure={"readable_until": "1.24"}),
        Outcome.DECODE_FAILURE, Cause.VERSION_REMOVED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "kind missing": (
        undecoded(DecodeFailureKind.KIND_MISSING, codec=StorageCodec.CUSTOM_RESOURCE),
        Outcome.DECODE_FAILURE, Cause.KIND_MISSING, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "another kind": (
        undecoded(DecodeFailureKind.WRONG_KIND),
        Outcome.DECODE_FAILURE, Cause.WRONG_KIND_FOR_KEY, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "does not convert": (
        undecoded(DecodeFailureKind.CONVERSION, plaintext=shape()),
        Outcome.DECODE_FAILURE, Cause.CONVERSION_FAILED, CERTAIN, ServerBehaviour.CORRUPT, PROVEN,
    ),
    "served as an empty object, 0 bytes": (
        seen(decoded=decoded(empty=True), shape=shape(size=0), transformer="identity"),
        Outcome.DECODE_FAILURE, Cause.EMPTY_VALUE, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "served as an empty object, some bytes": (
        seen(decoded=decoded(empty=True), shape=shape(size=2), transformer="identity"),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "served as an empty object, size unknown": (
        seen(decoded=decoded(empty=True), transformer="identity"),
        Outcome.DECODE_FAILURE, Cause.EMPTY_OBJECT, CERTAIN, ServerBehaviour.SERVES_EMPTY, PROVEN,
    ),
    "empty allocator": (
        seen(decoded=decoded(empty=True), shape=shape(size=0), codec=StorageCodec.ALLOCATOR),
        Outcome.DECODE_FAILURE, Cause.ALLOCATOR_DAMAGED, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "readable": (
        seen(decoded=decoded()),
        Outcome.READABLE, None, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "readable, with a remark": (
        seen(decoded=decoded(warnings=(Evidence("unknown fields", "ignored"),))),
        Outcome.READABLE, None, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "readable until": (
        seen(decoded=decoded(readable_until="1.35")),
        Outcome.READABLE, None, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "parses and nobody's": (
        seen(decoded=decoded(), owner_known=False, codec=StorageCodec.UNKNOWN, identity_mismatch="does not count"),
        Outcome.READABLE, Cause.OWNER_UNKNOWN, CERTAIN, ServerBehaviour.NOT_ASKED, NONE,
    ),
    "contradicts its key": (
        seen(decoded=decoded(), identity_mismatch="metadata.name differs from the key"),
        Outcome.INCONSISTENT, Cause.IDENTITY_MISMATCH, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "invalid text": (
        seen(decoded=decoded(Inconsistency("invalid-utf8", "metadata.labels", "2 bytes"))),
        Outcome.INCONSISTENT, Cause.INVALID_UTF8, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "kind missing, data kept": (
        seen(decoded=decoded(Inconsistency("kind-missing", "", "no kind"))),
        Outcome.INCONSISTENT, Cause.KIND_MISSING, CERTAIN, ServerBehaviour.SERVES, NONE,
    ),
    "raw json": (
        seen(decoded=decoded(Inconsistency("raw-json-invalid", "a", "b", breaks_responses=True))),
        Outcome.INCONSISTENT, Cause.RAW_JSON_INVALID, CERTAIN, ServerBehaviour.BREAKS_LIST, NONE,
    ),
    "int or string": (
        seen(decoded=decoded(Inconsistency("int-or-string-invalid", "a", "b", breaks_responses=True))),
        Outcome.INCONSISTENT, Cause.INT_OR_STRING_INVALID, CERTAIN, ServerBehaviour.BREAKS_LIST, NONE,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(BRANCHES))
def test_verdict(name: str) -> None:
    observation, outcome, cause, confidence, apiserver, damage = BRANCHES[name]
    verdict = judge(observation)
    assert (verdict.outcome, verdict.cause, verdict.confidence) == (outcome, cause, confidence)
    assert (verdict.apiserver, verdict.damage) == (apiserver, damage)
    assert verdict.message
    assert "\n" not in verdict.message
    assert not verdict.message.endswith(".")
    assert verdict.breaks_responses is (apiserver is ServerBehaviour.BREAKS_LIST)
    assert verdict.transient is (cause is Cause.KMS_UNREACHABLE)


@pytest.mark.parametrize("name", list(BRANCHES))
def test_verdict_agrees_with_the_catalogue(name: str) -> None:
    verdict = judge(BRANCHES[name][0])
    if verdict.cause is not None:
        assert verdict.outcome in CATALOGUE[verdict.cause].outcomes


# Where an encryption key is right, or values around a value are: the rows of test_damage.py.
RULED_ON_ELSEWHERE = {
    Cause.STORAGE_PREFIX_CHANGED,
    Cause.VALUE_MOVED,
    Cause.ASSOCIATED_DATA_UNKNOWN,
    Cause.NONCE_DAMAGED,
}


def test_every_cause_has_a_branch_that_leads_to_it() -> None:
    assert {row[2] for row in BRANCHES.values()} - {None} == set(Cause) - RULED_ON_ELSEWHERE


@pytest.mark.parametrize("name", list(BRANCHES))
def test_only_proven_failures_may_be_deleted(name: str) -> None:
    verdict = judge(BRANCHES[name][0])
    if verdict.damage is not Damage.NONE:
        assert verdict.outcome in {Outcome.DECRYPT_FAILURE, Outcome.DECODE_FAILURE}
        assert verdict.apiserver in {ServerBehaviour.CORRUPT, ServerBehaviour.SERVES_EMPTY}
        assert verdict.cause is not None
        assert not CATALOGUE[verdict.cause].curable_by_configuration
        assert not verdict.fitting_key


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
    ):
        too_short = observation.peek is not None and observation.peek.too_short
        assert (verdict.damage is Damage.PROVEN) == too_short


@pytest.mark.parametrize("name", list(BRANCHES))
def test_the_server_calls_corrupt_what_does_not_open_or_decode(name: str) -> None:
    observation = BRANCHES[name][0]
    verdict = judge(observation)
    if verdict.apiserver is ServerBehaviour.CORRUPT:
        failure = observation.transform_failure or observation.decode_failure
        assert failure is not None
        known = failure is not observation.decode_failure or failure.kind is not DecodeFailureKind.CBOR
        assert verdict.upstream_message == (failure.message if known else "")


def judged(**changes: Any) -> Verdict:
    return judge(seen(**changes))


def test_every_attempt_becomes_evidence_in_order() -> None:
    failure = TransformFailure(
        reason=FailureReason.AUTHENTICATION_FAILED,
        message="both",
        attempts=(
            Attempt(
                FailureReason.AUTHENTICATION_FAILED,
                ("does not authenticate",),
                transformer="aesgcm/v1/a",
                key_fingerprint="0a1b2c3d",
            ),
            Attempt(FailureReason.KMS_REFUSED, ("no",), transformer="kms/v1/prov"),
        ),
    )
    before = Evidence("envelope", "aesgcm/v1/a")
    verdict = judge(enveloped(transform_failure=failure, evidence=(before,)))
    assert verdict.evidence == (
        before,
        Evidence("decrypt with aesgcm/v1/a (key 0a1b2c3d)", "failed", "does not authenticate"),
        Evidence("decrypt with kms/v1/prov", "failed", "no"),
    )


def test_a_verdict_waits_where_more_could_still_be_found() -> None:
    waiting = {name for name, row in BRANCHES.items() if not judge(row[0]).settled}
    assert waiting == {
        "KMS envelope that a newer server may accept",
        "plugin knows no key",
        "plugin that is unwell knows other keys",
        "plugin contradicts itself",
        "plugin rejects, without a control",
        "plugin rejects, is unwell, with a control",
        "plugin rejects, with a control",
        "plugin rejects, values around it open",
        "plugin rejects, is unwell, values around it open",
        "no data key, without a control",
        "no data key, values around it open",
        "tag fails under the plugin's key, without a control",
        "tag fails under the plugin's key, with a control",
        "noise under the plugin's key, values around it open",
        "does not authenticate",
        "noise under every key of the name",
        "one key fails, another list lacks it",
        "too short under the name that matched",
        "noise under aescbc",
        "too little to see under aescbc",
        "noise under aescbc, values around it open",
        "noise under aescbc, the newest value and the only one",
        "noise under aescbc between two writers",
        "plugin rejects the newest value, and no other one",
        "plugin rejects one value and opens another in turns",
        "empty object under aescbc, and nothing shows the key",
    }


def test_a_newer_cluster_may_read_what_looks_new() -> None:
    newer = {name for name, row in BRANCHES.items() if judge(row[0]).maybe_newer}
    assert newer == {
        "strange envelope",
        "strange envelope of a resource without entry",
        "KMS envelope that a newer server may accept",
        # Another magic may be one that is newer, whole or not.
        "magic heals",
        "another start under aescbc, and nothing that shows what stood there",
        "another magic under aescbc, before a whole object",
        "JSON that begins otherwise",
        # Another header may be.
        "iv",
        "first block noise under aescbc, the end of a JSON object whole",
        "contents in an encoding that the envelope names",
        "nothing comes out, and the envelope names an encoding",
        "nothing comes out of plaintext that is refused, and the envelope names an encoding",
        "noise at both ends under aescbc",
        "noise under aescbc, values around it open",
        "noise under aescbc, the newest value and the only one",
        "magic nearly right",
        "magic lost, end whole",
        "k8s:enc: too far off",
        "nothing known below an intact envelope",
        "nothing known",
        "nothing known and not looked at",
        "cbor broken",
        "kind garbled under aescbc",
        "kind of a later release",
        "kind unknown, release named",
        "kind unknown, maybe newer than the tables",
        "version removed",
        "another kind",
        "does not convert",
    }


@pytest.mark.parametrize(
    "plaintext", [shape(ends_envelope=True), shape(magic_bits_off=1), shape(heals_magic=True)]
)
def test_plaintext_that_is_refused_may_be_newer_too(plaintext: PlaintextShape) -> None:
    verdict = judge(refused(DecodeFailureKind.UNKNOWN_ENCODING, plaintext=plaintext))
    assert (verdict.cause, verdict.damage, verdict.maybe_newer) == (Cause.MAGIC_DAMAGED, Damage.PROVEN, True)


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
        ({"encoding": "cbor", "undone": Found(Undone.CIPHERTEXT_BIT, "bit 1 of byte 7")}, False),
    ],
)
def test_broken_cbor_below_a_tag_that_does_not_fit_may_be_newer_as_below_one_that_fits(
    look: Look, changes: dict[str, Any], *, newer: bool
) -> None:
    verdict = judge(unopened("authentication-failed", peek=right(look=look, **changes)))
    assert (verdict.damage, verdict.maybe_newer) == (Damage.PROVEN, newer)


def test_a_tag_bit_in_cbor_is_no_matter_of_releases() -> None:
    whole = Look(whole=True, breaks=False, ends_early=False, ends_as_written=True, message="")
    secretbox = "secretbox/v1/key2"
    seen_right = right(secretbox, encoding="cbor", look=whole, bound=False)
    verdict = judge(enveloped(secretbox, transform_failure=failed("authentication-failed"), peek=seen_right))
    assert (verdict.cause, verdict.maybe_newer) == (Cause.CIPHERTEXT_DAMAGED, False)
    unseen = judge(
        enveloped(
            secretbox,
            transform_failure=failed("authentication-failed"),
            peek=right(secretbox, bound=False, encoding="cbor"),
        )
    )
    assert not unseen.maybe_newer


@pytest.mark.parametrize("newer", [True, False])
def test_what_begins_as_no_encoding_may_be_newer_below_a_tag_that_does_not_fit(*, newer: bool) -> None:
    verdict = judge(unopened("authentication-failed", peek=right(look=BROKEN._replace(maybe_newer=newer))))
    assert (verdict.cause, verdict.maybe_newer) == (Cause.CIPHERTEXT_DAMAGED, newer)


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


def test_a_key_is_proven_by_a_look_or_a_tag() -> None:
    proven = {name for name, row in BRANCHES.items() if judge(row[0]).key_proven}
    assert proven == {
        "tag fails under the plugin's key, and the value shows that it is right",
        "plugin rejects, and a neighbour's data key opens the value",
        "encrypted twice",
        "nothing known below an intact envelope",
        "iv",
        "damage in the first block under aescbc",
        "another start under aescbc, and nothing that shows what stood there",
        "another magic under aescbc, before a whole object",
        "kind garbled under aescbc",
        "first block noise under aescbc, the end of a JSON object whole",
        "noise at both ends under aescbc",
        "damage that no place is known of under aescbc",
        "damage further on under aescbc",
        "empty object under aescbc",
        "0 bytes under aescbc",
    }


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


def test_a_moved_value_says_where_it_belongs() -> None:
    home = b"/registry/secrets/shop/home"
    moved = right(undone=Found(Undone.OTHER_PATH, "/registry/secrets/shop/home", home))
    verdict = judge(unopened("authentication-failed", peek=moved))
    assert (verdict.cause, verdict.belongs_to, verdict.damage) == (Cause.VALUE_MOVED, home, Damage.NONE)
    other = right(undone=Found(Undone.OTHER_PREFIX, "/old/secrets/shop/web", b"/old/secrets/shop/web"))
    assert judge(unopened("authentication-failed", peek=other)).belongs_to == b""


def test_no_upstream_message_where_the_server_was_not_asked() -> None:
    assert judge(enveloped(covered=Covered.NO_CONFIGURATION)).upstream_message == ""


def test_what_the_parser_said_is_kept_where_the_owner_is_unknown() -> None:
    assert judge(undecoded(owner_known=False)).upstream_message == "as the decoder says it"


def test_a_remark_is_not_lost_on_the_way() -> None:
    note, before = Evidence("unknown fields", "ignored"), Evidence("lookup", "found")
    assert judged(decoded=decoded(warnings=(note,)), evidence=(before,)).evidence == (before, note)


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
        "raw-json-invalid",
        "int-or-string-invalid",
        "identity-mismatch",
        "kind-missing",
        "invalid-utf8",
        "unknown fields",
    ]
    assert verdict.evidence[3] == Evidence("kind-missing", "object", "no kind")


def test_one_broken_response_is_enough_whatever_the_worst_cause() -> None:
    verdict = judged(
        decoded=decoded(
            Inconsistency("raw-json-invalid", "a", "valid UTF-8 after all"),
            Inconsistency("int-or-string-invalid", "b", "type 7", breaks_responses=True),
        )
    )
    assert verdict.cause is Cause.RAW_JSON_INVALID
    assert verdict.breaks_responses
    assert verdict.apiserver is ServerBehaviour.BREAKS_LIST


def test_inconsistent_objects_say_how_long_they_are_readable() -> None:
    verdict = judged(decoded=decoded(readable_until="1.35"), identity_mismatch="metadata.name is missing")
    assert verdict.readable_until == "1.35"
    assert verdict.message == "metadata.name is missing"


def test_nothing_more_is_to_be_said_of_a_plainly_readable_value() -> None:
    assert {name for name, row in BRANCHES.items() if judge(row[0]).is_plain} == {"readable"}


def test_what_a_newer_release_may_read_does_not_count_as_damage() -> None:
    for name, row in BRANCHES.items():
        verdict = judge(row[0])
        assert verdict.is_damage == (row[5] is PROVEN and not verdict.maybe_newer), name


def test_a_value_in_the_clear_needs_no_configuration() -> None:
    assert judge(seen(covered=Covered.NO_CONFIGURATION, decoded=decoded())).outcome is Outcome.READABLE


@pytest.mark.parametrize(
    "failure",
    [
        TransformFailure(FailureReason.NO_KEY_MATCHED, "as the server says it"),
        failed("no-provider-matched", "no-key-matched"),
    ],
)
def test_no_key_of_that_name_whatever_was_tried_besides(failure: TransformFailure) -> None:
    assert judge(enveloped(transform_failure=failure)).cause is Cause.KEY_NAME_MISSING


def test_a_whole_object_under_a_right_key_makes_no_envelope_known() -> None:
    """A newer server may accept it: that the neighbours' data key opens it is no proof that it is damaged."""
    whole = Look(whole=True, breaks=False, ends_early=False, ends_as_written=True, message="")
    opens = right("kms/v2/prov", look=whole, undone=Found(Undone.DATA_KEY, "the data key of another value"))
    verdict = judge(behind_plugin("kms-envelope-unknown", peek=opens))
    assert (verdict.cause, verdict.maybe_newer, verdict.key_proven) == (Cause.UNKNOWN_ENVELOPE, True, True)


@pytest.mark.parametrize(
    "fits",
    [
        {"opens": True},
        {"undone": Found(Undone.SOURCE_TYPE, "a seed")},
        {"undone": Found(Undone.DATA_KEY, "k")},
    ],
)
def test_what_breaks_below_a_fitting_tag_makes_no_envelope_known(fits: dict[str, Any]) -> None:
    opens = right("kms/v2/prov", look=BROKEN, **fits)
    verdict = judge(behind_plugin("kms-envelope-unknown", same_key=3, any_key=3, peek=opens))
    assert (verdict.cause, verdict.maybe_newer, verdict.is_damage) == (Cause.UNKNOWN_ENVELOPE, True, False)


def test_a_key_that_is_right_tells_more_than_an_envelope_that_nobody_accepts() -> None:
    unknown = behind_plugin("kms-envelope-unknown", same_key=3, any_key=3)
    assert judge(unknown).cause is Cause.UNKNOWN_ENVELOPE
    cut = Look(whole=False, breaks=True, ends_early=True, ends_as_written=False, message="unexpected EOF")
    proven = behind_plugin("kms-envelope-unknown", same_key=3, any_key=3, peek=right("kms/v2/prov", look=cut))
    assert judge(proven).cause is Cause.VALUE_TRUNCATED


@pytest.mark.parametrize(
    ("kind", "message", "cause"),
    [
        (DecodeFailureKind.CBOR, "unexpected EOF", Cause.CBOR_DAMAGED),
        (DecodeFailureKind.CONVERSION, "unexpected end of JSON input", Cause.CONVERSION_FAILED),
    ],
)
def test_one_decoders_words_for_a_cut_are_no_cut_of_another(
    kind: DecodeFailureKind, message: str, cause: Cause
) -> None:
    assert judge(undecoded(kind, message, plaintext=shape())).cause is cause


def test_nothing_is_inconsistent_with_an_owner_that_is_unknown() -> None:
    found = judge(seen(owner_known=False, decoded=decoded(Inconsistency(Cause.INVALID_UTF8, "a", "b"))))
    assert (found.outcome, found.cause) == (Outcome.READABLE, Cause.OWNER_UNKNOWN)


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


def test_the_encoding_that_a_look_showed_is_kept() -> None:
    peek = right(encoding="cbor", look=BROKEN)
    assert judge(unopened("authentication-failed", peek=peek)).seen_encoding == "cbor"
    padded = under_padding(DecodeFailureKind.CBOR, plaintext=shape(), peek=right(CBC, encoding="cbor"))
    assert judge(padded).seen_encoding == "cbor"


def test_two_writers_are_told_from_a_key_that_is_merely_another() -> None:
    two = {name for name, row in BRANCHES.items() if judge(row[0]).two_writers}
    assert two == {"noise under aescbc between two writers"}
