"""Signals that would cut a start or an end in two are heard afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from etcdfix.model.interruptions import interruptions_held, whole_calls
from tests.support import breaking_in

RAISING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM]


class Heard(Exception):
    pass


@pytest.fixture(params=RAISING)
def number(request: pytest.FixtureRequest) -> Iterator[signal.Signals]:
    def hear(number: int, _frame: object) -> None:
        raise Heard(number)

    before = signal.signal(request.param, hear)
    yield request.param
    signal.signal(request.param, before)


def hold(number: signal.Signals, done: list[int]) -> None:
    with interruptions_held():
        signal.raise_signal(number)
        signal.raise_signal(number)
        done.append(1)


def test_heard_once_afterwards(number: signal.Signals) -> None:
    done: list[int] = []
    with pytest.raises(Heard):
        hold(number, done)
    assert done == [1]
    with pytest.raises(Heard):
        signal.raise_signal(number)


def hold_and_fail(number: signal.Signals) -> None:
    with interruptions_held():
        signal.raise_signal(number)
        raise ValueError


def test_an_error_inside_is_the_context_of_what_is_heard(number: signal.Signals) -> None:
    with pytest.raises(Heard) as caught:
        hold_and_fail(number)
    assert isinstance(caught.value.__context__, ValueError)


def hold_twice(number: signal.Signals, done: list[int]) -> None:
    with interruptions_held():
        hold(number, done)
        done.append(2)


def test_held_within_held(number: signal.Signals) -> None:
    done: list[int] = []
    with pytest.raises(Heard):
        hold_twice(number, done)
    assert done == [1, 2]


def test_all_handlers_come_back_where_the_first_is_called_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come between the return of one handler and that of the next."""
    before = {number: signal.getsignal(number) for number in RAISING}
    install = signal.signal

    def hear(number: int, _frame: object) -> None:
        raise Heard(number)

    def install_and_come(number: int, handler: Any) -> None:
        install(number, handler)
        if handler is hear and number == signal.SIGINT and not came:
            came.append(number)
            signal.raise_signal(number)

    came: list[int] = []
    for number in RAISING:
        install(number, hear)
    monkeypatch.setattr(signal, "signal", install_and_come)
    try:
        with pytest.raises(Heard), interruptions_held():
            pass
        assert {signal.getsignal(number) for number in RAISING} == {hear}
    finally:
        for number, handler in before.items():
            install(number, handler)


def test_in_another_thread_nothing_is_done() -> None:
    seen = []

    def look() -> None:
        with interruptions_held(), whole_calls(look) as whole:
            seen.append((whole is look, signal.getsignal(signal.SIGINT)))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(True, before)]


def test_where_only_the_first_is_held_the_second_is_heard_at_once() -> None:
    done: list[str] = []

    def told_twice() -> None:
        with interruptions_held(only_first=True):
            signal.raise_signal(signal.SIGINT)
            done.append("after the first")
            signal.raise_signal(signal.SIGINT)
            done.append("after the second")

    with pytest.raises(KeyboardInterrupt):
        told_twice()
    assert done == ["after the first"]


def test_where_only_the_first_is_held_it_is_heard_in_the_end() -> None:
    done: list[str] = []

    def told_once() -> None:
        with interruptions_held(only_first=True):
            signal.raise_signal(signal.SIGINT)
            done.append("whole")

    with pytest.raises(KeyboardInterrupt):
        told_once()
    assert done == ["whole"]


def test_a_whole_call_is_not_cut_in_two() -> None:
    done: list[str] = []

    def work(name: str, *, fails: bool = False) -> None:
        done.append(f"{name} begun")
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        if fails:
            raise ValueError(name)
        done.append(f"{name} done")

    with breaking_in.heard():
        with pytest.raises(breaking_in.Heard), whole_calls(work) as whole:
            whole("one")
        assert done == ["one begun", "one done"]
        with pytest.raises(breaking_in.Heard), whole_calls(work) as whole:
            signal.raise_signal(signal.SIGTERM)  # between two calls it is heard at once
        with pytest.raises(breaking_in.Heard), whole_calls(work) as whole:
            whole("two", fails=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with whole_calls(work) as whole:
            whole("three")
        assert done == ["one begun", "one done", "two begun", "three begun", "three done"]
