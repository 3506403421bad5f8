"""The rate limit and the breaker, with times made up."""

from __future__ import annotations

import threading
import time

import pytest

from etcdfix.encryption.kms.pacing import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Breaker,
    RateLimit,
    Turns,
)


def test_a_burst_and_then_one_at_a_time() -> None:
    limit = RateLimit(50)
    turns = [limit.reserve(100.0) for _ in range(10)]
    assert turns == pytest.approx([100.0] * 5 + [100.02, 100.04, 100.06, 100.08, 100.1])


def test_five_failures_in_a_row_open_it() -> None:
    breaker, states = Breaker(30), []
    for number in range(FAILURES_IN_A_ROW):
        states.append((breaker.failing, breaker.open_until))
        breaker.failed(float(number), float(number), silent=True)
    assert states == [(False, None)] * FAILURES_IN_A_ROW
    assert (breaker.failing, breaker.open_until) == (True, 4.0 + FIRST_PAUSE_SECONDS)


def test_pauses_double_up_to_a_limit_while_nobody_answers() -> None:
    breaker, now, pauses = Breaker(1000), 0.0, []
    for _ in range(8):
        breaker.probe_failed(now, now)
        assert breaker.open_until is not None
        pauses.append(breaker.open_until - now)
        now = breaker.open_until
    assert pauses == [0.25, 0.5, 1, 2, 4, 4, 4, 4]
    assert max(pauses) == MAX_PAUSE_SECONDS
    assert breaker.probe_succeeded()
    breaker.answered(now)
    breaker.failed(now, now, silent=True, at_once=True)
    assert breaker.open_until == now + FIRST_PAUSE_SECONDS


def test_the_last_probe_comes_when_patience_ends() -> None:
    breaker, now, probes = Breaker(10), 0.0, 0
    while not breaker.spent(now):
        breaker.probe_failed(now, now)
        assert breaker.open_until is not None
        now = breaker.open_until
        probes += 1
    assert now == 10
    assert probes == 6


def test_probes_alone_do_not_restore_patience() -> None:
    breaker, now = Breaker(10), 0.0
    while not breaker.spent(now):
        breaker.failed(now, now, silent=True, at_once=True)
        assert not breaker.probe_succeeded()
        now += 1
    assert now == 10


def test_an_error_is_a_sign_of_life() -> None:
    breaker = Breaker(10)
    breaker.failed(0.0, 0.0, silent=True)
    breaker.failed(9.0, 9.0, silent=False)
    breaker.failed(10.0, 10.0, silent=True)
    assert not breaker.spent(19.0)
    assert breaker.spent(20.0)


def test_an_answer_restores_all_patience() -> None:
    breaker = Breaker(10)
    breaker.failed(0.0, 0.0, silent=True)
    breaker.answered(9.0)
    assert not breaker.spent(1e9)


def test_what_failed_long_ago_is_not_held_against_it() -> None:
    breaker = Breaker(10)
    breaker.failed(0.0, 0.0, silent=True)
    breaker.failed(100.0, 99.0, silent=True)
    assert not breaker.spent(100.0)
    assert breaker.spent(109.0)


def test_one_slow_call_among_answers_costs_no_patience_that_others_have_kept() -> None:
    breaker = Breaker(10)
    breaker.answered(55.0)
    breaker.failed(60.0, 0.0, silent=True)
    assert not breaker.spent(64.0)
    assert breaker.spent(65.0)


def test_turns_are_had_in_the_order_in_which_they_were_asked_for() -> None:
    turns, order = Turns(), list[int]()

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = []
    with turns:
        for number in range(8):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while turns._given < number + 2:
                time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert order == list(range(8))
