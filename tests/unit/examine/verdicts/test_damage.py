"""What a look without tag or padding proves: every ruling, one row each, and what it may rest on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from etcdfix.examine.verdicts.catalogue import CATALOGUE
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage, is_right_key, rule_on
from etcdfix.examine.verdicts.observation import Covered, Neighbours, Observation, OwnKey
from etcdfix.model.model import Confidence, Look, Peek, PeekState, Undone, UndoneDamage
from etcdfix.model.storagekey import StorageCodec, display

CERTAIN, LIKELY, POSSIBLE = Confidence.CERTAIN, Confidence.LIKELY, Confidence.POSSIBLE
NONE, POSSIBLE_DAMAGE, LIKELY_DAMAGE, PROVEN = Damage
GCM, CBC, BOX, V1, V2 = "aesgcm/v1/key1", "aescbc/v1/key1", "secretbox/v1/key1", "kms/v1/prov", "kms/v2/prov"
HOME = b"/old/secrets/shop/\x1bweb"
ALL = (GCM, CBC, BOX, V1, V2)
SAME_KEY, NEWEST, FAR = Neighbours.SAME_KEY, Neighbours.NEWEST, Neighbours.NONE

WHOLE = Look(whole=True, breaks=False, ends_early=False, ends_as_written=True, message="")
CUT_AFTER_THE_OBJECT = WHOLE._replace(ends_early=True, ends_as_written=False)
OTHER_END = WHOLE._replace(ends_as_written=False)
BROKEN = WHOLE._replace(whole=False, breaks=True, message="proto: illegal wireType 7")
CUT = BROKEN._replace(ends_early=True, ends_as_written=False, message="unexpected EOF")
NEWER = WHOLE._replace(whole=False, message='no kind "Pod" is registered for version "v7"')


def right(**changes: Any) -> Peek:
    fields: dict[str, Any] = {
        "rule": "secrets", "transformer": GCM, "key_fingerprint": "fp:0a1b2c3d", "named": True,
        "encoding": "protobuf", "wrong_bits": 2, "odds_bits": 98, "candidates": 3,
    }  # fmt: skip
    return Peek(PeekState.RIGHT_KEY, **(fields | changes))


NOISE = Peek(PeekState.NOISE, candidates=3)
NOT_POSSIBLE = Peek(PeekState.NOT_POSSIBLE)


def undone(what: Undone, look: Look = WHOLE) -> Peek:
    elsewhere = what in {Undone.OTHER_PREFIX, Undone.OTHER_PATH}
    found = UndoneDamage(what, "", HOME) if elsewhere else UndoneDamage(what, "bit 3 of byte 117")
    return right(undone=found, look=look)


def seen(written: str, neighbours: Neighbours = FAR, **more: Any) -> Observation:
    return Observation(
        codec=StorageCodec.BUILTIN,
        owner_known=True,
        covered=Covered.COVERED,
        enveloped=True,
        envelope_known=True,
        envelope_transformer=written,
        resource="secrets",
        neighbours=neighbours,
        **more,
    )


# name: look, written under, neighbours, cause, confidence, damage, may more be found?
RULINGS: dict[str, tuple[Peek, tuple[str, ...], Neighbours, Cause, Confidence, Damage, bool]] = {
    "a bit of the ciphertext": (
        undone(Undone.CIPHERTEXT_BIT), (GCM, BOX, V1, V2), FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "a bit of the tag": (
        undone(Undone.TAG_BIT), (GCM, BOX, V1, V2), FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "a bit of the nonce": (
        undone(Undone.NONCE_BIT), (GCM, BOX, V1, V2), FAR, Cause.NONCE_DAMAGED, CERTAIN, PROVEN, False),
    "a bit of the info": (
        undone(Undone.INFO_BIT), (V2,), FAR, Cause.NONCE_DAMAGED, CERTAIN, PROVEN, False),
    "the other source type": (
        undone(Undone.SOURCE_TYPE), (V2,), FAR, Cause.KMS_ENVELOPE_DAMAGED, CERTAIN, PROVEN, False),
    "a neighbour's data key": (
        undone(Undone.DATA_KEY), (V1, V2), FAR, Cause.KMS_ENVELOPE_DAMAGED, CERTAIN, PROVEN, False),
    "line feeds": (
        undone(Undone.TEXT_MODE), ALL, FAR, Cause.TEXT_MODE_DAMAGE, CERTAIN, PROVEN, False),
    "another prefix": (
        undone(Undone.OTHER_PREFIX), (GCM, V2), FAR, Cause.STORAGE_PREFIX_CHANGED, CERTAIN, NONE, False),
    "another prefix, though values around it open here": (
        undone(Undone.OTHER_PREFIX), (GCM, V2), SAME_KEY, Cause.STORAGE_PREFIX_CHANGED, CERTAIN, NONE, False),
    "another path": (
        undone(Undone.OTHER_PATH), (GCM, V2), FAR, Cause.VALUE_MOVED, CERTAIN, NONE, False),
    "another path, and a plaintext that breaks": (
        undone(Undone.OTHER_PATH, BROKEN), (GCM, V2), SAME_KEY, Cause.VALUE_MOVED, CERTAIN, NONE, False),
    "encrypted again": (
        right(encoding="encrypted"), ALL, SAME_KEY, Cause.DOUBLE_ENCRYPTED, CERTAIN, NONE, False),
    "the object breaks": (
        right(look=BROKEN), ALL, FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "the object ends early": (
        right(look=CUT), ALL, FAR, Cause.VALUE_TRUNCATED, LIKELY, PROVEN, True),
    "broken under KMS v1, where the padding fits": (
        right(opens=True, bound=False, authenticated=False, key_fingerprint="", look=BROKEN), (V1,), FAR,
        Cause.CIPHERTEXT_DAMAGED, LIKELY, PROVEN, False),
    "whole under CBC, and no padding behind it": (
        right(bound=False, authenticated=False, look=WHOLE), (V1, CBC), SAME_KEY,
        Cause.VALUE_TRUNCATED, LIKELY, PROVEN, False),
    "whole under CBC, and its padding fits": (
        right(bound=False, authenticated=False, look=WHOLE, opens=True), (V1, CBC), SAME_KEY,
        Cause.CIPHERTEXT_DAMAGED, LIKELY, PROVEN, False),
    "whole, and nothing but the value could be wrong": (
        right(look=WHOLE, bound=False), (BOX,), FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "not seen whole, and nothing but the value could be wrong": (
        right(bound=False), (BOX, CBC), FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "whole, the end missing": (
        right(look=CUT_AFTER_THE_OBJECT), (GCM, V1, V2), FAR, Cause.VALUE_TRUNCATED, LIKELY, PROVEN, False),
    "whole, the end missing, and nothing but the value could be wrong": (
        right(look=CUT_AFTER_THE_OBJECT, bound=False), (BOX, CBC), FAR,
        Cause.VALUE_TRUNCATED, LIKELY, PROVEN, False),
    "whole, other bytes at its end": (
        right(look=OTHER_END), (GCM, V1, V2), FAR, Cause.CIPHERTEXT_DAMAGED, LIKELY, PROVEN, False),
    "whole": (
        right(look=WHOLE), (GCM, V1, V2), FAR, Cause.ASSOCIATED_DATA_UNKNOWN, POSSIBLE, NONE, True),
    "whole, and equal bytes in a row": (
        right(look=WHOLE, equal_bytes=True), (GCM, V1, V2), FAR, Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN, False),
    "of a kind that may be newer": (
        right(look=NEWER), (GCM, V1, V2), FAR, Cause.ASSOCIATED_DATA_UNKNOWN, POSSIBLE, NONE, True),
    "of a kind that may be newer, its end missing": (
        right(look=NEWER._replace(ends_as_written=False)), (GCM, V1, V2), FAR,
        Cause.ASSOCIATED_DATA_UNKNOWN, POSSIBLE, NONE, True),
    "another key of the configuration": (
        right(named=False), ALL, FAR, Cause.KEY_RENAMED, CERTAIN, NONE, False),
    "another key of the configuration, and damage": (
        right(named=False, look=BROKEN, undone=UndoneDamage(Undone.TAG_BIT, "bit 1")), ALL, SAME_KEY,
        Cause.KEY_RENAMED, CERTAIN, NONE, False),
    "too short for any key": (
        Peek(PeekState.NOT_POSSIBLE, too_short=True), ALL, FAR, Cause.VALUE_TRUNCATED, CERTAIN, PROVEN, False),
    "the name may go on": (
        Peek(PeekState.NOISE, name_may_go_on=True), (GCM, CBC, BOX), FAR,
        Cause.KEY_NAME_MISSING, POSSIBLE, NONE, False),
    "the name may go on, and values around it open": (
        Peek(PeekState.NOISE, name_may_go_on=True), (GCM, CBC, BOX), SAME_KEY,
        Cause.KEY_NAME_MISSING, POSSIBLE, NONE, False),
    "the name of a provider may go on": (
        Peek(PeekState.NOT_POSSIBLE, name_may_go_on=True), (V1,), SAME_KEY,
        Cause.PROVIDER_MISSING, POSSIBLE, NONE, False),
    "noise": (
        NOISE, ALL, FAR, Cause.WRONG_KEY, LIKELY, NONE, True),
    "nothing to see": (
        NOT_POSSIBLE, ALL, FAR, Cause.AUTHENTICATION_FAILED, POSSIBLE, NONE, True),
    "noise, values around it open": (
        NOISE, (GCM, BOX), SAME_KEY, Cause.NONCE_DAMAGED, LIKELY, LIKELY_DAMAGE, True),
    "the only noise, and the newest": (
        NOISE, (GCM, BOX), NEWEST, Cause.NONCE_DAMAGED, POSSIBLE, POSSIBLE_DAMAGE, True),
    "the only noise of blocks, and the newest": (
        NOISE, (CBC,), NEWEST, Cause.CIPHERTEXT_DAMAGED, POSSIBLE, POSSIBLE_DAMAGE, True),
    "the only one behind a plugin, and the newest": (
        NOT_POSSIBLE, (V1, V2), NEWEST, Cause.KMS_ENVELOPE_DAMAGED, POSSIBLE, POSSIBLE_DAMAGE, True),
    "noise between two writers": (
        NOISE, ALL, Neighbours.TWO_WRITERS, Cause.WRONG_KEY, LIKELY, NONE, True),
    "nothing to see between two writers": (
        NOT_POSSIBLE, ALL, Neighbours.TWO_WRITERS, Cause.AUTHENTICATION_FAILED, POSSIBLE, NONE, True),
    "noise of blocks, values around it open": (
        NOISE, (CBC,), SAME_KEY, Cause.CIPHERTEXT_DAMAGED, LIKELY, LIKELY_DAMAGE, True),
    "noise behind a plugin, values around it open": (
        NOISE, (V1, V2), SAME_KEY, Cause.KMS_ENVELOPE_DAMAGED, LIKELY, LIKELY_DAMAGE, True),
    "nothing to see, values around it open": (
        NOT_POSSIBLE, (GCM, BOX), SAME_KEY, Cause.NONCE_DAMAGED, LIKELY, LIKELY_DAMAGE, True),
}  # fmt: skip


@pytest.mark.parametrize("name", list(RULINGS))
def test_ruling(name: str) -> None:
    peek, written_under, neighbours, cause, confidence, damage, more = RULINGS[name]
    for written in written_under:
        ruling = rule_on(seen(written, neighbours), peek)
        assert (ruling.cause, ruling.confidence, ruling.damage, ruling.open) == (
            cause, confidence, damage, more,
        )  # fmt: skip
        assert "\n" not in ruling.message
        assert not ruling.message.endswith(".")
        assert written in ruling.message
        assert damage is NONE or not CATALOGUE[cause].curable_by_configuration


@pytest.mark.parametrize("name", list(RULINGS))
def test_damage_is_proven_only_under_the_right_key_or_whatever_the_key(name: str) -> None:
    peek = RULINGS[name][0]
    for written, neighbours in itertools.product(ALL, Neighbours):
        ruling = rule_on(seen(written, neighbours), peek)
        if ruling.damage is PROVEN:
            assert is_right_key(peek) or peek.too_short
            # Missing bytes and changed ones at the end look alike: it is damage, and which is only likely.
            alike = {CUT, CUT_AFTER_THE_OBJECT, OTHER_END, WHOLE}
            assert ruling.confidence is CERTAIN or peek.look in alike or peek.opens
            # A search may still tell them apart; it is damage in either case.
            assert not ruling.open or peek.look is CUT
        if ruling.damage is LIKELY_DAMAGE:
            assert neighbours is SAME_KEY
            assert ruling.confidence is LIKELY
        if ruling.damage is POSSIBLE_DAMAGE:
            assert neighbours is NEWEST
            assert ruling.confidence is POSSIBLE


UNKNOWN_KEY = (Cause.ASSOCIATED_DATA_UNKNOWN, POSSIBLE, NONE)
SURELY_DAMAGED = (Cause.CIPHERTEXT_DAMAGED, CERTAIN, PROVEN)
LIKELY_DAMAGED = (Cause.CIPHERTEXT_DAMAGED, LIKELY, LIKELY_DAMAGE)


@pytest.mark.parametrize("names_own", [False, True])
@pytest.mark.parametrize("own_key", list(OwnKey))
@pytest.mark.parametrize("unwritable", [None, CERTAIN, LIKELY])
def test_what_shows_that_the_etcd_key_is_the_associated_data(
    unwritable: Confidence | None, own_key: OwnKey, names_own: bool
) -> None:
    others = own_key in {OwnKey.ANOTHER_OPENS, OwnKey.OTHERS_OPEN, OwnKey.KEPT}
    if unwritable is not None and others:
        expected = SURELY_DAMAGED if unwritable is CERTAIN else LIKELY_DAMAGED
    elif own_key is OwnKey.KEPT or (own_key is OwnKey.OTHERS_OPEN and names_own):
        expected = LIKELY_DAMAGED
    else:
        expected = UNKNOWN_KEY
    looked = seen(GCM, own_key=own_key, names_own_key=names_own)
    ruling = rule_on(looked, right(look=WHOLE._replace(unwritable=unwritable)))
    assert (ruling.cause, ruling.confidence, ruling.damage) == expected
    # What rests on others alone is held against how many of them fail alike.
    alone = unwritable is None and own_key is OwnKey.OTHERS_OPEN
    assert ruling.shown_by_itself == (expected is not UNKNOWN_KEY and not alone)


@pytest.mark.parametrize("what", list(Undone))
def test_everything_that_can_be_undone_is_ruled_on(what: Undone) -> None:
    """A fit elsewhere is no damage; any other undoing makes the tag fit, and is."""
    ruling = rule_on(seen(V2), undone(what))
    if what in {Undone.OTHER_PREFIX, Undone.OTHER_PATH}:
        assert ruling.damage is NONE
        assert display(HOME) in ruling.message
    else:
        assert ruling.damage is PROVEN
        in_one_word = what in {Undone.SOURCE_TYPE, Undone.DATA_KEY, Undone.TEXT_MODE}
        assert ("bit 3 of byte 117" in ruling.message) is not in_one_word
