from __future__ import annotations

import io
import sys

import pytest

from etcdfix.cli.progress import progress_of, with_progress
from etcdfix.examine_all import WAITING
from tests.support.memory_source import MemorySource, stored


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at_terminal(monkeypatch: pytest.MonkeyPatch) -> _Terminal:
    """Set standard error inside the test: pytest's own capture resets it after fixtures."""
    stream = _Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every look at the clock be a minute later."""
    now = iter(range(0, 10**9, 60))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 2000])
@pytest.mark.parametrize("estimate", [0, 10, 5000])
def test_every_item_passes_at_a_terminal(monkeypatch: pytest.MonkeyPatch, count: int, estimate: int) -> None:
    terminal = at_terminal(monkeypatch)
    slow(monkeypatch)
    assert list(with_progress(range(count), estimate=estimate, label="keys")) == list(range(count))
    assert ("keys" in terminal.getvalue()) is (count >= 512)


def test_short_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    assert len(list(with_progress(range(5000), estimate=5000, label="keys"))) == 5000
    assert terminal.getvalue() == ""


def test_never_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    slow(monkeypatch)
    assert list(with_progress(range(2000), estimate=2000, label="keys")) == list(range(2000))
    assert stream.getvalue() == ""


def test_nothing_on_standard_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at_terminal(monkeypatch)
    slow(monkeypatch)
    list(with_progress(range(2000), estimate=2000, label="keys"))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(
    ("label", "estimate", "said"),
    [("keys", None, False), (WAITING, 0, False), (WAITING, 7, True), ("broken objects", 7, False)],
)
def test_watching_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, label: str, estimate: int | None, *, said: bool, terminal: bool
) -> None:
    values = [stored("/a"), stored("/b")]
    stream = at_terminal(monkeypatch) if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(progress_of(MemorySource(values))(iter(values), label, estimate)) == values
    assert ("checking 7 values a second time" in stream.getvalue()) is (said and terminal)
