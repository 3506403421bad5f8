"""How a command starts, speaks, shows its progress, and is ended early."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcdfix.cli import ending
from etcdfix.cli.ending import end_after, ending_early
from etcdfix.cli.output import HABITS, own_habits, say, say_lines, say_next
from etcdfix.cli.progress import with_progress
from etcdfix.cli.root import run
from etcdfix.model.errors import ConfigurationError, EndedEarly
from etcdfix.text.notes import Note
from tests.support.fixtures import Captured, Patch

pytestmark = pytest.mark.usefixtures("no_variables")


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


def test_a_signal_that_comes_while_python_tells_what_was_dropped() -> None:
    """Python drops what is raised there, too: it comes until it can end the command."""

    def show(_told: object) -> None:
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
            time.sleep(0.005)

    class Broken:
        def __del__(self) -> None:
            raise ValueError

    def run() -> None:
        Broken()
        time.sleep(30)

    before = sys.unraisablehook
    sys.unraisablehook = show
    began = time.monotonic()
    try:
        with pytest.raises(EndedEarly) as caught, ending_early():
            run()
    finally:
        sys.unraisablehook = before
    assert caught.value.exit_code == 143
    assert time.monotonic() - began < 20


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


REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interruption_while_it_starts_has_no_traceback(tmp_path: Path, *, ignored: bool) -> None:
    """Ctrl-C before the first line of ours runs: nothing is said, and a shell sees 130. Under nohup it goes on."""
    begun = tmp_path / "begun"
    slow = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep({'0.2' if ignored else '60'})"
    (tmp_path / "msgspec.py").write_text(f"{slow}\nraise SystemExit(7)\n")
    handler = "signal.SIG_IGN" if ignored else "signal.default_int_handler"
    code = (
        f"import signal; signal.signal(signal.SIGINT, {handler}); from etcdfix.__main__ import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not begun.exists():
            pass
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert (process.returncode, said) == (7 if ignored else -signal.SIGINT, "")


NOWHERE = ["--endpoints", "https://127.0.0.1:1", "--dial-timeout", "200ms"]


def test_quiet_leaves_out_notes_and_nothing_else(capfd: Captured) -> None:
    with own_habits():
        for HABITS.quiet in (False, True):
            say(Note("a note"))
            say("a warning")
            say_next("do this", "etcdfix scan")
            say_lines(["a preview"])
    rest = "etcdfix: a warning\n  next: do this\n        etcdfix scan\na preview\n"
    assert capfd.readouterr().err == f"etcdfix: a note\n{rest}{rest}"


def test_warnings_about_safety_and_errors_stay_quiet_or_not(capfd: Captured) -> None:
    words = ["scan", *NOWHERE, "--insecure-skip-tls-verify"]
    told = []
    for more in ([], ["-q"]):
        assert run([*words, *more]) == 5
        told.append(capfd.readouterr().err)
    assert "warning: TLS certificates are not checked" in told[0]
    assert re.sub(r"\d", "", told[0]) == re.sub(r"\d", "", told[1])


def test_what_a_command_line_says_holds_for_its_command_alone() -> None:
    assert run(["schema", "-q"]) == 0
    assert not HABITS.quiet


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: Patch) -> _Terminal:
    """Set standard error inside the test: pytest's own capture resets it after fixtures."""
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def slow(monkeypatch: Patch) -> None:
    """Let every look at the clock be a minute later."""
    now = iter(range(0, 10**9, 60))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 2000])
@pytest.mark.parametrize("estimate", [0, 10, 5000])
def test_every_item_passes_at_a_terminal(monkeypatch: Patch, count: int, estimate: int) -> None:
    terminal = at_terminal(monkeypatch)
    slow(monkeypatch)
    assert list(with_progress(range(count), estimate=estimate, label="keys")) == list(range(count))
    assert ("keys" in terminal.getvalue()) is (count >= 512)


def test_short_work_shows_nothing(monkeypatch: Patch) -> None:
    terminal = at_terminal(monkeypatch)
    assert len(list(with_progress(range(5000), estimate=5000, label="keys"))) == 5000
    assert terminal.getvalue() == ""


def test_never_without_a_terminal(monkeypatch: Patch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    slow(monkeypatch)
    assert list(with_progress(range(2000), estimate=2000, label="keys")) == list(range(2000))
    assert stream.getvalue() == ""
