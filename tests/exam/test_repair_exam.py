"""Repairs of values made from seeds: byte for byte what was written, or none.

pytest -m exam tests/exam/test_repair_exam.py       all of them, a few minutes
python -m tests.exam.write_repair                   all of them, into docs/repair.md
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.exam.repairs import TAGGED, TAGLESS, count, fixed_size, one_bit, one_body_bit, repaired, two_bits

CASES = 2_000
PAGE = Path(__file__).parents[2] / "docs" / "repair.md"


@pytest.mark.parametrize("seed", range(60))
def test_one_bit(seed: int) -> None:
    assert repaired(seed, TAGGED, one_bit, size=fixed_size(900)) == "found"


@pytest.mark.parametrize("seed", range(30))
def test_two_bits_and_wrong_keys(seed: int) -> None:
    size = fixed_size(900)
    assert repaired(seed, TAGGED, two_bits, size=size) == "none"
    assert repaired(seed, TAGGED, one_bit, size=size, wrong_key=True) == "none"


@pytest.mark.parametrize("provider", TAGGED)
def test_a_large_value(provider: str) -> None:
    assert repaired(1, (provider,), one_body_bit, size=fixed_size(1_500_000)) == "found"


@pytest.mark.parametrize("seed", range(6))
def test_without_a_tag_one_bit_is_never_put_back_wrongly(seed: int) -> None:
    assert repaired(seed, TAGLESS, one_body_bit, size=fixed_size(500)) != "wrong"


@pytest.mark.exam
def test_every_single_bit_is_found() -> None:
    counted = count(range(CASES), TAGGED, one_bit)
    # A key id that its plugin does not look at breaks nothing.
    assert (counted.found + counted.readable, counted.wrong, counted.none) == (CASES, 0, 0)
    assert counted.readable < CASES // 100


@pytest.mark.exam
@pytest.mark.parametrize("wrong_key", [False, True])
def test_nothing_else_is(wrong_key: bool) -> None:
    damage = one_bit if wrong_key else two_bits
    assert count(range(CASES), TAGGED, damage, wrong_key=wrong_key).none == CASES


@pytest.mark.parametrize("what", ["all found", "none repaired", "1.5 MB", "AES-CBC"])
def test_the_page_has_the_figures(what: str) -> None:
    assert what in PAGE.read_text()
