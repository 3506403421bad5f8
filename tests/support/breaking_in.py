"""A signal at a chosen place: where the main thread enters a function; there Python looks for signals."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Heard(KeyboardInterrupt):
    """What the handler of the signal raises."""


def _hear(_number: int, _frame: FrameType | None) -> None:
    raise Heard


def break_in(place: int, work: Callable[[], object]) -> bool:
    """Do some work, into which a signal breaks; return whether it came so far.

    Args:
        place: How many functions are entered before; on entering one Python looks for signals, before it does anything.
        work: Raises :class:`Heard` for the signal, and not later than when it ends.
    """
    left = place

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal left
        # Python forgets a thread by itself, in a place from which nothing can be raised.
        if event == "call" and not frame.f_code.co_filename.endswith("_weakrefset.py"):
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGTERM)

    with heard():
        sys.setprofile(note)
        try:
            work()
        except Heard:
            return True
        finally:
            sys.setprofile(None)
    assert left >= 0, "the signal was lost"
    return False


@contextmanager
def heard() -> Iterator[None]:
    """Let SIGTERM raise :class:`Heard`.

    Meanwhile Python collects no garbage: that comes when it likes, and nothing can be raised in what is called for it.
    """
    before = signal.signal(signal.SIGTERM, _hear)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        signal.signal(signal.SIGTERM, before)
