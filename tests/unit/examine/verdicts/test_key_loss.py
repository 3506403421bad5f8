"""Is it the encryption key, or the object: counted by hand."""

from __future__ import annotations

import pytest

from etcdfix.examine.verdicts import key_loss
from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.examination import Examination, KeyName, PlainCount
from etcdfix.examine.verdicts.key_loss import (
    KeyCounter,
    KeyCounts,
    KeyDoubt,
    KeyLedger,
    doubt_about,
    doubt_by_numbers,
)
from etcdfix.model.model import Outcome
from tests.support.examinations import examination, readable
from tests.support.fixtures import Patch

FAILING = examination(cause=Cause.WRONG_KEY, damage=Damage.NONE)
NO, NONE_OPENS, MOST, MASS = KeyDoubt.NONE, KeyDoubt.NONE_OPENS, KeyDoubt.MOST_FAIL, KeyDoubt.MASS_DAMAGE


@pytest.mark.parametrize(
    ("opened", "failed", "damaged", "doubt"),
    [
        (0, 0, 0, NO), (0, 1, 0, NO), (0, 1, 1, NO), (0, 2, 0, NONE_OPENS), (0, 2, 1, NONE_OPENS),
        (0, 2, 2, NO), (0, 9, 8, NONE_OPENS), (0, 9, 9, NO), (1, 2, 0, NO), (1, 9, 0, NO),
        (0, 10, 9, NONE_OPENS), (0, 10, 10, MASS), (1, 10, 0, MOST), (1, 10, 9, MOST), (1, 10, 10, MASS),
        (10, 10, 0, MOST), (10, 10, 10, MASS), (11, 10, 0, NO), (11, 10, 10, NO), (1000, 999, 999, NO),
        (1000, 1000, 999, MOST), (1000, 1000, 1000, MASS),
    ],
)  # fmt: skip
def test_what_points_at_the_key(opened: int, failed: int, damaged: int, doubt: KeyDoubt) -> None:
    assert doubt_by_numbers(opened=opened, failed=failed, damaged=damaged) is doubt
    # What is undetermined speaks neither for nor against the key.
    assert doubt_about(KeyCounts(opened, failed, damaged, undetermined=99), FAILING.verdict) is doubt


LIKELY = examination(cause=Cause.NONCE_DAMAGED, damage=Damage.LIKELY)
UNDER_THE_KEY = examination(cause=Cause.CIPHERTEXT_DAMAGED, damage=Damage.LIKELY, key_proven=True)


@pytest.mark.parametrize(
    ("found", "counts", "doubt"),
    [
        (LIKELY, KeyCounts(50, 1, 0, unexplained=1), NO),
        (LIKELY, KeyCounts(50, 2, 0, unexplained=2), KeyDoubt.IN_BETWEEN),
        (LIKELY, KeyCounts(50, 1, 0, 1, unexplained=2), KeyDoubt.IN_BETWEEN),
        # Where damage is proven, or the cause is curable anyway, others have nothing to say of it.
        (examination(cause=Cause.CIPHERTEXT_DAMAGED), KeyCounts(50, 3, 1, unexplained=2), NO),
        (FAILING, KeyCounts(50, 2, 0, unexplained=2), NO),
        # What is stronger goes first.
        (LIKELY, KeyCounts(0, 2, 0, unexplained=2), NONE_OPENS),
        (LIKELY, KeyCounts(9, 10, 0, unexplained=10), MOST),
        # What is under the key for certain says nothing of other bytes, and the other way round.
        (LIKELY, KeyCounts(50, 3, 0, unexplained=1, unfitting=2), NO),
        (UNDER_THE_KEY, KeyCounts(50, 3, 0, unexplained=2, unfitting=1), NO),
        (UNDER_THE_KEY, KeyCounts(50, 2, 0, unfitting=2), KeyDoubt.UNFITTING),
    ],
)
def test_other_bytes_for_a_time(found: Examination, counts: KeyCounts, doubt: KeyDoubt) -> None:
    """Values of a key that was replaced and put back fail between values that open, and are whole."""
    assert doubt_about(counts, found.verdict) is doubt


UNEXPLAINED = {
    "likely damage": LIKELY,
    "wrong key": FAILING,
    "renamed": examination(cause=Cause.KEY_RENAMED, damage=Damage.NONE),
    "AES-CBC whose padding fits by chance": examination(
        outcome=Outcome.DECODE_FAILURE, cause=Cause.CIPHERTEXT_DAMAGED, damage=Damage.LIKELY
    ),
    "refused by its plugin": examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNPROVEN),
    "not asked": examination(outcome=Outcome.UNDETERMINED, cause=Cause.KMS_UNREACHABLE),
    "of no known owner, and not opened": examination(outcome=Outcome.UNDETERMINED, cause=Cause.OWNER_UNKNOWN),
}
EXPLAINED = {
    "damaged": examination(cause=Cause.CIPHERTEXT_DAMAGED),
    "likely damaged, as its own bytes show": examination(
        cause=Cause.CIPHERTEXT_DAMAGED, damage=Damage.LIKELY, key_proven=True, shown_by_itself=True
    ),
    "readable": readable(),
    "of a newer kind": examination(
        outcome=Outcome.DECODE_FAILURE, cause=Cause.KIND_NOT_REGISTERED, damage=Damage.NONE, opened=True
    ),
    "of no known owner, and opened": examination(
        outcome=Outcome.UNDETERMINED, cause=Cause.OWNER_UNKNOWN, opened=True
    ),
}
UNFITTING = {
    "whole": examination(cause=Cause.ASSOCIATED_DATA_UNKNOWN, damage=Damage.NONE, key_proven=True),
    "likely damage": UNDER_THE_KEY,
}


def counted(*all_found: Examination) -> tuple[int, int]:
    counter = KeyCounter()
    for found in all_found:
        counter.add(found)
    counts = counter.of(all_found[0].encryption_keys[0])
    assert not (counts.opened and any(map(key_loss.does_not_read, all_found)))
    return counts.unexplained, counts.unfitting


@pytest.mark.parametrize("name", UNEXPLAINED)
def test_what_nothing_explains(name: str) -> None:
    assert counted(UNEXPLAINED[name]) == (1, 0)
    assert key_loss.does_not_read(UNEXPLAINED[name])


@pytest.mark.parametrize("name", EXPLAINED)
def test_what_is_explained(name: str) -> None:
    assert counted(EXPLAINED[name]) == (0, 0)


@pytest.mark.parametrize("name", UNFITTING)
def test_what_does_not_fit_its_key(name: str) -> None:
    assert counted(UNFITTING[name]) == (0, 1)


def test_what_is_unexplained_counts_in_every_rule_that_has_the_key() -> None:
    """What opens in another rule outvotes nobody; what fails there speaks against the key all the same."""
    counter = KeyCounter()
    counter.add(under("secrets", "fp:a"))
    counter.add(under("configmaps", "fp:a"))
    counter.add(under("configmaps", "fp:b"))
    assert counter.of(key("secrets", "fp:a")) == KeyCounts(failed=1, unexplained=2)


def damaged(key: str = "/registry/secrets/shop/damaged", *, mod_revision: int = 7) -> Examination:
    return examination(key, cause=Cause.CIPHERTEXT_DAMAGED, mod_revision=mod_revision)


def written(mod_revision: int, *, opens: bool, name: str = "target") -> Examination:
    return (readable if opens else examination)(
        f"/registry/secrets/shop/{name}", mod_revision=mod_revision, transformer="aesgcm/v1/key1", rule="secrets",
        key_fingerprints=("fp:a",),
    )  # fmt: skip


def beside(
    target: int, opened: tuple[int, ...], failing: tuple[int, ...], *, counts: bool = True
) -> KeyCounts:
    """Return what is beside a failing value, where others that open and others that fail are met in any order."""
    ledger = KeyLedger(written(target, opens=False))
    for number, revision in enumerate((*failing, *opened)):
        ledger.add(written(revision, opens=number >= len(failing), name=f"other-{number}"))
    if counts:
        ledger.add(written(target, opens=False))
    return ledger.beside(key("secrets", "fp:a"))


@pytest.mark.parametrize(
    ("opened", "failing", "last_failing", "last_opened"),
    [
        # What is written in the same transaction is not before; what fails later counts where none opens in between.
        ((40, 50, 60), (20, 70), 20, 40), ((), (3,), 3, 0), ((70,), (), 0, 0), ((), (90, 3), 90, 0),
        ((70,), (90, 3), 3, 0), ((70,), (90,), 0, 0), ((70,), (3, 60, 90), 60, 0), ((40, 100), (90,), 90, 40),
        ((), (50,), 50, 0), ((50,), (90,), 90, 0), ((60, 100), (90,), 0, 0),
    ],
)  # fmt: skip
def test_when_others_failed_and_opened_last(
    opened: tuple[int, ...], failing: tuple[int, ...], last_failing: int, last_opened: int
) -> None:
    for counts in (True, False):
        found = beside(50, opened, failing, counts=counts)
        assert (found.failed, found.opened) == (len(failing) + counts, len(opened))
        assert (found.last_failing, found.last_opened) == (last_failing, last_opened)


def under(rule: str, *fingerprints: str, opens: bool = False, name: str = "web") -> Examination:
    make = readable if opens else examination
    return make(
        f"/registry/secrets/shop/{name}",
        transformer="aesgcm/v1/key1",
        rule=rule,
        key_fingerprints=fingerprints,
    )


def key(rule: str, fingerprint: str) -> KeyName:
    return KeyName(rule, "aesgcm/v1/key1", fingerprint)


def test_one_name_in_two_rules_is_counted_twice() -> None:
    """Twelve Secrets under a wrong key were once outvoted by thirteen ConfigMaps under another of that name."""
    counter = KeyCounter()
    for number in range(12):
        counter.add(under("secrets", "fp:wrong", name=f"s{number}"))
    for number in range(13):
        counter.add(under("configmaps", "fp:other", opens=True, name=f"c{number}"))
    assert doubt_about(counter.of(key("secrets", "fp:wrong")), FAILING.verdict) is NONE_OPENS
    assert doubt_about(counter.of(key("configmaps", "fp:other")), FAILING.verdict) is NO


def test_one_name_with_other_bytes_in_the_same_rule_is_counted_twice() -> None:
    counter = KeyCounter()
    for number in range(3):
        counter.add(under("secrets", "fp:b", opens=True, name=f"o{number}"))
    # Which of the two keys of that name it was under, nobody knows: it counts under each.
    for number in range(2):
        counter.add(under("secrets", "fp:a", "fp:b", name=f"f{number}"))
    assert doubt_about(counter.of(key("secrets", "fp:a")), FAILING.verdict) is NONE_OPENS
    assert counter.of(key("secrets", "fp:b")) == KeyCounts(3, 2, 0, 0, 0, 0, 2)


def test_bookkeeping_is_not_counted() -> None:
    counter = KeyCounter()
    counter.add(examination("/registry/masterleases/10.0.0.1", outcome=Outcome.NOT_AN_OBJECT, cause=None))
    assert counter.of(KeyName("", "aescbc/v1/key2", "")) == KeyCounts()


def test_past_a_bound_all_other_keys_count_as_one(monkeypatch: Patch) -> None:
    monkeypatch.setattr(key_loss, "MOST_KEYS", 2)
    counter = KeyCounter()
    for number in range(5):
        counter.add(under("secrets", f"fp:{number}"))
    assert [counter.of(key("secrets", f"fp:{number}")).failed for number in range(5)] == [1, 1, 3, 3, 3]
    counter.add(under("secrets", "fp:0"))
    assert counter.of(key("secrets", "fp:0")).failed == 2
    unexplained = [counter.of(key("secrets", f"fp:{number}")).unexplained for number in range(5)]
    assert unexplained == [2, 1, 3, 3, 3]
    counter = KeyCounter([key("secrets", "fp:4")])
    for number in range(5):
        counter.add(under("secrets", f"fp:{number}"))
    assert counter.of(key("secrets", "fp:4")) == KeyCounts(failed=1, unexplained=1)


def test_plain_values_count_as_if_each_had_been_added() -> None:
    values = [
        under("secrets", *fps, opens=True, name=name) for fps, name in ((("fp:a",), "x"), (("fp:b",), "y"))
    ]
    each, together = KeyCounter(), KeyCounter()
    for found in values:
        each.add(found)
    together.add_plain(
        PlainCount(f.directory, f.rule, f.transformer, f.key_fingerprints, "", False, 1, 7, 7) for f in values
    )
    for fingerprint in ("fp:a", "fp:b"):
        assert together.of(key("secrets", fingerprint)) == each.of(key("secrets", fingerprint))
