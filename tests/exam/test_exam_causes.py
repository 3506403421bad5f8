"""The second exam: the cause says what was done.

pytest -m exam tests/exam                                     all cases
ETCDFIX_EXAM_SEED=17 pytest -m exam tests/exam -k causes      the one of a seed
"""

from __future__ import annotations

import os

import pytest

from etcdfix.model import Outcome
from etcdfix.verdicts.causes import Cause
from etcdfix.verdicts.deletability import (
    FAILED,
    Deletability,
    deletability_of,
    deletability_of_cause,
    risks_of,
    risks_of_cause,
)
from etcdfix.verdicts.server_messages import SERVER_MESSAGES
from etcdfix.verdicts.severity import severities_of_cause, stake_of
from tests.exam.causes import CASES, LEAST_RIGHT, Named, missed_lines, name_case, run_causes
from tests.exam.kinds_of_damage import ALL, DAMAGES, RESOURCES, make_cause_case

# Two of each kind of damage, or so.
SAMPLE = 2 * len(DAMAGES)


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_case(seed: int) -> None:
    named = name_case(make_cause_case(seed))
    assert named.right or not named.case.allowed, f"{named.case}: {named.said}"
    assert not named.certain_and_wrong, f"{named.case}: {named.said}"
    check_standing(named)


def check_standing(named: Named) -> None:
    """Compare what is said of the value with what is said of its cause alone, as on the cause's page."""
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
    if verdict.outcome in FAILED and standing is Deletability.DELETABLE:
        assert set(risks_of(named.found)) <= set(risks_of_cause(verdict.cause))
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


def test_there_are_enough_kinds_of_damage() -> None:
    assert len(DAMAGES) >= 30
    assert len(RESOURCES) == 5
    seen = {provider for done in DAMAGES.values() for provider in done.providers}
    assert seen == set(ALL)


def test_a_seed_makes_one_case() -> None:
    first, again = make_cause_case(5), make_cause_case(5)
    assert (first.target, first.records) == (again.target, again.records)


@pytest.mark.exam
def test_the_exam_of_causes() -> None:
    seed = os.environ.get("ETCDFIX_EXAM_SEED")
    if seed is not None:
        named = name_case(make_cause_case(int(seed)))
        print(named.case, named.said, named.found.verdict, sep="\n")
        assert not named.certain_and_wrong
        return
    results = run_causes(range(CASES))
    assert not results.certain_and_wrong, "\n".join(results.certain_and_wrong)
    assert results.share >= LEAST_RIGHT, "\n".join(missed_lines(results))
