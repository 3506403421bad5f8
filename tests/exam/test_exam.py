"""Cases made from seeds: what the library says of them is held against what was done. By default a sample of each exam.

ETCDFIX_TEST_THOROUGH=1 pytest tests/exam                          all of them, some minutes
ETCDFIX_EXAM_SEED=17 pytest tests/exam -k "test_a_case or cause"   the cases of one seed
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Final

import pytest

from etcdfix.examine.verdicts.causes import Cause
from etcdfix.examine.verdicts.damage import Damage
from etcdfix.examine.verdicts.deletability import (
    Deletability,
    deletability_of,
    deletability_of_cause,
)
from etcdfix.examine.verdicts.server_messages import SERVER_MESSAGES
from etcdfix.examine.verdicts.severity import severities_of_cause, stake_of
from etcdfix.model.model import Outcome
from tests.exam.cases import make_case
from tests.exam.judging import Named, judge_case, name_case
from tests.exam.kinds_of_damage import DAMAGES, make_cause_case
from tests.exam.repairs import TAGGED, TAGLESS, one_bit, one_body_bit, repaired, two_bits

CASES: Final = 5_000
REPAIRS: Final = 2_000
LEAST_CALLED_DAMAGE: Final = 0.99
LEAST_CAUSES_RIGHT: Final = 0.98


def _sample(size: int) -> list[int]:
    seed = os.environ.get("ETCDFIX_EXAM_SEED")
    return list(range(size)) if seed is None else [int(seed)]


@pytest.mark.parametrize("seed", _sample(100))
def test_a_case(seed: int) -> None:
    judged = judge_case(make_case(seed))
    assert not judged.wrong, f"{judged.case}: {judged.called}: {judged.found.verdict}: {judged.refusal}"


@pytest.mark.thorough
def test_every_case() -> None:
    cases = [judge_case(make_case(seed)) for seed in range(CASES)]
    wrong = [f"{judged.case}: {problem}" for judged in cases for problem in judged.wrong]
    assert not wrong, "\n".join(wrong)
    counted = [judged for judged in cases if judged.counts]
    missed = [judged for judged in counted if judged.called not in {Damage.PROVEN, Damage.LIKELY}]
    share = 1 - len(missed) / len(counted)
    assert share >= LEAST_CALLED_DAMAGE, "\n".join(f"{judged.case}: {judged.called}" for judged in missed)


# --- the cause says what was done -------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", _sample(2 * len(DAMAGES)))
def test_the_cause_of_a_case(seed: int) -> None:
    named = name_case(make_cause_case(seed))
    assert named.right or not named.case.allowed, f"{named.case}: {named.said}: {named.found.verdict}"
    assert not named.certain_and_wrong, f"{named.case}: {named.said}"
    check_standing(named)


def check_standing(named: Named) -> None:
    verdict = named.found.verdict
    if verdict.cause is None:
        return
    stake = stake_of(named.found)
    if stake is not None:
        assert stake.severity in severities_of_cause(verdict.cause)
    if verdict.outcome is Outcome.INCONSISTENT:
        return
    standing, of_cause = deletability_of(named.found), deletability_of_cause(verdict.cause)
    # Where there is no key that could be declared lost, nothing may be declared.
    not_declarable = {Deletability.CURABLE, Deletability.UNPROVEN}
    assert standing is of_cause or (of_cause is Deletability.DECLARABLE and standing in not_declarable)
    # Noise that AES-CBC lets through is told in whatever words a decoder has for it.
    noise = verdict.outcome is Outcome.DECODE_FAILURE and verdict.cause in _FROM_NOISE
    words = () if noise else SERVER_MESSAGES[verdict.cause]
    said = verdict.upstream_message
    assert not (said and words) or any(word in said for word in words)


_FROM_NOISE = frozenset(
    {
        Cause.WRONG_KEY,
        Cause.KEY_RENAMED,
        Cause.KEY_NAME_MISSING,
        Cause.CIPHERTEXT_DAMAGED,
        Cause.KMS_ENVELOPE_DAMAGED,
    }
)


@pytest.mark.thorough
def test_every_cause() -> None:
    cases = [name_case(make_cause_case(seed)) for seed in range(CASES)]
    wrong = [f"{named.case}: {named.said}" for named in cases if named.certain_and_wrong]
    assert not wrong, "\n".join(wrong)
    allowed = [named for named in cases if named.case.allowed]
    missed = [f"{named.case}: {named.said}" for named in allowed if not named.right]
    assert 1 - len(missed) / len(allowed) >= LEAST_CAUSES_RIGHT, "\n".join(missed)


# --- repairs: byte for byte what was written, or none -----------------------------------------------------------------


@pytest.mark.parametrize("seed", _sample(60))
def test_one_bit(seed: int) -> None:
    assert repaired(seed, TAGGED, one_bit, size=900) == "found"


@pytest.mark.parametrize("seed", _sample(30))
def test_two_bits_and_wrong_keys(seed: int) -> None:
    assert repaired(seed, TAGGED, two_bits, size=900) == "none"
    assert repaired(seed, TAGGED, one_bit, size=900, wrong_key=True) == "none"


@pytest.mark.parametrize("provider", TAGGED)
def test_a_large_value(provider: str) -> None:
    assert repaired(1, (provider,), one_body_bit, size=1_500_000) == "found"


@pytest.mark.parametrize("seed", _sample(6))
def test_without_a_tag_one_bit_is_never_put_back_wrongly(seed: int) -> None:
    assert repaired(seed, TAGLESS, one_body_bit, size=500) != "wrong"


@pytest.mark.thorough
def test_every_single_bit_is_found() -> None:
    became = Counter(repaired(seed, TAGGED, one_bit) for seed in range(REPAIRS))
    # A key id that its plugin does not look at breaks nothing.
    assert became["found"] + became["readable"] == REPAIRS
    assert became["readable"] < REPAIRS // 100


@pytest.mark.thorough
@pytest.mark.parametrize("wrong_key", [False, True])
def test_nothing_else_is(wrong_key: bool) -> None:
    damage = one_bit if wrong_key else two_bits
    assert {repaired(seed, TAGGED, damage, wrong_key=wrong_key) for seed in range(REPAIRS)} == {"none"}
