from __future__ import annotations

import io
import sys

import pytest

from etcdfix.cli.progress import progress_of, with_progress
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


def test_it_says_what_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = at_terminal(monkeypatch)
    slow(monkeypatch)
    items = with_progress(range(2000), estimate=4000, label="keys", failed=lambda: 1400)
    assert list(items) == list(range(2000))
    assert "2,000 keys, 1,400 cannot be read" in terminal.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("estimate", [None, 0, 7])
def test_watching_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, estimate: int | None, *, terminal: bool
) -> None:
    values = [stored("/a"), stored("/b")]
    monkeypatch.setattr(sys, "stderr", _Terminal() if terminal else io.StringIO())
    assert list(progress_of(MemorySource(values))(iter(values), "keys", estimate)) == values
