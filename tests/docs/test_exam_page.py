"""The page on the exam says what it must say, and nothing that cannot be."""

from __future__ import annotations

import re
from pathlib import Path

from tests.exam.cases import BETWEEN, PROVIDERS
from tests.exam.causes import LEAST_RIGHT
from tests.exam.kinds_of_damage import DAMAGES
from tests.exam.results import CASES, LEAST_SHARE

PAGE = (Path(__file__).parents[2] / "docs" / "exam.md").read_text()


def figure(name: str) -> float:
    found = re.search(rf"^- {name}: ([0-9.]+)", PAGE, re.MULTILINE)
    assert found, name
    return float(found[1])


def table(heading: str) -> list[list[str]]:
    text = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_commands_stand_there() -> None:
    for command in ("pytest -m exam tests/exam", "python -m tests.exam.write_table", "ETCDFIX_EXAM_SEED="):
        assert command in PAGE


def test_every_case_passed_and_is_in_a_table() -> None:
    assert figure("wrong") == figure("wrong among the others") == 0
    assert figure("cases") == CASES
    right, wrong = table("Under the right key"), table("Under a wrong key")
    assert sum(int(row[2]) for row in right + wrong) == CASES
    assert {row[0] for row in right} == {row[1] for row in wrong} == set(PROVIDERS)
    for row in right + wrong:
        others = sum(int(number) for number in re.findall(r"` (\d+)", row[-1]))
        assert int(row[2]) == sum(map(int, row[-4:-1])) + others, row


def test_nothing_under_a_wrong_key_is_deletable_but_what_says_so() -> None:
    deletable = {row[0] for row in table("Under a wrong key") if int(row[3])}
    assert deletable <= {BETWEEN}


def test_enough_of_the_damage_is_called_damage() -> None:
    counted, called = figure("counted"), figure("called damage")
    assert called / counted >= LEAST_SHARE
    assert figure("share") == round(100 * called / counted, 2)
    assert len(re.findall(r"^- seed \d+: ", PAGE, re.MULTILINE)) == counted - called


def test_the_causes_say_what_was_done() -> None:
    allowed, right = figure("allowed"), figure("right")
    assert figure("certain and wrong causes") == figure("certain and wrong causes among the others") == 0
    assert right / allowed >= LEAST_RIGHT
    assert figure("share of right causes") == round(100 * right / allowed, 2)
    assert figure("share of right causes among the others") >= 100 * LEAST_RIGHT
    rows = table("Which cause for what")
    assert [row[0] for row in rows] == list(DAMAGES)
    assert len(rows) >= 30
    assert sum(int(row[1]) for row in rows) == CASES
