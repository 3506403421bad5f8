"""What a verdict rules out, by what was seen; nothing that was not looked at."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.observation import Neighbours, Observation, PlaintextShape
from etcdfix.examine.verdicts.ruled_out import ruled_out
from etcdfix.model.model import (
    Attempt,
    Confidence,
    DecodedObject,
    FailureReason,
    GroupVersionKind,
    Inconsistency,
    Outcome,
    Peek,
    PeekState,
    ServerBehaviour,
    TransformFailure,
    Undone,
    UndoneDamage,
)
from etcdfix.model.storagekey import StorageCodec
from tests.unit.examine.verdicts.test_damage import GCM, NOISE, NOT_POSSIBLE, V2, WHOLE, right, seen

FAILED = TransformFailure(
    FailureReason.AUTHENTICATION_FAILED,
    "",
    (Attempt(FailureReason.AUTHENTICATION_FAILED, ("no",), transformer=GCM, key_fingerprint="fp:1"),),
)
NO_KEY = TransformFailure(
    FailureReason.NO_KEY_MATCHED,
    "",
    (Attempt(FailureReason.NO_KEY_MATCHED, ("no",), transformer="aesgcm/v1"),),
)


def verdict(outcome: Outcome, cause: Cause | None) -> Verdict:
    return Verdict(outcome, cause, Confidence.CERTAIN, ServerBehaviour.CORRUPT, "")


def of_decryption(
    peek: Peek | None = None,
    written: str = GCM,
    *,
    cause: Cause = Cause.ASSOCIATED_DATA_UNKNOWN,
    searched: bool = True,
    **changes: Any,
) -> dict[Cause, Confidence]:
    there = msgspec.structs.replace(seen(written), **({"peek": peek, "transform_failure": FAILED} | changes))
    told = ruled_out(there, verdict(Outcome.DECRYPT_FAILURE, cause), searched=searched)
    assert len({one.cause for one in told}) == len(told)
    assert all(one.why for one in told)
    return {one.cause: one.confidence for one in told}


def of_decoding(shape: PlaintextShape | None = None, **changes: Any) -> set[Cause]:
    there = msgspec.structs.replace(seen(GCM), **({"transformer": GCM, "shape": shape} | changes))
    told = ruled_out(there, verdict(Outcome.DECODE_FAILURE, Cause.PROTOBUF_DAMAGED), searched=False)
    return {one.cause for one in told}


def shape(**changes: Any) -> PlaintextShape:
    fields: dict[str, Any] = {
        "size": 9, "zeroed": False, "starts_encrypted": False, "magic_bits_off": 0,
        "ends_envelope": True, "starts_json": False, "heals_magic": False, "heals_as_text": False,
    }  # fmt: skip
    return PlaintextShape(**(fields | changes))


ENVELOPE = {
    Cause.PLAINTEXT_NOT_ALLOWED, Cause.ENVELOPE_DAMAGED, Cause.UNKNOWN_ENVELOPE,
    Cause.RESOURCE_NOT_CONFIGURED,
}  # fmt: skip
TRIED = {Cause.PROVIDER_MISSING, Cause.KEY_NAME_MISSING}
RIGHT = {Cause.WRONG_KEY, Cause.KEY_RENAMED, Cause.DOUBLE_ENCRYPTED}


@pytest.mark.parametrize("outcome", [Outcome.READABLE, Outcome.UNDETERMINED, Outcome.NOT_AN_OBJECT])
def test_of_what_is_not_broken_nothing_is_ruled_out(outcome: Outcome) -> None:
    assert ruled_out(seen(GCM), verdict(outcome, None), searched=True) == ()


def test_by_its_envelope_and_the_keys_that_were_tried() -> None:
    assert set(of_decryption()) == ENVELOPE | TRIED
    assert set(of_decryption(enveloped=False)) == set()
    assert set(of_decryption(envelope_known=False, covered="no-configuration")) == (
        {Cause.PLAINTEXT_NOT_ALLOWED, Cause.ENVELOPE_DAMAGED} | TRIED
    )
    assert set(of_decryption(transform_failure=NO_KEY)) == ENVELOPE
    assert set(of_decryption(transform_failure=None)) == ENVELOPE


def test_a_kms_provider_has_no_keys_of_a_name() -> None:
    assert set(of_decryption(written=V2)) == ENVELOPE | {Cause.PROVIDER_MISSING}


def test_the_cause_itself_is_not_among_them() -> None:
    assert Cause.KEY_NAME_MISSING not in of_decryption(cause=Cause.KEY_NAME_MISSING)


def test_the_right_key() -> None:
    assert set(of_decryption(right(), searched=False)) == ENVELOPE | TRIED | RIGHT
    assert set(of_decryption(right(encoding=""), searched=False)) == (
        ENVELOPE | TRIED | RIGHT - {Cause.DOUBLE_ENCRYPTED}
    )
    assert Cause.DOUBLE_ENCRYPTED not in of_decryption(right(encoding="encrypted"))


def test_what_was_looked_for_and_not_found() -> None:
    found = of_decryption(right(look=WHOLE._replace(belongs=(b"/registry/secrets/a/b",))))
    assert found[Cause.TEXT_MODE_DAMAGE] is found[Cause.VALUE_MOVED] is Confidence.CERTAIN
    assert found[Cause.STORAGE_PREFIX_CHANGED] is Confidence.LIKELY
    assert Cause.VALUE_MOVED not in of_decryption(right(look=WHOLE))
    assert Cause.STORAGE_PREFIX_CHANGED not in of_decryption(right(bound=False))
    assert Cause.TEXT_MODE_DAMAGE not in of_decryption(right(), searched=False)


def test_once_something_was_undone_nothing_else_was_looked_for() -> None:
    undone = UndoneDamage(Undone.TAG_BIT, "bit 1 of byte 2 of the tag")
    found = of_decryption(right(undone=undone, look=WHOLE))
    assert {Cause.TEXT_MODE_DAMAGE, Cause.VALUE_TRUNCATED}.isdisjoint(found)
    assert Cause.WRONG_KEY in of_decryption(right(undone=undone, encoding=""))


def test_noise_says_that_no_other_key_wrote_it_but_not_for_certain() -> None:
    assert of_decryption(NOISE)[Cause.KEY_RENAMED] is Confidence.LIKELY
    assert Cause.KEY_RENAMED not in of_decryption(NOT_POSSIBLE)
    assert Cause.KEY_RENAMED in of_decryption(NOISE, V2)
    assert Cause.KEY_RENAMED not in of_decryption(NOISE, V2, searched=False)
    asked = msgspec.structs.replace(NOISE, not_asked="kms/v2/other")
    assert Cause.KEY_RENAMED not in of_decryption(asked, V2)


def test_another_key_is_right() -> None:
    assert set(of_decryption(right(named=False))) == ENVELOPE | TRIED


def test_values_around_it_speak_for_the_key_but_not_for_certain() -> None:
    found = of_decryption(NOISE, neighbours=Neighbours.SAME_KEY)
    assert found[Cause.WRONG_KEY] is Confidence.LIKELY


def test_a_value_that_opens_with_its_tag_is_under_the_right_key() -> None:
    assert of_decoding() == {Cause.WRONG_KEY}
    assert of_decoding(peek=right()) == {Cause.WRONG_KEY}
    assert of_decoding(peek=NOISE) == set()
    assert of_decoding(peek=Peek(PeekState.NOT_POSSIBLE)) == set()


def test_plaintext_that_is_far_from_an_envelope() -> None:
    assert of_decoding(enveloped=False) == {Cause.ENVELOPE_DAMAGED}
    assert of_decoding(enveloped=False, envelope_bits_off=2) == set()


def test_by_the_shape_of_the_plaintext() -> None:
    by_shape = {
        Cause.EMPTY_VALUE, Cause.ZEROED_VALUE, Cause.DOUBLE_ENCRYPTED, Cause.TEXT_MODE_DAMAGE, Cause.TRAILING_BYTES,
        Cause.MAGIC_DAMAGED, Cause.VALUE_TRUNCATED,
    }  # fmt: skip
    assert of_decoding(shape()) == {Cause.WRONG_KEY} | by_shape
    assert of_decoding(shape(size=0)) == {Cause.WRONG_KEY}
    other = shape(
        zeroed=True,
        starts_encrypted=True,
        heals_as_text=True,
        whole_at=3,
        magic_bits_off=1,
        ends_envelope=False,
    )
    assert of_decoding(other) == {Cause.WRONG_KEY, Cause.EMPTY_VALUE}


def inconsistent(seen_: Observation) -> set[Cause]:
    return {one.cause for one in ruled_out(seen_, verdict(Outcome.INCONSISTENT, None), searched=True)}


def test_what_an_inconsistent_object_is_not() -> None:
    gvk = GroupVersionKind("", "v1", "Pod")
    decoded = DecodedObject(
        gvk, b"a", b"b", b"", "protobuf", inconsistencies=(Inconsistency("invalid-utf8", "x", ""),)
    )
    there = msgspec.structs.replace(seen(GCM), decoded=decoded)
    assert inconsistent(there) == {
        Cause.IDENTITY_MISMATCH, Cause.RAW_JSON_INVALID, Cause.INT_OR_STRING_INVALID,
    }  # fmt: skip
    replace = msgspec.structs.replace
    assert inconsistent(replace(there, identity_mismatch="its name")) == {
        Cause.RAW_JSON_INVALID, Cause.INT_OR_STRING_INVALID,
    }  # fmt: skip
    assert inconsistent(replace(there, codec=StorageCodec.CUSTOM_RESOURCE)) == {Cause.IDENTITY_MISMATCH}
    assert inconsistent(replace(there, decoded=replace(decoded, encoding="json"))) == {
        Cause.IDENTITY_MISMATCH
    }
    assert inconsistent(replace(there, owner_known=False)) == set()
    assert inconsistent(replace(there, decoded=None)) == set()
