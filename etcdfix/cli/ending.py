"""What ends a command before its work is done: signals, and ``--timeout``. All of them end it as Ctrl-C does.

A command that has a partial result gives it, marked incomplete; files that are not whole go; the cursor comes back.
That is what unwinding does, so each of them raises :class:`EndedEarly` in the main thread. A change is
never cut in two: :mod:`etcdfix.remediation.commit` holds the signals and stops the clock before it records its intent.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Final

from etcdfix.model.errors import EndedEarly
from etcdfix.sources.connection import parse_timeout

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_SIGNAL_BASE: Final = 128
_INCOMPLETE: Final = 3
_NOTHING_EXAMINED: Final = 5

_counting: Final = ContextVar("counting", default=False)
"""Whether somebody is there to stop the clock."""

_GRACE_SECONDS: Final = 30.0
"""Once ``--timeout`` is over, a partial result has so long to be written."""

_coming: Final[set[int]] = set()
"""Signals that come again. Each comes once, whatever is lost meanwhile: a second one would end the writing, too."""

_DROPPED_SECONDS: Final = 0.001
"""So long after an ending was lost it comes again: Python has to be done with what it dropped."""


@contextmanager
def ending_early() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what runs inside as Ctrl-C does, and any ``--timeout`` count no further than here.

    A signal that is ignored (``nohup``), or that somebody else waits for, stays theirs. In another thread than the main
    one, which alone hears signals, nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, _end)
    token = _counting.set(True)
    show = sys.unraisablehook
    sys.unraisablehook = partial(_not_lost, show)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = show
        _coming.clear()
        _counting.reset(token)
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def end_after(text: str) -> None:
    """Let what runs inside :func:`ending_early` end once a Go duration has passed; elsewhere just read it."""
    seconds = parse_timeout(text, "--timeout")
    if not _counting.get():
        return
    over = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal over
        if _comes_later(number, frame):
            return
        bare = _INCOMPLETE if over else _NOTHING_EXAMINED
        over = True
        raise EndedEarly(f"ended by --timeout {text}", _INCOMPLETE, bare)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _GRACE_SECONDS)


def _end(number: int, frame: FrameType | None) -> None:
    if not _comes_later(number, frame):
        raise EndedEarly(f"ended by {signal.Signals(number).name}", _SIGNAL_BASE + number)


def _not_lost(show: Callable[[sys.UnraisableHookArgs], object], told: sys.UnraisableHookArgs) -> None:
    """Let an ending come again that was raised where Python raises nothing: in what it runs for an object it drops.

    That is a ``finally`` of a generator that nobody closed, ``__del__``, or the callback of a weak reference. Python
    would print the traceback, and the command would go on. The ending comes as a signal again, not as an exception:
    who holds signals at that moment goes on to hold it.
    """
    ended = told.exc_value
    if isinstance(ended, KeyboardInterrupt):
        ending = EndedEarly.of(ended)
        _send_again(signal.SIGALRM if ending.by_clock else ending.exit_code - _SIGNAL_BASE)
    else:
        show(told)


def _comes_later(number: int, frame: FrameType | None) -> bool:
    """Send a signal once more, and say so, where it came into :func:`_not_lost`: Python drops what that raises."""
    while frame is not None and frame.f_code is not _not_lost.__code__:
        frame = frame.f_back
    if frame is not None:
        _send_again(number)
    else:
        _coming.discard(number)
    return frame is not None


def _send_again(number: int) -> None:
    def send() -> None:
        time.sleep(_DROPPED_SECONDS)
        if number in _coming:
            _coming.remove(number)
            signal.pthread_kill(main, number)

    if number in _coming:
        return
    _coming.add(number)
    main = threading.main_thread().ident or 0
    # Not by threading: that waits until the thread runs, for as long as a busy machine likes.
    _thread.start_new_thread(send, ())
