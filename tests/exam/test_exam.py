"""The exam: cases made from seeds, judged as a deletion judges them.

pytest -m exam tests/exam                               all of them
ETCDFIX_EXAM_SEED=17 pytest -m exam tests/exam          the one of a seed
python -m tests.exam.write_table                        all of them, into docs/exam.md
"""

from __future__ import annotations

import os

import pytest

from tests.exam.cases import make_case
from tests.exam.judging import judge_case
from tests.exam.results import CASES, LEAST_SHARE, run

SAMPLE = 100


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_a_case(seed: int) -> None:
    case = make_case(seed)
    assert not judge_case(case).wrong, str(case)


@pytest.mark.exam
def test_the_exam() -> None:
    seed = os.environ.get("ETCDFIX_EXAM_SEED")
    if seed is not None:
        judged = judge_case(make_case(int(seed)))
        print(judged.case, judged.called, judged.found.verdict, judged.refusal, sep="\n")
        assert not judged.wrong
        return
    results = run(range(CASES))
    assert not results.wrong, "\n".join(results.wrong)
    missed = "\n".join(f"{judged.case}: {judged.called}" for judged in results.missed)
    assert results.share >= LEAST_SHARE, f"{results.share:.2%} are called damage; not these:\n{missed}"


def test_a_seed_makes_one_case() -> None:
    assert make_case(1) == make_case(1)._replace(plugin=make_case(1).plugin)
