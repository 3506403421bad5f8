"""What ends a command before its work is done: signals, and ``--timeout``. All of them end it as Ctrl-C does.

A command that has a partial result gives it, marked incomplete; files that are not whole go; the cursor comes back.
That is what unwinding does, so each of them raises :class:`~etcdfix.errors.EndedEarly` in the main thread. A change is
never cut in two: :mod:`etcdfix.remediation.commit` holds the signals and stops the clock before it records its intent.
"""

from __future__ import annotations

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

from etcdfix.errors import EndedEarly
from etcdfix.sources.connection import parse_timeout

_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)
_SIGNAL_BASE: Final = 128
_INCOMPLETE: Final = 3
_NOTHING_EXAMINED: Final = 5

_counting: Final = ContextVar("counting", default=False)
"""Whether somebody is there to stop the clock."""

_GRACE_SECONDS: Final = 30.0
"""Once ``--timeout`` is over, a partial result has so long to be written."""

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
        _counting.reset(token)
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def end_after(text: str) -> None:
    """Let what runs inside :func:`ending_early` end once a duration in Go's syntax has passed; elsewhere just read it.

    Raises:
        ConfigurationError: It is no duration.
    """
    seconds = parse_timeout(text, "--timeout")
    if not _counting.get():
        return
    over = False

    def end(_number: int, _frame: FrameType | None) -> None:
        nonlocal over
        bare = _INCOMPLETE if over else _NOTHING_EXAMINED
        over = True
        raise EndedEarly(f"ended by --timeout {text}", _INCOMPLETE, bare)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _GRACE_SECONDS)


def _end(number: int, _frame: FrameType | None) -> None:
    raise EndedEarly(f"ended by {signal.Signals(number).name}", _SIGNAL_BASE + number)


def _not_lost(show: Callable[[sys.UnraisableHookArgs], object], told: sys.UnraisableHookArgs) -> None:
    """Let an ending come again that was raised where Python raises nothing: in what it runs for an object it drops.

    That is a ``finally`` of a generator that nobody closed, ``__del__``, or the callback of a weak reference. Python
    would print the traceback, and the command would go on. The ending comes as a signal again, not as an exception:
    who holds signals at that moment goes on to hold it.
    """
    ended = told.exc_value
    if not isinstance(ended, KeyboardInterrupt):
        show(told)
        return
    ending = EndedEarly.of(ended)
    number = signal.SIGALRM if ending.by_clock else ending.exit_code - _SIGNAL_BASE
    threading.Thread(target=_send_again, args=(number,), daemon=True).start()


def _send_again(number: int) -> None:
    time.sleep(_DROPPED_SECONDS)
    signal.pthread_kill(threading.main_thread().ident or 0, number)
