from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from functools import partial

import pytest

from etcdfix.model.side_by_side import run_within
from tests.support.breaking_in import Heard, break_in, heard


def stay_of(before: Sequence[threading.Thread]) -> list[threading.Thread]:
    until = time.monotonic() + 2
    others = [thread for thread in threading.enumerate() if thread not in before]
    for thread in others:
        thread.join(max(0.0, until - time.monotonic()))
    return [thread for thread in others if thread.is_alive()]


def test_calls_that_are_not_done_in_time() -> None:
    """Each by itself: one that takes for ever, or fails, takes nothing from the others."""
    never = threading.Event()
    error = ValueError()

    def fail() -> bool:
        raise error

    try:
        assert run_within([never.wait, fail, lambda: True], 0.2) == [None, error, True]
    finally:
        never.set()
    assert run_within([], 0.2) == []


def test_no_more_than_so_many_at_once() -> None:
    now: list[int] = []
    at_once: list[int] = []

    def call(number: int) -> int:
        now.append(number)
        at_once.append(len(now))
        time.sleep(0.01)
        now.remove(number)
        return number

    numbers = range(7)
    assert run_within([partial(call, number) for number in numbers], None, most=3) == list(numbers)
    assert max(at_once) <= 3


def test_a_call_whose_turn_has_not_come_in_time_is_not_made() -> None:
    never = threading.Event()
    made: list[bool] = []
    before = threading.enumerate()

    def note() -> bool:
        made.append(True)
        return True

    try:
        assert run_within([never.wait, note], 0.1, most=1) == [None, None]
    finally:
        never.set()
    assert stay_of(before) == []
    assert made == []


def test_a_signal_leaves_no_thread_that_stands_still() -> None:
    before = threading.enumerate()
    place = 0
    while break_in(place, lambda: run_within([lambda: time.sleep(0.02)] * 2, 5)):
        place += 1
        assert stay_of(before) == [], place
    assert place > 3


def test_fewer_threads_than_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    start, left = threading.Thread.start, [True]

    def once(self: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(self)

    monkeypatch.setattr(threading.Thread, "start", once)
    assert run_within([lambda: 1, lambda: 2, lambda: 3], 5) == [1, 2, 3]
    with pytest.raises(RuntimeError):
        run_within([lambda: 1], 5)


def test_a_signal_is_heard_while_calls_go_on() -> None:
    never, begun = threading.Event(), threading.Event()
    main = threading.get_ident()
    before = threading.enumerate()

    def call() -> None:
        begun.set()
        never.wait(30)

    def send() -> None:
        begun.wait(30)
        time.sleep(0.1)
        signal.pthread_kill(main, signal.SIGTERM)

    with heard():
        sender = threading.Thread(target=send)
        sender.start()
        try:
            with pytest.raises(Heard):
                run_within([call], None)
        finally:
            never.set()
            sender.join()
    assert stay_of(before) == []
