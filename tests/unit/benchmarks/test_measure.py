"""Commands are measured with all their processes; ratios are those of one round."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from tests.benchmarks.measure import Run, Spread, anonymous_mb, in_turn, ratios, run, spread, straight_line

MB = 1 << 20
PARENT = f"""
import subprocess, sys, time
held = bytearray(b"x") * (20 * {MB})
child = "held = bytearray(b'x') * (60 * {MB}); import time; time.sleep(1.0); sum(range(3_000_000))"
sys.exit(subprocess.run([sys.executable, "-c", child]).returncode)
"""


def test_memory_is_that_of_each_process_and_of_all() -> None:
    found = run([sys.executable, "-c", PARENT])
    assert found.processes == 2
    assert 60 <= found.anonymous_mb < 80
    assert 80 <= found.all_mb < 120
    assert found.all_mb > found.anonymous_mb + 15


def test_processor_time_is_that_of_the_children_too() -> None:
    alone = run([sys.executable, "-c", "pass"])
    assert run([sys.executable, "-c", PARENT]).cpu > 1.5 * alone.cpu


def test_another_exit_code_than_expected_is_no_measurement() -> None:
    fails = [sys.executable, "-c", "raise SystemExit(3)"]
    with pytest.raises(AssertionError):
        run(fails)
    assert run(fails, expect=(1, 3)).wall > 0


def test_an_ended_process_has_no_memory() -> None:
    assert anonymous_mb(2**22 + 1) is None


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2.0, 9.0], [1.0, 3.0]) == [2.0, 3.0]
    with pytest.raises(ValueError, match="shorter"):
        ratios([1.0, 2.0], [1.0])


def test_a_spread_is_the_median_and_both_ends() -> None:
    assert Spread.of([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"


def test_a_straight_line_is_found_and_what_is_not_on_it() -> None:
    exact = straight_line({10: 2.1, 100: 3.0, 1000: 12.0})
    assert (exact.start, exact.per_key, exact.worst) == pytest.approx((2.0, 0.01, 0.0), abs=1e-9)
    bent = straight_line({10: 2.0, 100: 3.0, 1000: 40.0})
    assert bent.worst > 0.05


def test_each_command_is_first_in_its_turn() -> None:
    order: list[str] = []

    def command(name: str) -> Callable[[], Run]:
        def measured() -> Run:
            order.append(name)
            return Run(float(len(order)), 0.0, 0.0)

        return measured

    rounds = list(in_turn({name: command(name) for name in "abc"}, 3))
    assert "".join(order) == "abcbcacab"
    assert [list(runs) for runs in rounds] == [["a", "b", "c"]] * 3
    assert [runs["a"].wall for runs in rounds] == [1.0, 6.0, 8.0]


def test_a_round_is_there_before_the_next_begins() -> None:
    def fails() -> Run:
        raise AssertionError

    begun = in_turn({"a": lambda: Run(1.0, 0.0, 0.0)}, 2)
    assert next(begun)["a"].wall == 1.0
    with pytest.raises(AssertionError):
        next(in_turn({"a": fails}, 1))
