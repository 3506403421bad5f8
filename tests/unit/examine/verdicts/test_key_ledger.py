"""What one pass says of many values is what a pass for each of them says."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination
from etcdfix.examine.verdicts.judge import Verdict
from etcdfix.examine.verdicts.key_ledger import KeyLedger
from etcdfix.examine.verdicts.key_loss import KeyCounter
from etcdfix.model.model import Confidence, Outcome, ServerBehaviour, StoredValue
from etcdfix.model.storagekey import StorageLayout

PATH = b"/registry/secrets/shop/"
DIRECTORY = StorageLayout("/registry").locate(PATH + b"x")[0]


def examination(
    number: int, outcome: Outcome, cause: Cause | None, damage: Damage, keys: tuple[str, ...], *, proven: bool
) -> Examination:
    stored = StoredValue(
        PATH + b"%d" % number, b"", mod_revision=number, create_revision=1, version=1, lease=0
    )
    verdict = Verdict(
        outcome, cause, Confidence.CERTAIN, ServerBehaviour.NOT_ASKED, "", damage=damage, key_proven=proven
    )
    return Examination(
        stored,
        DIRECTORY,
        "shop",
        str(number),
        "aescbc/v1/key1",
        outcome is Outcome.READABLE,
        False,
        verdict,
        rule="secrets",
        key_fingerprints=keys,
    )


Found = tuple[tuple[Outcome, Cause | None, Damage], tuple[str, ...], bool]
FOUND: st.SearchStrategy[Found] = st.tuples(
    st.sampled_from(
        [
            (Outcome.READABLE, None, Damage.NONE),
            (Outcome.INCONSISTENT, Cause.IDENTITY_MISMATCH, Damage.NONE),
            (Outcome.NOT_AN_OBJECT, None, Damage.NONE),
            (Outcome.UNDETERMINED, Cause.KMS_UNREACHABLE, Damage.NONE),
            (Outcome.DECRYPT_FAILURE, Cause.WRONG_KEY, Damage.NONE),
            (Outcome.DECRYPT_FAILURE, Cause.CIPHERTEXT_DAMAGED, Damage.LIKELY),
            (Outcome.DECRYPT_FAILURE, Cause.VALUE_TRUNCATED, Damage.PROVEN),
        ]
    ),
    st.sampled_from([("fp:1",), ("fp:2",), ("fp:1", "fp:2")]),
    st.booleans(),
)


@given(st.lists(FOUND, min_size=1, max_size=30))
def test_as_a_pass_for_each(values: list[Found]) -> None:
    found = [
        examination(number, *what, keys, proven=proven)
        for number, (what, keys, proven) in enumerate(values, start=1)
    ]
    ledger = KeyLedger()
    for each in found:
        ledger.add(each)
    for target in found:
        if target.verdict.outcome in {Outcome.READABLE, Outcome.INCONSISTENT, Outcome.NOT_AN_OBJECT}:
            continue
        counter = KeyCounter(target.stored, only=target.encryption_keys)
        for each in found:
            counter.add(each)
        for name in target.encryption_keys:
            expected = counter.of(name)
            assert ledger.of(name, target.stored, target_counts=True) == expected
    elsewhere = msgspec.structs.replace(found[0], rule="configmaps")
    (name, *_) = elsewhere.encryption_keys
    assert ledger.of(name, found[0].stored, target_counts=False).opened == 0
    assert not ledger.opened_last(name)


@pytest.mark.parametrize(
    ("values", "last"), [("", False), ("o", True), ("f", False), ("of", False), ("fo", True)]
)
def test_whether_the_newest_value_under_a_key_opens(values: str, last: bool) -> None:
    ledger = KeyLedger()
    for number, what in enumerate(values):
        outcome, cause = (
            (Outcome.READABLE, None) if what == "o" else (Outcome.DECRYPT_FAILURE, Cause.WRONG_KEY)
        )
        ledger.add(examination(number, outcome, cause, Damage.NONE, ("fp:1",), proven=False))
    (name,) = examination(9, Outcome.READABLE, None, Damage.NONE, ("fp:1",), proven=False).encryption_keys
    assert ledger.opened_last(name) is last


@pytest.mark.parametrize(
    ("failing", "opened", "last_failing"),
    [
        ((3,), (), 3), ((), (7,), 0), ((3, 9), (), 9), ((3, 9), (7,), 3), ((9,), (7,), 0),
        ((3, 6, 9), (7,), 6), ((9,), (4, 10), 9),
    ],
)  # fmt: skip
def test_what_fails_later_counts_only_where_none_opens_in_between(
    failing: tuple[int, ...], opened: tuple[int, ...], last_failing: int
) -> None:
    def failed(number: int) -> Examination:
        lost = Outcome.DECRYPT_FAILURE, Cause.WRONG_KEY, Damage.NONE
        return examination(number, *lost, ("fp:1",), proven=False)

    def reads(number: int) -> Examination:
        return examination(number, Outcome.READABLE, None, Damage.NONE, ("fp:1",), proven=False)

    target = failed(5)
    counter, ledger = KeyCounter(target.stored, only=target.encryption_keys), KeyLedger()
    for each in (*map(reads, opened), target, *map(failed, failing)):
        counter.add(each)
        ledger.add(each)
    (name,) = target.encryption_keys
    assert counter.of(name).last_failing == last_failing
    assert ledger.of(name, target.stored, target_counts=True) == counter.of(name)


def test_values_that_one_transaction_wrote() -> None:
    """They share a mod revision: another one counts beside the target, whether that counts under the key or not."""
    target, other = (
        examination(number, Outcome.DECRYPT_FAILURE, Cause.WRONG_KEY, Damage.NONE, keys, proven=False)
        for number, keys in ((5, ("fp:1", "fp:2")), (6, ("fp:2",)))
    )
    other = msgspec.structs.replace(other, stored=msgspec.structs.replace(other.stored, mod_revision=5))
    counter, ledger = KeyCounter(target.stored, only=target.encryption_keys), KeyLedger()
    for each in (target, other):
        counter.add(each)
        ledger.add(each)
    for name in target.encryption_keys:
        assert ledger.of(name, target.stored, target_counts=True) == counter.of(name)
    elsewhere = msgspec.structs.replace(other, key_fingerprints=("fp:3",))
    ledger.add(elsewhere)
    (name,) = elsewhere.encryption_keys
    assert ledger.of(name, target.stored, target_counts=False).last_failing == 5
