from __future__ import annotations

from etcdfix.sources.problems import MAX_PROBLEMS, ProblemList


def test_distinct_problems_are_told_and_the_rest_counted() -> None:
    problems = ProblemList()
    for number in range(150):
        for _ in range(2):  # several walks meet the same damage
            problems.add(f"problem {number}")
    told = problems.sentences()
    assert told[:MAX_PROBLEMS] == [f"problem {number}" for number in range(MAX_PROBLEMS)]
    assert told[MAX_PROBLEMS:] == ["50 more problems like these were found"]
