"""What must not be cut in two by a signal: starting a process, and ending it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_RAISING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)


@contextmanager
def interruptions_held() -> Iterator[None]:
    """Let signals whose handlers may raise wait until what runs inside is done; then they are heard.

    In another thread than the main one, which alone hears signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.getsignal(number) for number in _RAISING}
    held = [number for number, handler in before.items() if callable(handler)]
    try:
        for number in held:
            signal.signal(number, note)
        yield
    finally:
        for number in held:
            signal.signal(number, before[number])
        for heard in dict.fromkeys(came):
            signal.raise_signal(heard)
