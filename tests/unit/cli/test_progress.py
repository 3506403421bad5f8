from __future__ import annotations

import io
import sys

import pytest

from etcdfix.cli.progress import with_progress
from tests.support.fixtures import Patch


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
