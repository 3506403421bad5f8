"""What ends a command early, and what must not stay behind; with real processes in tests/integration."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from etcdfix.cli import ending
from etcdfix.cli.ending import end_after, ending_early
from etcdfix.model.errors import ConfigurationError, EndedEarly
from tests.support.fixtures import Captured, Patch


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)}
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert all(signal.getsignal(n) is before[n] for n in (signal.SIGTERM, signal.SIGHUP))
    signal.signal(signal.SIGALRM, before[signal.SIGALRM])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals(number: signal.Signals, code: int) -> None:
    def run() -> None:
        os.kill(os.getpid(), number)
        time.sleep(30)

    with pytest.raises(EndedEarly) as caught, ending_early():
        run()
    assert (caught.value.reason, caught.value.exit_code) == (f"ended by {number.name}", code)
    assert caught.value.bare_exit_code == code
    assert not caught.value.by_clock


@pytest.mark.parametrize("handler", [signal.SIG_IGN, lambda *_: None])
def test_who_waits_for_a_signal_already_keeps_it(handler: signal.Handlers) -> None:
    before = signal.signal(signal.SIGHUP, handler)
    try:
        with ending_early():
            assert signal.getsignal(signal.SIGHUP) is handler
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is handler
    finally:
        signal.signal(signal.SIGHUP, before)


def test_time_that_is_over() -> None:
    def run() -> None:
        end_after("50ms")
        time.sleep(30)

    with pytest.raises(EndedEarly) as caught, ending_early():
        run()
    ended = caught.value
    assert (ended.reason, ended.exit_code, ended.bare_exit_code) == ("ended by --timeout 50ms", 3, 5)
    assert ended.by_clock


def test_a_partial_result_that_takes_too_long_is_ended_too(monkeypatch: Patch) -> None:
    monkeypatch.setattr(ending, "_GRACE_SECONDS", 0.1)

    def run() -> None:
        end_after("50ms")
        try:
            time.sleep(30)
        except EndedEarly:
            time.sleep(30)

    with pytest.raises(EndedEarly) as caught, ending_early():
        run()
    assert caught.value.bare_exit_code == 3


@pytest.mark.parametrize("text", ["5", "", "-1s", "0", "25h", "soon"])
def test_no_duration(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--timeout"), ending_early():
        end_after(text)


def test_another_thread_hears_no_signals() -> None:
    done: list[bool] = []

    def work() -> None:
        with ending_early():
            end_after("1h")
            done.append(signal.getitimer(signal.ITIMER_REAL) == (0, 0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]


def test_a_signal_that_comes_while_something_is_dropped_is_not_lost(capfd: Captured) -> None:
    """What is raised in the ``finally`` of a generator that nobody closes: Python prints it, and goes on."""

    def held() -> Iterator[int]:
        try:
            yield 1
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    def run() -> None:
        for _ in held():
            break
        time.sleep(30)

    hook = sys.unraisablehook
    with pytest.raises(EndedEarly) as caught, ending_early():
        run()
    assert (caught.value.reason, caught.value.exit_code) == ("ended by SIGTERM", 143)
    assert sys.unraisablehook is hook
    assert capfd.readouterr().err == ""
