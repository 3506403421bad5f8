"""Pauses and patience, with times made up."""

from __future__ import annotations

from etcdfix.encryption.kms.pacing import (
    FAILURES_IN_A_ROW,
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Outage,
)


def test_five_failures_in_a_row_open_it() -> None:
    outage, states = Outage(30), []
    for number in range(FAILURES_IN_A_ROW):
        states.append((outage.is_lasting, outage.pause_until))
        outage.failed(float(number), float(number), silent=True, at_once=False)
    assert states == [(False, None)] * FAILURES_IN_A_ROW
    assert (outage.is_lasting, outage.pause_until) == (True, 4.0 + FIRST_PAUSE_SECONDS)


def test_pauses_double_up_to_a_limit_while_nobody_answers() -> None:
    outage, now, pauses = Outage(1000), 0.0, []
    for _ in range(8):
        outage.probe_failed(now, now)
        assert outage.pause_until is not None
        pauses.append(outage.pause_until - now)
        now = outage.pause_until
    assert pauses == [0.25, 0.5, 1, 2, 4, 4, 4, 4]
    assert max(pauses) == MAX_PAUSE_SECONDS
    assert outage.probe_succeeded()
    outage.answered(now)
    outage.failed(now, now, silent=True, at_once=True)
    assert outage.pause_until == now + FIRST_PAUSE_SECONDS


def test_the_last_probe_comes_when_patience_ends() -> None:
    outage, now, probes = Outage(10), 0.0, 0
    while not outage.is_spent(now):
        outage.probe_failed(now, now)
        assert outage.pause_until is not None
        now = outage.pause_until
        probes += 1
    assert now == 10
    assert probes == 6


def test_an_error_is_a_sign_of_life() -> None:
    outage = Outage(10)
    outage.failed(0.0, 0.0, silent=True, at_once=False)
    outage.failed(9.0, 9.0, silent=False, at_once=False)
    outage.failed(10.0, 10.0, silent=True, at_once=False)
    assert not outage.is_spent(19.0)
    assert outage.is_spent(20.0)


def test_one_slow_call_among_answers_costs_no_patience_that_others_have_kept() -> None:
    outage = Outage(10)
    outage.answered(55.0)
    outage.failed(0.0, 60.0, silent=True, at_once=False)
    assert not outage.is_spent(64.0)
    assert outage.is_spent(65.0)
